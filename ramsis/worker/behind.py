"""Where the requests behind the earliest one stand.

Let the earliest of n queued requests have the slack T_j. The i-th behind it is the iK-th central
arrival since; it has at most the slack s when it came within t = s − T_j of the earliest, that is
when B >= iK of the N central arrivals in T_A = SLO − T_j fall into the first t. With the window
(n−1)K <= N <= nK − 1 that n requests mean, and independent increments,

    P(B >= iK | n, j) = Σ_{b >= iK} PF(b, t)·P(N(T_A − t) in window − b) / P(N(T_A) in window);

for Poisson arrivals an order statistic, a Beta law for each N. Summed over i it is E[⌊B/K⌋].
Where requests come in clumps the arrivals of the earliest one's own clump behind it count in B.
Markov-modulated arrivals are taken to be spread over T_A as Poisson ones are, given their number.

Where the window is impossible within what a float can hold, as in the full state of a deep
overload, the likeliest number in it is taken: the second request stands by its Beta law, and the
others evenly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from scipy.special import betainc

from ramsis.arrivals import ArrivalProcess, MarkovModulated, Poisson, is_orderly
from ramsis.arrivals.counts import counts_support
from ramsis.worker.batch_arrivals import clump_law, own_overshoot

__all__ = ["behind_within", "later_by_bin", "second_by_bin"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_IMPOSSIBLE = 1e-290


def behind_within(
    arrivals: ArrivalProcess,
    workers: int,
    slack_ms: FloatArray,
    rows: int,
    counted: Callable[[FloatArray], FloatArray],
    impossible: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    """E[counted(B/K) | n, j], B the central arrivals up to the slack T_j'.

    Parameters
    ----------
    slack_ms : ndarray, shape (D+1,)
        T_0 <= … <= T_D = SLO.
    rows : int
        n = 1 … rows.
    counted : callable
        Not falling, 0 at 0: ``np.floor`` counts the requests behind the earliest one, and
        ``b >= i`` says whether the i-th has come.
    impossible : callable
        The same expectation, of the number of arrivals and the share of T_A that t is.

    Returns
    -------
    ndarray, shape (rows, D+1, D+1)
        Entry ``[n-1, j, j']``, rising in j'; 0 where j' < j.
    """
    if isinstance(arrivals, MarkovModulated):
        arrivals = Poisson(1000.0 * arrivals.rate_per_ms)
    since_ms = slack_ms[-1] - slack_ms
    most = min(rows * workers - 1, counts_support(arrivals, float(since_ms[0])))
    number = np.arange(most + 1)
    worth = counted(number / workers)
    early = _in_first(arrivals, workers, number)
    within = early(since_ms) @ _windows(arrivals, 0.0, number, workers, rows)
    result = np.zeros((rows, len(slack_ms), len(slack_ms)))
    for end in range(len(slack_ms)):
        windows = _windows(arrivals, float(since_ms[end]), number, workers, rows)
        law = early(slack_ms[end] - slack_ms[: end + 1]) * worth
        result[:, : end + 1, end] = (law @ windows).T
    good = within.T > _IMPOSSIBLE
    with np.errstate(divide="ignore", invalid="ignore"):
        result /= within.T[:, :, None]
    np.minimum(result, result[:, :, -1:], out=result)
    if not good.all():
        count, share = _likeliest(slack_ms, rows, workers, arrivals.rate_per_ms)
        result[~good] = impossible(count[~good][:, None], share[np.nonzero(~good)[1]])
    return np.maximum.accumulate(result, axis=2, out=result)


def second_by_bin(
    arrivals: ArrivalProcess, workers: int, slack_ms: FloatArray, rows: int
) -> FloatArray:
    """Law of the bin that the slack of the second request rounds down to.

    Returns
    -------
    ndarray, shape (rows, D+1, D+1)
        Entry ``[n-1, j, j']``; rows add up to 1, those of n = 1 to 0.
    """
    def come(count: FloatArray, share: FloatArray) -> FloatArray:
        law = betainc(workers, np.maximum(np.floor(count) - workers, 0.0) + 1.0, share)
        return np.asarray(np.where(count >= workers, law, 0.0))

    upto = behind_within(arrivals, workers, slack_ms, rows,
                         lambda b: (b >= 1.0).astype(float), come)
    law = np.zeros_like(upto)
    law[:, :, :-1], own = _steps(upto)
    at = np.arange(len(slack_ms))
    law[:, at, at] += own
    return law


def later_by_bin(
    arrivals: ArrivalProcess, workers: int, slack_ms: FloatArray, rows: int
) -> FloatArray:
    """Expected numbers of the requests behind the earliest, by slack.

    Those between two grid values are shared by the two equally.

    Returns
    -------
    ndarray, shape (rows, D+1, D+1)
        Entry ``[n-1, j, j']``; rows add up to n − 1.
    """
    upto = behind_within(arrivals, workers, slack_ms, rows, np.floor,
                         lambda count, share: np.floor(share * count / workers))
    between, own = _steps(upto)
    law = np.zeros_like(upto)
    law[:, :, :-1] += between / 2.0
    law[:, :, 1:] += between / 2.0
    at = np.arange(len(slack_ms))
    law[:, at, at] += own
    return law


def _steps(upto: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What comes between one slack and the next, (rows, D+1, D), and at the earliest one's own."""
    between = np.diff(upto, axis=2)
    at = np.arange(upto.shape[1])
    between[:, at[1:], at[:-1]] = 0.0
    return between, upto[:, at, at]


def _in_first(
    arrivals: ArrivalProcess, workers: int, number: IntArray
) -> Callable[[FloatArray], FloatArray]:
    """Law of B for times since the earliest request: shape (T,) → (T, B)."""
    if is_orderly(arrivals):
        return lambda times: np.exp(arrivals.log_pf(number, times[:, None]))
    behind = np.zeros(len(number))
    own = own_overshoot(clump_law(arrivals), workers)[: len(number)]
    behind[: len(own)] = own
    spread = toeplitz(np.eye(1, len(number))[0] * behind[0], behind)
    return lambda times: np.asarray(np.exp(arrivals.log_pf(number, times[:, None])) @ spread)


def _windows(
    arrivals: ArrivalProcess, rest_ms: float, number: IntArray, workers: int, rows: int
) -> FloatArray:
    """P((n−1)K <= b + N(rest) <= nK − 1) for b and n; shape (B, rows)."""
    edges = np.arange(rows + 1)[None, :] * workers - 1 - number[:, None]
    law = np.exp(arrivals.log_pf(np.arange(rows * workers), np.array([rest_ms])))
    below = np.append(np.cumsum(law), 0.0)  # the last for counts below 0
    above = np.append(np.cumsum(law[::-1])[::-1][1:], [0.0, below[-2]])
    last = np.maximum(edges, -1)
    lower, upper = np.diff(below[last], axis=1), -np.diff(above[last], axis=1)
    # Each where its terms are small: differences of numbers near 1 lose all digits.
    found: FloatArray = np.where(below[last[:, 1:]] < 0.5, lower, upper)
    return found


def _likeliest(
    slack_ms: FloatArray, rows: int, workers: int, rate_per_ms: float
) -> tuple[FloatArray, FloatArray]:
    """The number of each window next to the mean, (rows, D+1), and t / T_A, (D+1, D+1)."""
    since = slack_ms[-1] - slack_ms
    fewest = workers * np.arange(rows)[:, None]
    count = np.clip(rate_per_ms * since[None, :], fewest, fewest + workers - 1.0)
    share = (slack_ms[None, :] - slack_ms[:, None]) / np.where(since > 0, since, 1.0)[:, None]
    share[since == 0.0] = 1.0
    return count, np.clip(share, 0.0, 1.0)
