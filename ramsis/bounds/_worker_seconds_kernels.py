"""Compiled loops of the bound on worker-seconds: losses at constant levels, and paths of levels.

Requests are sorted by arrival; ``first`` (J + 1,) has the first one of each bin. A layer asks of
each request some work, ``demand`` (layers, kinds) by its kind. ``levels`` (K,) are the numbers of
workers that are looked at, rising.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit

__all__ = ["NEAR", "Losses", "bin_losses", "cheapest_path", "gathered"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

NEAR = 6
"""Steps between levels up to which losses of pairs of bins are looked at together."""


class Losses(NamedTuple):
    """Least losses of bins, weighted over layers; the level's axis is that of the bin itself.

    Attributes
    ----------
    alone : ndarray, shape (J, K)
        Of a bin that begins without a backlog.
    after : ndarray, shape (J, K, 2·NEAR + 1)
        After a bin whose level is d - NEAR steps above this one's.
    late : ndarray, shape (J, K)
        Of those that arrive within an SLO of the bin's end.
    rescued : ndarray, shape (J, K, NEAR + 1)
        The most of these that d steps more in the next bin could save.
    """

    alone: FloatArray
    after: FloatArray
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
    low: int, high: int, start: float, end: float, arrival: FloatArray, kind: IntArray,
    demand: FloatArray, levels: FloatArray, slo: float, backlog: FloatArray, lost: FloatArray,
    late: FloatArray,
) -> None:
    """Serve the requests of a bin; changes ``backlog``, adds to ``lost`` and ``late``."""
    at = start
    for i in range(low, high):
        passed, work = arrival[i] - at, demand[kind[i]]
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
    bins, count, layers = first.size - 1, levels.size, weight.size
    alone, late = np.zeros((bins, count)), np.zeros((bins, count))
    after = np.zeros((bins, count, 2 * NEAR + 1))
    rescued = np.zeros((bins, count, NEAR + 1))
    fresh, carried = np.zeros(count), np.zeros(count)
    lost, more, zone, unused = (np.zeros(count), np.zeros(count), np.zeros(count),
                                np.zeros(count))
    before = np.zeros(count)
    for c in range(layers):
        before[:] = 0.0
        for j in range(bins):
            fresh[:] = 0.0
            carried[:] = before
            lost[:] = 0.0
            more[:] = 0.0
            zone[:] = 0.0
            start, end = j * width, (j + 1) * width
            _fill(first[j], first[j + 1], start, end, arrival, kind, demand[c], levels, slo,
                  fresh, lost, unused)
            _fill(first[j], first[j + 1], start, end, arrival, kind, demand[c], levels, slo,
                  carried, more, zone)
            for k in range(count):
                alone[j, k] += weight[c] * lost[k]
                late[j, k] += weight[c] * zone[k]
                for d in range(2 * NEAR + 1):
                    other = min(max(k + d - NEAR, 0), count - 1)
                    missing = max(before[k] - before[other], 0.0)
                    after[j, k, d] += weight[c] * max(lost[k], more[k] - missing)
                for d in range(NEAR + 1):
                    other = min(k + d, count - 1)
                    rescued[j, k, d] += weight[c] * min(zone[k],
                                                        slo * (levels[other] - levels[k]))
            before[:] = fresh
    return Losses(alone, after, late, rescued)


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
    total, following = np.zeros(count), np.zeros(count)
    chosen = np.zeros((bins, count), dtype=np.int64)
    for k in range(count):
        total[k] = price * losses.alone[0, k] + start_cost[0] * paid[k]
    for j in range(1, bins):
        for k in range(count):
            best, at = np.inf, 0
            for i in range(count):
                cost = (total[i] + stay_cost * min(paid[i], paid[k])
                        + start_cost[j] * max(paid[k] - paid[i], 0.0))
                if cost >= best:
                    continue
                cost += price * _loss(losses, j, i, k)
                if cost < best:
                    best, at = cost, i
            following[k] = best
            chosen[j, k] = at
        total[:] = following
    path, best = np.zeros(bins, dtype=np.int64), np.inf
    for k in range(count):  # what arrives last may be served after all that is paid for
        cost = total[k] - price * losses.late[bins - 1, k]
        if cost < best:
            best, path[bins - 1] = cost, k
    loss = -losses.late[bins - 1, path[bins - 1]]
    for j in range(bins - 1, 0, -1):
        path[j - 1] = chosen[j, path[j]]
        loss += _loss(losses, j, path[j - 1], path[j])
    loss += losses.alone[0, path[0]]
    return best - price * loss, loss, path


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _loss(losses: Losses, j: int, before: int, level: int) -> float:
    """The loss of a bin after another one, less what its level saves of that one's."""
    step = before - level
    found = (losses.after[j, level, step + NEAR] if abs(step) <= NEAR
             else losses.alone[j, level])
    if step < 0:
        found -= losses.rescued[j - 1, before, -step] if -step <= NEAR else (
            losses.late[j - 1, before])
    return float(found)
