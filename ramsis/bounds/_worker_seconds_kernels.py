"""Compiled loops of the bound on worker-seconds: losses at constant levels, and paths of levels.

Requests are sorted by arrival; ``first`` (J + 1,) has the first one of each bin. A layer asks of
each request some work, ``demand`` (layers, kinds) by its kind. ``levels`` (K,) are the numbers of
workers that are looked at, rising.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import njit

NEAR = 3
"""Steps between levels up to which losses of pairs of bins are looked at together."""


class Losses(NamedTuple):
    """Losses of bins, weighted over layers; the second axis is the level of the bin itself.

    Attributes
    ----------
    alone : ndarray, shape (J, K)
        Of a bin that begins without a backlog.
    after : ndarray, shape (J, K, 2·NEAR + 1)
        Of a bin after a steady one whose level is d - NEAR steps above this one's, less what its
        backlog at the end is below the steady one.
    missing : ndarray, shape (J, K, 2·NEAR + 1)
        What the steady backlog at the start is above the one of such a bin that was alone.
    late : ndarray, shape (J, K)
        Largest loss of those that arrive within an SLO of the bin's end.
    rescued : ndarray, shape (J, K, NEAR + 1)
        The most of these that d steps more in the next bin could save.
    """

    alone: FloatArray
    after: FloatArray
    missing: FloatArray
    late: FloatArray
    rescued: FloatArray


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def gathered(arrival: FloatArray, sizes: IntArray, window: FloatArray) -> IntArray:
    """How large a batch each request can be in, by model: a number of ``sizes``, shape (M, n).

    Parameters
    ----------
    arrival : ndarray, shape (n,)
        Rising.
    sizes : ndarray of int, shape (G,)
        Rising from 1.
    window : ndarray, shape (M, G)
        What a batch of that many can gather in; below 0 where it cannot be run.
    """
    count = arrival.size
    found = np.zeros((window.shape[0], count), dtype=np.int64)
    for m in range(window.shape[0]):
        for g in range(sizes.size):
            size, reach = sizes[g], 0
            if window[m, g] < 0.0:
                continue
            for k in range(count - size + 1):
                if arrival[k + size - 1] - arrival[k] <= window[m, g]:
                    for i in range(max(k, reach), k + size):
                        found[m, i] = max(found[m, i], g + 1)
                    reach = max(reach, k + size)
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _fill(
    span: tuple[int, int, float, float], arrival: FloatArray, work_of: FloatArray,
    levels: FloatArray, slo: float, backlog: FloatArray, lost: FloatArray, late: FloatArray,
) -> None:
    """Serve the requests of a bin; changes ``backlog``, adds to ``lost`` and ``late``.

    ``span`` has its first request, the one after its last, its start and its end.
    """
    low, high, start, end = span
    at = start
    for i in range(low, high):
        passed, work = arrival[i] - at, work_of[i]
        at = arrival[i]
        in_zone = 1.0 if at >= end - slo else 0.0
        for k in range(levels.size):
            held = max(backlog[k] - passed * levels[k], 0.0) + work
            over = max(held - levels[k] * slo, 0.0)
            backlog[k] = held - over
            lost[k] += over
            late[k] += over * in_zone
    for k in range(levels.size):
        backlog[k] = max(backlog[k] - (end - at) * levels[k], 0.0)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def bin_losses(
    arrival: FloatArray, kind: IntArray, first: IntArray, width: float, demand: FloatArray,
    weight: FloatArray, levels: FloatArray, slo: float,
) -> Losses:
    """The losses of each bin and level, with ``weight`` (layers,) for each layer's."""
    bins, count, sides = first.size - 1, levels.size, 2 * NEAR + 1
    alone, late = np.zeros((bins, count)), np.zeros((bins, count))
    after, missing = np.zeros((bins, count, sides)), np.zeros((bins, count, sides))
    rescued = np.zeros((bins, count, NEAR + 1))
    # Paths of one bin: from nothing, and from the steady backlog of each level near by.
    lanes, before = np.repeat(levels, sides + 1), np.zeros(count * (sides + 1), dtype=np.int64)
    for k in range(count):
        for d in range(sides):
            before[k * (sides + 1) + d] = min(max(k + d - NEAR, 0), count - 1)
    backlog, lost, zone = (np.zeros(lanes.size), np.zeros(lanes.size), np.zeros(lanes.size))
    steady, fresh = np.zeros(count), np.zeros(count)
    work_of = np.zeros(arrival.size)
    for c in range(weight.size):
        for i in range(arrival.size):
            work_of[i] = demand[c, kind[i]]
        steady[:] = 0.0
        fresh[:] = 0.0
        for j in range(bins):
            start, end, low, high = j * width, (j + 1) * width, first[j], first[j + 1]
            for k in range(count):
                for d in range(sides):
                    at = k * (sides + 1) + d
                    backlog[at] = steady[before[at]]
                    missing[j, k, d] += weight[c] * max(steady[k] - fresh[before[at]], 0.0)
                backlog[k * (sides + 1) + sides] = 0.0
            lost[:] = 0.0
            zone[:] = 0.0
            _fill((low, high, start, end), arrival, work_of, lanes, slo, backlog, lost, zone)
            for k in range(count):
                at = k * (sides + 1)
                steady[k], fresh[k] = backlog[at + NEAR], backlog[at + sides]
                alone[j, k] += weight[c] * lost[at + sides]
                most = 0.0
                for d in range(sides + 1):
                    most = max(most, zone[at + d])
                for d in range(sides):
                    after[j, k, d] += weight[c] * (
                        lost[at + d] - max(steady[k] - backlog[at + d], 0.0))
                late[j, k] += weight[c] * most
                for d in range(NEAR + 1):
                    more = slo * (levels[min(k + d, count - 1)] - levels[k])
                    rescued[j, k, d] += weight[c] * min(most, more)
    return Losses(alone, after, missing, late, rescued)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def cheapest_path(
    losses: Losses, paid: FloatArray, start_cost: FloatArray, stay_cost: float, price: float
) -> tuple[float, float, IntArray]:
    """The levels with the least cost + price·loss: both, and the levels, shape (J,).

    Parameters
    ----------
    losses : Losses
    paid : ndarray, shape (K,)
        Workers that a level costs at least.
    start_cost : ndarray, shape (J,)
        Of a worker that first serves in a bin.
    stay_cost : float
        Of a worker between two bins.
    price : float
    """
    bins, count = losses.alone.shape
    # States are levels whose backlog is at least that of a bin alone (0), or of a steady one (1).
    total, following = np.full((count, 2), np.inf), np.empty((count, 2))
    chosen = np.zeros((bins, count, 2), dtype=np.int64)
    for k in range(count):
        total[k, 1] = price * losses.after[0, k, NEAR] + start_cost[0] * paid[k]
    for j in range(1, bins):
        following[:] = np.inf
        for k in range(count):
            for i in range(count):
                cost = stay_cost * min(paid[i], paid[k]) + start_cost[j] * max(
                    paid[k] - paid[i], 0.0)
                if min(total[i, 0], total[i, 1]) + cost >= max(following[k, 0], following[k, 1]):
                    continue
                for f in range(2):
                    loss, steady = _loss(losses, j, i, f, k)
                    if total[i, f] + cost + price * loss < following[k, steady]:
                        following[k, steady] = total[i, f] + cost + price * loss
                        chosen[j, k, steady] = 2 * i + f
        total[:] = following
    # Those that arrive last may be served after all that is paid for.
    total -= price * losses.late[bins - 1].copy().reshape((count, 1))
    at = int(np.argmin(total))
    path, f = np.zeros(bins, dtype=np.int64), at % 2
    lost = -losses.late[bins - 1, at // 2]
    path[bins - 1] = at // 2
    for j in range(bins - 1, 0, -1):
        path[j - 1], before = divmod(chosen[j, path[j], f], 2)
        lost += _loss(losses, j, path[j - 1], before, path[j])[0]
        f = before
    lost += losses.after[0, path[0], NEAR]
    return total[at // 2, at % 2] - price * lost, lost, path


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _loss(losses: Losses, j: int, before: int, kept: int, level: int) -> tuple[float, int]:
    """The loss of a bin after another one, less what its level saves of that one's.

    And whether the backlog that it ends with is the steady one.
    """
    step = before - level
    found, steady = losses.alone[j, level], 0
    if abs(step) <= NEAR:
        chained = losses.after[j, level, step + NEAR] if kept else (
            losses.after[j, level, NEAR] - losses.missing[j, level, step + NEAR])
        if chained >= found:
            found, steady = chained, 1
    if step < 0:
        found -= losses.rescued[j - 1, before, -step] if -step <= NEAR else (
            losses.late[j - 1, before])
    return found, steady
