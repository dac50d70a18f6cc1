"""Compiled loops over arrival counts: joint distributions of the next state of one worker."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit

__all__ = ["four_intervals", "partial_batch_rows"]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def four_intervals(
    before: NDArray[np.float64],
    within: NDArray[np.float64],
    after_cdf: NDArray[np.float64],
    table: NDArray[np.float64],
    excess: NDArray[np.float64],
) -> None:
    """P(first passage in one slack bin, queue at the end of the service), for each phase.

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
    table : (K, N+1)
        Written: ``table[r-1, n'-1]``, all n' > N in the last column.
    excess : (K,)
        Written: E[(n' - N - 1)+; first passage in the bin].
    """
    workers, rows = table.shape
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
                table[r - 1, min(queued, rows) - 1] += share
                if queued > rows:
                    excess[r - 1] += share * (queued - rows)
                below = upto
                queued += 1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _joint_below(
    share: NDArray[np.float64],
    used: tuple[int, int, int, int],
    count: int,
    order: int,
    y: float,
    below: float,
    log_weight: float,
    joint: NDArray[np.float64],
) -> None:
    """Σ_p share[p, i]·P(Bin(count + p, y) >= order) for each i, into ``joint``.

    ``used`` bounds the p and the i; ``below`` is the probability at p = 0 and ``log_weight`` the
    logarithm of P(Bin(count, y) = order - 1), which may be too small for a number, and grow.
    """
    first, last, low, high = used
    joint[low:high] = 0.0
    step = y * np.exp(log_weight)
    tiny = step < 1e-280
    for p in range(last):
        if p >= first:
            for i in range(low, high):
                joint[i] += share[p, i] * below
        below += step
        ratio = (count + p + 1.0) / (count + p + 2.0 - order) * (1.0 - y)
        if not tiny:
            step *= ratio
        elif ratio > 0.0:
            log_weight += np.log(ratio)
            step = y * np.exp(log_weight)
            tiny = step < 1e-280


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _split(
    state: NDArray[np.float64],
    new: NDArray[np.float64],
    negligible: float,
    share: NDArray[np.float64],
    total: NDArray[np.float64],
) -> tuple[int, int, int, int]:
    """``state[p]·new[p, i]`` into ``share``, its sums over p into ``total``; where they count."""
    phases, most = new.shape
    first, last = 0, phases
    while first < phases and state[first] <= negligible:
        first += 1
    while last > first + 1 and state[last - 1] <= negligible:
        last -= 1
    total[:] = 0.0
    for p in range(first, last):
        for i in range(most):
            share[p, i] = state[p] * new[p, i]
            total[i] += share[p, i]
    low, high = 0, most
    while total[low] <= negligible:
        low += 1
    while total[high - 1] <= negligible:
        high -= 1
    return first, last, low, high


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def partial_batch_rows(
    weight: NDArray[np.float64],
    new: NDArray[np.float64],
    columns: NDArray[np.int64],
    batches: NDArray[np.int64],
    start: NDArray[np.int64],
    edges: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    negligible: float,
    size: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """The CSR arrays of :func:`ramsis.worker.partial_batch.partial_batch_transitions`.

    Parameters
    ----------
    weight : (N+1, D+1, K)
        Distribution of the phase p in each state.
    new : (L, K, I)
        ``new[l, p, i]`` = P(i new requests in service l | phase p).
    columns : (N+1, D+1)
        Column of the state (n', j'); the last row stands for all n' > N.
    batches : (P, 5)
        n, j, b, the index of the latency, and the slack bin that the first edge ends.
    start : (P+1,)
        Where the edges of each begin; its bins are one more than these.
    edges : three arrays (E,)
        For each edge y, below and log_weight as in ``_joint_below``.
    negligible : float
        Entries up to this are left out, and the rows scaled to make up for them.
    size : int
        At least the number of entries.

    Returns
    -------
    indptr, indices, data, excess
    """
    y, below, log_weight = edges
    workers, most = new.shape[1], new.shape[2]
    top, pairs = columns.shape[0] - 1, len(batches)
    indptr = np.zeros(pairs + 1, dtype=np.int64)
    indices, data = np.empty(size, dtype=np.int32), np.empty(size)
    excess = np.zeros(pairs)
    share = np.empty((workers, most))
    total, joint, before = np.empty(most), np.empty(most), np.empty(most)
    filled = 0
    for pair in range(pairs):
        queued, slack_bin, batch, service, first_bin = batches[pair]
        used = _split(weight[queued - 1, slack_bin], new[service], negligible, share, total)
        before[:] = 0.0
        kept = 0.0
        bins = start[pair + 1] - start[pair]
        for e in range(bins + 1):
            if e < bins:
                at = start[pair] + e
                _joint_below(share, used, (queued - 1) * workers, batch * workers,
                             y[at], below[at], log_weight[at], joint)
            else:
                joint[:] = total
            for i in range(used[2], used[3]):
                mass = joint[i] - before[i]
                before[i] = joint[i]
                if mass > negligible:
                    left = queued - batch + i
                    excess[pair] += mass * max(left - top - 1, 0)
                    indices[filled] = columns[min(left - 1, top), first_bin + e]
                    data[filled] = mass
                    kept += mass
                    filled += 1
        data[indptr[pair] : filled] /= kept
        indptr[pair + 1] = filled
    return indptr, indices[:filled].copy(), data[:filled].copy(), excess
