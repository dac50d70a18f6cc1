"""Random decisions, as a baseline for schedulers that load models.

Every ``every_ms`` there is a decision for each worker in turn. It considers the ``slots`` models
with waiting requests whose oldest requests are most urgent. For each of them it is random whether
the model runs, with equal chances, and with which of the batch sizes that its queue can fill. The
work already assigned to the worker does not matter, so the first worker is assigned most. This is
the untrained agent of the thesis on reinforcement learning in Clockwork (Saarland, 2022): 12
slots, a decision every millisecond, invalid actions masked.

Requests that are overdue are dropped. Models that no worker holds are loaded
(:class:`~ramsis.sim.schedulers.loading.invoked.Invoked`).
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf

from ramsis.sim.engine import Engine, check_at_least
from ramsis.sim.schedulers.loading.invoked import Invoked


class RandomScheduler(Invoked):
    """Scheduler that decides at random, as a baseline.

    Parameters
    ----------
    every_ms : float
        Time between two decisions.
    slots : int
        Number of models that a decision considers.
    ahead_ms : float, optional
        Workers with more work than this are assigned none.
    """

    def __init__(
        self, engine: Engine, every_ms: float = 1.0, slots: int = 12,
        ahead_ms: float | None = None,
    ) -> None:
        super().__init__(engine, "random", every_ms, slots)
        if ahead_ms is not None:
            check_at_least(1e-3, "random", ahead_ms=ahead_ms)
        self.ahead_ms = inf if ahead_ms is None else ahead_ms

    def decide(self, worker: int) -> None:
        """Give a worker random batches of the most urgent models that it holds."""
        engine, free_ms, left = self.engine, self.free_ms, self.slots
        limit_ms = engine.now_ms + self.ahead_ms
        kind, held = engine.workers.type[worker], engine.workers.loaded[worker]
        sizes_of, chance = engine.times.sizes[kind], self.rng.random
        for model in self.urgent:
            queue = self.queues[model]
            if not queue or model not in held:
                continue
            if free_ms[worker] >= limit_ms or not left:
                return
            left -= 1
            sizes = sizes_of[model]
            fit = bisect_right(sizes, len(queue))
            if fit and chance() < 0.5:  # else the model is passed over, by chance
                self.give(worker, model, sizes[int(chance() * fit)])
