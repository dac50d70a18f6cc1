"""Compiled loops over levels and bins, and the expected reward of each batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import njit
from ramsis.runtime.table import SLACK_TOLERANCE_MS


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def place(levels: IntArray, longest: int) -> tuple[IntArray, FloatArray]:
    """Interpolate counts up to ``longest`` between levels: lower level, and weight of the next."""
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


class BatchTerms(NamedTuple):
    """Service times, accuracies and prices that the reward of a batch depends on."""

    # size, mean_ms, accuracy, quantiles_ms: of each action, shape (A,), the last one (A, Q)
    size: IntArray
    mean_ms: FloatArray
    accuracy: FloatArray
    quantiles_ms: FloatArray
    levels: FloatArray  # of the quantiles, shape (Q,)
    slo_ms: float
    # price, delay_price: of a violation, and of a response time of the SLO or more
    price: float
    delay_price: float


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def worth_of_batches(
    queue: IntArray, slack_ms: FloatArray, terms: BatchTerms, actions: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the expected requests in time and the reward of each action, (N, A, J) each.

    The reward is the expected accuracy less the prices of violations and of response times.
    Actions that are not among ``actions`` have zeros. ``slack_ms`` (N, J, B) is the slack of each
    request of the queue, not falling from the head on.
    """
    (batch, mean_ms, accuracy, quantiles, levels, slo_ms, price, delay_price) = terms
    bins, last = slack_ms.shape[1], quantiles.shape[1] - 1
    in_time = np.zeros((queue.size, batch.size, bins))
    earned = np.zeros(in_time.shape)
    age_ms = np.empty((slack_ms.shape[2], bins))  # mean over the first requests of the queue
    for n in range(queue.size):
        for j in range(bins):
            total_ms = 0.0
            for k in range(age_ms.shape[0]):
                total_ms += slo_ms - slack_ms[n, j, k]
                age_ms[k, j] = total_ms / (k + 1.0)
        for a in actions:
            size, above = batch[a], 0
            for j in range(bins if size <= queue[n] else 0):
                # Slack hardly changes from bin to bin: the search goes on from the one before.
                first_ms = slack_ms[n, j, 0] + SLACK_TOLERANCE_MS
                while above <= last and quantiles[a, above] <= first_ms:
                    above += 1
                while above > 0 and quantiles[a, above - 1] > first_ms:
                    above -= 1
                if above > last:
                    in_time[n, a, j] = size
                elif slack_ms[n, j, size - 1] + SLACK_TOLERANCE_MS >= quantiles[a, 0]:
                    in_time[n, a, j] = _in_time(slack_ms[n, j], size, quantiles[a], levels, above)
            for j in range(bins):
                delay = min(max((age_ms[size - 1, j] + mean_ms[a]) / slo_ms, 0.0), 1.0)
                good = in_time[n, a, j]
                earned[n, a, j] = (accuracy[a] * good - price * (size - good)
                                   - size * (delay_price * delay))
    return in_time, earned


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _in_time(
    slack_ms: FloatArray, size: int, quantiles: FloatArray, levels: FloatArray, above: int
) -> float:
    """Return the expected number of the queue's first ``size`` requests that are in time.

    ``above`` is the number of quantiles up to the slack of the first.
    """
    total = 0.0  # as slack does not fall, each search goes on from the request before
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

    ``below`` is the last bin whose middle is not above the slack, or -1. Only the bins ``first``
    to ``last`` have values; a slack outside of them takes the nearest.
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
