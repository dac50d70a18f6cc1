"""Checks of the numbers that a worker's decision problem is made of.

Each raises :class:`~ramsis.errors.InvalidValueError` with the name of what is wrong, its value and
what is allowed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals import ArrivalProcess, Poisson
from ramsis.cluster.cluster import below_every_latency
from ramsis.errors import InvalidValueError
from ramsis.profiles import LatencyTable
from ramsis.worker.problem.actions import Batching, LateRule
from ramsis.worker.problem.queue import WorkerQueue, slack_grid

_Word = TypeVar("_Word", bound=StrEnum)

MAX_QUEUE = 10_000
"""Longest queue that a table may tell apart."""
MAX_NUMBERS = 1_000_000_000
"""Most numbers of 8 bytes that solving a problem may hold at once, by a rough count."""


def one_of(kind: type[_Word], name: str, value: str) -> _Word:
    """Return the member of an enumeration that a text names; refuse other texts."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidValueError(f"unknown {name}", where=name, value=str(value),
                                allowed=" or ".join(kind)) from None


def check_table(latency: LatencyTable, max_queue: int) -> None:
    """Refuse a latency table without the batch of ``max_queue`` + 1, a full queue."""
    if latency.max_batch < max_queue + 1:
        raise InvalidValueError("latency table is too short", where="latency",
                                value=latency.max_batch,
                                allowed=f"batches up to max_queue + 1 = {max_queue + 1}")


def check_slo(slo_ms: float, shortest_ms: FloatArray) -> None:
    """Check that some batch of 1 can meet the SLO."""
    lowest = float(shortest_ms[:, 0].min())
    if slo_ms < lowest:
        raise below_every_latency(slo_ms, lowest)


def checked_grid(
    grid: str | FloatArray, slo_ms: float, latency: LatencyTable, max_queue: int
) -> FloatArray:
    """Return the slack grid for a text or explicit values, as a new array."""
    if isinstance(grid, str):
        return slack_grid(grid, slo_ms, latency, max_queue)
    values = np.array(grid, dtype=float)
    good = values.ndim == 1 and len(values) >= 2 and bool(np.isfinite(values).all())
    if not good or values[0] != 0 or values[-1] != slo_ms or (np.diff(values) <= 0).any():
        raise InvalidValueError("not a slack grid", where="grid", value=values.tolist(),
                                allowed="rising values from 0 to the SLO")
    return values


def check_modelled(arrivals: ArrivalProcess, batching: Batching) -> None:
    """Refuse combinations of arrivals and rules whose transitions are not modelled."""
    if batching.partial and not isinstance(arrivals, Poisson):
        raise InvalidValueError(f"{batching} batching is for Poisson arrivals only",
                                where="batching", value=batching, allowed="maximal")


def check_size(queue: WorkerQueue, late: LateRule) -> None:
    """Refuse problems that would not fit into memory, by a conservative estimate.

    Counted are the numbers in the largest arrays: of states by phase of the arrivals and by slack
    node, of models by slack node and phase, of the distributions of arrivals, and of the slack of
    the next request by state.
    """
    latencies = queue.services.latency_ms
    states = (queue.max_queue + 1) * (queue.bins + 1)
    nodes = 200 + 2 * (queue.bins + int((latencies < queue.slo_ms).sum()))
    longest_ms = max(queue.slo_ms, float(latencies[-1]))
    arrivals = queue.arrivals.rate_per_ms * longest_ms
    all_or_none = queue.quantiles_ms is None and late is LateRule.SERVE
    waiting = 0 if all_or_none else 4 * states * (queue.bins + 1)
    numbers = (states * (queue.workers + nodes) + len(latencies) * nodes * queue.workers
               + 250 * arrivals + waiting)
    if numbers > MAX_NUMBERS:
        raise InvalidValueError(
            "the problem is too large", where="worker problem",
            value=f"{queue.workers} workers, {states:.3g} states, "
            f"{arrivals:.3g} arrivals in {longest_ms:.3g} ms",
            allowed="fewer workers, a coarser grid, a smaller max_queue or a lower load")
