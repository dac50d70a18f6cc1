"""The compiled pass over a run's queries that its figures are taken from.

Queries are met in order of arrival. Who leaves the queue at a time t is counted at the first
arrival after t; so the number of queries that wait when one arrives is that of the earlier ones
less those counted so far. The first arrival after t is looked up from a grid of times, as fine as
arrivals are on average.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit

__all__ = ["Record", "Terms", "chosen_responses", "tally"]

FloatArray = NDArray[np.float64]


class Record(NamedTuple):
    """A run, as of :class:`ramsis.sim.run.Run`.

    Attributes
    ----------
    arrival_ms, batch_of, start_ms, finish_ms, model
        As they are there.
    drop_query, drop_ms
        By rising query.
    """

    arrival_ms: FloatArray
    batch_of: NDArray[np.int32]
    start_ms: FloatArray
    finish_ms: FloatArray
    model: NDArray[np.int32]
    drop_query: NDArray[np.int32]
    drop_ms: FloatArray


class Terms(NamedTuple):
    """What the figures are under.

    Attributes
    ----------
    slo_ms : ndarray, shape (n,) or (1,)
        Deadline of each query after its arrival, or of all.
    tolerance_ms : float
        An answer so much late is in time.
    duration_ms : float
        Until when the time that queries wait is added up.
    accuracy : ndarray, shape (M,)
    bins_per_ms : float
        Of response times.
    """

    slo_ms: FloatArray
    tolerance_ms: float
    duration_ms: float
    accuracy: FloatArray
    bins_per_ms: float


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _grid(arrival_ms: FloatArray, per_ms: float) -> NDArray[np.int32]:
    """For each cell of time since the first arrival how many arrivals are in those before."""
    n = arrival_ms.size
    first = np.empty(n + 1, dtype=np.int32)
    filled = 0
    for query in range(n):
        cell = int((arrival_ms[query] - arrival_ms[0]) * per_ms)
        while filled <= cell and filled <= n:
            first[filled] = query
            filled += 1
    first[filled:] = n
    return first


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _arrived(
    arrival_ms: FloatArray, first: NDArray[np.int32], per_ms: float, now_ms: float
) -> int:
    """How many arrivals there are up to a time, this included."""
    n = arrival_ms.size
    if now_ms >= arrival_ms[n - 1]:
        return n
    low = int(first[max(int((now_ms - arrival_ms[0]) * per_ms), 0)])
    step, high = 1, low
    while high < n and arrival_ms[high] <= now_ms:
        low = high + 1
        high += step
        step *= 2
    high = min(high, n)
    while low < high:
        middle = (low + high) // 2
        if arrival_ms[middle] <= now_ms:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def tally(
    record: Record, terms: Terms, waiting: NDArray[np.int64], responses: NDArray[np.int64],
    answered: NDArray[np.int64],
) -> tuple[int, float, float]:
    """Count what became of the queries.

    Parameters
    ----------
    record : Record
        Of one query or more.
    terms : Terms
    waiting : ndarray, shape (n,)
        Counts the arrivals that find so many queries waiting.
    responses : ndarray, shape (R,)
        Counts the answers by bin of their response time, the last for all beyond.
    answered : ndarray, shape (M,)
        Counts the answers by model.

    Returns
    -------
    in_time : int
    reward : float
        Accuracy summed over the queries in time.
    waited_ms : float
        Time summed over the queries that they wait.
    """
    arrival_ms, duration_ms = record.arrival_ms, terms.duration_ms
    n, last = arrival_ms.size, responses.size - 1
    span_ms = arrival_ms[n - 1] - arrival_ms[0]
    per_ms = (n - 1) / span_ms if span_ms > 0.0 else 0.0
    first = _grid(arrival_ms, per_ms)
    left = np.zeros(n + 1, dtype=np.int32)
    until = np.full(record.start_ms.size, -1, dtype=np.int32)
    gone, in_time, drops = 0, 0, 0
    reward, waited_ms = 0.0, 0.0
    for query in range(n):
        gone += left[query]
        waiting[max(query - gone, 0)] += 1
        now_ms, batch = arrival_ms[query], record.batch_of[query]
        served_ms, at = np.inf, n
        if batch >= 0:
            served_ms, at = record.start_ms[batch], until[batch]
            if at < 0:
                at = _arrived(arrival_ms, first, per_ms, served_ms)
                until[batch] = at
            finish_ms, model = record.finish_ms[batch], record.model[batch]
            responses[min(int((finish_ms - now_ms) * terms.bins_per_ms), last)] += 1
            answered[model] += 1
            slo_ms = terms.slo_ms[query] if terms.slo_ms.size > 1 else terms.slo_ms[0]
            if finish_ms <= now_ms + slo_ms + terms.tolerance_ms:
                in_time += 1
                reward += terms.accuracy[model]
        elif drops < record.drop_query.size and record.drop_query[drops] == query:
            served_ms = record.drop_ms[drops]
            at = _arrived(arrival_ms, first, per_ms, served_ms)
            drops += 1
        left[max(at, query + 1)] += 1
        waited_ms += min(max(served_ms, 0.0), duration_ms) - min(max(now_ms, 0.0), duration_ms)
    return in_time, reward, waited_ms


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def chosen_responses(
    record: Record, bins_per_ms: float, chosen: NDArray[np.bool_], found: FloatArray
) -> int:
    """Write the response times in the chosen bins into ``found``; returns their number."""
    last, size = chosen.size - 1, 0
    for query in range(record.arrival_ms.size):
        batch = record.batch_of[query]
        if batch >= 0:
            response_ms = record.finish_ms[batch] - record.arrival_ms[query]
            if chosen[min(int(response_ms * bins_per_ms), last)]:
                found[size] = response_ms
                size += 1
    return size
