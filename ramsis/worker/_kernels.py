"""Compiled loops over arrival counts: what one worker finds after a service."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals._kernels import poisson_row
from ramsis.compiling import dot, njit

__all__ = ["add_after_drops", "best_actions", "expected_worth", "four_intervals",
           "meet_after_drops", "partial_batch_rows", "poisson_passages", "poisson_phases",
           "service_values", "steps_of_the_rest"]

FloatArray = NDArray[np.float64]

_CERTAIN = 40.0  # of −log P: more than so many arrivals are certain
_HARDLY = 1e-15  # nodes of smaller weight than this come before those that are reached


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


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _tails(mean: float, tail: FloatArray) -> None:
    """P(N >= 1 … R) of a Poisson number into ``tail``."""
    poisson_row(mean, tail)
    upto = 0.0
    for k in range(tail.size):
        upto += tail[k]
        tail[k] = max(1.0 - upto, 0.0)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _certain(count: float) -> float:
    """A mean at which a Poisson number of at least ``count`` is certain, by Chernoff's bound."""
    mean = count
    while count * np.log(count / mean) + mean - count < _CERTAIN:
        mean += 1.0
    return mean


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def poisson_passages(
    rate_per_ms: float,
    latency_ms: FloatArray,
    cells: tuple[FloatArray, NDArray[np.int64]],
    remaining_ms: FloatArray,
    reach: FloatArray,
    idle: FloatArray,
) -> NDArray[np.int64]:
    """Weights of quadrature nodes, as of :mod:`ramsis.worker.first_passage`, for Poisson arrivals.

    The mean of U_r in a cell needs no integral: E[U_r; U_r <= T] = r/λ·P(N(T) >= r + 1).

    Parameters
    ----------
    latency_ms : (G,)
    cells : two arrays
        Edges in ms, (C+1,), and nodes in each cell, (C,).
    remaining_ms : (I,)
    reach, idle : (G, I, K), (G, K)
        Written, as far as nodes are reached.

    Returns
    -------
    ndarray, shape (G, 2)
        First and last node, exclusive, that each service reaches.
    """
    edge_ms, points = cells
    workers = reach.shape[2]
    used = np.zeros((latency_ms.size, 2), dtype=np.int64)
    before, after = np.empty(workers + 1), np.empty(workers + 1)
    certain_ms = _certain(workers + 1.0) / rate_per_ms
    for g in range(latency_ms.size):
        latency = latency_ms[g]
        _tails(rate_per_ms * latency, before)
        for r in range(workers):
            idle[g, r] = 1.0 - before[r]
        first, node, cell = 0, 0, 0
        while cell < points.size and edge_ms[cell] < latency:
            if latency - edge_ms[cell + 1] >= certain_ms:
                after[:] = 1.0
            else:
                _tails(rate_per_ms * max(latency - edge_ms[cell + 1], 0.0), after)
            most = 0.0
            for r in range(workers + 1):
                after[r] = min(after[r], before[r])  # falling up to rounding already
                most = max(most, before[r] - after[r])
            if node == first and most <= _HARDLY:
                first += points[cell]
            elif points[cell] == 1:
                for r in range(workers):
                    reach[g, node, r] = before[r] - after[r]
            else:
                left = latency - remaining_ms[node]
                per_gap = 1.0 / (remaining_ms[node + 1] - remaining_ms[node])
                for r in range(workers):
                    mass = before[r] - after[r]
                    moment = (r + 1.0) / rate_per_ms * (before[r + 1] - after[r + 1])
                    high = min(max((left * mass - moment) * per_gap, 0.0), mass)
                    reach[g, node, r] = mass - high
                    reach[g, node + 1, r] = high
            node += points[cell]
            cell += 1
            before, after = after, before
        used[g, 0], used[g, 1] = first, node
    return used


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def poisson_phases(mean: FloatArray, phase: FloatArray) -> None:
    """Distribution of the phase in each state, (N+1, D+1, K), by the counts' relative weights.

    See :mod:`ramsis.worker.round_robin_phase`; ``mean`` are the arrivals expected since the head
    came, (D+1,).
    """
    lengths, bins, workers = phase.shape
    for n in range(lengths):
        for j in range(bins):
            row, first = phase[n, j], n * workers
            if mean[j] <= 0.0:
                row[:] = 0.0
                row[workers - 1] = 1.0
                continue
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
    """Distributions over the bins from probabilities of more, in place; (n, D+1, D+1).

    Row (n, j) holds 1 − P(bin < j') at j' >= j. A rest to 1 up to ``rounding`` is none, and it
    does not fall. For n = 1 all is 0.

    Parameters
    ----------
    certain : (n, D+1)
        Number of arrivals that is taken for certain in a state, spread evenly; NaN where its row
        is given.
    share : (D+1, D+1)
        Of them that come up to j'.
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
            if not np.isnan(count):
                for at in range(j, bins):
                    within = count >= workers and share[j, at] * count >= workers
                    row[at] = 0.0 if within else 1.0
            upto = max(1.0 - row[j], 0.0)
            if upto < rounding:
                upto = 0.0
            own = upto
            for at in range(j, bins - 1):
                further = 1.0 - row[at + 1]
                further = upto if further < rounding else max(further, upto)
                row[at] = further - upto
                upto = further
            row[bins - 1] = 0.0
            row[j] += own


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def service_values(
    reach: FloatArray, idle: FloatArray, rows: NDArray[np.int64], nodes: NDArray[np.int64],
    value: FloatArray,
) -> FloatArray:
    """What services are worth by phase, (S, K).

    Parameters
    ----------
    reach, idle : (G, I, K), (G, L, K)
        First passages.
    rows : (S,)
        Which of them.
    nodes : (G, 2)
        First and last node, exclusive, that each reaches.
    value : (I' + L,)
        Of the nodes and the starts of busy periods.
    """
    workers, starts = idle.shape[2], idle.shape[1]
    found = np.zeros((rows.size, workers))
    for s in range(rows.size):
        g, own = rows[s], found[s]
        for i in range(nodes[g, 0], nodes[g, 1]):
            worth, weight = value[i], reach[g, i]
            for r in range(workers):
                own[r] += worth * weight[r]
        for i in range(starts):
            worth, weight = value[value.size - starts + i], idle[g, i]
            for r in range(workers):
                own[r] += worth * weight[r]
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _window_probabilities(
    probability: FloatArray, workers: int, sums: tuple[FloatArray, FloatArray], within: FloatArray
) -> None:
    """P(m − K < N <= m) into ``within``, (M,), from P(N = m).

    Each from the sum on the side where its terms are small: differences of numbers near 1 lose all
    digits.
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
    """Σ_b early(b)·P(window of n − b) / P(window of n), for bins j <= j', into ``result``.

    Parameters
    ----------
    ends : (int, int)
        First and last j', exclusive.
    early : (T, B)
        By time, for b = B − 1 … 0.
    row : (D+1, D+1)
        Of the time from j to j'.
    probability : (D+1, at least N·K)
        P(m arrivals in the time up to j').
    possible : (N, D+1)
        P(window of n) at j; 0 where it is taken for impossible.
    result : (N, D+1, D+1)
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
            for j in range(end + 1):
                if possible[n, j] > 0.0:
                    result[n, j, end] = dot(early[row[j, end]], window, 0, counts) / possible[n, j]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def meet_after_drops(
    met: NDArray[np.bool_], service: NDArray[np.int64], next_slack: FloatArray, negligible: float
) -> None:
    """Mark the states that drops from marked ones lead to, (N+1, D+1); a drop has no service."""
    lengths, bins = met.shape
    for n in range(lengths - 1, 0, -1):
        for j in range(bins):
            if met[n, j] and service[n, j] < 0:
                for i in range(bins):
                    if next_slack[n, j, i] > negligible:
                        met[n - 1, i] = True


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def add_after_drops(
    values: FloatArray, bins: NDArray[np.int64], first: NDArray[np.int64],
    served: NDArray[np.int64], next_slack: FloatArray,
) -> None:
    """Add to the rows of states that drop those of the states that the drops lead to.

    Parameters
    ----------
    values : (S', X)
    bins, first, served
        As of :class:`ramsis.worker.policy_chain.PolicyStates`.
    next_slack : (N+1, D+1, D+1)
    """
    width = values.shape[1]
    for n in range(1, served.size):
        for state in range(first[n], served[n]):
            own = values[state]
            for other in range(first[n - 1], first[n]):
                chance = next_slack[n, bins[state], bins[other]]
                if chance > 0.0:
                    onward = values[other]
                    for x in range(width):
                        own[x] += chance * onward[x]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def best_actions(
    phase: FloatArray, worth: FloatArray, service: NDArray[np.int64], own: FloatArray,
    place: NDArray[np.int64], dropped: FloatArray, emptied: FloatArray, next_slack: FloatArray,
) -> tuple[FloatArray, NDArray[np.int64], FloatArray]:
    """The best action of each state, the first of several, and what the incumbent is worth.

    A drop takes no time, so what it leads to has the value of the same backup.

    Parameters
    ----------
    phase : (N+1, D+1, K)
    worth : (S, K)
        What follows each service, by phase.
    service : (N+1, A)
        Of the actions that serve.
    own : (N+1, A, D+1)
        Reward of these less their charge; -inf where they are not admissible.
    place : (N+1, D+1)
        Of the incumbent among them; -1 for a drop.
    dropped : (N+1, D+1)
        Reward of a drop less its charge; -inf where there is none.
    emptied : (D+1,)
        What follows a drop of the only request.
    next_slack : (N+1, D+1, D+1)

    Returns
    -------
    value, best, kept : (N+1, D+1)
        Value and place of the best; value of the incumbent.
    """
    lengths, actions, bins = own.shape
    value, kept = np.full((lengths, bins), -np.inf), np.full((lengths, bins), -np.inf)
    best = np.zeros((lengths, bins), dtype=np.int64)
    for n in range(lengths):
        for a in range(actions):
            onward = worth[service[n, a]]
            for j in range(bins):
                if own[n, a, j] > -np.inf:
                    found = own[n, a, j] + dot(phase[n, j], onward, 0, onward.size)
                    if place[n, j] == a:
                        kept[n, j] = found
                    if found > value[n, j]:
                        value[n, j], best[n, j] = found, a
        for j in range(bins):
            if dropped[n, j] > -np.inf:
                after = incumbent = emptied[j]
                if n > 0:
                    after = dot(next_slack[n, j], value[n - 1], j, bins)
                    incumbent = dot(next_slack[n, j], kept[n - 1], j, bins)
                if dropped[n, j] + after > value[n, j]:
                    value[n, j], best[n, j] = dropped[n, j] + after, -1
                if place[n, j] < 0:
                    kept[n, j] = dropped[n, j] + incumbent
    return value, best, kept
