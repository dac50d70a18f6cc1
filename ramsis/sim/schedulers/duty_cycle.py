"""Scheduler of fixed batches, in turn where a worker holds several variants (duty cycle).

Each use of the workers (a variant with its largest batch) has a queue, which all workers of the
station share. On each worker the queues take turns; empty queues are skipped. An idle worker takes
the waiting requests of the queue whose turn it is, up to the largest batch of the use. With one
use that is a central queue with a batch limit. No request waits for a batch to fill. Either all
requests are served, or requests at the head of a queue are dropped if the batch would answer them
late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ramsis.sim.engine import Scheduler, WorkerGroup


class DutyCycle(Scheduler[WorkerGroup]):
    """Scheduler of fixed batch limits; a worker with several variants serves them in turn.

    The models of the fleet are the uses, in their order, each with its largest batch in
    ``batches``; ``use_of`` returns the use that a request is routed to. If ``drop``, requests that
    would be late are dropped.
    """

    def __init__(
        self, engine: WorkerGroup, batches: Sequence[int], use_of: Callable[[int], int], *,
        drop: bool = False,
    ) -> None:
        super().__init__(engine)
        self.batches, self.use_of = batches, use_of
        self.latency_ms = engine.fleet.table.latency_ms.tolist() if drop else None
        self.queues: list[deque[int]] = [deque() for _ in batches]
        self.turn = [0] * engine.fleet.workers
        self.idle = deque(range(engine.fleet.workers))

    def on_arrival(self, query: int) -> None:
        """Queue a request for the model and batch size that serve it, and start batches."""
        self.queues[self.use_of(query)].append(query)
        self.serve()

    def on_end(self, worker: int, batch: int) -> None:
        """Append a worker to the idle ones, which take turns."""
        self.idle.append(worker)
        self.serve()

    def serve(self) -> None:
        """Let idle workers take batches while requests wait."""
        while self.idle and any(self.queues):
            worker = self.idle[0]
            use = self.next_use(worker)
            size = self.batch(use)
            if size == 0:
                continue  # all that waited there was dropped, and the queue has lost its turn
            self.idle.popleft()
            self.turn[worker] = (use + 1) % len(self.queues)
            queue = self.queues[use]
            self.engine.run(worker, use, [queue.popleft() for _ in range(size)])

    def next_use(self, worker: int) -> int:
        """Return a worker's first use in turn with waiting requests; there must be such a use."""
        count = len(self.queues)
        in_turn = ((self.turn[worker] + step) % count for step in range(count))
        return next(use for use in in_turn if self.queues[use])

    def batch(self, use: int) -> int:
        """Return the size of the batch that starts now; drop requests it would answer late.

        0 where none is left.
        """
        queue, most = self.queues[use], self.batches[use]
        if self.latency_ms is not None:
            engine, latency_ms = self.engine, self.latency_ms[use]
            while queue:
                finish_ms = engine.now_ms + latency_ms[min(len(queue), most) - 1]
                if finish_ms <= engine.deadline_ms(queue[0]):
                    break
                engine.drop(queue.popleft())
        return min(len(queue), most)
