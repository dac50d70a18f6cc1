"""The engine for fleets: like workers that hold all their models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster import SloClass
from ramsis.runtime import LoadMonitor
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.scenario import Scenario, ScenarioArrays, ScenarioModel, ScenarioWorkerType, Stream
from ramsis.scenario.records import BatchTime, StartState
from ramsis.scenario.workloads import TimesOf
from ramsis.sim.engine.engine import EventEngine, Setting
from ramsis.sim.engine.requests import NOT_COME, WAITING, FleetRequests
from ramsis.sim.engine.times import Times
from ramsis.sim.fleet import Fleet, site_of
from ramsis.sim.slow_spells import NO_SPELLS, DrawnSpells
from ramsis.sim.workload import ClosedLoop


class FleetEngine(EventEngine):
    """One run on fleets.

    A fleet is a number of like workers with the models that they hold. Workers and models of all
    fleets are numbered through. One scheduler may decide about all workers, or each fleet may
    have a scheduler of its own (:mod:`ramsis.sim.routed`).

    Parameters
    ----------
    fleets : sequence of Fleet
        One for each type of workers. SLO and network delay are those of the first.
    arrivals : ndarray of arrival times in ms, not falling, or ClosedLoop
    duration_ms : float
        When arrivals stop.
    rng : Generator
        For service draws.
    load_qps : float or None
        The load that schedulers are told; ``None``: what the load monitor anticipates.
    monitor_ms : float
        The monitor's window.
    request_slo_ms : ndarray, shape (n,), optional
        Deadline of each request after its arrival; by default the fleet's for all.
    spells : DrawnSpells
        When workers are slow; by default never.

    Attributes
    ----------
    fleet : Fleet
        The first fleet; with one type of workers, all of them.
    fleets : tuple of Fleet
    seed : int
        For schedulers that draw numbers of their own.
    """

    requests: FleetRequests
    seed = 0

    def __init__(
        self,
        fleets: Sequence[Fleet],
        arrivals: NDArray[np.float64] | ClosedLoop,
        duration_ms: float,
        rng: np.random.Generator,
        load_qps: float | None,
        monitor_ms: float = WINDOW_MS,
        request_slo_ms: NDArray[np.float64] | None = None,
        spells: DrawnSpells = NO_SPELLS,
    ) -> None:
        self.fleets = tuple(fleets)
        self.fleet = first = self.fleets[0]
        site = site_of(self.fleets)
        models = len(site.models)
        slo_ms = np.array([first.slo_ms]) if request_slo_ms is None else request_slo_ms
        super().__init__(
            Setting(site, [ScenarioWorkerType(f"type-{i + 1}", fleet.workers)
                           for i, fleet in enumerate(self.fleets)],
                    [0] * models, [0.0] * models, (), duration_ms, first.network_ms,
                    spells=spells),
            Times.of_fleets(self.fleets), FleetRequests(arrivals, slo_ms, rng))
        self.monitor = LoadMonitor(monitor_ms) if load_qps is None else None
        self.known_qps = load_qps
        self._oldest = 0

    @cached_property
    def scenario(self) -> Scenario:
        """Return the fleet as a scenario, for schedulers of clusters.

        Its models are of one family, and loaded everywhere. Each SLO class has a stream, whose
        requests ask for the most accurate model that answers alone within the shortest SLO.
        """
        fleet, kind = self.fleet, self._setting.types[0]
        models = tuple(
            ScenarioModel(name, tuple(
                BatchTime(kind.name, size, quantiles_ms=tuple(times))
                for size, times in enumerate(rows, 1)), family="fleet", accuracy=accuracy)
            for name, rows, accuracy in zip(
                fleet.models, fleet.service_times.quantiles_ms.tolist(),
                fleet.table.accuracy.tolist(), strict=True))
        classes = fleet.classes or (SloClass(fleet.slo_ms),)
        none = TimesOf(())  # they come as this engine has them
        return Scenario(
            "fleet", self._setting.duration_ms / 1000.0, (kind,), models,
            tuple(Stream(f"class-{i + 1}", fleet.models[self.asked], none, one.slo_ms)
                  for i, one in enumerate(classes)), (StartState(kind.name, fleet.models),))

    @property
    def arrays(self) -> ScenarioArrays:
        """The scenario, its workers and models numbered through."""
        return self.scenario.arrays

    @cached_property
    def asked(self) -> int:
        """Return the model that requests ask for, for schedulers that need one."""
        fleet = self.fleet
        least_ms = min([slo_class.slo_ms for slo_class in fleet.classes], default=fleet.slo_ms)
        return next(model for model in fleet.by_accuracy
                    if fleet.table.latency_ms[model, 0] <= least_ms)

    def waiting(self) -> list[int]:
        """The requests that wait, in the order of arrival."""
        state, found = self.requests.batch, list[int]()
        while self._oldest < len(state) and state[self._oldest] not in (WAITING, NOT_COME):
            self._oldest += 1
        for request in range(self._oldest, len(state)):
            if state[request] == NOT_COME:  # and so have not those behind it
                break
            if state[request] == WAITING:
                found.append(request)
        return found
