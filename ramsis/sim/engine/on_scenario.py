"""The engine for scenarios: clusters on which models come and go."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ramsis.cluster import ServiceTimes
from ramsis.errors import InputFileError
from ramsis.profiles import LatencyTable
from ramsis.scenario import Requests, Scenario, ScenarioArrays, draw_requests
from ramsis.sim.engine.engine import EventEngine, Setting
from ramsis.sim.engine.progress import Slowdown
from ramsis.sim.engine.requests import ClusterRequests
from ramsis.sim.engine.times import Times
from ramsis.sim.fleet import Fleet
from ramsis.sim.run import Site


class ClusterEngine(EventEngine):
    """One run on a scenario.

    Parameters
    ----------
    scenario : Scenario
    seed : int
        Of arrivals and draws.
    requests : Requests, optional
        Those that come by themselves; by default drawn with the seed.
    slowdown : Slowdown, optional
        How batches that run on one worker slow each other down; by default not at all.

    Attributes
    ----------
    scenario : Scenario
    arrays : ScenarioArrays
        The scenario, its workers and models numbered through.
    """

    @cached_property
    def fleet(self) -> Fleet:
        """Return the workers as a fleet, for schedulers of equal workers that hold all models."""
        return _fleet_of(self)

    def __init__(
        self, scenario: Scenario, seed: int = 0, *, requests: Requests | None = None,
        slowdown: Slowdown | None = None,
    ) -> None:
        self.scenario, self.seed = scenario, seed
        self.arrays = arrays = scenario.arrays
        given = draw_requests(scenario, seed) if requests is None else requests
        super().__init__(
            Setting(_site_of(arrays), scenario.worker_types, arrays.family.tolist(),
                    arrays.memory_mb.tolist(), scenario.streams, scenario.duration_ms,
                    slowdown=slowdown),
            Times.of_scenario(scenario), ClusterRequests(scenario, given, seed))


def _site_of(arrays: ScenarioArrays) -> Site:
    return Site(arrays.workers, arrays.worker_type, arrays.active, arrays.models, arrays.accuracy,
                arrays.start, arrays.kinds, arrays.kind)


def _fleet_of(engine: ClusterEngine) -> Fleet:
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
            raise InputFileError("a scheduler of like workers cannot serve this scenario",
                                 where=f"scenario {engine.scenario.name}", allowed=wanted)
    kinds = arrays.kind
    most = int(np.isfinite(arrays.quantiles_ms[0, kinds, :, 0]).sum(axis=1).min())
    quantiles = arrays.quantiles_ms[0, kinds, :most]
    # Latencies of a table do not fall with the batch, as measured means may.
    latency = np.maximum.accumulate(quantiles.mean(axis=2), axis=1)
    table = LatencyTable.measured(arrays.models, arrays.accuracy, latency, "mean")
    slo_ms = max(stream.slo_ms for stream in engine.scenario.streams)
    service = "mean" if quantiles.shape[2] == 1 else "distribution"
    held = ServiceTimes(arrays.models, arrays.accuracy, quantiles, service)
    return Fleet(table, held, len(workers), slo_ms)
