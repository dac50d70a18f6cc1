"""Back substitution: values and visits of all rows from the system of level 1.

Levels are numbers i of idle workers; rows are those of a policy's linear system. W_i are the
values of waiting at level i, D_i those of deciding at an end of a batch, and f, h the factors of
the gain (:mod:`ramsis.central.chain._levels`). From level 1 up, W_i follows from D_{i−1}, and all
other values from their own rows.

The transposed system gives the visits of rows. They take one unit of time in all: this is its
equation for the gain. Visits come to D_i from waiting at level i−1, at the rate μ of ends of
batches, and, as g = f D_i + h, by ρ f from the equation for the gain, with ρ the part of the unit
of time that the levels below i leave.
"""

from __future__ import annotations

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.central.chain._kernels import System
from ramsis.central.chain._lapack import _solve
from ramsis.central.chain._levels import Levels, _Level, _level_in
from ramsis.compiling import njit, put


def values(system: System, levels: Levels) -> FloatArray:
    """Return each row's value, (R,), with the gain in place of home's, which is 0."""
    solution = np.asarray(np.linalg.solve(levels.last, levels.right), dtype=np.float64)
    return np.asarray(values_upward(system, levels, solution))


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def values_upward(system: System, levels: Levels, solution: FloatArray) -> FloatArray:
    """Return the :func:`values` of all rows from the ``solution`` of level 1."""
    waits = levels.waits
    idle, lengths = waits.shape
    size, home = idle * lengths, (idle - 1) * lengths
    result = np.zeros(system.constant.size)
    for n in range(lengths):
        result[size + lengths + n] = solution[n]
        if waits[1, n] >= 0:
            result[lengths + n] = solution[lengths + waits[1, n]]
    for i in range(2, idle):
        by = _level_in(levels.room, levels.begin, levels.sizes, i).by
        _level_values(system, i, waits, levels.needed, by, result)
    gain, result[home] = result[home], 0.0
    # Each row comes after those that it leads to: bins with one worker idle, decisions after an
    # arrival, and then waiting at queues at which the policy does not wait.
    for first, after in ((3 * size, result.size), (2 * size + lengths, 3 * size)):
        for r in range(first, after):
            result[r] = _own(system, r, gain, result)
    for i in range(1, idle):
        for n in range(lengths):
            if waits[i, n] < 0:
                result[i * lengths + n] = _own(system, i * lengths + n, gain, result)
    result[home] = gain
    return result


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _level_values(
    system: System, i: int, waits: IntArray, needed: IntArray, by: FloatArray, value: FloatArray
) -> None:
    """Write the values of level i > 1 at queues that wait, and of D_i, from D_{i−1}."""
    idle, lengths = waits.shape
    size, home = idle * lengths, (idle - 1) * lengths
    below = np.ones(by.shape[1])
    for n in range(lengths):
        if needed[i - 1, n] >= 0:
            below[needed[i - 1, n]] = value[size + (i - 1) * lengths + n]
    for n in range(lengths):
        if waits[i, n] >= 0:
            total = 0.0
            for c in range(below.size):
                total += by[waits[i, n], c] * below[c]
            value[i * lengths + n] = total
    # At the top level the place of home, whose value is 0, holds the gain.
    gain, value[home] = value[home], 0.0
    for r in range(size + i * lengths, size + (i + 1) * lengths):
        value[r] = _own(system, r, 0.0, value)
    value[home] = gain


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _own(system: System, r: int, gain: float, value: FloatArray) -> float:
    """Return the value of row r by substituting the values in ``value``."""
    start, end, column, weight, constant, cost = system
    total = constant[r] - cost[r] * gain
    for x in range(start[r] + 1, end[r]):
        total -= weight[x] * value[column[x]]
    return float(total / weight[start[r]])


def visits(system: System, levels: Levels) -> FloatArray:
    """Return how often each row is visited, per ms, (R,)."""
    idle, lengths = levels.waits.shape
    unit = np.zeros(levels.cost.size)
    if idle == 2:
        unit[lengths] = 1.0
    else:
        unit[:lengths] = levels.gain[:lengths]
    frequency = np.asarray(np.linalg.solve(levels.last.T, unit), dtype=np.float64)
    # The part of the unit of time that level 1 leaves, summed in the order of the terms: NumPy's
    # sums differ between processors, and Python's between versions.
    left = 1.0 - float(np.cumsum(frequency * levels.cost)[-1])
    return np.asarray(visits_upward(system, levels, frequency, left))


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def visits_upward(
    system: System, levels: Levels, frequency: FloatArray, left: float
) -> FloatArray:
    """Return the :func:`visits` of all rows from those of level 1.

    ``left`` is the part of the unit of time that level 1 leaves.
    """
    waits = levels.waits
    idle, lengths = waits.shape
    size = idle * lengths
    result = np.zeros(system.constant.size)
    for n in range(lengths):
        result[size + lengths + n] = frequency[n]
        if waits[1, n] >= 0:
            result[lengths + n] = frequency[lengths + waits[1, n]]
    for i in range(2, idle):
        level = _level_in(levels.room, levels.begin, levels.sizes, i)
        left = _level_visits(system, i, waits, levels.needed, level, left, result)
    _lead_on(system, lengths, size, result)
    return result


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _level_visits(
    system: System, i: int, waits: IntArray, needed: IntArray, level: _Level, left: float,
    visits: FloatArray,
) -> float:
    """Write the visits of W_i and D_i at level i > 1; return what is left of the unit of time.

    ``left`` is the part of the unit of time that lower levels leave.
    """
    (idle, lengths), (matrix, taken, _, gain) = waits.shape, level
    # Visits that come to D_i from outside the level: ρ f, and from waiting at level i − 1.
    come = np.zeros(lengths)
    for n in range(lengths):
        if gain.size > 0 and needed[i, n] >= 0:
            come[n] = left * gain[needed[i, n]]
        below = (i - 1) * lengths + n
        for x in range(system.start[below] + 1, system.end[below]):
            if system.column[x] == (idle + i) * lengths + n:
                come[n] -= system.weight[x] * visits[below]
    # Visits of W_i, from those passed on to it; at the top, place 0 is the equation for the gain.
    waiting = _passed_on(system, i, waits, come.copy())
    if i == idle - 1:
        waiting[0] = left
    frequency = waiting[: matrix.shape[0]].copy().reshape((matrix.shape[0], 1))
    _solve(matrix.T.copy(), frequency)
    spent = 0.0
    for n in range(lengths):
        if waits[i, n] >= 0:
            visits[i * lengths + n] = frequency[waits[i, n], 0]
            spent += frequency[waits[i, n], 0]
        if needed[i, n] >= 0:
            for k in range(frequency.size):
                come[n] += taken[k, needed[i, n]] * frequency[k, 0]
    # Waiting leads back to D_i; with these visits added, D_i has all.
    _passed_on(system, i, waits, come)
    put(come, visits[(idle + i) * lengths :])
    return float(left - spent)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _passed_on(system: System, i: int, waits: IntArray, come: FloatArray) -> FloatArray:
    """Pass visits ``come`` of D_i on to shorter queues of D_i, in place.

    Return the visits that reach W_i, (N,), by their places there.
    """
    start, end, column, weight, _, _ = system
    idle, lengths = waits.shape
    size = idle * lengths
    waiting = np.zeros(lengths)
    for n in range(lengths - 1, -1, -1):
        r = size + i * lengths + n
        come[n] /= weight[start[r]]
        for x in range(start[r] + 1, end[r]):
            at, m = divmod(column[x] - size, lengths)
            if at == i:
                come[m] -= weight[x] * come[n]
            elif at < 0 and not (i == idle - 1 and m == 0):
                waiting[waits[i, m]] -= weight[x] * come[n]
    return waiting


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _lead_on(system: System, lengths: int, size: int, visits: FloatArray) -> None:
    """Write the visits of deciding after an arrival, and of deciding with one worker idle by bin.

    They follow from the visits of the rows that lead to them.
    """
    start, end, column, weight, _, _ = system
    for s in range(lengths, size):
        for x in range(start[s] + 1, end[s]):
            if column[x] >= 2 * size:
                visits[column[x]] -= weight[x] * visits[s]
    for first, after in ((size + lengths, 3 * size), (3 * size, visits.size)):
        for r in range(after - 1, first - 1, -1):
            for x in range(start[r] + 1, end[r]):
                if column[x] >= 3 * size:
                    visits[column[x]] -= weight[x] * visits[r]
