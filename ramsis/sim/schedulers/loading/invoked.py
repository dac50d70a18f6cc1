"""Schedulers that are asked at fixed times: each worker in turn, every so many milliseconds.

At such a time overdue requests are dropped. Models that no worker holds are loaded onto a worker
with room, or in place of models without waiting requests. Then :meth:`Invoked.decide` is called
for each active worker and assigns batches to it, which it runs one after the other. While no
request waits, there are no such times.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from random import Random

from ramsis.sim.engine import Engine, Scheduler, check_at_least


class Invoked(Scheduler[Engine]):
    """Base class of schedulers that decide at fixed times, each worker in turn.

    A decision comes every ``every_ms`` and looks at ``slots`` models; ``name`` is for messages.
    """

    def __init__(self, engine: Engine, name: str, every_ms: float, slots: int) -> None:
        super().__init__(engine)
        check_at_least(1e-3, name, every_ms=every_ms)
        check_at_least(1, name, slots=slots)
        self.every_ms, self.slots = every_ms, slots
        self.rng = Random(engine.seed)
        self.queues: dict[int, deque[int]] = {}
        self.given: list[deque[tuple[int, list[int]]]] = [deque() for _ in engine.workers.type]
        self.free_ms = [0.0] * len(engine.workers)
        self.deadline_ms = engine.requests.deadline_ms
        self.rows = [engine.times.rows[kind] for kind in engine.workers.type]
        self.awake = False

    @abstractmethod
    def decide(self, worker: int) -> None:
        """Give a worker batches, as a decision of the subclass."""

    def on_arrival(self, request: int) -> None:
        """Queue a request, and decide at the next time."""
        self.queues.setdefault(self.engine.requests.model[request], deque()).append(request)
        if not self.awake:
            self.awake = True
            self.engine.wake_at(self.engine.now_ms + self.every_ms)

    def on_timer(self, token: object) -> None:
        """Decide about all workers, if requests wait."""
        if self.begin():
            for worker in self.asked():
                self.decide(worker)
            self.finish()

    def on_end(self, worker: int, batch: int) -> None:
        """Start the next batch that the worker was given."""
        self.start(worker)

    def on_loaded(self, worker: int, model: int) -> None:
        """Start what waited for the end of a load that blocks."""
        self.start(worker)

    def begin(self) -> bool:
        """Drop overdue requests, load models held nowhere, and return whether requests wait."""
        self.awake = False
        now_ms, deadline_ms = self.engine.now_ms, self.deadline_ms
        waiting = []
        for model, queue in list(self.queues.items()):
            room_ms = self.room_ms(model)
            while queue and deadline_ms[queue[0]] < now_ms + room_ms:
                self.lapse(queue.popleft())
            if queue:
                waiting.append((deadline_ms[queue[0]], model))
            else:
                del self.queues[model]
        waiting.sort()
        self.urgent = [model for _, model in waiting]
        for model in self.urgent[:self.slots]:
            for held in self.engine.workers.loaded:
                if model in held:
                    break
            else:
                self.load(model)
        return bool(waiting)

    def asked(self) -> Iterator[int]:
        """Yield the active workers in the order in which they are asked for a decision."""
        for worker, status in enumerate(self.engine.workers.status):
            if status == "active":
                yield worker

    def finish(self) -> None:
        """Set the timer for the next decision."""
        self.awake = True
        self.engine.wake_at(self.engine.now_ms + self.every_ms)

    def room_ms(self, model: int) -> float:
        """Return how long before its deadline a request of a model counts as overdue."""
        return 0.0

    def lapse(self, request: int) -> None:
        """Drop an overdue request."""
        self.engine.drop(request)

    def give(self, worker: int, model: int, size: int) -> float:
        """Give a worker a batch of the oldest requests of a model; return when it will end."""
        queue = self.queues[model]
        start_ms = max(self.free_ms[worker], self.engine.now_ms)
        self.free_ms[worker] = start_ms + self.rows[worker][model][size - 1]
        self.given[worker].append((model, [queue.popleft() for _ in range(size)]))
        self.start(worker)
        return self.free_ms[worker]

    def start(self, worker: int) -> None:
        """Start the next batches given to a worker, as long as the worker has free lanes."""
        queued = self.given[worker]
        while queued and self.engine.workers.free_lanes[worker] > 0:
            self.engine.run(worker, *queued.popleft())

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
