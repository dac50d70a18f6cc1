"""Compiled simulation of GPU sharing for the queue-aware planner, and kernels of its bound.

The router gathers one batch of a model at a time, for its replicas in turn; so the batches of a
replica depend on the model's replicas alone. On a GPU each replica runs its batches in order of
arrival. The speed of a batch is 1 / ((1 + Σ_{j≠i} a_ij) max(1, Σ_j e_j)), and changes as batches
start and end. ``tests/placement/test_sharing_estimate.py`` compares these with the cluster engine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
TOLERANCE_MS = 1e-6  # tolerance of time comparisons


class Sent(NamedTuple):
    """Batches of a GPU, by replica: those of r have the indices begin[r] to begin[r + 1] - 1."""

    # shapes (replicas + 1,) and (replicas,)
    begin: _Ints
    model: _Ints
    ready: _Floats  # arrival at the GPU, ms, increasing by replica, shape (batches,)
    work: _Floats  # latency alone on the GPU, ms, shape (batches,)
    used: _Floats  # used share e of the GPU, shape (batches,)
    size: _Ints  # number of requests, shape (batches,)


@njit(cache=True)
def gathered(
    arrivals: _Floats, targets: _Ints, waiting_ms: float, lazy: bool, last_ms: float
) -> tuple[_Ints, _Ints, _Ints, _Floats]:
    """Form the batches of a model; return the first request, size, replica and time of each.

    ``last_ms`` is the last arrival of all models, at which a lazy router sends open batches.
    """
    n = len(arrivals)
    first = np.empty(n, np.int64)
    size = np.empty(n, np.int64)
    replica = np.empty(n, np.int64)
    sent = np.empty(n, np.float64)
    count = 0
    turn = 0
    i = 0
    while i < n:
        target = targets[turn]
        due = arrivals[i] + waiting_ms
        j = i + 1
        # A lazy router checks the waiting time only when a request arrives, and at the end.
        if lazy:
            while j < n and j - i < target and arrivals[j - 1] < due:
                j += 1
            full = j - i >= target or arrivals[j - 1] >= due
            at = arrivals[j - 1] if full else last_ms
        else:
            while j < n and j - i < target and arrivals[j] <= due:
                j += 1
            at = arrivals[j - 1] if j - i >= target else due
        first[count] = i
        size[count] = j - i
        replica[count] = turn
        sent[count] = at
        count += 1
        turn = (turn + 1) % len(targets)
        i = j
    return first[:count], size[:count], replica[:count], sent[:count]


@njit(cache=True)
def copied(at_gpu: _Floats, copies: _Floats) -> _Floats:
    """Return the times at which a replica's batches have been copied to the GPU, one by one."""
    on_gpu = np.empty(len(at_gpu), np.float64)
    free = -np.inf
    for k in range(len(at_gpu)):
        free = max(free, at_gpu[k]) + copies[k] if copies[k] > 0 else at_gpu[k]
        on_gpu[k] = free
    return on_gpu


@njit(cache=True)
def run_gpu(
    sent: Sent, beside: _Floats, per_utilisation: float, saturates: bool
) -> _Floats:
    """Simulate the batches on a GPU under interference, and return their end times.

    A row of ``beside`` is a measured pair: model, size, other model, its size, coefficient a.
    """
    begin, model, ready, work, used, size = sent
    replicas = len(begin) - 1
    ends = np.empty(len(ready), np.float64)
    place = begin[:-1].copy()
    left = np.full(replicas, -1.0)
    speed = np.ones(replicas)
    now = 0.0
    while True:
        # Speeds are constant until the next start or end; ``left`` is work, -1 for idle replicas.
        total = 0.0
        for r in range(replicas):
            if left[r] >= 0:
                total += used[place[r]]
        shared = max(1.0, total) if saturates else 1.0
        at = np.inf
        next_replica = -1
        ending = False
        for r in range(replicas):
            if left[r] >= 0:
                added = 0.0
                current = place[r]
                for q in range(replicas):
                    if q != r and left[q] >= 0:
                        other = place[q]
                        slowdown = per_utilisation * used[other]
                        for k in range(len(beside)):
                            if (beside[k, 0] == model[r] and beside[k, 1] == size[current]
                                    and beside[k, 2] == model[q] and beside[k, 3] == size[other]):
                                slowdown = beside[k, 4]
                        added += slowdown
                speed[r] = 1.0 / ((1.0 + added) * shared)
                end = now + left[r] / speed[r]
                if end < at:
                    at, next_replica, ending = end, r, True
        for r in range(replicas):
            if left[r] < 0 and place[r] < begin[r + 1]:
                start = max(now, ready[place[r]])
                if start < at:
                    at, next_replica, ending = start, r, False
        if next_replica < 0:
            return ends
        for r in range(replicas):
            if left[r] >= 0:
                left[r] = max(0.0, left[r] - speed[r] * (at - now))
        now = at
        if ending:
            ends[place[next_replica]] = now
            place[next_replica] += 1
            left[next_replica] = -1.0
        else:
            left[next_replica] = work[place[next_replica]]


@njit(cache=True)
def in_time(
    arrivals: _Floats, first: _Ints, size: _Ints, ends: _Floats, slo_ms: float
) -> int:
    """Count the requests in batches whose answers are within the SLO."""
    count = 0
    for k in range(len(first)):
        for i in range(first[k], first[k] + size[k]):
            if ends[k] - arrivals[i] <= slo_ms + TOLERANCE_MS:
                count += 1
    return count


@njit(cache=True)
def largest_configurations(
    value: _Floats, beside: float, cell: float, most: int, small: int
) -> tuple[_Ints, _Floats, float]:
    """Find the most valuable set of batches for each cell of total utilisation, by knapsacks.

    Parameters
    ----------
    value : ndarray, shape (weights,)
        Largest value of a batch of weight j, with a utilisation in [j, j + 1) cells, alone.
    beside : float
        Slow-down per utilisation of the other batches.
    cell : float
        Utilisation of a cell.
    most : int
        Number of cells.
    small : int
        Weight below which a set has at most one batch; see ``bound.py``, largest configuration.

    Returns
    -------
    ndarray of int, shape (most, most + 1)
        Weights of the batches for each cell, filled with -1.
    ndarray, shape (most,)
        Value of the set; 0 for cells that cannot have the largest value.
    float
        The largest value.
    """
    picks = np.full((most, most + 1), -1, np.int64)
    values = np.zeros(most)
    limits = np.zeros(most)
    worth = np.zeros((most, len(value)))
    for k in range(most):
        once = 0.0
        for j in range(min(k + 1, len(value))):
            slow = 1.0 + beside * max(0.0, (k - j - 1) * cell)
            worth[k, j] = value[j] / (slow * max(1.0, k * cell))
            if j < small:
                once = max(once, worth[k, j])
            else:
                limits[k] = max(limits[k], worth[k, j] * k / j)
        limits[k] += once
    largest = 0.0
    best = np.zeros(most)
    taken = np.zeros(most, np.int64)
    for k in np.argsort(-limits):  # best relaxation first, so that most knapsacks are skipped
        if limits[k] <= largest:
            break
        for room in range(k + 1):
            # Small batches do not extend a solution, so that a set has at most one of them.
            best[room], taken[room] = 0.0, -1
            for j in range(min(room + 1, len(value))):
                total = worth[k, j] + (best[room - j] if j >= small else 0.0)
                if total > best[room]:
                    best[room], taken[room] = total, j
        values[k] = best[k]
        largest = max(largest, values[k])
        room, count = k, 0
        while taken[room] >= 0:
            picks[k, count] = taken[room]
            count += 1
            if taken[room] < small:
                break
            room -= taken[room]
    return picks, values, largest


@njit(cache=True)
def most_in_groups(times: _Floats, least: int, within: float) -> int:
    """Return the largest number of times in disjoint groups of ``least`` or more within a span.

    ``times`` are sorted; a group lasts ``within`` ms at most. The recurrence is f of ``bound.py``,
    for f(i) the first i times.
    """
    best = np.zeros(len(times) + 1, np.int64)
    # Monotone queue (sliding-window maximum) of starts b of the last group, by f(b) - b.
    likely = np.empty(len(times) + 1, np.int64)
    first = last = 0
    begin = 0
    for i in range(len(times)):
        while times[i] - times[begin] > within + TOLERANCE_MS:
            begin += 1
        latest = i + 1 - least
        if latest >= 0:
            while last > first and (best[likely[last - 1]] - likely[last - 1]
                                    <= best[latest] - latest):
                last -= 1
            likely[last] = latest
            last += 1
        while first < last and likely[first] < begin:
            first += 1
        best[i + 1] = best[i]
        if first < last:
            best[i + 1] = max(best[i + 1], best[likely[first]] + i + 1 - likely[first])
    return int(best[-1])
