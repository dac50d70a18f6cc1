"""The slack of the requests that wait behind the head of the queue.

Let the head of n queued requests have slack T_j. The i-th request behind it is the iK-th central
arrival since. Its slack is at most s when it came within t = s − T_j of the head, that is when
B >= iK of the N central arrivals in T_A = SLO − T_j fall into the first t. The n requests mean
(n−1)K <= N <= nK − 1, the *window* of n. With independent increments,

    P(B >= iK | n, j) = Σ_{b >= iK} PF(b, t)·P(N(T_A − t) in window − b) / P(N(T_A) in window).

For Poisson arrivals this is an order statistic, with a Beta distribution for each N. Its sum over
all i is E[⌊B/K⌋]. For i = 1 it is computed as 1 less the same sum over b < K, which has few terms.
With batch arrivals, requests of the head's own batch that come behind it count in B.

Where the window has a probability of 0 in floating point, as in the full state far above capacity,
its most likely number N is assumed: the second request then has the Beta distribution for this N,
and the others are spread evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from scipy.special import betainc

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.arrivals import ArrivalProcess, is_orderly
from ramsis.arrivals.process import count_probabilities, counts_support
from ramsis.worker.problem.batch_arrivals import arrivals_behind_own, batch_size_distribution
from ramsis.worker.problem.queue import WorkerQueue

_IMPOSSIBLE = 1e-290
_EVEN = 1e-12  # of the SLO: how much the steps of an even grid may differ
_ROUNDING = 1e-13  # of a probability that is the rest to 1


def second_slack_distribution(queue: WorkerQueue, longest: int) -> FloatArray:
    """Return the distribution of the bin to which the second request's slack rounds down.

    Parameters
    ----------
    longest : int
        For n = 1 … longest.

    Returns
    -------
    ndarray, shape (longest, D+1, D+1)
        Entry ``[n-1, j, j']``; adds up to 1 over j', to 0 for n = 1.
    """
    from ramsis.worker.problem._kernels import steps_of_the_rest  # which takes long to load

    workers = queue.workers
    # P(B < K), with B the arrivals up to slack T_j': the second request has a larger slack.
    fewer, likely = _expectation_by_slack(queue, longest, np.ones(workers), longest * workers)
    n, j = np.nonzero(likely.impossible & ~likely.crowded)  # such states are not met
    if len(n):
        count = likely.number[n, j][:, None]
        within = betainc(workers, np.maximum(np.floor(count) - workers, 0.0) + 1.0,
                         likely.share[j])
        fewer[n, j] = 1.0 - np.where(count >= workers, within, 0.0)
    steps_of_the_rest(fewer, np.where(likely.crowded, likely.number, np.nan), likely.share,
                      workers, _ROUNDING)
    return fewer


def waiting_by_slack(queue: WorkerQueue, longest: int) -> FloatArray:
    """Return the expected number of requests behind the head at each slack.

    A request between two grid values counts half at each.

    Parameters
    ----------
    longest : int
        For n = 1 … longest.

    Returns
    -------
    ndarray, shape (longest, D+1, D+1)
        Entry ``[n-1, j, j']``; adds up to n − 1 over j'.
    """
    from ramsis.worker.problem._kernels import halves_of_steps  # which takes long to load

    support = counts_support(queue.arrivals, queue.slo_ms)
    counts = min(longest * queue.workers, support + 1)
    upto, likely = _expectation_by_slack(queue, longest, np.arange(counts) // queue.workers,
                                         counts)
    n, j = np.nonzero(likely.impossible)
    upto[n, j] = np.floor(likely.share[j] * likely.number[n, j][:, None] / queue.workers)
    halves_of_steps(upto)
    return upto


class _MostLikely(NamedTuple):
    """Most likely arrivals of windows whose probability is 0 in floating point."""

    # shape (longest, D+1): windows with a probability of 0 in floating point; and those of them
    # that have more arrivals than expected in T_A
    impossible: BoolArray
    crowded: BoolArray
    number: FloatArray  # arrivals of the window that are nearest to the mean, (longest, D+1)
    share: FloatArray  # t / T_A, shape (D+1, D+1)


def _expectation_by_slack(
    queue: WorkerQueue, longest: int, worth: NDArray[Any], counts: int
) -> tuple[FloatArray, _MostLikely]:
    """Return E[worth(B) | n, j], with B the central arrivals up to the slack T_j'.

    Parameters
    ----------
    worth : ndarray, shape (B,)
        For 0, 1, … arrivals; 0 for more.
    counts : int
        Number of arrivals from which on B is taken to be impossible.

    Returns
    -------
    ndarray, shape (longest, D+1, D+1)
        Entry ``[n-1, j, j']``; 0 where j' < j, and where the window is impossible.
    _MostLikely
    """
    arrivals, workers, slack_ms = queue.arrivals, queue.workers, queue.slack_ms
    since_ms, size = slack_ms[-1] - slack_ms, len(slack_ms)
    from ramsis.worker.problem._kernels import expected_worth  # which takes long to load

    probability = count_probabilities(arrivals, longest * workers, since_ms)
    possible = _possible(arrivals, workers, probability, counts)
    good = possible > _IMPOSSIBLE
    some = int(np.flatnonzero(good.any(axis=1))[-1]) + 1  # the windows beyond are impossible
    result = np.zeros((longest, size, size))
    likely = np.where(good, possible, 0.0)
    for ends, early, row in _early_counts(arrivals, workers, worth, slack_ms):
        expected_worth(ends, early, row, probability, likely, result[:some])
    return result, _most_likely(slack_ms, good, workers, arrivals.rate_per_ms)


def _early_counts(
    arrivals: ArrivalProcess, workers: int, worth: NDArray[Any], slack_ms: FloatArray
) -> Iterator[tuple[tuple[int, int], FloatArray, IntArray]]:
    """Yield worth(B)·P(B up to the slack T_j') for B = … 1, 0, in blocks of j'.

    On an even grid every difference of two slacks is a multiple of the step, so that all j' are
    one block.

    Yields
    ------
    ends : (int, int)
        First and last j', exclusive.
    early : ndarray, shape (T, B)
    row : ndarray of int, shape (D+1, D+1)
        Index of the time from j to j'.
    """
    def weighted(times: FloatArray) -> FloatArray:
        new = count_probabilities(arrivals, len(worth), times)
        counted = _with_own_batch(arrivals, workers, new)
        return np.ascontiguousarray((counted * worth)[:, ::-1])

    size = len(slack_ms)
    at = np.arange(size)
    if np.ptp(np.diff(slack_ms)) <= _EVEN * slack_ms[-1]:
        yield (0, size), weighted(slack_ms), np.maximum(at - at[:, None], 0)
        return
    row = np.repeat(at, size).reshape(size, size)
    for end in range(size):
        yield (end, end + 1), weighted(slack_ms[end] - slack_ms[: end + 1]), row


def _possible(
    arrivals: ArrivalProcess, workers: int, probability: FloatArray, counts: int
) -> FloatArray:
    """Return P(N(T_A) in the window of n, below ``counts``) by n and bin, (longest, D+1).

    ``probability``, (D+1, longest·K), is that of the arrivals without those of the head's batch.
    """
    first = _with_own_batch(arrivals, workers, probability)
    if counts < first.shape[1]:
        first = np.where(np.arange(first.shape[1]) < counts, first, 0.0)
    return np.asarray(first.reshape(len(first), -1, workers).sum(axis=2).T)


def _with_own_batch(
    arrivals: ArrivalProcess, workers: int, probability: FloatArray
) -> FloatArray:
    """Add arrivals of the head's own batch to count distributions, (T, counts)."""
    if is_orderly(arrivals):
        return probability
    counts = probability.shape[1]
    together = np.zeros(counts)
    behind_batch = arrivals_behind_own(batch_size_distribution(arrivals), workers)[:counts]
    together[: len(behind_batch)] = behind_batch
    spread = toeplitz(np.eye(1, counts)[0] * together[0], together)
    return np.asarray(probability @ spread)


def _most_likely(
    slack_ms: FloatArray, good: BoolArray, workers: int, rate_per_ms: float
) -> _MostLikely:
    """Return for windows of negligible probability the count nearest to the mean."""
    since = slack_ms[-1] - slack_ms  # T_A, the time since the head came
    fewest = workers * np.arange(len(good))[:, None]  # arrivals of the window of n, from the least
    count = np.clip(rate_per_ms * since[None, :], fewest, fewest + workers - 1.0)
    share = (slack_ms[None, :] - slack_ms[:, None]) / np.where(since > 0, since, 1.0)[:, None]
    share[since == 0.0] = 1.0
    return _MostLikely(~good, ~good & (fewest > rate_per_ms * since[None, :]), count,
                       np.clip(share, 0.0, 1.0))
