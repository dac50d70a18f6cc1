"""Symphony's deferred batching: a batch does not start while it can still grow.

One queue for all workers, by deadline. Let d be the deadline of its head, and b the largest batch
of waiting requests with l(m, b) <= d − now. The window of the batch begins at d − l(m, b + 1),
from which on one more request would make the head late, and ends at d − l(m, b), after which the
batch itself would be late. The batch starts when a worker is idle within the window, or before it
when it has reached the batch limit; until then it gathers, and workers stay idle. A head that even
a batch of 1 answers late is dropped. Of several idle workers the one with the lowest number takes
the batch, so that at low loads the last workers stay unused.

Latencies are those of the table. If times are drawn, a batch that starts at the end of its window
is late as often as its time exceeds this latency; an ``objective`` below 1 leaves a margin.

Source: Chen et al., "Symphony: Optimized DNN Model Serving using Deferred Batch Scheduling", 2023.
There it schedules many models; here it runs one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import ClassVar

from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim.engine import Scheduler, WorkerGroup
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.schedulers.central import queue_of
from ramsis.sim.schedulers.fixed import SingleModel, model_index


@dataclass(frozen=True)
class Symphony(SingleModel):
    """Symphony's deferred batching of one model; parameters as of :class:`SingleModel`."""

    name: ClassVar[str] = "symphony"

    def prepare(self, fleet: Fleet) -> Plan:
        """Prepare runs on the plain engine, which has timers."""
        model = model_index(fleet, self.model)
        latency_ms = fleet.table.latency_ms[model, : self.limit(fleet)]
        return Plan(self.name, partial(
            _Run, model=model, latency_ms=latency_ms.tolist(),
            reserve_ms=(1.0 - self.objective) * fleet.slo_ms))


class _Run(Scheduler[WorkerGroup]):
    def __init__(
        self, engine: WorkerGroup, model: int, latency_ms: list[float], reserve_ms: float
    ) -> None:
        super().__init__(engine)
        self.model, self.latency_ms, self.reserve_ms = model, latency_ms, reserve_ms
        self.queue = queue_of(engine)
        self.idle = list(range(engine.fleet.workers))
        heapify(self.idle)
        self.asked = 0

    def on_arrival(self, query: int) -> None:
        self.queue.append(query)
        self.serve()

    def on_end(self, worker: int, batch: int) -> None:
        heappush(self.idle, worker)
        self.serve()

    def on_timer(self, token: object) -> None:
        if token == self.asked:  # nothing has happened since
            self.serve()

    def serve(self) -> None:
        """Start the batches whose windows have begun, and set a timer for the next window."""
        engine, queue, latency_ms = self.engine, self.queue, self.latency_ms
        self.asked += 1
        while queue and self.idle:
            due_ms = engine.deadline_ms(queue[0]) - self.reserve_ms
            slack_ms = due_ms - engine.now_ms + SLACK_TOLERANCE_MS
            size = min(bisect_right(latency_ms, slack_ms), len(queue))
            if size == 0:
                engine.drop(queue.popleft())
                continue
            if size == len(queue) < len(latency_ms) and latency_ms[size] < slack_ms - 2 * (
                    SLACK_TOLERANCE_MS):
                engine.wake_at(due_ms - latency_ms[size], self.asked)
                return
            engine.run(heappop(self.idle), self.model, [queue.popleft() for _ in range(size)])
