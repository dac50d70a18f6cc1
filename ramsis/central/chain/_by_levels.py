"""Compiled loops: values and visits from a system that is eliminated down to level 1.

Symbols: :mod:`ramsis.central.chain._levels`. From level 1 up, W_i follows from D_{i−1}, and all
other values from their own rows. The transposed system gives the visits: ρ f comes to D_i by the
way through all idle, ρ being what lower levels leave of the unit of time, and the rest by μ.
"""

from __future__ import annotations

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.central.chain._kernels import System
from ramsis.central.chain._levels import Levels
from ramsis.compiling import njit, put


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def values(system: System, levels: Levels) -> FloatArray:
    """Return each row's value, (R,), with the gain in place of home's, which is 0."""
    waits, needed, sizes, place, numbers, last, right, _, _ = levels
    idle, lengths = waits.shape
    size, top = idle * lengths, idle - 1
    home = top * lengths
    result = np.zeros(system.constant.size)
    solution = np.linalg.solve(last, right)
    put(solution[:lengths], result[size + lengths :])
    solution = solution[lengths:]
    for i in range(1, idle):
        if i > 1:
            values_below = np.ones(sizes[i - 1, 1] + 1)
            for n in range(lengths):
                if needed[i - 1, n] >= 0:
                    values_below[needed[i - 1, n]] = result[size + (i - 1) * lengths + n]
            matrix = numbers[place[i, 2] : place[i, 3]].reshape((sizes[i, 0], values_below.size))
            solution = matrix @ values_below
        for n in range(lengths):
            if waits[i, n] >= 0:
                result[i * lengths + n] = solution[waits[i, n]]
        # At the top level the place of home, whose value is 0, holds the gain.
        gain, result[home] = result[home], 0.0
        if i > 1:
            for r in range(size + i * lengths, size + (i + 1) * lengths):
                result[r] = _own(system, r, result, 0.0)
    # By what leads to what: first bins with one worker idle, then decisions, waiting last.
    for r in range(3 * size, result.size):
        result[r] = _own(system, r, result, gain)
    for r in range(2 * size + lengths, 3 * size):
        result[r] = _own(system, r, result, gain)
    for s in range(lengths, size):
        if waits[s // lengths, s % lengths] < 0:
            result[s] = _own(system, s, result, gain)
    result[home] = gain
    return result


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _own(system: System, r: int, value: FloatArray, gain: float) -> float:
    """Return a row's value from the other values."""
    start, end, column, weight, constant, cost = system
    total = constant[r] - cost[r] * gain
    for x in range(start[r] + 1, end[r]):
        total -= weight[x] * value[column[x]]
    return float(total / weight[start[r]])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def visits(system: System, levels: Levels) -> FloatArray:
    """Return how often each row is visited, per ms, (R,)."""
    start, end, column, weight, _, _ = system
    waits, needed, sizes, place, numbers, last, _, cost, gain = levels
    idle, lengths = waits.shape
    size, top = idle * lengths, idle - 1
    result = np.zeros(system.constant.size)
    unit = np.zeros(cost.size)
    if top == 1:
        unit[lengths] = 1.0
    else:
        put(gain[:lengths], unit)
    frequency = np.linalg.solve(last.T.copy(), unit)
    left = 1.0 - (frequency * cost).sum()  # of the unit of time
    put(frequency[:lengths], result[size + lengths :])
    frequency = frequency[lengths:]
    for i in range(1, idle):
        if i > 1:
            w, d = sizes[i]
            come, waiting = np.zeros(lengths), np.zeros(int(w))
            for n in range(lengths):
                if i < top and needed[i, n] >= 0:
                    come[n] = left * numbers[place[i, 3] + needed[i, n]]
                below = (i - 1) * lengths + n
                for x in range(start[below] + 1, end[below]):
                    if column[x] == size + i * lengths + n:
                        come[n] -= weight[x] * result[below]
            passed = come.copy()
            _passed_on(system, i, passed, waiting, waits)
            if i == top:
                waiting[0] = left
            matrix = numbers[place[i, 0] : place[i, 1]].reshape((w, w))
            taken = numbers[place[i, 1] : place[i, 2]].reshape((w, d))
            frequency = np.linalg.solve(matrix.T.copy(), waiting)
            left -= frequency.sum()
            more = taken.T.copy() @ frequency
            for n in range(lengths):
                if needed[i, n] >= 0:
                    come[n] += more[needed[i, n]]
            _passed_on(system, i, come, waiting, waits)
            put(come, result[size + i * lengths :])
        for n in range(lengths):
            if waits[i, n] >= 0:
                result[i * lengths + n] = frequency[waits[i, n]]
    for s in range(lengths, size):
        for x in range(start[s] + 1, end[s]):
            if column[x] >= 2 * size:
                result[column[x]] -= weight[x] * result[s]
    for r in range(3 * size - 1, size + lengths - 1, -1):
        _lead_on(system, r, 3 * size, result)
    for r in range(result.size - 1, 3 * size - 1, -1):
        _lead_on(system, r, 3 * size, result)
    return result


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _passed_on(
    system: System, i: int, come: FloatArray, waiting: FloatArray, waits: IntArray
) -> None:
    """Add D_i's visits to its own followers, and write the visits of its W_i."""
    start, end, column, weight, _, _ = system
    idle, lengths = waits.shape
    size = idle * lengths
    waiting[:] = 0.0
    for n in range(lengths - 1, -1, -1):
        r = size + i * lengths + n
        come[n] /= weight[start[r]]
        for x in range(start[r] + 1, end[r]):
            at, m = divmod(column[x] - size, lengths)
            if at == i:
                come[m] -= weight[x] * come[n]
            elif at < 0 and not (i == idle - 1 and m == 0):
                waiting[waits[i, m]] -= weight[x] * come[n]


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _lead_on(system: System, r: int, first: int, result: FloatArray) -> None:
    """Add a row's visits to those of its followers from the first on."""
    for x in range(system.start[r] + 1, system.end[r]):
        if system.column[x] >= first:
            result[system.column[x]] -= system.weight[x] * result[r]
