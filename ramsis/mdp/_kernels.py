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


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def remainder_rows(
    weight: NDArray[np.float64],
    new: NDArray[np.float64],
    fewest: NDArray[np.int64],
    columns: NDArray[np.int64],
    row: NDArray[np.int64],
    slack_bin: NDArray[np.int64],
    batch: NDArray[np.int64],
    service: NDArray[np.int64],
    first: NDArray[np.int64],
    start: NDArray[np.int64],
    y: NDArray[np.float64],
    below: NDArray[np.float64],
    log_weight: NDArray[np.float64],
    negligible: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Rows of :func:`ramsis.mdp.remainder.remainder`, as the parts of a CSR matrix.

    Parameters
    ----------
    weight : (N+1, D+1, K)
        Law of the phase p in each state.
    new : (L, K, I)
        ``new[l, p, i]`` = P(i new requests in service l | phase p).
    fewest : (L,)
        First i worth looking at.
    columns : (N+1, D+1)
        Column of the state (n', j'); the last row stands for all n' > N.
    row, slack_bin, batch, service : (P,)
        n - 1, j, b and the index of the latency of each pair.
    first, start : (P,), (P+1,)
        Slack bin that the first edge of a pair ends, and where its edges begin; the bins of a
        pair are one more than its edges.
    y, below, log_weight : (E,)
        For each edge, F_0(y) and the logarithm of its first increment over y.
    negligible : float
        Entries up to this are left out; the rows are scaled to make up for them.

    Returns
    -------
    indptr, indices, data, excess
    """
    workers, most = new.shape[1], new.shape[2]
    top = columns.shape[0] - 1
    pairs = row.size
    indptr = np.zeros(pairs + 1, dtype=np.int64)
    size = 0
    for pair in range(pairs):
        size += (start[pair + 1] - start[pair] + 1) * (most - fewest[service[pair]])
    indices = np.empty(size, dtype=np.int64)
    data = np.empty(size)
    excess = np.zeros(pairs)
    joint = np.empty(most)
    before = np.empty(most)
    share = np.empty((workers, most))
    filled = 0
    for pair in range(pairs):
        law = new[service[pair]]
        low = fewest[service[pair]]
        state = weight[row[pair], slack_bin[pair]]
        left = row[pair] + 1 - batch[pair]
        for i in range(low, most):
            before[i] = 0.0
            joint[i] = 0.0
        high = low
        for p in range(workers):
            for i in range(low, most):
                share[p, i] = state[p] * law[p, i]
                joint[i] += share[p, i]
        for i in range(low, most):
            if joint[i] > negligible:
                high = i + 1
        begin, total = filled, 0.0
        edges = start[pair + 1] - start[pair]
        order = batch[pair] * workers
        for e in range(edges + 1):
            if e < edges:
                at = start[pair] + e
                for i in range(low, high):
                    joint[i] = 0.0
                upto, log_step = below[at], log_weight[at]
                step = y[at] * np.exp(log_step)
                tiny = step < 1e-280  # may grow yet
                for p in range(workers):
                    if state[p] > 0.0:
                        for i in range(low, high):
                            joint[i] += share[p, i] * upto
                    upto += step
                    count = row[pair] * workers + p
                    ratio = (count + 1.0) / (count + 2.0 - order) * (1.0 - y[at])
                    if not tiny:
                        step *= ratio
                    elif ratio > 0.0:
                        log_step += np.log(ratio)
                        step = y[at] * np.exp(log_step)
                        tiny = step < 1e-280
            else:
                for i in range(low, high):
                    joint[i] = 0.0
                    for p in range(workers):
                        joint[i] += share[p, i]
            for i in range(low, high):
                mass = joint[i] - before[i]
                before[i] = joint[i]
                if mass > negligible:
                    queued = left + i
                    bin_after = first[pair] + e
                    if queued > top:
                        excess[pair] += mass * (queued - top - 1)
                        indices[filled] = columns[top, 0]
                    else:
                        indices[filled] = columns[queued - 1, bin_after]
                    data[filled] = mass
                    total += mass
                    filled += 1
        for entry in range(begin, filled):
            data[entry] /= total
        indptr[pair + 1] = filled
    return indptr, indices[:filled].copy(), data[:filled].copy(), excess
