"""Fixed delay: a batch waits until it is full, or its first request has waited for a set time.

One queue for all workers, first come, first served. An idle worker starts a batch once as many
requests wait as the batch limit, or once the first of them has waited ``wait_ms``; then it takes
all waiting requests, up to the limit. The rule depends neither on deadlines nor on the load. With
``late=serve`` late requests are answered, too; with ``late=drop`` requests that even a batch of 1
answers late are dropped. Of several idle workers the one that has been idle longest takes the
batch.

This is the batching of most model servers: Triton's dynamic batcher
(``max_queue_delay_microseconds``, with a preferred size of the batch limit), TorchServe
(``maxBatchDelay``), TensorFlow Serving (``batch_timeout_micros``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ramsis.errors import NON_NEGATIVE
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.settings import Checked, setting
from ramsis.sim.engine import Scheduler, WorkerGroup
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schedulers.fixed import check_limit, model_index
from ramsis.sim.schedulers.greedy import LATE_RULE


@dataclass(frozen=True)
class Delay(Checked, PerType):
    """Scheduler of one model that delays a batch until it is full or a fixed time has passed."""

    name: ClassVar[str] = "delay"

    model: str  # its name
    batch: int = 0  # batch limit; 0: the largest
    wait_ms: float = setting(0.0, "Longest wait of a first request for others.",
                             rule=NON_NEGATIVE._replace(wrong="not a time"))
    late: str = setting("serve", "As of ``Greedy``.", rule=LATE_RULE)

    def prepare(self, fleet: Fleet) -> Plan:
        """Prepare runs on the plain engine, which has timers."""
        model = model_index(fleet, self.model)
        check_limit(fleet, self.batch)
        alone_ms = float(fleet.table.latency_ms[model, 0]) if self.late == "drop" else None
        return Plan(self.name, partial(_Run, model=model, limit=self.batch or fleet.max_batch,
                                       wait_ms=self.wait_ms, alone_ms=alone_ms))


class _Run(Scheduler[WorkerGroup]):
    def __init__(
        self, engine: WorkerGroup, model: int, limit: int, wait_ms: float, alone_ms: float | None
    ) -> None:
        super().__init__(engine)
        self.model, self.limit, self.wait_ms, self.alone_ms = model, limit, wait_ms, alone_ms
        self.queue: deque[tuple[int, float]] = deque()  # requests, and when they came
        self.idle = deque(range(engine.fleet.workers))

    def on_arrival(self, query: int) -> None:
        self.queue.append((query, self.engine.now_ms))
        if self.wait_ms > 0.0:
            self.engine.wake_at(self.engine.now_ms + self.wait_ms, None)
        self.serve()

    def on_end(self, worker: int, batch: int) -> None:
        self.idle.append(worker)
        self.serve()

    def on_timer(self, token: object) -> None:
        self.serve()

    def serve(self) -> None:
        """Start all batches that are full or have waited long enough."""
        engine, queue = self.engine, self.queue
        while queue and self.idle:
            first, came_ms = queue[0]
            if self.alone_ms is not None and (
                    engine.deadline_ms(first) - engine.now_ms
                    < self.alone_ms - SLACK_TOLERANCE_MS):
                engine.drop(first)
                queue.popleft()
                continue
            if len(queue) < self.limit and (
                    engine.now_ms < came_ms + self.wait_ms - SLACK_TOLERANCE_MS):
                return
            size = min(len(queue), self.limit)
            engine.run(self.idle.popleft(), self.model,
                       [queue.popleft()[0] for _ in range(size)])
