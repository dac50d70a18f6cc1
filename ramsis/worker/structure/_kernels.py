"""Compiled loops of backups on slack nodes: first passages, values of services, best actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.arrivals._kernels import poisson_row
from ramsis.compiling import dot, index, njit

_CERTAIN = 40.0  # of −log P: more than so many arrivals are certain
_HARDLY = 1e-15  # nodes of smaller weight than this come before those that are reached


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _tails(mean: float, tail: FloatArray) -> None:
    """Write P(N >= 1 … R) of a Poisson number into ``tail``."""
    poisson_row(mean, tail)
    upto = 0.0
    for k in range(tail.size):
        upto += tail[k]
        tail[k] = max(1.0 - upto, 0.0)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _certain(count: float) -> float:
    """Return a mean at which P(N >= ``count``) rounds to 1, by Chernoff's bound."""
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
    """Compute the weights of slack nodes for Poisson arrivals, one row for each service time.

    A service takes l ms; U_r is the time from its start to the r-th central arrival, which is the
    worker's first new request in phase r = 1 … K (index r − 1 here). Then x = l − U_r ms of the
    service are left. Node weights are such that in each cell of x mass and mean are exact
    (:mod:`ramsis.worker.structure.first_passage`). With N(T) the Poisson number of arrivals in T:

        mass of a cell [x0, x1) = P(N(l − x0) >= r) − P(N(l − x1) >= r),
        E[U_r; U_r <= T] = r/λ·P(N(T) >= r + 1),

    so the mean in a cell needs no integral.

    Parameters
    ----------
    rate_per_ms : float
        λ of the central arrivals.
    latency_ms : (G,)
        The service times l.
    cells : two arrays
        Edges of the cells of x in ms, (C+1,), and nodes in each cell, 1 or 2, (C,).
    remaining_ms : (I,)
        x of each node.
    reach, idle : (G, I, K), (G, K)
        Written, as far as nodes are reached: node weights, and P(no new request).

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
            # ``before`` and ``after``: P(U_r <= l − x) at the low and the high edge of the cell.
            if node == first and most <= _HARDLY:
                first += points[cell]
            elif points[cell] == 1:
                for r in range(workers):
                    reach[g, node, r] = before[r] - after[r]
            else:
                # Two nodes take the mass so that its mean is kept, none less than 0.
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
def service_values(
    reach: FloatArray, idle: FloatArray, rows: NDArray[np.int64], nodes: NDArray[np.int64],
    value: FloatArray,
) -> FloatArray:
    """Return the expected value after each service by phase, (S, K).

    Parameters
    ----------
    reach, idle : (G, I, K), (G, L, K)
        First passages: weights of the nodes and of the starts of busy periods.
    rows : (S,)
        The first passage of each service.
    nodes : (G, 2)
        First and last node, exclusive, that each first passage reaches.
    value : (I' + L,)
        Values of the nodes and the starts of busy periods.
    """
    workers, starts = idle.shape[2], idle.shape[1]
    values = np.zeros((rows.size, workers))
    for s in range(rows.size):
        g, row = rows[s], values[s]
        for i in range(nodes[g, 0], nodes[g, 1]):
            worth, weight = value[i], reach[g, i]
            for r in range(workers):
                row[r] += worth * weight[r]
        for i in range(starts):
            worth, weight = value[value.size - starts + i], idle[g, i]
            for r in range(workers):
                row[r] += worth * weight[r]
    return values


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def meet_after_drops(
    met: NDArray[np.bool_], service: NDArray[np.int64], next_slack: FloatArray, negligible: float
) -> None:
    """Mark states in ``met``, (N+1, D+1), that drops (``service`` < 0) from marked ones reach."""
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
    """Add to the row of each state that drops the mean row of the states that the drop leads to.

    Parameters
    ----------
    bins, first, served
        Fields of :class:`ramsis.worker.structure.evaluation.PolicyStates`.
    """
    width = values.shape[1]
    for n in range(1, served.size):
        for state in range(first[n], served[n]):
            for other in range(first[n - 1], first[n]):
                chance = next_slack[n, bins[state], bins[other]]
                if chance > 0.0:
                    for x in range(index(width)):
                        values[index(state), x] += chance * values[index(other), x]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def best_actions(
    phase: FloatArray, worth: FloatArray, service: NDArray[np.int64], reward: FloatArray,
    place: NDArray[np.int64], dropped: FloatArray, emptied: FloatArray, next_slack: FloatArray,
) -> tuple[FloatArray, NDArray[np.int64], FloatArray]:
    """Find the best action of each state, the first of equals, and the value of the incumbent.

    With n queued (row n − 1) and slack bin j, and V(0, j) = ``emptied``:

        V(n, j) = max( max_a reward(n, a, j) + Σ_r phase(n, j, r)·worth(service(n, a), r),
                       dropped(n, j) + Σ_i next_slack(n, j, i)·V(n − 1, i) ).

    A drop takes no time, so the state after it has its value from the same backup.

    Parameters
    ----------
    phase : (N+1, D+1, K)
        Probability of each phase of the round-robin turn in a state.
    worth : (S, K)
        Value after each service, by phase.
    service : (N+1, A)
        Service of each action that serves.
    reward : (N+1, A, D+1)
        Reward of these less their charge; -inf where they are not admissible.
    place : (N+1, D+1)
        Index of the incumbent action; -1 for a drop.
    dropped : (N+1, D+1)
        Reward of a drop less its charge; -inf where there is none.
    emptied : (D+1,)
        Value after a drop of the only request.
    next_slack : (N+1, D+1, D+1)
        Probability of the next head's slack bin after a drop.

    Returns
    -------
    value, best, kept : (N+1, D+1)
        Value and place of the best; value of the incumbent.
    """
    lengths, actions, bins = reward.shape
    value, kept = np.full((lengths, bins), -np.inf), np.full((lengths, bins), -np.inf)
    best = np.zeros((lengths, bins), dtype=np.int64)
    for n in range(lengths):  # rising, as a drop leads to one request less
        for a in range(actions):
            onward = worth[service[n, a]]
            for j in range(bins):
                if reward[n, a, j] > -np.inf:
                    candidate = reward[n, a, j] + dot(phase[n, j], onward, 0, onward.size)
                    if place[n, j] == a:
                        kept[n, j] = candidate
                    if candidate > value[n, j]:
                        value[n, j], best[n, j] = candidate, a
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
