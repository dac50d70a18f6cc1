"""The engine for scenarios: clusters on which models come and go."""

from __future__ import annotations

from ramsis.scenario import Requests, Scenario, draw_requests
from ramsis.sim.engine.engine import Engine, Setting
from ramsis.sim.engine.progress import Slowdown
from ramsis.sim.engine.requests import ClusterRequests
from ramsis.sim.engine.times import ClusterTimes

__all__ = ["ClusterEngine"]


class ClusterEngine(Engine):
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

    times: ClusterTimes

    def __init__(
        self, scenario: Scenario, seed: int = 0, *, requests: Requests | None = None,
        slowdown: Slowdown | None = None,
    ) -> None:
        self.scenario, self.seed = scenario, seed
        self.arrays = arrays = scenario.arrays
        given = draw_requests(scenario, seed) if requests is None else requests
        super().__init__(
            Setting(arrays, scenario.worker_types, arrays.family.tolist(),
                    arrays.memory_mb.tolist(), scenario.streams, scenario.duration_ms,
                    slowdown=slowdown),
            ClusterTimes(scenario), ClusterRequests(scenario, given, seed))
