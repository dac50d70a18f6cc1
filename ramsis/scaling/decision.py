r"""Markov decision process of an autoscaler, decomposed into one problem for each worker.

Workers are numbered. To scale up, the next numbers start; to scale down, the highest numbers
leave, starting ones first. So worker k serves in an interval exactly if at least k workers have
been wanted since its start-up began, and the cost and gain of a fleet is the sum of those of its
workers. The problem of worker k has the states (load state s, age j): off (0), started j intervals
ago, or active (j = d = ⌈start-up / interval⌉). An interval in which it is on costs c and gains
φ_j u_k(s): u_k(s) is the marginal gain of the k-th worker under the loads that follow s, and φ_j
the share of the interval in which it serves: 1 if active, the remainder of the interval after
the end of its start-up at age d - 1, and 0 before.

As long as marginal gains do not increase with k, worker k + 1 is on only if worker k is (the
optimal decision is monotone in u_k and in age). The separate solutions then form one policy of the
fleet, and no joint policy is better. Where a marginal gain exceeds the one before it, for example
because too few workers answer nothing in time, the values are replaced by their least concave
majorant (:func:`concave_gains`).

Each problem is solved by relative value iteration for the average reward. The optimal average lies
within the span of the last change; iteration stops when the span is below a tolerance for every
worker. The decision at a load state is stored as thresholds by age: the highest worker that is
started, that is kept at age 1, ..., that is kept active.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import NotConvergedError, check_positive

_MOST_SWEEPS = 20_000  # sweeps after which the solution is refused as not converged
_DAMPING = 0.95  # step size below 1, so that the span falls in periodic chains, too


@dataclass(frozen=True, eq=False)
class WorkerDecisions:
    """Optimal start and keep decisions of every worker in every load state."""

    # shape (S, d+1): in load state s workers up to number ``thresholds[s, 0]`` are started, and
    # workers of age j (active ones: j = d) are kept up to ``thresholds[s, j]``; non-decreasing in
    # j.
    thresholds: IntArray
    average: float  # optimal average reward per interval, net of costs
    span: float  # error bound: the exact average lies within half of it on either side
    sweeps: int
    # shape (N, d+1, S): relative values; 0 for (off, the first load state) of each worker
    values: FloatArray = field(repr=False)


def concave_gains(values: FloatArray) -> FloatArray:
    """Return the marginal gain of each worker under the least concave majorant of the values.

    Parameters
    ----------
    values : ndarray, shape (S, N+1)
        Value of 0 to N workers.

    Returns
    -------
    ndarray, shape (S, N)
        Non-increasing along the second axis.
    """
    gains = np.diff(values, axis=1)
    for row in gains:  # pool adjacent violators: neighbours that increase get their mean
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
    """Solve the problems of all workers by relative value iteration.

    Parameters
    ----------
    gains : ndarray, shape (S, N)
        Gain of the k-th worker in the interval after load state s, non-increasing in k.
    transition : ndarray, shape (S, S)
        Transition probabilities of the load state.
    cost : float
        Cost per interval of an active or starting worker, > 0.
    stages : int
        Intervals d until a started worker is active, >= 0.
    partial : float
        Share of its last start-up interval in which it already serves, in [0, 1).
    tolerance : float
        Largest span of each worker's average, as a share of ``cost``, > 0.
    initial : ndarray, shape (N, d+1, S), optional
        Initial values (warm start), such as the solution of a similar problem.
    sweeps : int, optional
        Largest number of sweeps; ``span`` then bounds the error that is left.
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
    left = np.arange(workers)  # workers that have not converged; the others are left out
    for sweep in range(1, _MOST_SWEEPS + 1):
        values = value[left]
        expected = values @ transition.T
        stay = on[left] + expected[:, follower]
        change = np.maximum(stay, expected[:, :1]) - values
        low[left], high[left] = change.min(axis=(1, 2)), change.max(axis=(1, 2))
        # The span cannot fall below the rounding errors of the values.
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
