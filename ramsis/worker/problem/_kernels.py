"""Compiled loops over arrival counts for the transitions of one worker."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.compiling import dot, index, njit

_UNDERFLOW = 1e-280  # weights below it are computed by their logarithms


class _Steps(NamedTuple):
    """Terms of a recurrence over phases, for some edges side by side."""

    below: FloatArray
    step: FloatArray
    rest: FloatArray


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _joint_below(
    share: NDArray[np.float64],
    used: tuple[int, int, int, int],
    growth: NDArray[np.float64],
    edges: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    steps: _Steps,
    joint: NDArray[np.float64],
) -> None:
    """Write Σ_p share[p, i]·P(Bin(count + p, y) >= order) for i and each edge y into ``joint``.

    ``used`` bounds the p and the i. ``edges`` are y, the probability at p = 0, and the logarithm
    of P(Bin(count, y) = order - 1), which may underflow at first and grows with p by
    ``growth``·(1 − y), ``growth[p]`` = (count + p + 1)/(count + p + 2 − order). The edges are
    independent of each other, so that processors take several at a time.
    """
    first, last, low, high = used
    (y, at_first, log_weight), (below, step, rest) = edges, steps
    count = y.size
    joint[low:high, :count] = 0.0
    for e in range(count):
        below[e], rest[e] = at_first[e], 1.0 - y[e]
        step[e] = y[e] * np.exp(log_weight[e])
        if step[e] < _UNDERFLOW:
            step[e], rest[e] = 0.0, -1.0  # as a mark
    for p in range(last):
        for i in range(low, high if p >= first else low):
            weight, row = share[p, i], joint[i]
            for e in range(index(count)):
                row[e] += weight * below[e]
        more = growth[p]
        for e in range(index(count)):
            below[e] += step[e]
            step[e] *= more * rest[e]
    for e in range(count):
        if rest[e] < 0.0:
            _by_logarithm(share, used, growth, y[e], at_first[e], log_weight[e], joint[:, e])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _by_logarithm(
    share: NDArray[np.float64],
    used: tuple[int, int, int, int],
    growth: NDArray[np.float64],
    y: float,
    below: float,
    log_weight: float,
    joint: NDArray[np.float64],
) -> None:
    """Write the sums of :func:`_joint_below` for one edge whose first step underflows."""
    first, last, low, high = used
    joint[low:high] = 0.0
    step = y * np.exp(log_weight)
    tiny = step < _UNDERFLOW
    for p in range(last):
        if p >= first:
            for i in range(low, high):
                joint[i] += share[p, i] * below
        below += step
        ratio = growth[p] * (1.0 - y)
        if not tiny:
            step *= ratio
        elif ratio > 0.0:
            log_weight += np.log(ratio)
            step = y * np.exp(log_weight)
            tiny = step < _UNDERFLOW


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _split(
    state: NDArray[np.float64],
    new: NDArray[np.float64],
    negligible: float,
    share: NDArray[np.float64],
    total: NDArray[np.float64],
) -> tuple[int, int, int, int]:
    """Write ``state[p]·new[p, i]`` into ``share``, and its sums over p into ``total``.

    Returns the ranges of p and of i that are more than negligible, ends exclusive; ``share`` is
    written for these p only.
    """
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
    """Compute P(next state) after partial batches, as CSR arrays with a row for each batch.

    Parameters
    ----------
    weight : (N+1, D+1, K)
        Distribution of the phase p in each state.
    new : (L, K, I)
        ``new[l, p, i]`` = P(i new requests in service l | phase p).
    columns : (N+1, D+1)
        Column of the state (n', j'); the last row stands for all n' > N.
    batches : (P, 5)
        n, j, b, index of the latency, and the slack bin whose upper edge is the batch's first.
    start : (P+1,)
        Where the edges of each batch begin; it has one bin more than edges.
    edges : three arrays (E,)
        y, the probability at p = 0 and the logarithm as in ``_joint_below``.
    negligible : float
        Entries up to this are left out, and rows rescaled to a sum of 1.
    size : int
        Upper bound on the number of entries.

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
    share, growth = np.empty((workers, most)), np.empty(workers)
    total, before = np.empty(most), np.empty(most)
    joint = np.empty((most, columns.shape[1]))
    steps = _Steps(np.empty(columns.shape[1]), np.empty(columns.shape[1]),
                   np.empty(columns.shape[1]))
    filled = 0
    for pair in range(pairs):
        queued, slack_bin, batch, service, first_bin = batches[pair]
        used = _split(weight[queued - 1, slack_bin], new[service], negligible, share, total)
        count, order = (queued - 1) * workers, batch * workers
        for p in range(used[1]):
            growth[p] = (count + p + 1.0) / (count + p + 2.0 - order)
        before[:] = 0.0  # Σ_p up to the last edge, so that a bin's mass is a difference
        kept = 0.0
        at, bins = start[pair], start[pair + 1] - start[pair]
        _joint_below(share, used, growth, (y[at : at + bins], below[at : at + bins],
                                           log_weight[at : at + bins]), steps, joint)
        # Edges rise: the last bin has what is below no edge.
        joint[:, bins] = total
        for e in range(bins + 1):
            for i in range(used[2], used[3]):
                mass = joint[i, e] - before[i]
                before[i] = joint[i, e]
                # n' = left; what exceeds the full state's N + 1 requests is charged as excess.
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


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def poisson_phases(mean: FloatArray, phase: FloatArray) -> None:
    """Write the phase distribution of each state for Poisson arrivals to ``phase``, (N+1, D+1, K).

    ``phase[n, j, r − 1]`` is the probability that the worker's next request is the r-th central
    arrival from now: that n·K + K − r came since the head, n from 0, given n·K … n·K + K − 1.
    ``mean`` (D+1,) is their expected number.
    """
    lengths, bins, workers = phase.shape
    for n in range(lengths):
        for j in range(bins):
            row, first = phase[n, j], n * workers
            if mean[j] <= 0.0:
                row[:] = 0.0
                row[workers - 1] = 1.0
                continue
            # Weights are relative to that of the likeliest count, as all of them may underflow.
            peak = min(max(int(mean[j]) - first, 0), workers - 1)
            row[workers - 1 - peak] = 1.0
            weight, total = 1.0, 1.0
            for k in range(peak, 0, -1):
                weight *= (first + k) / mean[j]
                row[workers - k] = weight
                total += weight
            weight = 1.0
            for k in range(peak + 1, workers):
                weight *= mean[j] / (first + k)
                row[workers - 1 - k] = weight
                total += weight
            scale = 1.0 / total
            for r in range(workers):
                row[r] *= scale


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def steps_of_the_rest(
    fewer: FloatArray, certain: FloatArray, share: FloatArray, workers: int, rounding: float
) -> None:
    """Convert tail probabilities into distributions over the bins, in place; (n, D+1, D+1).

    Row (n, j) of ``fewer`` holds 1 − P(bin < j') at j' >= j. A P(bin < j') below ``rounding``
    counts as 0, and one below that of the previous j' counts as equal to it. For n = 1, where
    there is no second request, all entries become 0.

    Parameters
    ----------
    certain : (n, D+1)
        Number of arrivals assumed in a state, evenly spread; NaN where ``fewer`` is used.
    share : (D+1, D+1)
        Share of these arrivals that come up to j', by j and j'.
    """
    lengths, bins, _ = fewer.shape
    for n in range(lengths):
        for j in range(bins):
            row = fewer[n, j]
            row[:j] = 0.0
            if n == 0:
                row[j:] = 0.0
                continue
            count = certain[n, j]
            if not np.isnan(count):  # a step: the K-th of evenly spread arrivals
                for at in range(j, bins):
                    within = count >= workers and share[j, at] * count >= workers
                    row[at] = 0.0 if within else 1.0
            upto = max(1.0 - row[j], 0.0)
            if upto < rounding:
                upto = 0.0
            first_step = upto
            for at in range(j, bins - 1):
                further = 1.0 - row[at + 1]
                further = upto if further < rounding else max(further, upto)
                row[at] = further - upto
                upto = further
            row[bins - 1] = 0.0
            row[j] += first_step


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def halves_of_steps(upto: FloatArray) -> None:
    """Convert numbers of requests up to each slack into numbers at each, in place.

    Parameters
    ----------
    upto : (n, D+1, D+1)
        ``upto[n, j, j']`` counts requests with slacks up to T_j', the head's slack being T_j, and
        is used for j' >= j. Rounding may let it fall, or pass the last. Of the requests between
        two slacks, half count at each.
    """
    lengths, bins, _ = upto.shape
    for n in range(lengths):
        for j in range(bins):
            row, most, before = upto[n, j], upto[n, j, bins - 1], 0.0
            row[:j] = 0.0
            row[j] = min(row[j], most)
            at_head = row[j]
            for at in range(j, bins):
                between = 0.0
                if at < bins - 1:
                    row[at + 1] = max(min(row[at + 1], most), row[at])
                    between = row[at + 1] - row[at]
                row[at] = between / 2.0 + before / 2.0
                before = between
            row[j] += at_head


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _window_probabilities(
    probability: FloatArray, workers: int, sums: tuple[FloatArray, FloatArray], within: FloatArray
) -> None:
    """Write P(m − K < N <= m) into ``within``, (M,), from P(N = m).

    Windows below the median are differences of lower tails, those above it of upper tails, as
    differences of sums near 1 would lose all digits.
    """
    below, above = sums
    size, total = within.size, 0.0
    for m in range(size):
        total += probability[m]
        below[m] = total
    total = 0.0
    for m in range(size - 1, -1, -1):
        above[m] = total
        total += probability[m]
    for m in range(size):
        if below[m] < 0.5:
            within[m] = below[m] - below[m - workers] if m >= workers else below[m]
        elif m >= workers:
            within[m] = above[m - workers] - above[m]
        else:
            within[m] = below[size - 1] - above[m]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def expected_worth(
    ends: tuple[int, int], early: FloatArray, row: NDArray[np.int64], probability: FloatArray,
    possible: FloatArray, result: FloatArray,
) -> None:
    """Write E[worth(B) | n, j] for bins j <= j' to ``result``, B the arrivals from T_j to T_j'.

    This is Σ_b early(b)·P(window of n − b) / P(window of n), with early(b) = worth(b)·P(B = b).
    The window of n is (n−1)·K … n·K − 1 arrivals: those behind a head of slack T_j, if n requests
    are queued and K workers take turns. The arrivals beyond B must fill the rest of the window
    (:mod:`ramsis.worker.problem.waiting_slack`).

    Parameters
    ----------
    ends : (int, int)
        Bins j' to compute: first, and last, exclusive.
    early : (T, B)
        early(b) for each of T lengths of time, for b = B − 1 … 0: reversed for the convolution.
    row : (D+1, D+1)
        Row of ``early`` for the time between T_j and T_j', by j and j'.
    probability : (D+1, N·K)
        P(m arrivals) by j' and m, in the time between T_j' and the SLO.
    possible : (N, D+1)
        P(window of n) by n − 1 and j; 0 where the window is taken for impossible.
    result : (N', D+1, D+1)
        Output by n − 1, j and j', for N' <= N; entries of impossible windows are left alone.
    """
    counts, lengths, workers = early.shape[1], result.shape[0], probability.shape[1]
    workers //= possible.shape[0]
    size = lengths * workers
    within = np.zeros(counts + size)  # P(window of n − b) at n·K + B − 1 − b
    sums = np.empty(size), np.empty(size)
    for end in range(ends[0], ends[1]):
        _window_probabilities(probability[end], workers, sums, within[counts:])
        for n in range(lengths):
            window = within[(n + 1) * workers : (n + 1) * workers + counts]
            first = max(counts - (n + 1) * workers, 0)  # before it the window is of less than 0
            for j in range(end + 1):
                if possible[n, j] > 0.0:
                    result[n, j, end] = dot(
                        early[row[j, end]], window, first, counts) / possible[n, j]
