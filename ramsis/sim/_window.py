"""Compiled counts of a run's requests, batches and drops in a time window, and fast quantiles.

Quantiles are exact: values are counted in equal bins between the least and the greatest value, and
only the bins that hold a wanted order statistic are partitioned. That takes a fifth of the time of
partitioning all values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import index, njit

_BINS = 1024
_FEW = 64  # values that are partitioned without bins
_ALIKE = 1e-290  # range of values too small to be divided into bins


class Window(NamedTuple):
    """Time window whose requests and decisions are counted, and the deadlines of answers."""

    since_ms: float
    until_ms: float
    slo_ms: FloatArray  # of each request, shape (n,), or one of all, shape (1,)
    tolerance_ms: float  # lateness up to which an answer counts as in time
    accuracy: FloatArray  # of each model, shape (M,)


class Decisions(NamedTuple):
    """Requests, batches and drops of a run; fields as in :class:`ramsis.sim.run.Run`."""

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
    """Counts and sums of a run in a time window."""

    # arrived, in_time, answered: requests
    arrived: int
    in_time: int
    answered: int
    # reward, busy_ms, response_ms, slack_ms: sums of the accuracies of requests in time, of the
    # time of batches within the window, of response times, and of the slack at decisions
    reward: float
    busy_ms: float
    response_ms: float
    slack_ms: float
    # response, slack: of each request answered, and at each decision
    response: FloatArray
    slack: FloatArray
    sizes: IntArray  # batches of each size
    queues: IntArray  # decisions at each queue length
    by_model: IntArray  # requests that each model served
    met: int  # batches whose earliest deadline is met
    met_accuracy: float  # sum of the accuracies of these batches


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def count(run: Decisions, window: Window) -> Counted:
    """Count a run's requests that arrive in a window, and the decisions that are made in it."""
    arrival_ms, batch_of, start_ms, finish_ms, model, size, queued, drop_query, drop_ms, gone = run
    since_ms, until_ms, slo_ms, tolerance_ms, accuracy = window
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
                   responses[:answered], slacks[:decisions], sizes, queues,
                   by_model, met, met_accuracy)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def earned(run: Decisions, window: Window) -> FloatArray:
    """Return the accuracy of each request of the whole run if answered in time, else 0."""
    arrival_ms, batch_of, finish_ms, model = run.arrival_ms, run.batch_of, run.finish_ms, run.model
    slo_ms, accuracy = window.slo_ms, window.accuracy
    rewards, one_slo = np.zeros(arrival_ms.size), slo_ms.size == 1
    for i in range(index(arrival_ms.size)):
        if batch_of[i] >= 0:
            row = index(batch_of[i])
            deadline_ms = arrival_ms[i] + (slo_ms[0] if one_slo else slo_ms[i])
            if finish_ms[row] <= deadline_ms + window.tolerance_ms:
                rewards[i] = accuracy[index(model[row])]
    return rewards


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _greatest(values: NDArray[np.int32]) -> int:
    greatest = 0
    for value in values:
        greatest = max(greatest, int(value))
    return greatest


def quantiles(values: FloatArray, levels: FloatArray) -> FloatArray:
    """Return quantiles, interpolated between order statistics; NaN without values."""
    if values.size == 0:
        return np.full(levels.size, np.nan)
    place = levels * (values.size - 1)
    low = place.astype(np.int64)
    high = np.minimum(low + 1, values.size - 1)
    places = np.union1d(low, high)
    ordered = in_order(values, places)
    below, above = (ordered[np.searchsorted(places, x)] for x in (low, high))
    return np.asarray(below + (above - below) * (place - low))


def in_order(values: FloatArray, places: IntArray) -> FloatArray:
    """Return the order statistics at ``places`` (ranks from 0), sorting only bins with one."""
    if values.size > _FEW:
        least, greatest = span(values)
        if greatest - least > _ALIKE:
            per_bin = _BINS / (greatest - least)
            upto = by_bin(values, least, per_bin).cumsum()
            bins = np.searchsorted(upto, places, side="right") - 1
            # Values of bins with a rank are gathered bin by bin; all others go to one spare place.
            used = np.unique(bins)
            sizes = upto[used + 1] - upto[used]
            starts = np.append(0, sizes.cumsum())
            filled, step = np.full(_BINS, starts[-1]), np.zeros(_BINS, dtype=np.int64)
            filled[used], step[used] = starts[:-1], 1
            kept = np.empty(starts[-1] + 1)
            keep(values, least, per_bin, step, filled, kept)
            values = kept[:-1]
            places = places - upto[bins] + starts[np.searchsorted(used, bins)]
    return np.asarray(np.partition(values, places)[places])


@njit(cache=True, fastmath={"nnan", "nsz"})  # type: ignore[untyped-decorator,unused-ignore]
def span(values: FloatArray) -> tuple[float, float]:
    """Return the least and the greatest of some values."""
    least, greatest = np.inf, -np.inf
    for value in values:
        least, greatest = min(least, value), max(greatest, value)
    return least, greatest


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def by_bin(values: FloatArray, least: float, per_bin: float) -> IntArray:
    """Return the number of values in each bin, at index k + 1 for bin k."""
    counts = np.zeros(_BINS + 1, dtype=np.int64)
    for value in values:
        counts[index(min(int((value - least) * per_bin), _BINS - 1)) + 1] += 1
    return counts


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def keep(
    values: FloatArray, least: float, per_bin: float, step: IntArray, filled: IntArray,
    kept: FloatArray,
) -> None:
    """Write each value to ``kept`` at its bin's place ``filled``, then add the bin's ``step``.

    Bins that are not wanted have step 0 and share one place. So no branch asks whether a bin is
    wanted; processors would predict that branch badly.
    """
    for value in values:
        at = index(min(int((value - least) * per_bin), _BINS - 1))
        kept[index(filled[at])] = value
        filled[at] += step[at]
