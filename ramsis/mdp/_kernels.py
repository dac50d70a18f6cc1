"""Compiled loops over the pairs of a sparse decision problem.

Row pointers and column indices come as unsigned integers, which spares the
test for negative indices; sums run in the order of the entries, so results do not depend on the
machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit

__all__ = ["advantage_sweep"]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def advantage_sweep(
    first: NDArray[np.uint64],
    transition: tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64]],
    reward: NDArray[np.float64],
    cost: NDArray[np.float64],
    factor: float,
    value: NDArray[np.float64],
    advantage: NDArray[np.float64],
    best: NDArray[np.uint64],
) -> None:
    """For each state the largest of ``(reward + factor * P value - value) / cost``.

    Parameters
    ----------
    first : (S+1,)
        Pairs of state ``s`` are ``first[s]`` … ``first[s+1] - 1``.
    transition : indptr, indices, data
        CSR of the (L, S) transition matrix.
    reward, cost : (L,)
        Costs are positive.
    factor : float
        Discount, or 1.
    value : (S,)
    advantage, best : (S,)
        Written: the largest ratio of each state and the first pair that has it.
    """
    indptr, indices, data = transition
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
        best[state] = chosen
