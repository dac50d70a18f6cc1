"""Compiled passes over the requests and batches of a run, for the figures of the run.

A request that leaves the queue at time t is counted at the first arrival after t. So an arrival
finds as many requests waiting as arrived before it, less those counted at it or at earlier
arrivals. The first arrival after t is looked up in a grid of times whose cells hold a few arrivals
on average. Arrays are taken out of their tuples once; see :mod:`ramsis.sim._kernels`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.compiling import index, njit

_FINITE = 1e300
_FEW = 4  # arrivals that are compared one by one before a bisection


class RunArrays(NamedTuple):
    """Arrays of a run, named as in :class:`ramsis.sim.run.Run`."""

    arrival_ms: FloatArray
    batch_of: NDArray[np.int32]
    start_ms: FloatArray
    finish_ms: FloatArray
    model: NDArray[np.int32]
    size: NDArray[np.int32]
    drop_ms: FloatArray


class FigureTerms(NamedTuple):
    """Deadlines and tolerances that figures are computed with."""

    slo_ms: FloatArray  # shape (n,) or (1,): deadline of each request after its arrival, or of all
    tolerance_ms: float  # lateness up to which an answer counts as in time
    until_ms: float  # waiting after this time does not count


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _grid(arrival_ms: FloatArray, per_ms: float, first: NDArray[np.int32]) -> None:
    """Write into ``first`` the number of arrivals before each cell of time.

    Cells have ``1 / per_ms`` ms and begin at the first arrival. The caller fills ``first`` with n.
    """
    first_ms = arrival_ms[0]
    for query in range(arrival_ms.size - 1, -1, -1):  # the first in a cell is written last
        first[int((arrival_ms[query] - first_ms) * per_ms)] = query
    for cell in range(first.size - 2, -1, -1):
        first[cell] = min(first[cell], first[cell + 1])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _leaving(
    arrival_ms: FloatArray, served_ms: FloatArray, sizes: NDArray[np.int32],
    left: NDArray[np.int32], first: NDArray[np.int32], per_ms: float,
) -> None:
    """Add ``sizes`` requests that leave at ``served_ms`` to ``left`` at the next arrival's index.

    ``left`` has shape (n+1,); ``first`` and ``per_ms`` are those of :func:`_grid`.
    """
    n, first_ms, last_ms = arrival_ms.size, arrival_ms[0], arrival_ms[-1]
    following, few = index(1), index(_FEW)
    for i in range(served_ms.size):
        now_ms = served_ms[i]
        if now_ms >= last_ms:
            left[n] += sizes[i]
            continue
        cell = index(max((now_ms - first_ms) * per_ms, 0.0))
        at = index(first[cell])
        if at + few <= index(n):
            earlier = index(0)  # without a branch, which processors would predict badly
            for k in range(_FEW):
                earlier += index(arrival_ms[at + index(k)] <= now_ms)
            at += earlier
        if arrival_ms[at] <= now_ms:
            high = index(first[cell + following])
            while at < high:
                middle = (at + high) // index(2)
                if arrival_ms[middle] <= now_ms:
                    at = middle + following
                else:
                    high = middle
        left[at] += sizes[i]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def queue_left(record: RunArrays, left: NDArray[np.int32], first: NDArray[np.int32]) -> int:
    """Count how many requests leave the queue between each arrival and the preceding arrival.

    Of a run of n >= 1 requests the counts are added to ``left``, zeros of shape (n+1,); ``first``,
    shape (n//2 + 2,) and filled with n, is room for the grid of times. Return the most requests
    that an arrival finds waiting.
    """
    arrival_ms, _, start_ms, _, _, size, drop_ms = record
    n = arrival_ms.size
    span_ms = arrival_ms[n - 1] - arrival_ms[0]
    per_ms = min((first.size - 2) / span_ms, _FINITE) if span_ms > 0.0 else 0.0
    _grid(arrival_ms, per_ms, first)
    _leaving(arrival_ms, start_ms, size, left, first, per_ms)
    _leaving(arrival_ms, drop_ms, np.ones(drop_ms.size, dtype=np.int32), left, first, per_ms)
    gone, most = 0, 0
    for query in range(n):
        gone += left[query]
        most = max(most, query - gone)
    return most


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def of_batches(record: RunArrays, until_ms: float, sizes: NDArray[np.int64]) -> float:
    """Return the busy time of all workers up to a time; count batches by size in ``sizes``."""
    _, _, start_ms, finish_ms, _, size_of, _ = record
    busy_ms = 0.0
    for batch in range(start_ms.size):
        busy_ms += min(finish_ms[batch], until_ms) - min(start_ms[batch], until_ms)
        sizes[size_of[batch]] += 1
    return busy_ms


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def tally(
    record: RunArrays, terms: FigureTerms, left: NDArray[np.int32], waiting: NDArray[np.int64],
    responses: FloatArray, answered: NDArray[np.int64], in_time: NDArray[np.int64],
) -> tuple[float, float]:
    """Count the outcomes of the requests of a run of at least one.

    ``left``, (n+1,), holds the requests that leave the queue before each arrival, by
    :func:`queue_left`. ``waiting`` counts the arrivals that find 0, 1, … requests waiting;
    ``responses``, (n,), is room for the response times in the order of the requests answered;
    ``answered`` and ``in_time``, (M,), count the answers, and those in time, by model. Return the
    waiting time until ``until_ms``, summed over the requests that are not dropped, and the sum of
    the response times.
    """
    arrival_ms, batch_of, start_ms, finish_of, model_of, _, _ = record
    until_ms = terms.until_ms
    slos = terms.slo_ms
    tolerance_ms, one_slo = terms.tolerance_ms, slos.size == 1
    gone, count, waited_ms, response_ms = 0, 0, 0.0, 0.0
    for query in range(arrival_ms.size):
        gone += left[query]
        waiting[index(max(query - gone, 0))] += 1
        now_ms, batch = arrival_ms[query], batch_of[query]
        if batch == -1:
            waited_ms += until_ms - min(now_ms, until_ms)
        if batch >= 0:
            row = index(batch)
            waited_ms += min(start_ms[row], until_ms) - min(now_ms, until_ms)
            finish_ms, model = finish_of[row], index(model_of[row])
            response_ms += finish_ms - now_ms
            responses[index(count)] = finish_ms - now_ms
            count += 1
            answered[model] += 1
            if finish_ms <= now_ms + (slos[0] if one_slo else slos[query]) + tolerance_ms:
                in_time[model] += 1
    return waited_ms, response_ms
