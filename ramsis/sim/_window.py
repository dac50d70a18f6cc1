"""One walk over the requests, the batches and the drops of a run, for the figures of a window.

Quantiles are exact: values are counted in equal bins between the least and the greatest, and the
bin that holds an order statistic is divided again, until its values are few or all alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import index, njit

_BINS = 1024
_FEW = 64  # values that are sorted
_ALIKE = 1e-290  # differences that bins cannot divide


class Window(NamedTuple):
    """Time window whose requests and decisions are counted, and the deadlines of answers."""

    since_ms: float
    until_ms: float
    slo_ms: FloatArray  # of each request, or of all, shape (n,) or (1,)
    tolerance_ms: float  # by which an answer may be late
    accuracy: FloatArray  # shape (M,)
    quantiles: FloatArray  # the levels of response time and of slack that are asked for, rising


class Decisions(NamedTuple):
    """Requests, batches and drops of a run, as of :class:`ramsis.sim.run.Run`."""

    arrival_ms: FloatArray
    batch_of: NDArray[np.int32]
    start_ms: FloatArray
    finish_ms: FloatArray
    model: NDArray[np.int32]
    size: NDArray[np.int32]
    queued: NDArray[np.int32]
    drop_query: NDArray[np.int32]
    drop_ms: FloatArray
    drop_queued: NDArray[np.int32]


class Counted(NamedTuple):
    """Counts of a window."""

    # arrived, in_time, answered: requests
    arrived: int
    in_time: int
    answered: int
    # reward, busy_ms, response_ms, slack_ms: sums: accuracy of what was in time, time of
    # batches, response times, slack at decisions
    reward: float
    busy_ms: float
    response_ms: float
    slack_ms: float
    # response_at, slack_at: quantiles
    response_at: FloatArray
    slack_at: FloatArray
    sizes: IntArray  # batches of each size
    queues: IntArray  # decisions at each queue length
    by_model: IntArray  # requests that each model served
    met: int
    met_accuracy: float  # batches whose earliest deadline is met, and the sum of their accuracies


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def count(run: Decisions, window: Window) -> Counted:
    """Count the requests that arrive and the decisions that are made in a window of a run."""
    arrival_ms, batch_of, start_ms, finish_ms, model, size, queued, drop_query, drop_ms, gone = run
    since_ms, until_ms, slo_ms, tolerance_ms, accuracy, levels = window
    n, batches, drops, one_slo = arrival_ms.size, start_ms.size, drop_ms.size, slo_ms.size == 1
    due_ms = np.full(batches, np.inf)
    responses, answered, arrived, in_time = np.empty(n), 0, 0, 0
    reward, response_sum, busy_ms, slack_sum, met, met_accuracy = 0.0, 0.0, 0.0, 0.0, 0, 0.0
    for i in range(index(n)):
        at_ms, batch = arrival_ms[i], batch_of[i]
        deadline_ms = at_ms + (slo_ms[0] if one_slo else slo_ms[i])
        inside = since_ms <= at_ms < until_ms
        arrived += inside
        if batch >= 0:
            row = index(batch)
            # A batch is decided on by the slack of the request that is due first.
            due_ms[row] = min(due_ms[row], deadline_ms)
            if inside:
                done_ms = finish_ms[row]
                responses[answered] = done_ms - at_ms
                response_sum += done_ms - at_ms
                answered += 1
                if done_ms <= deadline_ms + tolerance_ms:
                    in_time += 1
                    reward += accuracy[index(model[row])]
    sizes = np.zeros(_greatest(size) + 1, dtype=np.int64)
    queues = np.zeros(max(_greatest(queued), _greatest(gone)) + 1, dtype=np.int64)
    by_model = np.zeros(accuracy.size, dtype=np.int64)
    slacks, decisions = np.empty(batches + drops), 0
    for batch in range(batches):
        row = index(batch)
        from_ms, to_ms = start_ms[row], finish_ms[row]
        busy_ms += max(min(to_ms, until_ms), since_ms) - max(min(from_ms, until_ms), since_ms)
        if since_ms <= from_ms < until_ms:
            sizes[index(size[row])] += 1
            by_model[index(model[row])] += size[row]
            queues[index(queued[row])] += 1
            slacks[decisions] = due_ms[row] - from_ms
            slack_sum += slacks[decisions]
            decisions += 1
            if to_ms <= due_ms[row] + tolerance_ms:
                met += 1
                met_accuracy += accuracy[index(model[row])]
    for drop in range(drops):
        at_ms = drop_ms[drop]
        if since_ms <= at_ms < until_ms:
            query = index(drop_query[drop])
            queues[index(gone[drop])] += 1
            due = arrival_ms[query] + (slo_ms[0] if one_slo else slo_ms[query])
            slacks[decisions] = due - at_ms
            slack_sum += slacks[decisions]
            decisions += 1
    return Counted(arrived, in_time, answered, reward, busy_ms, response_sum, slack_sum,
                   quantiles(responses[:answered], levels),
                   quantiles(slacks[:decisions], levels),
                   sizes, queues, by_model, met, met_accuracy)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def earned(run: Decisions, window: Window) -> FloatArray:
    """Return each request's accuracy if answered in time, else 0; window ends do not count."""
    arrival_ms, batch_of, finish_ms, model = run.arrival_ms, run.batch_of, run.finish_ms, run.model
    slo_ms, accuracy = window.slo_ms, window.accuracy
    found, one_slo = np.zeros(arrival_ms.size), slo_ms.size == 1
    for i in range(index(arrival_ms.size)):
        if batch_of[i] >= 0:
            row = index(batch_of[i])
            deadline_ms = arrival_ms[i] + (slo_ms[0] if one_slo else slo_ms[i])
            if finish_ms[row] <= deadline_ms + window.tolerance_ms:
                found[i] = accuracy[index(model[row])]
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _greatest(values: NDArray[np.int32]) -> int:
    return int(values.max()) if values.size > 0 else 0


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def quantiles(values: FloatArray, levels: FloatArray) -> FloatArray:
    """Return quantiles, interpolated between order statistics; NaN without values."""
    found = np.full(levels.size, np.nan)
    if values.size == 0 or levels.size == 0:
        return found
    places = np.empty(2 * levels.size, dtype=np.int64)
    for k in range(levels.size):
        places[2 * k] = int(levels[k] * (values.size - 1))
        places[2 * k + 1] = min(places[2 * k] + 1, values.size - 1)
    rising = places.copy()
    for x in range(1, rising.size):  # few; numba takes a second to compile a sort of integers
        y = x
        while y > 0 and rising[y - 1] > places[x]:
            rising[y] = rising[y - 1]
            y -= 1
        rising[y] = places[x]
    ordered = _in_order(values, rising)
    for k in range(levels.size):
        low = ordered[np.searchsorted(rising, places[2 * k])]
        high = ordered[np.searchsorted(rising, places[2 * k + 1])]
        found[k] = low + (high - low) * (levels[k] * (values.size - 1) - places[2 * k])
    return found


@njit(cache=True, fastmath={"nnan", "nsz"})  # type: ignore[untyped-decorator,unused-ignore]
def _range(values: FloatArray) -> tuple[float, float]:
    """Return the least and the greatest of some values."""
    least, greatest = np.inf, -np.inf
    for value in values:
        least, greatest = min(least, value), max(greatest, value)
    return least, greatest


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _by_bin(values: FloatArray, least: float, per_bin: float) -> IntArray:
    """Return the number of values in each bin, that of bin k at k + 1."""
    found = np.zeros(_BINS + 1, dtype=np.int64)
    for value in values:
        found[index(min(int((value - least) * per_bin), _BINS - 1)) + 1] += 1
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _keep(
    values: FloatArray, least: float, per_bin: float, step: IntArray, filled: IntArray,
    kept: FloatArray,
) -> None:
    """Write each value to the place ``filled`` of its bin, which moves on by ``step``.

    Whether a bin is kept cannot be foreseen, so that a branch would cost more.
    """
    for value in values:
        there = index(min(int((value - least) * per_bin), _BINS - 1))
        kept[index(filled[there])] = value
        filled[there] += step[there]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _in_order(values: FloatArray, places: IntArray) -> FloatArray:
    """Return the values at some places of their rising order; the places do not fall."""
    found = np.empty(places.size)
    # Values, how many of all are below them, and the first and last of the places among them.
    parts = [(values, 0, 0, places.size)]
    while len(parts) > 0:
        among, below, first, end = parts.pop()
        least, greatest = _range(among)
        if least == greatest:
            found[first:end] = least
            continue
        if among.size <= _FEW or greatest - least <= _ALIKE:
            ordered = np.sort(among)
            for x in range(first, end):
                found[x] = ordered[places[x] - below]
            continue
        per_bin = _BINS / (greatest - least)
        upto = np.cumsum(_by_bin(among, least, per_bin))
        # All that are in a bin with a place, in the order of the bins; others go to one place.
        bins = np.searchsorted(upto, places[first:end] - below, side="right") - 1
        filled, step, total = np.empty(_BINS, np.int64), np.zeros(_BINS, np.int64), 0
        for one in bins:
            if step[one] == 0:
                filled[one], step[one] = total, 1
                total += upto[one + 1] - upto[one]
        filled[step == 0] = total
        kept = np.empty(total + 1)
        _keep(among, least, per_bin, step, filled, kept)
        for x in range(bins.size):
            one = bins[x]
            if x == 0 or one != bins[x - 1]:
                size, last = upto[one + 1] - upto[one], np.searchsorted(bins, one, side="right")
                parts.append((kept[filled[one] - size:filled[one]], below + upto[one], first + x,
                              first + last))
    return found
