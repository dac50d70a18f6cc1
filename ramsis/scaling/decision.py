r"""How many workers when: a Markov decision process that falls apart into one for each worker.

Workers stand in a row. Where more are wanted the next in the row begin to start; where fewer are,
the last in the row leave, those that start first. So worker k serves in an interval exactly if k
workers or more have been wanted since its start-up began, and what a number of workers costs and
brings is the sum over k of what worker k costs and adds. Its own problem has the states
(load state s, age j): off (0), started j intervals ago, or active (j = d = ⌈start-up / interval⌉).
To be on for an interval costs c and brings, from age j, φ_j u_k(s): u_k(s) is what the k-th worker
adds under the loads that follow s, and φ_j the share of the interval in which it serves: 1 if it
is active, what is left of the interval once it has started at age d - 1, 0 before.

As long as each worker adds no more than the one before it, what worker k + 1 does is never more
than what worker k does (the best decision grows with u_k, and with age), so the problems solved
apart give one policy for all, and no policy of all workers together is better. Where a worker adds
more than the one before it, as where too few workers answer nothing in time, the values are
replaced by the least concave ones above them (:func:`concave_gains`).

Each problem is solved by relative value iteration for the average reward; it stops when the span
of the last change, within which the best average lies, is below a tolerance for every worker.
The decision at a load state is then an age for each worker, kept as thresholds: the last worker
that is started, that is kept though it has just begun to start, ..., that is kept active.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import NotConvergedError, check_positive

_MOST_SWEEPS = 20_000  # then the decisions are refused as not converged
_DAMPING = 0.95  # of a step, so that no cycle of the load keeps the span from falling


@dataclass(frozen=True, eq=False)
class WorkerDecisions:
    """Optimal decisions of every worker in every load state."""

    # shape (S, d+1): in load state s: workers up to ``thresholds[s, 0]`` are started; one of age
    # j is kept up to ``thresholds[s, j]``, an active one (j = d) up to the last. They do not
    # fall with j.
    thresholds: IntArray
    average: float  # the best average reward of an interval, costs taken off
    span: float  # the average lies within half of it on either side: a bound on the error
    sweeps: int
    # shape (N, d+1, S): relative values, of each worker those of (off, the first load state)
    # being 0
    values: FloatArray = field(repr=False)


def concave_gains(values: FloatArray) -> FloatArray:
    """Return each worker's gain under the least concave majorant of the values.

    Parameters
    ----------
    values : ndarray, shape (S, N+1)
        Value of 0 to N workers.

    Returns
    -------
    ndarray, shape (S, N)
        They do not rise along the second axis.
    """
    gains = np.diff(values, axis=1)
    for row in gains:  # neighbours out of order share what they add
        sums: list[float] = []
        sizes: list[int] = []
        for gain in row.tolist():
            sums.append(gain)
            sizes.append(1)
            while len(sums) > 1 and sums[-2] * sizes[-1] < sums[-1] * sizes[-2]:
                last, size = sums.pop(), sizes.pop()
                sums[-1] += last
                sizes[-1] += size
        row[:] = np.repeat(np.array(sums) / np.array(sizes), sizes)
    return gains


def solve_workers(
    gains: FloatArray, transition: FloatArray, *, cost: float, stages: int, partial: float,
    tolerance: float = 1e-4, initial: FloatArray | None = None,
    sweeps: int | None = None,
) -> WorkerDecisions:
    """Solve for the decisions with the best average reward per interval.

    Parameters
    ----------
    gains : ndarray, shape (S, N)
        What the k-th worker adds in the interval after load state s, not rising in k.
    transition : ndarray, shape (S, S)
        Transition probabilities of the load state.
    cost : float
        Cost per interval of an active or starting worker, > 0.
    stages : int
        Intervals d until a worker is active, >= 0.
    partial : float
        Share of its last interval of starting in which it serves, in [0, 1).
    tolerance : float
        Of what each worker's average may be off, as a share of ``cost``, > 0.
    initial : ndarray, shape (N, d+1, S), optional
        Values to begin with, as of a problem that is near.
    sweeps : int, optional
        Stop after so many at the latest; the span then says how far the average may be off.
    """
    check_positive(cost=cost, tolerance=tolerance)
    states, workers = gains.shape
    gain = np.ascontiguousarray(gains.T)[:, None, :]  # (N, 1, S)
    share = np.zeros(stages + 1)
    share[-1] = 1.0
    if stages:
        share[-2] = partial
    on = share[:, None] * gain - cost  # (N, d+1, S)
    follower = np.minimum(np.arange(1, stages + 2), stages)
    value = np.zeros((workers, stages + 1, states)) if initial is None else initial.copy()
    kept = np.zeros((workers, stages + 1, states), bool)
    low, high = np.full(workers, -np.inf), np.full(workers, np.inf)
    left = np.arange(workers)  # those whose span is not yet small
    for sweep in range(1, _MOST_SWEEPS + 1):
        values = value[left]
        expected = values @ transition.T
        stay = on[left] + expected[:, follower]
        change = np.maximum(stay, expected[:, :1]) - values
        low[left], high[left] = change.min(axis=(1, 2)), change.max(axis=(1, 2))
        # No less than what the values themselves are rounded by.
        rounding = 1e-13 * np.abs(expected).max(axis=(1, 2))
        small = high[left] - low[left] <= np.maximum(tolerance * cost, rounding)
        if sweep == sweeps:
            small[:] = True
        if small.any():
            kept[left[small]] = (stay > expected[:, :1])[small]
        values += _DAMPING * change
        value[left] = values - values[:, :1, :1]
        left = left[~small]
        if not len(left):
            thresholds = np.maximum.accumulate(kept.sum(axis=0).T, axis=1)
            return WorkerDecisions(thresholds.astype(np.int64), float((0.5 * (low + high)).sum()),
                                   float((high - low).sum()), sweep, value)
    raise NotConvergedError("the span of the values did not fall", where="scaling policy",
                            value=float((high - low).max()),
                            allowed=f"{tolerance * cost:g} for each worker")
