"""Random decisions: what a scheduler without any sense comes to.

Every ``every_ms``, each worker in turn is given, for each of the models with waiting requests
whose oldest request is the most urgent (``slots`` of them), nothing or a full batch of a size
that its queue can fill, all with the same probability, as long as it has less than ``ahead_ms``
of work. It is the agent of the thesis on reinforcement learning in Clockwork (Saarland, 2022)
before it has learned anything: 12 slots, a decision every millisecond, invalid actions masked.

Models that no worker holds are loaded onto a worker with room, or in the place of models without
waiting requests.
"""

from __future__ import annotations

from collections import deque

import numpy as np

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
    ahead_ms : float
        Work that a worker is given ahead.
    """

    def __init__(
        self, engine: ClusterEngine, every_ms: float = 1.0, slots: int = 12, ahead_ms: float = 5.0
    ) -> None:
        super().__init__(engine)
        check_at_least(1e-3, "random", every_ms=every_ms, ahead_ms=ahead_ms)
        check_at_least(1, "random", slots=slots)
        self.every_ms, self.slots, self.ahead_ms = every_ms, slots, ahead_ms
        self.rng = np.random.default_rng(engine.seed)
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
        for model in [m for m, queue in self.queues.items() if queue]:
            if not engine.workers.holders(model):
                self.load(model)
        for worker in range(len(engine.workers)):
            self.decide(worker)
        if any(self.queues.values()):
            self.awake = True
            engine.wake_at(engine.now_ms + self.every_ms)

    def on_end(self, worker: int, batch: int) -> None:
        """Start the next batch that the worker was given."""
        self.start(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Start what waited for the end of a load that blocks."""
        self.start(worker)

    def decide(self, worker: int) -> None:
        """Give a worker random batches."""
        engine = self.engine
        now, workers, kind = engine.now_ms, engine.workers, engine.workers.type[worker]
        if workers.status[worker] != "active":
            return
        deadline = engine.requests.deadline_ms
        here = [(deadline[queue[0]], m) for m, queue in self.queues.items()
                if queue and m in workers.loaded[worker]]
        for _, model in sorted(here)[:self.slots]:
            if self.free_ms[worker] >= now + self.ahead_ms:
                return
            queue = self.queues[model]
            sizes = [size for size in engine.times.sizes[kind][model] if size <= len(queue)]
            action = int(self.rng.integers(len(sizes) + 1))
            if action:
                size = sizes[action - 1]
                took_ms = engine.times.rows[kind][model][size - 1]
                self.free_ms[worker] = max(self.free_ms[worker], now) + took_ms
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
        worker = able[int(self.rng.integers(len(able)))]
        busy = {m for m, _ in self.given[worker]}
        for other in sorted(workers.loaded[worker]):
            if workers.fits(worker, model):
                break
            idle = not self.queues.get(other) and other not in busy
            if idle and not engine.runs_now(worker, other):
                engine.unload(worker, other)
        if workers.fits(worker, model):
            engine.load(worker, model)
