"""Compiled loops over the pairs of a sparse decision problem.

Row pointers and column indices come as unsigned integers, which spares the test for negative
indices; sums run in the order of the entries, so results do not depend on the machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _row_times(
    matrix: tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64]], row: int,
    vector: NDArray[np.float64],
) -> float:
    """Return the product of a row of a CSR matrix (indptr, indices, data) and a vector."""
    indptr, indices, data = matrix
    total = 0.0
    for entry in range(indptr[row], indptr[row + 1]):
        total += data[entry] * vector[indices[entry]]
    return total


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
    """Compute each state's largest ``(reward + factor * P value - value) / cost``.

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
    advantage, best : (S,)
        Written: the largest ratio of each state and the first pair that has it.
    """
    for state in range(advantage.size):
        largest = -np.inf
        chosen = first[state]
        for pair in range(first[state], first[state + 1]):
            onward = factor * _row_times(transition, pair, value)
            ratio = (reward[pair] + onward - value[state]) / cost[pair]
            if ratio > largest:
                largest = ratio
                chosen = pair
        advantage[state] = largest
        best[state] = chosen


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def policy_rows(
    rows: NDArray[np.uint64], indptr: NDArray[np.uint64], indices: NDArray[np.uint32],
    data: NDArray[np.float64],
) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64]]:
    """Return the CSR rows ``rows``, in that order, as a new matrix."""
    starts = np.empty(rows.size + 1, dtype=np.uint64)
    starts[0] = 0
    for i in range(rows.size):
        starts[i + 1] = starts[i] + indptr[rows[i] + np.uint64(1)] - indptr[rows[i]]
    column = np.empty(starts[-1], dtype=indices.dtype)
    weight = np.empty(starts[-1])
    for i in range(rows.size):
        place = starts[i]
        for entry in range(indptr[rows[i]], indptr[rows[i] + np.uint64(1)]):
            column[place] = indices[entry]
            weight[place] = data[entry]
            place += np.uint64(1)
    return starts, column, weight


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def evaluation_sweeps(
    chain: tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64]],
    factor: float,
    value: NDArray[np.float64],
    change: NDArray[np.float64],
    allowed: float,
    sweeps: int,
) -> tuple[float, int]:
    """Repeat ``value <- r + factor * chain @ value``, of which ``change`` is the first step.

    Each sweep adds ``change`` to ``value``, and the next change is ``factor * chain @ change``. It
    stops once the span of the change is at most ``allowed``.

    Parameters
    ----------
    chain : indptr, indices, data
        CSR of the (S, S) chain of a policy.
    value, change : (S,)
        Read and written.
    sweeps : int
        Most sweeps.

    Returns
    -------
    span : float
        Span of the last change, which was not added.
    used : int
        Sweeps.
    """
    then = np.empty_like(change)
    span = np.inf
    for used in range(1, sweeps + 1):
        low, high = np.inf, -np.inf
        for state in range(change.size):
            total = factor * _row_times(chain, state, change)
            then[state] = total
            low = min(low, total)
            high = max(high, total)
        # Only now: the sweep needs the old change of every state.
        for state in range(change.size):
            value[state] += change[state]
            change[state] = then[state]
        span = high - low
        if span <= allowed:
            return span, used
    return span, sweeps


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _times_system(
    chain: tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64]], factor: float,
    vector: NDArray[np.float64], result: NDArray[np.float64],
) -> None:
    """Write ``(I - factor * chain) @ vector`` to ``result``."""
    for state in range(vector.size):
        result[state] = vector[state] - factor * _row_times(chain, state, vector)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def stabilised_biconjugate_gradients(
    chain: tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64]],
    factor: float,
    right: NDArray[np.float64],
    solution: NDArray[np.float64],
    allowed: float,
    most: int,
) -> float:
    """Solve ``(I - factor * chain) @ solution = right`` roughly, from 0 (BiCGSTAB).

    Parameters
    ----------
    chain : indptr, indices, data
        CSR of an (S, S) chain.
    right, solution : (S,)
        ``right`` becomes the residual.
    allowed : float
        Span of the residual at which it stops.
    most : int
        Iterations at most.

    Returns
    -------
    float
        Span of the residual; it stops early where the method breaks down.
    """
    size, residual = right.size, right
    shadow = right.copy()
    direction, image = np.zeros(size), np.zeros(size)
    other = np.empty(size)
    solution[:] = 0.0
    rho = alpha = omega = 1.0
    span = np.inf
    for _ in range(most):
        fresh = 0.0
        for i in range(size):
            fresh += shadow[i] * residual[i]
        if rho == 0.0 or omega == 0.0:
            return span
        # Step along the direction, conjugate to the shadow residual …
        beta = fresh / rho * (alpha / omega)
        rho = fresh
        for i in range(size):
            direction[i] = residual[i] + beta * (direction[i] - omega * image[i])
        _times_system(chain, factor, direction, image)
        along = 0.0
        for i in range(size):
            along += shadow[i] * image[i]
        if along == 0.0:
            return span
        alpha = rho / along
        for i in range(size):
            residual[i] -= alpha * image[i]
        # … and then along the residual, by the length that leaves the least residual.
        _times_system(chain, factor, residual, other)
        above, below = 0.0, 0.0
        for i in range(size):
            above += other[i] * residual[i]
            below += other[i] * other[i]
        omega = above / below if below > 0.0 else 0.0
        low, high = np.inf, -np.inf
        for i in range(size):
            solution[i] += alpha * direction[i] + omega * residual[i]
            residual[i] -= omega * other[i]
            low = min(low, residual[i])
            high = max(high, residual[i])
        span = high - low
        # Put this way round, a residual that is no number ends it as well.
        if not span > allowed:
            return span
    return span
