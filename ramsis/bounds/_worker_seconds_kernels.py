"""Compiled loops of the bound on worker-seconds: losses at constant levels, and paths of levels.

Requests are sorted by arrival; ``first`` (J + 1,) is the first one of each bin. In each layer a
request brings work in ms by its kind, ``demand`` (layers, kinds). A level is a number of workers,
``levels`` (K,) rising. The *steady* backlog of a level is that with so many workers all the time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import njit

NEAR = 3
"""Steps between the levels of two bins up to which their losses are computed together."""
_LOOK = 8  # requests between checks for paths that have merged


class Paths(NamedTuple):
    """Fluid queues with equal arrivals and different numbers of workers; work in ms."""

    backlog: FloatArray
    lost: FloatArray  # work that could not be done within the SLO
    late: FloatArray  # the part of it that arrived within an SLO of the bin's end


class Losses(NamedTuple):
    """Work lost in each bin, weighted over layers; the second axis is the level of the bin."""

    alone: FloatArray  # if the bin begins without a backlog, shape (J, K)
    # shape (J, K, 2·NEAR + 1): if it begins with the steady backlog of the level d − NEAR steps
    # up, less what its backlog at the end falls short of the steady one
    after: FloatArray
    # shape (J, K, 2·NEAR + 1): by how much its steady backlog at the start exceeds the backlog
    # that such a bin before it leaves if that one began without any
    missing: FloatArray
    late: FloatArray  # largest loss of requests within an SLO of the bin's end, shape (J, K)
    rescued: FloatArray  # most of it that d levels more afterwards save, shape (J, K, NEAR + 1)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def gathered(arrival: FloatArray, sizes: IntArray, window: FloatArray) -> IntArray:
    """Return the number of ``sizes`` up to the largest batch of each request, shape (M, n).

    Members of a batch of ``sizes[g]`` arrive within ``window[m, g]``, which is < 0 if none is run.
    """
    count = arrival.size
    rounds = np.zeros((window.shape[0], count), dtype=np.int64)
    for m in range(window.shape[0]):
        for g in range(sizes.size):
            size, reach = sizes[g], 0
            if window[m, g] < 0.0:
                continue
            for k in range(count - size + 1):
                if arrival[k + size - 1] - arrival[k] <= window[m, g]:
                    # Each request is set once for a size, however many such batches it could be
                    # in.
                    for i in range(max(k, reach), k + size):
                        rounds[m, i] = max(rounds[m, i], g + 1)
                    reach = max(reach, k + size)
    return rounds


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _take(
    count: int, level: FloatArray, paths: Paths, passed: float, work: float, slo: float,
    in_zone: float,
) -> None:
    """Add a request's work to the first ``count`` paths, ``passed`` ms after the one before."""
    backlog, lost, late = paths
    for k in range(count):
        held = max(backlog[k] - passed * level[k], 0.0) + work
        kept = min(held, level[k] * slo)
        backlog[k] = kept
        lost[k] += held - kept
        late[k] += (held - kept) * in_zone


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def constant_losses(
    arrival: FloatArray, kind: IntArray, demand: FloatArray, weight: FloatArray,
    levels: FloatArray, slo: float,
) -> FloatArray:
    """Return the work lost in the whole trace at each constant number of workers, shape (K,)."""
    losses = np.zeros(levels.size)
    for c in range(weight.size):
        paths = Paths(np.zeros(levels.size), np.zeros(levels.size), np.zeros(levels.size))
        at = 0.0
        for i in range(arrival.size):
            _take(levels.size, levels, paths, arrival[i] - at, demand[c, kind[i]], slo, 0.0)
            at = arrival[i]
        losses += weight[c] * paths.lost
    return losses


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _still_apart(
    apart: int, place: IntArray, level: FloatArray, paths: Paths, ended: Paths
) -> int:
    """Remove levels whose paths of backlogs have merged; return the number left, at the front.

    A level has 2·NEAR + 2 paths: from the steady backlogs of levels near it, and from none.

    Losses of the removed paths so far are kept in ``ended``, with a backlog of −1 as a mark.
    """
    each, left = 2 * NEAR + 2, 0
    backlog, lost, late = paths
    for b in range(apart):
        # Equal to the last digit: two queues meet when both are empty, or both are full.
        same = True
        for at in range(b * each + 1, (b + 1) * each):
            same = same and backlog[at] == backlog[b * each]
        for d in range(each):
            at, to = b * each + d, place[b] * each + d
            if same:
                ended.backlog[to], ended.lost[to], ended.late[to] = -1.0, lost[at], late[at]
            elif left < b:
                to = left * each + d
                level[to], backlog[to], lost[to], late[to] = (
                    level[at], backlog[at], lost[at], late[at])
        if not same:
            place[left] = place[b]
            left += 1
    return left


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def bin_losses(
    arrival: FloatArray, kind: IntArray, first: IntArray, width: float, demand: FloatArray,
    weight: FloatArray, levels: FloatArray, slo: float,
) -> Losses:
    """Compute the work lost in each bin at each level; ``weight`` (layers,) adds up layers."""
    bins, count, sides = first.size - 1, levels.size, 2 * NEAR + 1
    alone, late = np.zeros((bins, count)), np.zeros((bins, count))
    after, missing = np.zeros((bins, count, sides)), np.zeros((bins, count, sides))
    rescued = np.zeros((bins, count, NEAR + 1))
    # Paths of a bin: from the steady backlog of each level near by, and from nothing. Once they
    # hold the same they go on as the level's steady path, which is followed all the time.
    each = sides + 1
    size = count * each
    before, place = np.zeros(size, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for k in range(count):
        for d in range(sides):
            before[k * each + d] = min(max(k + d - NEAR, 0), count - 1)
    paths = Paths(np.zeros(size), np.zeros(size), np.zeros(size))
    ended = Paths(np.zeros(size), np.zeros(size), np.zeros(size))
    base = Paths(np.zeros(count), np.zeros(count), np.zeros(count))
    steady, level, fresh = base.backlog, np.zeros(size), np.zeros(count)
    work_of = np.zeros(arrival.size)
    for c in range(weight.size):
        for i in range(arrival.size):
            work_of[i] = demand[c, kind[i]]
        steady[:] = 0.0
        fresh[:] = 0.0
        for j in range(bins):
            end, at = (j + 1) * width, j * width
            for k in range(count):
                place[k] = k
                for d in range(each):
                    to = k * each + d
                    level[to] = levels[k]
                    paths.backlog[to] = steady[before[to]] if d < sides else 0.0
                    if d < sides:
                        missing[j, k, d] += weight[c] * max(steady[k] - fresh[before[to]], 0.0)
            for column in (base.lost, base.late, paths.lost, paths.late):
                column[:] = 0.0
            # Play the arrivals of the bin; ``apart`` levels still have paths of their own.
            apart = count
            for i in range(first[j], first[j + 1]):
                if (i - first[j]) % _LOOK == 0:
                    apart = _still_apart(apart, place, level, paths, ended)
                passed, in_zone = arrival[i] - at, 1.0 if arrival[i] >= end - slo else 0.0
                at = arrival[i]
                _take(count, levels, base, passed, work_of[i], slo, in_zone)
                _take(apart * each, level, paths, passed, work_of[i], slo, in_zone)
            for b in range(apart):
                for d in range(each):
                    to, here = place[b] * each + d, b * each + d
                    ended.backlog[to], ended.lost[to], ended.late[to] = (
                        paths.backlog[here], paths.lost[here], paths.late[here])
            # The losses of a path are those of the steady path, plus the difference that arose
            # before the two joined.
            for k in range(count):
                middle, left = k * each + NEAR, (end - at) * levels[k]
                steady[k] = max(steady[k] - left, 0.0)
                most = 0.0
                for d in range(each):
                    to = k * each + d
                    most = max(most, base.late[k] + (ended.late[to] - ended.late[middle]))
                    lost = base.lost[k] + (ended.lost[to] - ended.lost[middle])
                    backlog = (steady[k] if ended.backlog[to] < 0.0
                               else max(ended.backlog[to] - left, 0.0))
                    if d < sides:
                        after[j, k, d] += weight[c] * (lost - max(steady[k] - backlog, 0.0))
                    else:
                        alone[j, k] += weight[c] * lost
                        fresh[k] = backlog
                late[j, k] += weight[c] * most
                for d in range(NEAR + 1):
                    more = slo * (levels[min(k + d, count - 1)] - levels[k])
                    rescued[j, k, d] += weight[c] * min(most, more)
    return Losses(alone, after, missing, late, rescued)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def cheapest_path(
    losses: Losses, paid: FloatArray, start_cost: FloatArray, stay_cost: float, price: float
) -> tuple[float, float, IntArray]:
    """Return cost, loss and levels (J,) of the plan with the least cost + price·loss.

    A level costs ``paid`` (K,) workers at least: each ``start_cost`` (J,) in the bin where it
    first serves, and ``stay_cost`` from one bin to the next.
    """
    bins, count = losses.alone.shape
    # A state is a level, and a lower limit on the backlog at the end of the bin: what the bin
    # leaves if it begins empty (0), or the steady backlog of the level (1).
    total, following = np.full((count, 2), np.inf), np.empty((count, 2))
    above, above_at = np.full(count + NEAR + 1, np.inf), np.zeros(count, dtype=np.int64)
    chosen = np.zeros((bins, count, 2), dtype=np.int64)
    for k in range(count):
        total[k, 1] = price * losses.after[0, k, NEAR] + start_cost[0] * paid[k]
    for j in range(1, bins):
        following[:] = np.inf
        # Of the levels of the bin before that are more than NEAR steps above or below, only the
        # cheapest counts. From below, the additional workers begin to be paid for, and all that
        # was lost late in the bin before counts as saved; from above, nothing is saved.
        above[count - 1], above_at[count - 1] = _cheaper(total, count - 1)
        for i in range(count - 2, -1, -1):
            above[i], above_at[i] = _cheaper(total, i)
            if above[i + 1] < above[i]:
                above[i], above_at[i] = above[i + 1], above_at[i + 1]
        below, below_at = np.inf, 0
        for k in range(count):
            if k > NEAR:
                i = k - NEAR - 1
                cost, at = _cheaper(total, i)
                cost += (stay_cost - start_cost[j]) * paid[i] - price * losses.late[j - 1, i]
                if cost < below:
                    below, below_at = cost, at
            up, down = below + start_cost[j] * paid[k], above[k + NEAR + 1] + stay_cost * paid[k]
            following[k, 0] = min(up, down) + price * losses.alone[j, k]
            chosen[j, k, 0] = below_at if up <= down else above_at[min(k + NEAR + 1, count - 1)]
            for i in range(max(k - NEAR, 0), min(k + NEAR + 1, count)):
                cost = stay_cost * min(paid[i], paid[k]) + start_cost[j] * max(
                    paid[k] - paid[i], 0.0)
                for f in range(2):
                    loss, steady = _loss(losses, j, i, f, k)
                    if total[i, f] + cost + price * loss < following[k, steady]:
                        following[k, steady] = total[i, f] + cost + price * loss
                        chosen[j, k, steady] = 2 * i + f
        total, following = following, total
    # Requests within an SLO of the end may be served after it, which costs nothing.
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
def _cheaper(total: FloatArray, level: int) -> tuple[float, int]:
    """Return the smaller cost of a level's two states and the index of that state."""
    steady = 1 if total[level, 1] < total[level, 0] else 0
    return total[level, steady], 2 * level + steady


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _loss(losses: Losses, j: int, before: int, kept: int, level: int) -> tuple[float, int]:
    """Return the loss of bin j after one of level ``before``, and the state at its end (0 or 1).

    ``kept`` is the state at the end of the bin before. A higher level than before saves part of
    what was lost late in the bin before, which is subtracted.
    """
    step = before - level
    loss, steady = losses.alone[j, level], 0
    if abs(step) <= NEAR:
        chained = losses.after[j, level, step + NEAR] if kept else (
            losses.after[j, level, NEAR] - losses.missing[j, level, step + NEAR])
        if chained >= loss:
            loss, steady = chained, 1
    if step < 0:
        loss -= losses.rescued[j - 1, before, -step] if -step <= NEAR else (
            losses.late[j - 1, before])
    return loss, steady
