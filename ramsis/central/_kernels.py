"""Compiled loops over levels and bins, and the expected requests in time of each action."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import count_upto, njit
from ramsis.runtime.table import SLACK_TOLERANCE_MS


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def place(levels: IntArray, longest: int) -> tuple[IntArray, FloatArray]:
    """Return each count up to ``longest`` as a mix of levels: the lower, and the next's share."""
    low = np.zeros(longest + 1, np.int64)
    share = np.zeros(longest + 1)
    at = 0
    for count in range(longest + 1):
        while at + 1 < levels.size and levels[at + 1] <= count:
            at += 1
        low[count] = at
        if at + 1 < levels.size:
            share[count] = (count - levels[at]) / (levels[at + 1] - levels[at])
    return low, share


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def count_in_time(
    queue: IntArray, slack_ms: FloatArray, batch: IntArray, quantiles: FloatArray,
    levels: FloatArray,
) -> FloatArray:
    """Return the expected requests in time of each action, (N, A, J).

    ``slack_ms`` (N, J, B) is the slack of each request of the queue, not falling from the head on.
    """
    result = np.zeros((queue.size, batch.size, slack_ms.shape[1]))
    last = quantiles.shape[1] - 1
    for n in range(1, queue.size):
        for j in range(slack_ms.shape[1]):
            for a in range(batch.size):
                size = batch[a]
                if size > queue[n]:
                    continue
                if slack_ms[n, j, 0] + SLACK_TOLERANCE_MS >= quantiles[a, last]:
                    result[n, a, j] = size
                elif slack_ms[n, j, size - 1] + SLACK_TOLERANCE_MS >= quantiles[a, 0]:
                    result[n, a, j] = _in_time(slack_ms[n, j], size, quantiles[a], levels)
    return result


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _in_time(
    slack_ms: FloatArray, size: int, quantiles: FloatArray, levels: FloatArray
) -> float:
    """Return the expected number of the queue's first ``size`` requests that are in time."""
    total = 0.0  # as slack does not fall, each search goes on from the request before
    above = count_upto(quantiles, slack_ms[0] + SLACK_TOLERANCE_MS)
    for k in range(size):
        time_ms = slack_ms[k] + SLACK_TOLERANCE_MS
        while above < quantiles.size and quantiles[above] <= time_ms:
            above += 1
        if above == quantiles.size:
            return total + (size - k)
        if above > 0:
            share = (time_ms - quantiles[above - 1]) / (quantiles[above] - quantiles[above - 1])
            total += levels[above - 1] + share * (levels[above] - levels[above - 1])
    return total


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def needed_bins(
    distribution: FloatArray, after_drop: NDArray[np.int16]
) -> tuple[IntArray, IntArray]:
    """Return the first and last slack bin that each queue length can reach, (N,) each."""
    lengths, bins = distribution.shape[1:]
    lowest, highest = np.full(lengths, bins - 1), np.zeros(lengths, np.int64)
    for n in range(lengths - 1, -1, -1):
        for j in range(bins):
            if distribution[0, n, j] > 0 or distribution[1, n, j] > 0:
                lowest[n], highest[n] = min(lowest[n], j), max(highest[n], j)
        for j in range(lowest[n], highest[n] + 1):
            for d in range(n):
                jj = after_drop[n, d, j]
                lowest[d], highest[d] = min(lowest[d], jj), max(highest[d], jj)
    return lowest, highest


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def bin_below(middle_ms: FloatArray, slack_ms: float, j: int) -> int:
    """Return the last bin up to ``j`` whose middle is at most a slack, or -1."""
    while j >= 0 and middle_ms[j] > slack_ms:
        j -= 1
    return j


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def around(
    middle_ms: FloatArray, slack_ms: float, below: int, first: int, last: int
) -> tuple[int, float]:
    """Interpolate a slack between two bins: return the lower one and the share of the next.

    ``below`` is the last bin whose middle is not above the slack, or -1.
    """
    if below < first:
        return first, 0.0
    if below >= last:
        return last, 0.0
    step = middle_ms[below + 1] - middle_ms[below]
    return below, (slack_ms - middle_ms[below]) / step


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def oldest(edge_ms: FloatArray, slo_ms: float, spacing_ms: float, k: int) -> FloatArray:
    """Return the slack-bin distribution of the oldest of k >= 1 requests in a spacing, (J,)."""
    probability = np.empty(edge_ms.size)
    upto = 0.0
    for j in range(edge_ms.size - 1, -1, -1):
        age = (slo_ms - edge_ms[j]) / spacing_ms
        more = 1.0 if age >= 1.0 or j == 0 else age**k
        probability[j] = more - upto
        upto = more
    return probability
