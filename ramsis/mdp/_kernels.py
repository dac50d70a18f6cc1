"""Compiled loops: over the pairs of a sparse decision problem, and over arrival counts.

In sparse problems row pointers and column indices come as unsigned integers, which spares the
test for negative indices; sums run in the order of the entries, so results do not depend on the
machine.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["advantage_sweep", "four_intervals"]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def advantage_sweep(
    first: NDArray[np.uint64],
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    data: NDArray[np.float64],
    reward: NDArray[np.float64],
    cost: NDArray[np.float64],
    factor: float,
    value: NDArray[np.float64],
    advantage: NDArray[np.float64],
    rows: NDArray[np.uint64],
) -> None:
    """For each state the largest of ``(reward + factor * P value - value) / cost``.

    Parameters
    ----------
    first : (S+1,)
        Pairs of state ``s`` are ``first[s]`` … ``first[s+1] - 1``.
    indptr, indices, data
        CSR of the (L, S) transition matrix.
    reward, cost : (L,)
        Costs are positive.
    factor : float
        Discount, or 1.
    value : (S,)
    advantage, rows : (S,)
        Written: the largest ratio of each state and the first pair that has it.
    """
    for state in range(advantage.size):
        largest = -np.inf
        chosen = first[state]
        for pair in range(first[state], first[state + 1]):
            total = 0.0
            for entry in range(indptr[pair], indptr[pair + 1]):
                total += data[entry] * value[indices[entry]]
            ratio = (reward[pair] + factor * total - value[state]) / cost[pair]
            if ratio > largest:
                largest = ratio
                chosen = pair
        advantage[state] = largest
        rows[state] = chosen


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def four_intervals(
    before: NDArray[np.float64],
    within: NDArray[np.float64],
    after_cdf: NDArray[np.float64],
    law: NDArray[np.float64],
    excess: NDArray[np.float64],
) -> None:
    """Joint law of the first passage in one slack bin and the queue at the end of the service.

    The service is cut where the bin begins and ends: ``a`` central arrivals before it, ``d``
    within, ``k`` after. The worker's next request is the r-th; it falls in the bin when
    a < r <= a + d, and then n' = 1 + floor((a + d + k - r) / K).

    Parameters
    ----------
    before : (K,)
        PF(a, length before the bin).
    within : (M,)
        PF(d, length within the bin).
    after_cdf : (C,)
        P(at most k arrivals after the bin); the last entry counts as 1.
    law : (K, N+1)
        Written: ``law[r-1, n'-1]``, all n' > N in the last column.
    excess : (K,)
        Written: E[(n' - N - 1)+; first passage in the bin].
    """
    workers, rows = law.shape
    for total in range(1, workers + within.size):
        joint = 0.0  # P(a < r, a + d = total), growing with r
        for r in range(1, min(workers, total) + 1):
            if total - r + 1 < within.size:
                joint += before[r - 1] * within[total - r + 1]
            if joint < 1e-18:
                continue
            queued, below = 1, 0.0
            while below < 1.0:
                last = queued * workers - 1 - (total - r)
                upto = 0.0
                if last >= after_cdf.size - 1:
                    upto = 1.0
                elif last >= 0:
                    upto = after_cdf[last]
                share = joint * (upto - below)
                law[r - 1, min(queued, rows) - 1] += share
                if queued > rows:
                    excess[r - 1] += share * (queued - rows)
                below = upto
                queued += 1
