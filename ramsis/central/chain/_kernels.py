"""Compiled loops: the linear system of a policy's values, and what the policy does.

Indices: x = 0 just after an arrival, 1 at an end of a batch; i an idle level, n a queue level, j a
slack bin, a an action. Idle level 0 has no row of its own: with no worker idle nothing is decided.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.central._kernels import around, bin_below, oldest
from ramsis.central.model import Model
from ramsis.compiling import njit

__all__ = ["Rates", "rates", "rows"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class _System(NamedTuple):
    """A linear system while it is written: its entries, and for each row the rest.

    Attributes
    ----------
    row, column, weight : (E,)
        Entries; more than are used.
    constant, cost : (R,)
        Right-hand side, and factor of the gain.
    """

    row: IntArray
    column: IntArray
    weight: FloatArray
    constant: FloatArray
    cost: FloatArray


class Rates(NamedTuple):
    """Rates per ms under a policy.

    Attributes
    ----------
    batches : (A,), in_time : (A,), dropped : float
        Batches started, queries of them in time, queries dropped.
    queue : (N,), slack : (J,)
        Batches started by the queue and by the head's slack that they found.
    mean_late : float
        Batches, each counted by the share of its queries that is late.
    overflow : float
        Queries dropped because the queue was at its highest level.
    """

    batches: FloatArray
    in_time: FloatArray
    dropped: float
    queue: FloatArray
    slack: FloatArray
    mean_late: float
    overflow: float


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _as_before(
    model: Model, n: int, j: int, to: NDArray[np.int16], action: NDArray[np.int16]
) -> bool:
    """Whether, with one worker idle, what follows is the same as in the slack bin before."""
    return (not model.carries and j > model.lowest[n] and action[1, n, j] >= 0
            and to[1, n, j] == to[1, n, j - 1] and action[1, n, j] == action[1, n, j - 1])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rows(
    model: Model, to: NDArray[np.int16], action: NDArray[np.int16]
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]:
    """The linear system of a policy's values; see :mod:`ramsis.central.solve`.

    Unknowns: waiting at i·N + n, deciding at an end of a batch at S + i·N + n, after an arrival at
    2S + i·N + n, with S = I·N; deciding with one worker idle at 3S + n·J + j; and, where the
    head's age is kept, what follows action a when it takes the whole queue at 3S + N·J + a.

    Returns
    -------
    row, column, weight, right-hand side, cost of gain
        In coordinates; and for each row its constant and its factor of the gain.
    """
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    size = model.idle.size * lengths
    row, column, weight = _room(model, to, action)
    unknowns = 3 * size + lengths * bins + (model.batch.size if model.carries else 0)
    constant, cost = np.zeros(unknowns), np.zeros(unknowns)
    system = _System(row, column, weight, constant, cost)
    e = 0
    for r in range(unknowns):
        row[e], column[e], weight[e] = r, r, 1.0
        e += 1
    for i in range(1, model.idle.size):
        busy = model.workers - model.idle[i]
        for n in range(lengths):
            s = i * lengths + n
            cost[s] = 1.0
            total = model.restart
            if n + 1 < lengths:
                rate = model.load / (model.queue[n + 1] - model.queue[n])
                row[e], column[e], weight[e] = s, 2 * size + s + 1, -rate
            else:
                rate = model.load
                row[e], column[e], weight[e] = s, size + s, -rate
                constant[s] -= rate * model.price
            e += 1
            total += rate
            if busy > 0:
                rate = model.leave * busy / (model.idle[i + 1] - model.idle[i])
                row[e], column[e], weight[e] = s, size + s + lengths, -rate
                e += 1
                total += rate
            row[e], column[e], weight[e] = s, s, total - 1.0
            e += 1
            for x in range(2):
                r = (2 - x) * size + s
                if n == 0:
                    row[e], column[e], weight[e] = r, s, -1.0
                    e += 1
                    continue
                j = 0
                while j < bins:
                    if i == 1:
                        if model.slack_probability[x, n, j] > 0.0:
                            row[e], column[e] = r, 3 * size + n * bins + j
                            weight[e] = -model.slack_probability[x, n, j]
                            e += 1
                        j += 1
                        continue
                    level, a = to[i, n, j], action[i, n, j]
                    p = 0.0
                    while j < bins and to[i, n, j] == level and action[i, n, j] == a:
                        here = model.slack_probability[x, n, j]
                        p += here
                        if a >= 0:
                            jj = model.after_drop[n, level, j]
                            constant[r] += here * model.earned[level, jj, a]
                        j += 1
                    if p == 0.0:
                        continue
                    constant[r] -= p * model.price * (model.queue[n] - model.queue[level])
                    if a < 0:
                        row[e], column[e], weight[e] = r, i * lengths + level, -p
                        e += 1
                        continue
                    left = model.queue[level] - model.batch[a]
                    at, x1 = model.low[left], model.share[left]
                    down = model.held[a] / (model.idle[i] - model.idle[i - 1])
                    base = size + i * lengths + at
                    for step, w in ((lengths, down), (0, 1.0 - down)):
                        for more, y in ((0, 1.0 - x1), (1, x1)):
                            if w * y > 0.0:
                                row[e], column[e] = r, base - step + more
                                weight[e] = -p * w * y
                                e += 1
    for j in range(bins):
        row[e], column[e], weight[e] = 3 * size + j, lengths, -1.0
        e += 1
    if model.carries:
        for a in range(model.batch.size):
            e = _anew_row(model, a, system, e)
    for n in range(1, lengths):
        for j in range(model.lowest[n], model.highest[n] + 1):
            if _as_before(model, n, j, to, action):
                r, level, a = 3 * size + n * bins + j, to[1, n, j], action[1, n, j]
                row[e], column[e], weight[e] = r, r - 1, -1.0
                e += 1
                constant[r] = (model.earned[level, model.after_drop[n, level, j], a]
                               - model.earned[level, model.after_drop[n, level, j - 1], a])
                continue
            e = _last_row(model, n, j, to[1, n, j], action[1, n, j], system, e)
    return row[:e], column[:e], weight[:e], constant, cost


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _room(
    model: Model, to: NDArray[np.int16], action: NDArray[np.int16]
) -> tuple[IntArray, IntArray, FloatArray]:
    """Arrays long enough for the entries of the linear system."""
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    room = model.idle.size * lengths * 8 + 3 * lengths * bins + bins
    for i in range(2, model.idle.size):
        for n in range(1, lengths):
            for j in range(bins):
                if j == 0 or to[i, n, j] != to[i, n, j - 1] \
                        or action[i, n, j] != action[i, n, j - 1]:
                    room += 8
    each = model.arrivals.shape[1] * (4 * model.parts.size if model.carries else 2) + 4
    for n in range(1, lengths):
        room += max(model.highest[n] - model.lowest[n] + 1, 0) * each
    if model.carries:
        room += model.batch.size * (model.arrivals.shape[1] * 2 * bins + 2)
    return np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _last_row(
    model: Model, n: int, j: int, level: int, a: int, system: _System, e: int
) -> int:
    """Write the row of deciding with one worker idle; the number of entries then."""
    row, column, weight, constant, cost = system
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    first = 3 * model.idle.size * lengths
    r = first + n * bins + j
    constant[r] -= model.price * (model.queue[n] - model.queue[level])
    if a < 0:
        row[e], column[e], weight[e] = r, lengths + level, -1.0
        return e + 1
    jj = model.after_drop[n, level, j]
    constant[r] += model.earned[level, jj, a]
    left = model.queue[level] - model.batch[a]
    if model.carries and left == 0:
        row[e], column[e], weight[e] = r, first + lengths * bins + a, -1.0
        return e + 1
    cost[r] += model.mean_ms[a] / model.workers
    if model.carries:
        return _kept_row(model, level, jj, a, r, system, e)
    for k in range(model.arrivals.shape[1]):
        w = model.arrivals[a, k]
        if w == 0.0:
            continue
        over = max(left + k - model.queue[-1], 0)
        constant[r] -= w * model.price * over
        at, x = model.low[left + k - over], model.share[left + k - over]
        for more, share in ((0, 1.0 - x), (1, x)):
            if share > 0.0:
                row[e], column[e] = r, (model.idle.size + 1) * lengths + at + more
                weight[e] = -w * share
                e += 1
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _kept_row(
    model: Model, n: int, j: int, a: int, r: int, system: _System, e: int
) -> int:
    """Write the row of an action that takes part of a queue and the last idle worker."""
    row, column, weight, constant, _ = system
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    first = 3 * model.idle.size * lengths
    left = model.queue[n] - model.batch[a]
    for part in range(model.parts.size):
        head = model.slo_ms - model.age_ms[n, j] * model.left_age[n, a, part]
        below = bins - 1
        for k in range(model.arrivals.shape[1]):
            w = model.parts[part] * model.arrivals[a, k]
            if w == 0.0:
                continue
            over = max(left + k - model.queue[-1], 0)
            constant[r] -= w * model.price * over
            at, x = model.low[left + k - over], model.share[left + k - over]
            slack = head - model.spacing_ms[a, k]
            below = bin_below(model.slack_ms, slack, below)
            for more, share in ((0, 1.0 - x), (1, x)):
                if share == 0.0:
                    continue
                b, y = around(model.slack_ms, slack, below, model.lowest[at + more],
                              model.highest[at + more])
                to = first + (at + more) * bins + b
                row[e], column[e], weight[e] = r, to, -w * share * (1.0 - y)
                e += 1
                if y > 0.0:
                    row[e], column[e], weight[e] = r, to + 1, -w * share * y
                    e += 1
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _anew_row(model: Model, a: int, system: _System, e: int) -> int:
    """Write the row of what follows an action that takes the whole queue; the entries then."""
    row, column, weight, constant, cost = system
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    first = 3 * model.idle.size * lengths
    r = first + lengths * bins + a
    cost[r] = model.mean_ms[a] / model.workers
    row[e], column[e], weight[e] = r, lengths, -model.arrivals[a, 0]
    e += 1
    for k in range(1, model.arrivals.shape[1]):
        w = model.arrivals[a, k]
        if w == 0.0:
            continue
        slack = oldest(model.edge_ms, model.slo_ms, model.spacing_ms[a, k], k)
        length = min(k, model.queue[-1])
        constant[r] -= w * model.price * (k - length)
        for more, share in ((0, 1.0 - model.share[length]), (1, model.share[length])):
            at = model.low[length] + more
            for j in range(bins):
                if w * share * slack[j] > 0.0:
                    b = min(max(j, model.lowest[at]), model.highest[at])
                    row[e], column[e], weight[e] = r, first + at * bins + b, -w * share * slack[j]
                    e += 1
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rates(
    model: Model, to: NDArray[np.int16], action: NDArray[np.int16], visits: FloatArray,
    last: FloatArray,
) -> Rates:
    """What a policy does, given how often each row is visited: (3, I, N), and (N, J)."""
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    batches, in_time = np.zeros(model.batch.size), np.zeros(model.batch.size)
    queue, slack = np.zeros(lengths), np.zeros(bins)
    dropped, mean_late, overflow = 0.0, 0.0, 0.0
    for i in range(1, model.idle.size):
        overflow += visits[0, i, lengths - 1] * model.load
        for n in range(1, lengths):
            for x in range(2):
                for j in range(bins):
                    p = visits[2 - x, i, n] * model.slack_probability[x, n, j]
                    if i == 1:
                        p = last[n, j] if x == 0 else 0.0
                        if x == 0 and j < model.highest[n] \
                                and _as_before(model, n, j + 1, to, action):
                            p -= last[n, j + 1]  # that row leads through this one
                    if p == 0.0:
                        continue
                    level, a = to[i, n, j], action[i, n, j]
                    dropped += p * (model.queue[n] - model.queue[level])
                    if a < 0:
                        continue
                    jj = model.after_drop[n, level, j]
                    good = model.in_time[level, jj, a]
                    batches[a] += p
                    in_time[a] += p * good
                    mean_late += p * (1.0 - good / model.batch[a])
                    queue[level] += p
                    slack[jj] += p
                    if i == 1:
                        left = model.queue[level] - model.batch[a]
                        for k in range(model.arrivals.shape[1]):
                            over = max(left + k - model.queue[-1], 0)
                            overflow += p * model.arrivals[a, k] * over
    return Rates(batches, in_time, dropped + overflow, queue, slack, mean_late, overflow)
