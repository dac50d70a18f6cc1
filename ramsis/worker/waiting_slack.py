"""The slack of the requests that wait behind the head of the queue.

Let the head of n queued requests have slack T_j. The i-th request behind it is the iK-th central
arrival since. Its slack is at most s when it came within t = s − T_j of the head, that is when
B >= iK of the N central arrivals in T_A = SLO − T_j fall into the first t. The n requests mean
(n−1)K <= N <= nK − 1, the *window* of n. With independent increments,

    P(B >= iK | n, j) = Σ_{b >= iK} PF(b, t)·P(N(T_A − t) in window − b) / P(N(T_A) in window).

For Poisson arrivals this is an order statistic, of a Beta distribution for each N. Summed over i
it is E[⌊B/K⌋]. With batch arrivals those of the head's own batch behind it count in B.
Markov-modulated arrivals are taken to be spread over T_A as Poisson ones are, given their number.

Where the window has a probability of 0 in floating point, as in the full state far above capacity,
its most likely number is taken for certain: the second request then has its Beta distribution, and
the others are spread evenly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from scipy.special import betainc

from ramsis.arrivals import ArrivalProcess, is_orderly
from ramsis.arrivals.counts import counts_support
from ramsis.worker.batch_arrivals import arrivals_behind_own, batch_size_distribution
from ramsis.worker.modes import without_modes
from ramsis.worker.queue import WorkerQueue

__all__ = ["second_slack_distribution", "waiting_by_slack"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_IMPOSSIBLE = 1e-290


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
    workers = queue.workers

    def if_impossible(count: FloatArray, share: FloatArray) -> FloatArray:
        within = betainc(workers, np.maximum(np.floor(count) - workers, 0.0) + 1.0, share)
        return np.asarray(np.where(count >= workers, within, 0.0))

    upto = _expectation_by_slack(queue, longest, lambda b: (b >= 1.0).astype(float),
                                 if_impossible)
    distribution = np.zeros_like(upto)
    distribution[:, :, :-1], own = _steps(upto)
    at = np.arange(queue.bins + 1)
    distribution[:, at, at] += own
    return distribution


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
    upto = _expectation_by_slack(queue, longest, np.floor,
                                 lambda count, share: np.floor(share * count / queue.workers))
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
    counted: Callable[[FloatArray], FloatArray],
    if_impossible: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    """E[counted(B/K) | n, j], with B the central arrivals up to the slack T_j'.

    Parameters
    ----------
    counted : callable
        Not falling, 0 at 0: ``np.floor`` counts the requests behind the head, and ``b >= i``
        says whether the i-th has come.
    if_impossible : callable
        The same expectation where the window is impossible, from the number of arrivals and
        t / T_A.

    Returns
    -------
    ndarray, shape (longest, D+1, D+1)
        Entry ``[n-1, j, j']``, rising in j'; 0 where j' < j.
    """
    arrivals, workers, slack_ms = without_modes(queue.arrivals), queue.workers, queue.slack_ms
    since_ms = slack_ms[-1] - slack_ms
    most = min(longest * workers - 1, counts_support(arrivals, float(since_ms[0])))
    number = np.arange(most + 1)
    worth = counted(number / workers)
    first = _count_distribution(arrivals, workers, number)
    possible = first(since_ms) @ _window_probability(arrivals, 0.0, number, workers, longest)
    result = np.zeros((longest, len(slack_ms), len(slack_ms)))
    for end in range(len(slack_ms)):
        rest = _window_probability(arrivals, float(since_ms[end]), number, workers, longest)
        early = first(slack_ms[end] - slack_ms[: end + 1]) * worth
        result[:, : end + 1, end] = (early @ rest).T
    good = possible.T > _IMPOSSIBLE
    with np.errstate(divide="ignore", invalid="ignore"):
        result /= possible.T[:, :, None]
    np.minimum(result, result[:, :, -1:], out=result)
    if not good.all():
        count, share = _most_likely(slack_ms, longest, workers, arrivals.rate_per_ms)
        result[~good] = if_impossible(count[~good][:, None], share[np.nonzero(~good)[1]])
    return np.maximum.accumulate(result, axis=2, out=result)


def _steps(upto: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Differences from one slack to the next, (n, D+1, D), and the value at the head's own."""
    between = np.diff(upto, axis=2)
    at = np.arange(upto.shape[1])
    between[:, at[1:], at[:-1]] = 0.0
    return between, upto[:, at, at]


def _count_distribution(
    arrivals: ArrivalProcess, workers: int, number: IntArray
) -> Callable[[FloatArray], FloatArray]:
    """P(B = number) for times since the head: shape (T,) → (T, B)."""
    if is_orderly(arrivals):
        return lambda times: np.exp(arrivals.log_pf(number, times[:, None]))
    together = np.zeros(len(number))
    own = arrivals_behind_own(batch_size_distribution(arrivals), workers)[: len(number)]
    together[: len(own)] = own
    spread = toeplitz(np.eye(1, len(number))[0] * together[0], together)
    return lambda times: np.asarray(np.exp(arrivals.log_pf(number, times[:, None])) @ spread)


def _window_probability(
    arrivals: ArrivalProcess, rest_ms: float, number: IntArray, workers: int, longest: int
) -> FloatArray:
    """P((n−1)K <= b + N(rest) <= nK − 1) for b and n; shape (B, longest)."""
    edges = np.arange(longest + 1)[None, :] * workers - 1 - number[:, None]
    counts = np.arange(longest * workers)
    probability = np.exp(arrivals.log_pf(counts, np.array([rest_ms])))
    below = np.append(np.cumsum(probability), 0.0)  # the last for counts below 0
    above = np.append(np.cumsum(probability[::-1])[::-1][1:], [0.0, below[-2]])
    last = np.maximum(edges, -1)
    lower, upper = np.diff(below[last], axis=1), -np.diff(above[last], axis=1)
    # Each where its terms are small: differences of numbers near 1 lose all digits.
    found: FloatArray = np.where(below[last[:, 1:]] < 0.5, lower, upper)
    return found


def _most_likely(
    slack_ms: FloatArray, longest: int, workers: int, rate_per_ms: float
) -> tuple[FloatArray, FloatArray]:
    """The number of each window next to the mean, (n, D+1), and t / T_A, (D+1, D+1)."""
    since = slack_ms[-1] - slack_ms
    fewest = workers * np.arange(longest)[:, None]
    count = np.clip(rate_per_ms * since[None, :], fewest, fewest + workers - 1.0)
    share = (slack_ms[None, :] - slack_ms[:, None]) / np.where(since > 0, since, 1.0)[:, None]
    share[since == 0.0] = 1.0
    return count, np.clip(share, 0.0, 1.0)
