"""Schedulers with one queue for all workers: an idle worker takes from its head.

Requests stand by deadline. The worker that has been idle longest takes next. What it takes depends
on the anticipated load, the number of requests that wait, and the time to the deadline of the
first of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Literal, NamedTuple

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.sim.engine import Scheduler, WorkerGroup
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.tables import Compiled, TableOfLevel, stack

Choose = Callable[[int, float, float], tuple[int, int] | None]
"""``(queued, slack_ms, load_qps)`` → model and batch, or ``None`` to drop the first request."""


class ByDeadline:
    """Queue whose head is the request with the earliest deadline, of like ones the first."""

    def __init__(self, engine: WorkerGroup) -> None:
        self._engine, self._heap = engine, list[tuple[float, int]]()

    def __len__(self) -> int:
        return len(self._heap)

    def __getitem__(self, place: Literal[0]) -> int:
        return self._heap[place][1]

    def append(self, query: int) -> None:
        """Add a request to the queue."""
        heappush(self._heap, (self._engine.deadline_ms(query), query))

    def popleft(self) -> int:
        """Remove and return the head."""
        return heappop(self._heap)[1]


def queue_of(engine: WorkerGroup) -> deque[int] | ByDeadline:
    """Return an empty queue by deadline: with one SLO that is the order of arrival."""
    return ByDeadline(engine) if engine.fleet.classes else deque()


class EarliestDeadlineFirst(Scheduler[WorkerGroup]):
    """Scheduler of one queue by earliest deadline, in the batches that ``choose`` asks for."""

    def __init__(self, engine: WorkerGroup, choose: Choose) -> None:
        super().__init__(engine)
        self.choose = choose
        self.queue = queue_of(engine)
        self.idle = deque(range(engine.fleet.workers))

    def on_arrival(self, query: int) -> None:
        """Queue a request."""
        self.queue.append(query)
        if self.idle:
            self.serve()

    def on_end(self, worker: int, batch: int) -> None:
        """Append a worker to the idle ones, which take turns."""
        self.idle.append(worker)
        if self.queue:
            self.serve()

    def serve(self) -> None:
        """Let idle workers take batches while requests wait."""
        engine, queue, idle = self.engine, self.queue, self.idle
        while idle and queue:
            slack_ms = engine.deadline_ms(queue[0]) - engine.now_ms
            choice = self.choose(len(queue), slack_ms, engine.load_qps())
            if choice is None:
                engine.drop(queue.popleft())
                continue
            model, batch = choice
            engine.run(idle.popleft(), model, [queue.popleft() for _ in range(batch)])


class ModelLevel(NamedTuple):
    """Model and batch limit that are used up to a load."""

    load_qps: float
    model: int
    batch: int


def plan_levels(name: str, levels: Sequence[ModelLevel]) -> Plan:
    """Return the plan that runs the model of the lowest level that meets the load.

    Parameters
    ----------
    levels : sequence of ModelLevel
        By rising load, the last one infinite.
    """
    loads = [level.load_qps for level in levels]

    def choose(queued: int, slack_ms: float, load_qps: float) -> tuple[int, int]:
        _, model, batch = levels[bisect_left(loads, load_qps)]
        return model, min(queued, batch)

    tables = stack([
        TableOfLevel(load, [0.0], np.full((limit, 1), model), np.arange(1, limit + 1)[:, None],
                     (model, limit))
        for load, model, limit in levels
    ])
    start = partial(EarliestDeadlineFirst, choose=choose)
    return Plan(name, start, Compiled("first-come", tables), max(level.batch for level in levels))


def rising(levels: Iterable[ModelLevel]) -> list[ModelLevel]:
    """Return the levels that carry more than all before them."""
    kept: list[ModelLevel] = []
    for level in levels:
        if level.load_qps > (kept[-1].load_qps if kept else 0.0):
            kept.append(level)
    return kept


def throughput_qps(fleet: Fleet, model: int) -> FloatArray:
    """Return the throughput of all workers in batches of 1, 2, …, in requests per second, (B,)."""
    batch = np.arange(1, fleet.max_batch + 1)
    throughput: FloatArray = 1000.0 * fleet.workers * batch / fleet.table.latency_ms[model]
    return throughput


def most_efficient(fleet: Fleet, model: int, longest_ms: float = math.inf) -> int:
    """Return the batch size of highest throughput within a time limit.

    Of equals the smallest; 1 where every batch takes longer. As a batch limit it is what brings a
    long queue down fastest: batches beyond it would be served slower by the request.
    """
    allowed = max(fleet.largest_batch(model, longest_ms), 1)
    return int(np.argmax(throughput_qps(fleet, model)[:allowed])) + 1


def batch_limit(fleet: Fleet, model: int) -> int:
    """Return the batch size of highest throughput within half the SLO.

    A request that has just missed a batch is then in time with the next.

    It is 1 for a model that is slower.
    """
    return most_efficient(fleet, model, fleet.slo_ms / 2.0)


def overload_levels(fleet: Fleet) -> list[ModelLevel]:
    """Return the levels for loads that no model carries within half the SLO.

    They run the fastest model.

    Its batches go up to the most efficient within the SLO as far as these carry the load, and
    beyond up to the most efficient of all, whatever they take: late answers are lost anyway, and
    the sooner they are given the sooner the queue is short again.
    """
    fastest = fleet.table.fastest
    within = most_efficient(fleet, fastest, fleet.slo_ms)
    carried = float(throughput_qps(fleet, fastest)[within - 1])
    return [ModelLevel(carried, fastest, within),
            ModelLevel(math.inf, fastest, most_efficient(fleet, fastest))]
