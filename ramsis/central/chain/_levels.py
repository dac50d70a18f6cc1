"""A policy's linear system eliminated level by level, down to one worker idle.

If the age of the head is drawn anew, rows lead only to the same level of idle workers, to the one
below (a start) and, while waiting, to the one above (an end of a batch). So levels are eliminated
from the top, all idle, down. Unknowns of level i are

    W_i  the values of waiting at the queues S_i at which the policy waits after some decision,
    V_i  the values of deciding just after an arrival,
    D_i  the values of deciding at an end of a batch, at the queues to which rows of level i or
         i+1, or waiting at i−1, lead,

and the equations, with T the total rate of leaving, λ that to the next queue level, μ that of ends
of batches and g the gain,

    deciding      D_i = P W_i + Q D_i + R D_{i−1} + c,                          Q strictly lower,
    waiting       T W_i = λ V_i(n+1) + μ D_{i+1}(n) − g,      V_i as D_i from W_i, D_i and D_{i−1},
    known so far  D_{i+1}(n) = E D_i + e for n in S_i, and g = f D_i + h.

Q is eliminated by substitution, row by row. A dense system in W_i is left; its solution as a
function of D_{i−1} gives E, e, f and h of the next level. Waiting with all idle and no request has
the value 0; the gain is the unknown in its place, and so is never a difference of large numbers.
Level 1, where each row leads to many queues, is one dense system. Values and visits follow from
level 1 up (:mod:`ramsis.central.chain._by_levels`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.central.chain._kernels import System
from ramsis.central.chain._lapack import _add_product, _solve
from ramsis.compiling import njit, put


class Levels(NamedTuple):
    """The system eliminated down to level 1."""

    # waits, needed: place of each queue in W_i and D_i, or -1, (I, N); place 0 of W at the top
    # level is that of the gain
    waits: IntArray
    needed: IntArray
    sizes: IntArray  # of W_i and D_i, (I, 2)
    room: FloatArray  # the arrays of :class:`_Level` of all levels above 1
    begin: IntArray  # where those of each level begin, (I,)
    # last, right, cost: the system of D_1 and W_1, its right-hand side, and each row's factor of
    # the gain
    last: FloatArray
    right: FloatArray
    cost: FloatArray
    gain: FloatArray  # f and h of level 1; empty if that is the only level


class _Level(NamedTuple):
    """Elimination of a level of idle workers above 1; w, d, d⁻ are sizes of W_i, D_i, D_{i−1}."""

    matrix: FloatArray  # of W_i, (w, w)
    taken: FloatArray  # coefficients of D_i in the rows of W_i, (w, d)
    by: FloatArray  # W_i as a linear function of D_{i−1} and 1, (w, d⁻ + 1)
    gain: FloatArray  # f and h, (d + 1); empty at the top


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _level_in(room: FloatArray, begin: IntArray, sizes: IntArray, i: int) -> _Level:
    """Return the arrays of level i > 1, which are views."""
    (w, d), width = sizes[i], sizes[i - 1, 1] + 1
    taken = begin[i] + w * w
    by = taken + w * d
    gain = by + w * width
    return _Level(room[begin[i] : taken].reshape((w, w)), room[taken:by].reshape((w, d)),
                  room[by:gain].reshape((w, width)),
                  room[gain : gain + (d + 1 if i < sizes.shape[0] - 1 else 0)])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def eliminated(system: System, idle: int, lengths: int, bins: int) -> Levels:
    """Eliminate the system level by level down to one idle worker; NaN where it is singular."""
    waits, needed, sizes = _places(system, idle, lengths, bins)
    begin, filled = np.zeros(idle, dtype=np.int64), 0
    for i in range(2, idle):
        begin[i] = filled
        w, d = sizes[i]
        filled += w * (w + d + sizes[i - 1, 1] + 1) + d + 1
    room = np.zeros(filled)
    ends, gain = np.zeros((0, 0)), np.zeros(0)  # of the level above: E, e, and f, h
    for i in range(idle - 1, 1, -1):
        level = _level_in(room, begin, sizes, i)
        put(gain, level.gain)
        ends, gain = _eliminate(system, i, waits, needed, sizes, ends, level)
    last, right, cost = _last_level(system, (idle, lengths, bins), waits, sizes[1, 0], ends, gain)
    return Levels(waits, needed, sizes, room, begin, last, right, cost, gain)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _eliminate(
    system: System, i: int, waits: IntArray, needed: IntArray, sizes: IntArray, ends: FloatArray,
    level: _Level,
) -> tuple[FloatArray, FloatArray]:
    """Compute the arrays of level i but the gain, all 0 before; return E, e and f, h from it.

    ``ends``: E and e, (w, d + 1), from the level above; none at the top.
    """
    idle, lengths = waits.shape
    w, (matrix, taken, by, gain) = sizes[i, 0], level
    ends_by = _deciding(system, i, (idle, lengths), waits, needed, sizes)
    for n in range(lengths):
        k = waits[i, n]
        if k >= 0:
            _wait(system, i, n, (idle - 1, lengths), waits, needed, (ends, gain),
                  (matrix[k], taken[k], by[k]))
    # Now matrix · W_i = taken · D_i + by · (D_{i−1}, 1). Put in D_i by W_i and D_{i−1}, and solve.
    _add_product(-1.0, taken, ends_by, 0, matrix)
    _add_product(1.0, taken, ends_by, w, by)
    _solve(matrix, by)
    # The first unknown of the top is the gain, as home's own value is 0.
    onward = by[0].copy() if i == idle - 1 else _gain_below(gain, ends_by, by)
    # E and e of the next level: D_i(n) at the queues n of S_{i−1}, with W_i by D_{i−1} put in.
    rows, below = np.empty((sizes[i - 1, 0], w)), np.empty((sizes[i - 1, 0], by.shape[1]))
    for n in range(lengths):
        k = waits[i - 1, n]
        if k >= 0:
            put(ends_by[needed[i, n], :w], rows[k])
            put(ends_by[needed[i, n], w:], below[k])
    _add_product(1.0, rows, by, 0, below)
    return below, onward


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _gain_below(gain: FloatArray, ends_by: FloatArray, by: FloatArray) -> FloatArray:
    """Return f and h of the level below, (d⁻ + 1), from those of D_i, (d + 1)."""
    d, w = gain.size - 1, by.shape[0]
    onward = np.zeros(ends_by.shape[1])
    for k in range(d):
        for c in range(onward.size):
            onward[c] += gain[k] * ends_by[k, c]
    below = onward[w:].copy()
    for k in range(w):
        for c in range(below.size):
            below[c] += onward[k] * by[k, c]
    below[-1] += gain[d]
    return below


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _deciding(
    system: System, i: int, shape: tuple[int, int], waits: IntArray, needed: IntArray,
    sizes: IntArray,
) -> FloatArray:
    """Return D_i as a linear function of W_i, D_{i−1} and 1, (d, w + d⁻ + 1), by substitution."""
    start, end, column, weight, constant, _ = system
    idle, lengths = shape
    size, w = idle * lengths, sizes[i, 0]
    width = w + sizes[i - 1, 1] + 1
    by = np.zeros((sizes[i, 1], width))
    wait_end, below_end = 0, w  # a row leads to no longer queue: only columns up to these count
    for n in range(lengths):
        wait_end += waits[i, n] >= 0
        below_end += needed[i - 1, n] >= 0
        k, r = needed[i, n], size + i * lengths + n
        if k < 0:
            continue
        by[k, width - 1] = constant[r]
        for x in range(start[r] + 1, end[r]):
            m = column[x] - size - i * lengths
            # To deciding at level i, deciding at level i − 1, or waiting at level i.
            if m >= 0:
                row, share = needed[i, m], weight[x]
                for c in range(wait_end):
                    by[k, c] -= share * by[row, c]
                for c in range(w, below_end):
                    by[k, c] -= share * by[row, c]
                by[k, width - 1] -= share * by[row, width - 1]
            elif m >= -lengths:
                by[k, w + needed[i - 1, m + lengths]] -= weight[x]
            # Home's value is 0, so it has no column.
            elif not (i == idle - 1 and m == -size):
                by[k, waits[i, m + size]] -= weight[x]
        pivot = weight[start[r]]
        for c in range(width):
            by[k, c] /= pivot
    return by


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _places(
    system: System, idle: int, lengths: int, bins: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the places of queues in W_i and D_i, as in :class:`Levels`, and sizes (I, 2)."""
    start, end, column = system.start, system.end, system.column
    size = idle * lengths
    waits = np.full((idle, lengths), -1)
    needed = np.full((idle, lengths), -1)
    sizes = np.zeros((idle, 2), np.int64)
    # S_i: the queues at which waiting follows a decision.
    for r in range(size, 3 * size + lengths * bins):
        for x in range(start[r] + 1, end[r]):
            if column[x] < size:
                waits[column[x] // lengths, column[x] % lengths] = 0
    needed[1] = 0
    # D_i: the queues to which waiting leads, by an arrival and the decision after it, or by an end
    # of a batch; then those to which these lead. From the top down, as a decision leads to its own
    # level and to the one below.
    for i in range(idle - 1, 0, -1):
        for n in range(lengths - 1, -1, -1):
            if waits[i, n] == 0:
                for x in range(start[i * lengths + n] + 1, end[i * lengths + n]):
                    _mark(start, end, column, column[x], size, lengths, needed)
            if i > 1 and waits[i - 1, n] == 0:
                needed[i, n] = 0
    for i in range(idle - 1, 1, -1):
        for n in range(lengths - 1, -1, -1):
            if needed[i, n] == 0:
                _mark(start, end, column, size + i * lengths + n, size, lengths, needed)
    for i in range(1, idle):
        for n in range(lengths):
            if waits[i, n] == 0:
                waits[i, n] = sizes[i, 0]
                sizes[i, 0] += 1
            if needed[i, n] == 0:
                needed[i, n] = sizes[i, 1]
                sizes[i, 1] += 1
    return waits, needed, sizes


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _mark(
    start: IntArray, end: IntArray, column: IntArray, r: int, size: int, lengths: int,
    needed: IntArray,
) -> None:
    """Mark deciding at an end of a batch as needed: row ``r`` and the rows that it leads to."""
    if r < 2 * size:
        needed[(r - size) // lengths, r % lengths] = 0
    for y in range(start[r] + 1, end[r]):
        if size <= column[y] < 2 * size:
            needed[(column[y] - size) // lengths, column[y] % lengths] = 0


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _wait(
    system: System, i: int, n: int, shape: tuple[int, int], waits: IntArray, needed: IntArray,
    above: tuple[FloatArray, FloatArray], row: tuple[FloatArray, FloatArray, FloatArray],
) -> None:
    """Write the equation of waiting at queue level n, matrix · W_i = taken · D_i + right.

    ``right`` has the coefficients of D_{i−1}, and then the constant. ``above`` has E, e and f, h.
    """
    start, end, column, weight, constant, _ = system
    (top, lengths), (ends, gain), (matrix, taken, right) = shape, above, row
    size, s = (top + 1) * lengths, i * lengths + n
    row_here, d = waits[i, n], taken.size
    right[-1] += constant[s]
    # The gain is an unknown at the top, and f D_i + h below.
    if i == top:
        matrix[0] += 1.0
    else:
        for k in range(d):
            taken[k] -= gain[k]
        right[-1] -= gain[d]
    if not (i == top and n == 0):
        matrix[row_here] += weight[start[s]]
    for x in range(start[s] + 1, end[s]):
        c = column[x]
        # Deciding after an arrival is not among the unknowns: its row is substituted.
        if c >= 2 * size:
            right[-1] -= weight[x] * constant[c]
            for y in range(start[c] + 1, end[c]):
                at, m = divmod(column[y] - size, lengths)
                w = weight[x] * weight[y]
                if at < 0:
                    if not (i == top and m == 0):
                        matrix[waits[i, m]] -= w
                elif at == i:
                    taken[needed[i, m]] += w
                else:
                    right[needed[i - 1, m]] += w
        # At the longest queue an arrival drops the head, and leads to D_i. An end of a batch leads
        # to D_{i+1}.
        elif c // lengths == top + 1 + i:
            taken[needed[i, n]] -= weight[x]
        else:
            for k in range(d):
                taken[k] -= weight[x] * ends[row_here, k]
            right[-1] -= weight[x] * ends[row_here, d]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _last_level(
    system: System, shape: tuple[int, int, int], waits: IntArray, waiting: int, ends: FloatArray,
    gain: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the dense system of D_1 and W_1, its right-hand side, and factors of the gain.

    Its unknowns are D_1 at all queues, and then W_1. Rows of deciding after an arrival, and of
    deciding with one worker idle by bin, are substituted.
    """
    idle, lengths, bins = shape
    start, end, column, weight, constant, cost = system
    size, top = idle * lengths, idle == 2
    count = lengths + waiting
    matrix, right, times = np.zeros((count, count)), np.zeros(count), np.zeros(count)
    led = np.zeros(lengths * bins)  # weights of the rows by bin that are yet to be substituted
    for kind in range(2):  # rows of waiting, and of deciding at an end of a batch
        for n in range(lengths):
            r = lengths + n if kind == 0 else size + lengths + n
            k = lengths + waits[1, n] if kind == 0 else n
            if kind == 0 and waits[1, n] < 0:
                continue
            led[:] = 0.0
            right[k], times[k] = constant[r], cost[r]
            if not (top and r == lengths):
                matrix[k, k] += weight[start[r]]
            # waiting leads to the row of deciding after an arrival, and that to those by bin
            for x in range(start[r] + 1, end[r]):
                c, w = column[x], weight[x]
                if 2 * size <= c < 3 * size:
                    right[k] -= w * constant[c]
                    for y in range(start[c] + 1, end[c]):
                        if column[y] >= 3 * size:
                            led[column[y] - 3 * size] -= w * weight[y]
                        elif not (top and column[y] == lengths):
                            matrix[k, lengths + waits[1, column[y] - lengths]] -= w * weight[y]
                elif c >= 3 * size:
                    led[c - 3 * size] += w
                elif c < size:
                    if not (top and c == lengths):
                        matrix[k, lengths + waits[1, c - lengths]] += w
                elif c < size + 2 * lengths:
                    matrix[k, c - size - lengths] += w
                else:
                    for m in range(lengths):
                        matrix[k, m] += w * ends[waits[1, n], m]
                    right[k] -= w * ends[waits[1, n], lengths]
            for j in range(led.size - 1, -1, -1):
                if led[j] == 0.0:
                    continue
                c = 3 * size + j
                right[k] -= led[j] * constant[c]
                times[k] -= led[j] * cost[c]
                for y in range(start[c] + 1, end[c]):
                    w = led[j] * weight[y]
                    if column[y] >= 3 * size:
                        led[column[y] - 3 * size] -= w
                    elif column[y] >= size:
                        matrix[k, column[y] - size - lengths] -= w
                    elif not (top and column[y] == lengths):
                        matrix[k, lengths + waits[1, column[y] - lengths]] -= w
    if top:
        for k in range(count):
            matrix[k, lengths] += times[k]
    else:
        for k in range(count):
            for m in range(lengths):
                matrix[k, m] += times[k] * gain[m]
            right[k] -= times[k] * gain[lengths]
    return matrix, right, times
