"""The slack of the requests that wait behind the head of the queue.

Let the head of n queued requests have slack T_j. The i-th request behind it is the iK-th central
arrival since. Its slack is at most s when it came within t = s − T_j of the head, that is when
B >= iK of the N central arrivals in T_A = SLO − T_j fall into the first t. The n requests mean
(n−1)K <= N <= nK − 1, the *window* of n. With independent increments,

    P(B >= iK | n, j) = Σ_{b >= iK} PF(b, t)·P(N(T_A − t) in window − b) / P(N(T_A) in window).

For Poisson arrivals this is an order statistic, of a Beta distribution for each N. Summed over i
it is E[⌊B/K⌋]; for i = 1 it is the rest to 1 of the same sum over b < K, which has few terms.
With batch arrivals those of the head's own batch behind it count in B.
Markov-modulated arrivals are taken to be spread over T_A as Poisson ones are, given their number.

Where the window has a probability of 0 in floating point, as in the full state far above capacity,
its most likely number is taken for certain: the second request then has its Beta distribution, and
the others are spread evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from scipy.special import betainc

from ramsis.arrivals import ArrivalProcess, is_orderly
from ramsis.arrivals.counts import count_probabilities, counts_support
from ramsis.worker.batch_arrivals import arrivals_behind_own, batch_size_distribution
from ramsis.worker.modes import without_modes
from ramsis.worker.queue import WorkerQueue

__all__ = ["second_slack_distribution", "waiting_by_slack"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

_IMPOSSIBLE = 1e-290
_FEW_TIMES = 8  # distinct times for each slack, where the grid has equal steps
_ROUNDING = 1e-13  # of a probability that is the rest to 1


def second_slack_distribution(queue: WorkerQueue, longest: int) -> FloatArray:
    """Distribution of the bin that the slack of the second request rounds down to.

    Parameters
    ----------
    longest : int
        For n = 1 … longest.

    Returns
    -------
    ndarray, shape (longest, D+1, D+1)
        Entry ``[n-1, j, j']``; adds up to 1 over j', to 0 for n = 1.
    """
    from ramsis.worker._kernels import steps_of_the_rest  # which takes long to load

    workers = queue.workers

    def if_impossible(count: FloatArray, share: FloatArray, crowded: BoolArray) -> FloatArray:
        within = (share * count >= workers).astype(float)
        some = ~crowded[:, 0]  # no arrivals are so close together: such states are not met
        within[some] = betainc(workers, np.maximum(np.floor(count[some]) - workers, 0.0) + 1.0,
                               share[some])
        return 1.0 - np.asarray(np.where(count >= workers, within, 0.0))

    fewer = _expectation_by_slack(queue, longest, np.ones(workers), longest * workers,
                                  if_impossible)
    steps_of_the_rest(fewer, _ROUNDING)
    return fewer


def waiting_by_slack(queue: WorkerQueue, longest: int) -> FloatArray:
    """Expected number of requests behind the head at each slack.

    One between two grid values counts half at each.

    Parameters
    ----------
    longest : int
        For n = 1 … longest.

    Returns
    -------
    ndarray, shape (longest, D+1, D+1)
        Entry ``[n-1, j, j']``; adds up to n − 1 over j'.
    """
    support = counts_support(without_modes(queue.arrivals), queue.slo_ms)
    counts = min(longest * queue.workers, support + 1)
    upto = _expectation_by_slack(queue, longest, np.arange(counts) // queue.workers, counts,
                                 lambda count, share, _: np.floor(share * count / queue.workers))
    np.minimum(upto, upto[:, :, -1:], out=upto)
    np.maximum.accumulate(upto, axis=2, out=upto)
    between, own = _steps(upto)
    expected = np.zeros_like(upto)
    expected[:, :, :-1] += between / 2.0
    expected[:, :, 1:] += between / 2.0
    at = np.arange(queue.bins + 1)
    expected[:, at, at] += own
    return expected


def _expectation_by_slack(
    queue: WorkerQueue,
    longest: int,
    worth: NDArray[Any],
    counts: int,
    if_impossible: Callable[[FloatArray, FloatArray, BoolArray], FloatArray],
) -> FloatArray:
    """E[worth(B) | n, j], with B the central arrivals up to the slack T_j'.

    Parameters
    ----------
    worth : ndarray, shape (B,)
        For 0, 1, … arrivals; 0 for more.
    counts : int
        So many arrivals are taken for impossible.
    if_impossible : callable
        The same expectation where the window is impossible, from the number of arrivals,
        t / T_A, and whether so many are too many for T_A.

    Returns
    -------
    ndarray, shape (longest, D+1, D+1)
        Entry ``[n-1, j, j']``; 0 where j' < j.
    """
    arrivals, workers, slack_ms = without_modes(queue.arrivals), queue.workers, queue.slack_ms
    since_ms = slack_ms[-1] - slack_ms
    early = _early_counts(arrivals, workers, worth, slack_ms)
    windows = _window_probabilities(arrivals, since_ms, len(worth), workers, longest)
    some = min(longest, -(-counts // workers))  # the windows beyond are impossible
    possible = _possible(arrivals, workers, since_ms, counts, longest)
    good = possible > _IMPOSSIBLE
    scale = np.where(good, possible, 1.0).T
    by_end = np.zeros((len(slack_ms), len(slack_ms), longest))
    for end in range(len(slack_ms)):
        found = early(end) @ windows(end)[:, :some]
        by_end[end, : end + 1, :some] = found / scale[: end + 1, :some]
    result = np.ascontiguousarray(by_end.T)
    if not good.all():
        count, crowded, share = _most_likely(slack_ms, longest, workers, arrivals.rate_per_ms)
        result[~good] = if_impossible(count[~good][:, None], share[np.nonzero(~good)[1]],
                                      crowded[~good][:, None])
    return result


def _early_counts(
    arrivals: ArrivalProcess, workers: int, worth: NDArray[Any], slack_ms: FloatArray
) -> Callable[[int], FloatArray]:
    """worth(B)·P(B up to the slack T_j') for B = … 1, 0 and each j <= j', by j'.

    Equal steps of the grid have equal times, which are computed once.
    """
    counted = _count_distribution(arrivals, workers, len(worth))

    def weighted(times: FloatArray) -> FloatArray:
        return np.ascontiguousarray((counted(times) * worth)[:, ::-1])

    size = len(slack_ms)
    times = np.maximum(slack_ms[None, :] - slack_ms[:, None], 0.0)
    _, first, row = np.unique(np.round(times / slack_ms[-1], 12), return_index=True,
                              return_inverse=True)
    if len(first) > _FEW_TIMES * size:
        return lambda end: weighted(times[: end + 1, end])
    row = row.reshape(times.shape)
    if len(first) == size and (row[:, -1] == np.arange(size)[::-1]).all():  # equal steps
        falling = weighted(times.ravel()[first[::-1]])
        return lambda end: falling[size - 1 - end :]
    found = weighted(times.ravel()[first])
    return lambda end: found[row[: end + 1, end]]


def _possible(
    arrivals: ArrivalProcess, workers: int, since_ms: FloatArray, counts: int, longest: int
) -> FloatArray:
    """P(N(T_A) in the window of n, and below ``counts``) for each n and bin, (longest, D+1)."""
    first = np.zeros((len(since_ms), longest * workers))
    first[:, :counts] = _count_distribution(arrivals, workers, counts)(since_ms)
    return np.asarray(first.reshape(len(since_ms), longest, workers).sum(axis=2).T)


def _steps(upto: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Differences from one slack to the next, (n, D+1, D), and the value at the head's own."""
    between = np.diff(upto, axis=2)
    at = np.arange(upto.shape[1])
    between[:, at[1:], at[:-1]] = 0.0
    return between, upto[:, at, at]


def _count_distribution(
    arrivals: ArrivalProcess, workers: int, counts: int
) -> Callable[[FloatArray], FloatArray]:
    """P(B = 0 … counts − 1) for times since the head: shape (T,) → (T, counts)."""
    if is_orderly(arrivals):
        return lambda times: count_probabilities(arrivals, counts, times)
    together = np.zeros(counts)
    own = arrivals_behind_own(batch_size_distribution(arrivals), workers)[:counts]
    together[: len(own)] = own
    spread = toeplitz(np.eye(1, counts)[0] * together[0], together)
    return lambda times: np.asarray(count_probabilities(arrivals, counts, times) @ spread)


def _window_probabilities(
    arrivals: ArrivalProcess, since_ms: FloatArray, counts: int, workers: int, longest: int
) -> Callable[[int], FloatArray]:
    """P((n−1)K <= b + N(rest) <= nK − 1) for b = … 1, 0 and n, (B, longest), by bin."""
    from ramsis.worker._kernels import window_probabilities  # which takes long to load

    probability = count_probabilities(arrivals, longest * workers, since_ms)
    within = np.zeros((len(since_ms), counts + longest * workers))
    window_probabilities(probability, workers, within[:, counts:])
    step = within.itemsize  # entry (i, n) is within[end, n·K + i]: views of the same numbers
    return lambda end: np.lib.stride_tricks.as_strided(
        within[end, workers:], (counts, longest), (step, workers * step), writeable=False)


def _most_likely(
    slack_ms: FloatArray, longest: int, workers: int, rate_per_ms: float
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """The number of each window next to the mean, whether it is above, and t / T_A.

    Shapes (n, D+1), (n, D+1) and (D+1, D+1).
    """
    since = slack_ms[-1] - slack_ms
    fewest = workers * np.arange(longest)[:, None]
    count = np.clip(rate_per_ms * since[None, :], fewest, fewest + workers - 1.0)
    share = (slack_ms[None, :] - slack_ms[:, None]) / np.where(since > 0, since, 1.0)[:, None]
    share[since == 0.0] = 1.0
    return count, fewest > rate_per_ms * since[None, :], np.clip(share, 0.0, 1.0)
