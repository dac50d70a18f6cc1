"""Random decisions: what a scheduler without any sense comes to.

Every ``every_ms``, each worker in turn is asked, for each of the models with waiting requests
whose oldest request is the most urgent (``slots`` of them), whether to run it or not, with equal
chances, and in a batch of which size, of those that its queue can fill. Nobody looks at how much
work the worker has been given already, so the first worker is given most. It is the agent of the
thesis on reinforcement learning in Clockwork (Saarland, 2022) before it has learned anything: 12
slots, a decision every millisecond, invalid actions masked.

Requests that are overdue are dropped. Models that no worker holds are loaded onto a worker with
room, or in the place of models without waiting requests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from math import inf
from random import Random

from ramsis.sim.cluster.engine import ClusterEngine
from ramsis.sim.cluster.scheduler import Scheduler, check_at_least

__all__ = ["RandomScheduler"]


class RandomScheduler(Scheduler):
    """See the module.

    Parameters
    ----------
    engine : ClusterEngine
    every_ms : float
        Time between two decisions.
    slots : int
        Models that are looked at in a decision.
    ahead_ms : float, optional
        Workers with more work than this are given none.
    """

    def __init__(
        self, engine: ClusterEngine, every_ms: float = 1.0, slots: int = 12,
        ahead_ms: float | None = None,
    ) -> None:
        super().__init__(engine)
        check_at_least(1e-3, "random", every_ms=every_ms)
        if ahead_ms is not None:
            check_at_least(1e-3, "random", ahead_ms=ahead_ms)
        check_at_least(1, "random", slots=slots)
        self.every_ms, self.slots = every_ms, slots
        self.ahead_ms = inf if ahead_ms is None else ahead_ms
        self.rng = Random(engine.seed)
        self.queues: dict[int, deque[int]] = {}
        self.given: list[deque[tuple[int, list[int]]]] = [deque() for _ in engine.workers.type]
        self.free_ms = [0.0] * len(engine.workers)
        self.awake = False

    def on_arrival(self, request: int) -> None:
        """Queue it, and decide at the next tick."""
        self.queues.setdefault(self.engine.requests.model[request], deque()).append(request)
        if not self.awake:
            self.awake = True
            self.engine.wake_at(self.engine.now_ms + self.every_ms)

    def on_timer(self, token: object) -> None:
        """Decide."""
        engine = self.engine
        self.awake = False
        deadline_ms = engine.requests.deadline_ms
        waiting = []
        for model, queue in list(self.queues.items()):
            while queue and deadline_ms[queue[0]] < engine.now_ms:
                engine.drop(queue.popleft())
            if queue:
                waiting.append((deadline_ms[queue[0]], model))
            else:
                del self.queues[model]
        waiting.sort()
        for _, model in waiting[:self.slots]:
            if not any(model in held for held in engine.workers.loaded):
                self.load(model)
        urgent, limit_ms = [m for _, m in waiting], engine.now_ms + self.ahead_ms
        for worker, free_ms in enumerate(self.free_ms):
            if free_ms < limit_ms and engine.workers.status[worker] == "active":
                self.decide(worker, urgent, limit_ms)
        if waiting:
            self.awake = True
            engine.wake_at(engine.now_ms + self.every_ms)

    def on_end(self, worker: int, batch: int) -> None:
        """Start the next batch that the worker was given."""
        self.start(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Start what waited for the end of a load that blocks."""
        self.start(worker)

    def decide(self, worker: int, models: list[int], limit_ms: float) -> None:
        """Give a worker random batches of the most urgent models that it holds."""
        engine, free_ms, left = self.engine, self.free_ms, self.slots
        kind, held = engine.workers.type[worker], engine.workers.loaded[worker]
        sizes_of, rows, chance = engine.times.sizes[kind], engine.times.rows[kind], self.rng.random
        for model in models:
            queue = self.queues[model]
            if not queue or model not in held:
                continue
            if free_ms[worker] >= limit_ms or not left:
                return
            left -= 1
            sizes = sizes_of[model]
            fit = bisect_right(sizes, len(queue))
            if fit and chance() < 0.5:
                size = sizes[int(chance() * fit)]
                free_ms[worker] = max(free_ms[worker], engine.now_ms) + rows[model][size - 1]
                self.given[worker].append((model, [queue.popleft() for _ in range(size)]))
                self.start(worker)

    def start(self, worker: int) -> None:
        """Start the next batches that the worker was given, as it has free lanes."""
        given = self.given[worker]
        while given and self.engine.workers.free_lanes[worker] > 0:
            self.engine.run(worker, *given.popleft())

    def load(self, model: int) -> None:
        """Load a model onto a random worker with room, making some where nothing waits."""
        engine, workers = self.engine, self.engine.workers
        if any(model in coming for coming in workers.loading):
            return
        able = [worker for worker in range(len(workers)) if workers.may_load(worker)
                and engine.times.runs(workers.type[worker], model)]
        if not able:
            return
        worker = self.rng.choice(able)
        busy = {m for m, _ in self.given[worker]}
        for other in sorted(workers.loaded[worker]):
            if workers.fits(worker, model):
                break
            idle = not self.queues.get(other) and other not in busy
            if idle and not engine.runs_now(worker, other):
                engine.unload(worker, other)
        if workers.fits(worker, model):
            engine.load(worker, model)
