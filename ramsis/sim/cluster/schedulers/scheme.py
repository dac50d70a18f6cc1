"""Schemes and policies of ``ramsis simulate`` on a cluster that holds all variants of a task.

A scheme decides which of several variants answers, in which batches, and loads nothing. So the
workers have to be alike, with one lane, and hold all models at the start, and all models have to
be of one family. Latencies are those of the scenario, accuracies too.
"""

from __future__ import annotations

import numpy as np

from ramsis.cluster import ServiceTimes
from ramsis.errors import InputFileError, describe
from ramsis.profiles import LatencyTable
from ramsis.runtime import LoadMonitor
from ramsis.sim.engine import ClusterEngine, Scheduler
from ramsis.sim.engine.on_fleets import coins
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.schemes import Policies, scheme

__all__ = ["SchemeScheduler", "fleet_of"]


def fleet_of(engine: ClusterEngine) -> Fleet:
    """The workers of a scenario as a fleet.

    Raises
    ------
    InputFileError
        Workers that differ, have several lanes or do not hold all models, models of several
        families, or times that are not those of whole batches.
    """
    arrays, workers, times = engine.arrays, engine.workers, engine.times
    everything = set(range(len(arrays.models)))
    fits = {
        "workers of one type": len(arrays.types) == 1,
        "workers with one lane": set(workers.lanes) == {1},
        "all models loaded on all workers at the start": all(
            held == everything for held in workers.loaded),
        "models of one family": len(set(arrays.family.tolist())) == 1,
        "one-shot inference in static batches": not (
            times.any_continuous or any(times.tokens)),
    }
    for wanted, holds in fits.items():
        if not holds:
            raise InputFileError(describe("a scheme cannot serve this scenario",
                                          where=f"scenario {engine.scenario.name}",
                                          allowed=wanted))
    kinds = arrays.kind
    most = int(np.isfinite(arrays.quantiles_ms[0, kinds, :, 0]).sum(axis=1).min())
    quantiles = arrays.quantiles_ms[0, kinds, :most]
    latency = np.maximum.accumulate(quantiles.mean(axis=2), axis=1)
    table = LatencyTable.measured(arrays.models, arrays.accuracy, latency, "mean")
    slo_ms = max(stream.slo_ms for stream in engine.scenario.streams)
    service = "mean" if quantiles.shape[2] == 1 else "distribution"
    held = ServiceTimes(arrays.models, arrays.accuracy, quantiles, service)
    return Fleet(table, held, len(workers), slo_ms)


class SchemeScheduler(Scheduler[ClusterEngine]):
    """A scheme, or policies of files, as a scheduler.

    Parameters
    ----------
    engine : ClusterEngine
    name : str
        A scheme, as ``ramsis simulate --scheme`` names it; parameters stand behind it with ``;``
        between them: ``scheme:name=greedy:late=drop``.
    policies : str
        Instead of it: policy files, or a folder of them.
    load_qps : float, optional
        The load that the scheme is told; by default what the load monitor anticipates.
    """

    def __init__(
        self, engine: ClusterEngine, name: str = "", policies: str = "",
        load_qps: float | None = None,
    ) -> None:
        super().__init__(engine)
        if bool(name) == bool(policies):
            raise InputFileError(describe("no scheme, or two", where="scheduler scheme",
                                          allowed="one of name=…, policies=…"))
        fleet = fleet_of(engine)
        spec = scheme(name.replace(";", ",")) if name else Policies.load(policies)
        self.begin(fleet, spec.prepare(fleet), load_qps)

    def begin(self, fleet: Fleet, plan: Plan, load_qps: float | None) -> None:
        """Start the scheme."""
        if load_qps is None:
            self.engine.monitor = LoadMonitor()
        self.scheme = plan.start(_Workers(self.engine, fleet, load_qps))

    def on_arrival(self, request: int) -> None:
        """Tell the scheme."""
        self.scheme.on_arrival(request)

    def on_end(self, worker: int, batch: int) -> None:
        """Tell the scheme."""
        self.scheme.on_end(worker, batch)

    def on_timer(self, token: object) -> None:
        """Tell the scheme."""
        self.scheme.on_timer(token)


class _Workers:
    """All workers of a cluster as one :class:`~ramsis.sim.engine.WorkerGroup`."""

    def __init__(self, engine: ClusterEngine, fleet: Fleet, load_qps: float | None) -> None:
        self.fleet, self._engine, self._known_qps = fleet, engine, load_qps
        self._coins: list[float] = []
        self.is_idle, self.idle_workers = engine.is_idle, engine.idle_workers
        self.in_service, self.deadline_ms = engine.in_service, engine.deadline_ms
        self.run, self.drop, self.wake_at = engine.run, engine.drop, engine.wake_at

    @property
    def now_ms(self) -> float:
        return self._engine.now_ms

    @property
    def monitored(self) -> bool:
        return self._engine.monitored

    @property
    def coins(self) -> list[float]:
        if not self._coins:
            self._coins = coins(np.random.default_rng(self._engine.seed),
                                len(self._engine.requests)).tolist()
        return self._coins

    def load_qps(self) -> float:
        if self._engine.monitor is None:
            assert self._known_qps is not None
            return self._known_qps
        return self._engine.monitor.load_qps(self._engine.now_ms)
