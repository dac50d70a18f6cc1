"""Schedulers with one queue for all workers: an idle worker takes from its head.

Requests are ordered by deadline. The worker that has been idle longest takes the next batch. Model
and batch size depend on the anticipated load, the queue length, and the slack of the head.
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

from ramsis.arrays import FloatArray, IntArray
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim.engine import Scheduler, WorkerGroup
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.tables import Compiled, any_idle_level, stack

Choose = Callable[[int, float, float], tuple[int, int] | None]
"""``(queued, slack_ms, load_qps)`` → model and batch, or ``None`` to drop the first request."""


class ByDeadline:
    """Queue whose head has the earliest deadline; of equal deadlines the oldest request."""

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
        """Remove the request with the earliest deadline, and return it."""
        return heappop(self._heap)[1]


def queue_of(engine: WorkerGroup) -> deque[int] | ByDeadline:
    """Return an empty queue by deadline; with one SLO a deque, as that is the order of arrival."""
    return ByDeadline(engine) if engine.fleet.classes else deque()


class EarliestDeadlineFirst(Scheduler[WorkerGroup]):
    """Scheduler of one queue by earliest deadline, in the batches that ``choose`` asks for."""

    def __init__(self, engine: WorkerGroup, choose: Choose) -> None:
        super().__init__(engine)
        self.choose = choose
        self.queue = queue_of(engine)
        self.idle = deque(range(engine.fleet.workers))

    def on_arrival(self, query: int) -> None:
        """Insert a new request into the queue by its deadline."""
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

    ``levels`` are by rising load, the last one infinite.
    """
    loads = [level.load_qps for level in levels]

    def choose(queued: int, slack_ms: float, load_qps: float) -> tuple[int, int]:
        _, model, batch = levels[bisect_left(loads, load_qps)]
        return model, min(queued, batch)

    tables = stack([
        any_idle_level(load, [0.0], np.full((limit, 1), model), np.arange(1, limit + 1)[:, None])
        for load, model, limit in levels
    ])
    start = partial(EarliestDeadlineFirst, choose=choose)
    return Plan(name, start, Compiled("central-queue", tables),
                max(level.batch for level in levels))


def plan_by_slack(
    name: str, fleet: Fleet, edges: FloatArray, model: IntArray, batch: IntArray
) -> Plan:
    """Return the plan that looks up model and batch by queue length and slack of the head.

    ``model`` and ``batch``, (B, J), are for 1, 2, … B waiting requests and for slacks from each of
    the rising ``edges``, (J,), on; a batch of 0 drops the head.
    """
    reached_ms, models, batches = edges[1:] - SLACK_TOLERANCE_MS, model.tolist(), batch.tolist()

    def choose(queued: int, slack_ms: float, load_qps: float) -> tuple[int, int] | None:
        row = min(queued, len(models)) - 1
        column = int(np.searchsorted(reached_ms, slack_ms, side="right"))
        return (models[row][column], batches[row][column]) if batches[row][column] else None

    tables = stack([any_idle_level(math.inf, edges, model, batch)])
    return Plan(name, partial(EarliestDeadlineFirst, choose=choose),
                Compiled("central-queue", tables), fleet.max_batch)


def rising(levels: Iterable[ModelLevel]) -> list[ModelLevel]:
    """Return the levels whose load is higher than that of all levels before them."""
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
    """Return the batch size of highest throughput among those that take at most ``longest_ms``.

    Of equal sizes it is the smallest; it is 1 if every batch takes longer. As a batch limit it
    shortens a long queue fastest: larger batches take more time per request.
    """
    allowed = max(fleet.largest_batch(model, longest_ms), 1)
    return int(np.argmax(throughput_qps(fleet, model)[:allowed])) + 1


def batch_limit(fleet: Fleet, model: int) -> int:
    """Return the batch size of highest throughput within half the SLO; 1 for a slower model.

    With such batches a request that has just missed a batch is in time with the next one.
    """
    return most_efficient(fleet, model, fleet.slo_ms / 2.0)


def overload_levels(fleet: Fleet) -> list[ModelLevel]:
    """Return the levels for loads that no model carries with batches within half the SLO.

    Both levels run the fastest model. The first one has the most efficient batch within the SLO as
    its limit, up to the load that it carries. The second one, for higher loads, has the most
    efficient batch of all, even if it takes longer than the SLO: answers are late anyway, and the
    queue becomes short again sooner.
    """
    fastest = fleet.table.fastest
    within = most_efficient(fleet, fastest, fleet.slo_ms)
    carried = float(throughput_qps(fleet, fastest)[within - 1])
    return [ModelLevel(carried, fastest, within),
            ModelLevel(math.inf, fastest, most_efficient(fleet, fastest))]
