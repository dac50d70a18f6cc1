"""Compiled loops: the linear system of a policy's values, and what the policy does.

Indices: x = 0 just after an arrival, 1 at an end of a batch; i an idle level, n a queue level, j a
slack bin, a an action. Idle level 0 has no row of its own: with no worker idle nothing is decided.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.central._kernels import around, bin_below, oldest
from ramsis.central.model import CentralArrays
from ramsis.compiling import njit


class System(NamedTuple):
    """A linear system, row by row, in any order.

    Attributes
    ----------
    start, end : (R,)
        First entry of each row, which is that of its own unknown, and that after its last.
    column, weight : (E,)
        Entries; more than are used while it is written.
    constant, cost : (R,)
        Right-hand side, and factor of the gain.
    """

    start: IntArray
    end: IntArray
    column: IntArray
    weight: FloatArray
    constant: FloatArray
    cost: FloatArray


class ChainRates(NamedTuple):
    """Rates per ms under a policy.

    Attributes
    ----------
    batches : (A, J)
        Batches started, by the head's slack that they found.
    in_time : (A,), dropped : float
        Queries of them in time, queries dropped.
    queue : (N,)
        Batches started by the queue that they found.
    mean_late : float
        Batches, each counted by the share of its queries that is late.
    overflow : float
        Queries dropped because the queue was at its highest level.
    """

    batches: FloatArray
    in_time: FloatArray
    dropped: float
    queue: FloatArray
    mean_late: float
    overflow: float


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _as_before(
    model: CentralArrays, n: int, j: int, to: NDArray[np.int16], action: NDArray[np.int16]
) -> bool:
    """Whether, with one worker idle, what follows is the same as in the slack bin before."""
    return (not model.carries and j > model.lowest[n] and action[1, n, j] >= 0
            and to[1, n, j] == to[1, n, j - 1] and action[1, n, j] == action[1, n, j - 1])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rows(model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16]) -> System:
    """The linear system of a policy's values; see :mod:`ramsis.central.solve`.

    Unknowns: waiting at i·N + n, deciding at an end of a batch at S + i·N + n, after an arrival at
    2S + i·N + n, with S = I·N; deciding with one worker idle at 3S + n·J + j; and, where the
    head's age is kept, what follows action a when it takes the whole queue at 3S + N·J + a.
    """
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    size = model.idle.size * lengths
    unknowns = 3 * size + lengths * bins + (model.batch.size if model.carries else 0)
    room = _room(model, to, action)
    system = System(np.empty(unknowns, np.int64), np.empty(unknowns, np.int64),
                    np.empty(room, np.int64), np.empty(room), np.zeros(unknowns),
                    np.zeros(unknowns))
    e = _deciding_rows(model, to, action, system, _waiting_rows(model, system, 0))
    for n in range(lengths):
        for j in range(bins):
            r = 3 * size + n * bins + j
            e = _start_row(r, system, e)
            if n == 0:
                e = _write(system, e, lengths, -1.0)
            elif model.lowest[n] <= j <= model.highest[n]:
                if _as_before(model, n, j, to, action):
                    # It leads to the row before, which may have hundreds of entries, and differs
                    # in what it earns.
                    level, a = to[1, n, j], action[1, n, j]
                    e = _write(system, e, r - 1, -1.0)
                    system.constant[r] = (
                        model.earned[level, a, model.after_drop[n, level, j]]
                        - model.earned[level, a, model.after_drop[n, level, j - 1]])
                else:
                    e = _last_row(model, n, j, to[1, n, j], action[1, n, j], system, e)
            system.end[r] = e
    if model.carries:
        for a in range(model.batch.size):
            e = _anew_row(model, a, system, e)
    return System(system.start, system.end, system.column[:e], system.weight[:e],
                  system.constant, system.cost)


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _write(system: System, e: int, column: int, weight: float) -> int:
    """Write an entry of the row that is written; the number of entries then."""
    system.column[e], system.weight[e] = column, weight
    return e + 1


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _start_row(r: int, system: System, e: int) -> int:
    """Begin a row, with 1 for its own unknown; the number of entries then."""
    system.start[r], system.column[e], system.weight[e] = e, r, 1.0
    return e + 1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _waiting_rows(model: CentralArrays, system: System, e: int) -> int:
    """Write the rows of waiting; the number of entries then."""
    lengths = model.queue.size
    size = model.idle.size * lengths
    for s in range(size):
        i, n, own = s // lengths, s % lengths, e
        e = _start_row(s, system, e)
        if i > 0:
            system.cost[s] = 1.0
            if n + 1 < lengths:
                rate = model.load / (model.queue[n + 1] - model.queue[n])
                e = _write(system, e, 2 * size + s + 1, -rate)
            else:
                # The longest queue drops its head when one more comes, and decides anew.
                rate = model.load
                e = _write(system, e, size + s, -rate)
                system.constant[s] -= rate * model.price
            # A restart leads to home, whose value is 0: it adds to the total alone.
            total = model.restart + rate
            busy = model.workers - model.idle[i]
            if busy > 0:
                rate = model.leave * busy / (model.idle[i + 1] - model.idle[i])
                e = _write(system, e, size + s + lengths, -rate)
                total += rate
            system.weight[own] = total
        system.end[s] = e
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _deciding_rows(
    model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16], system: System, e: int
) -> int:
    """Write the rows of deciding just after an arrival and at an end of a batch."""
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    size = model.idle.size * lengths
    drawn, price = model.slack_probability, model.price
    earned, after_drop = model.earned, model.after_drop
    share, level_of, what = np.empty((2, bins)), np.empty(bins, np.int64), np.empty(bins, np.int64)
    for n in range(lengths):
        first, last = 0, bins - 1
        while drawn[0, n, first] == 0.0 and drawn[1, n, first] == 0.0:
            first += 1
        while drawn[0, n, last] == 0.0 and drawn[1, n, last] == 0.0:
            last -= 1
        for i in range(model.idle.size):
            s, runs, j = i * lengths + n, 0, first
            step = float(model.idle[i] - model.idle[max(i - 1, 0)])
            while i > 1 and n > 0 and j <= last:  # runs of bins with the same decision
                level, a = to[i, n, j], action[i, n, j]
                p = q = of_p = of_q = 0.0
                while j <= last and to[i, n, j] == level and action[i, n, j] == a:
                    p += drawn[0, n, j]
                    q += drawn[1, n, j]
                    if a >= 0:
                        worth = earned[level, a, after_drop[n, level, j]]
                        of_p += drawn[0, n, j] * worth
                        of_q += drawn[1, n, j] * worth
                    j += 1
                dropped = price * (model.queue[n] - model.queue[level])
                system.constant[2 * size + s] += of_p - p * dropped
                system.constant[size + s] += of_q - q * dropped
                share[0, runs], share[1, runs], level_of[runs], what[runs] = p, q, level, a
                runs += 1
            for x in range(2):
                r = (2 - x) * size + s
                e = _start_row(r, system, e)
                if i > 0 and n == 0:
                    e = _write(system, e, s, -1.0)
                elif i == 1:
                    for j in range(bins):
                        if drawn[x, n, j] > 0.0:
                            e = _write(system, e, 3 * size + n * bins + j, -drawn[x, n, j])
                for k in range(runs):
                    p, level, a = share[x, k], level_of[k], what[k]
                    if p > 0.0 and a < 0:
                        e = _write(system, e, i * lengths + level, -p)
                    elif p > 0.0:
                        left = model.queue[level] - model.batch[a]
                        c, y = size + s - n + model.low[left], model.share[left]
                        down = p * model.held[a] / step
                        e = _write(system, e, c - lengths, -down * (1.0 - y))
                        if y > 0.0:
                            e = _write(system, e, c - lengths + 1, -down * y)
                        if down < p:
                            e = _write(system, e, c, -(p - down) * (1.0 - y))
                            if y > 0.0 and c + 1 != r:
                                e = _write(system, e, c + 1, -(p - down) * y)
                            elif y > 0.0:  # levels further apart than the batch is large
                                system.weight[system.start[r]] -= (p - down) * y
                system.end[r] = e
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _room(model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16]) -> int:
    """At least as many as the entries of the linear system."""
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    room = model.idle.size * lengths * 8 + 4 * lengths * bins + bins
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
        room += model.batch.size * (model.arrivals.shape[1] * 2 * bins + 3)
    return int(room)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _last_row(
    model: CentralArrays, n: int, j: int, level: int, a: int, system: System, e: int
) -> int:
    """Write the row of deciding with one worker idle; the number of entries then."""
    constant, cost = system.constant, system.cost
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    first = 3 * model.idle.size * lengths
    r = first + n * bins + j
    constant[r] -= model.price * (model.queue[n] - model.queue[level])
    if a < 0:
        return _write(system, e, lengths + level, -1.0)
    jj = model.after_drop[n, level, j]
    constant[r] += model.earned[level, a, jj]
    left = model.queue[level] - model.batch[a]
    if model.carries and left == 0:
        return _write(system, e, first + lengths * bins + a, -1.0)
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
        e = _write(system, e, (model.idle.size + 1) * lengths + at, -w * (1.0 - x))
        if x > 0.0:
            e = _write(system, e, (model.idle.size + 1) * lengths + at + 1, -w * x)
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _kept_row(
    model: CentralArrays, n: int, j: int, a: int, r: int, system: System, e: int
) -> int:
    """Write the row of an action that takes part of a queue and the last idle worker."""
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
            system.constant[r] -= w * model.price * over
            at, x = model.low[left + k - over], model.share[left + k - over]
            slack = head - model.spacing_ms[a, k]
            below = bin_below(model.slack_ms, slack, below)
            # Each level has rows from its own lowest to its own highest bin only.
            for more in range(2 if x > 0.0 else 1):
                share = x if more else 1.0 - x
                b, y = around(model.slack_ms, slack, below, model.lowest[at + more],
                              model.highest[at + more])
                to = first + (at + more) * bins + b
                e = _write(system, e, to, -w * share * (1.0 - y))
                if y > 0.0:
                    e = _write(system, e, to + 1, -w * share * y)
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _anew_row(model: CentralArrays, a: int, system: System, e: int) -> int:
    """Write the row of what follows an action that takes the whole queue; the entries then."""
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    first = 3 * model.idle.size * lengths
    r = first + lengths * bins + a
    system.cost[r] = model.mean_ms[a] / model.workers
    e = _start_row(r, system, e)
    # Without an arrival one worker waits with nothing queued.
    e = _write(system, e, lengths, -model.arrivals[a, 0])
    for k in range(1, model.arrivals.shape[1]):
        w = model.arrivals[a, k]
        if w == 0.0:
            continue
        slack = oldest(model.edge_ms, model.slo_ms, model.spacing_ms[a, k], k)
        length = min(k, model.queue[-1])
        system.constant[r] -= w * model.price * (k - length)
        for more in range(2 if model.share[length] > 0.0 else 1):
            share = model.share[length] if more else 1.0 - model.share[length]
            at = model.low[length] + more
            for j in range(bins):
                if w * share * slack[j] > 0.0:
                    b = min(max(j, model.lowest[at]), model.highest[at])
                    e = _write(system, e, first + at * bins + b, -w * share * slack[j])
    system.end[r] = e
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def off(system: System, solution: FloatArray, home: int, turned: bool) -> float:
    """How far a solution of the system, or of the transposed one, is off at most."""
    start, end, column, weight, constant, cost = system
    rest = np.zeros(constant.size)
    if turned:
        rest[home] = 1.0
        for r in range(constant.size):
            rest[home] -= cost[r] * solution[r]
            for x in range(start[r], end[r]):
                if column[x] != home:
                    rest[column[x]] -= weight[x] * solution[r]
    else:
        for r in range(constant.size):
            rest[r] = constant[r] - cost[r] * solution[home]
            for x in range(start[r], end[r]):
                if column[x] != home:
                    rest[r] -= weight[x] * solution[column[x]]
    return float(np.abs(rest).max())


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rates(
    model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16], visits: FloatArray,
    last: FloatArray,
) -> ChainRates:
    """What a policy does, given how often each row is visited: (3, I, N), and (N, J)."""
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    batches, in_time = np.zeros((model.batch.size, bins)), np.zeros(model.batch.size)
    queue = np.zeros(lengths)
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
                    good = model.in_time[level, a, jj]
                    batches[a, jj] += p
                    in_time[a] += p * good
                    mean_late += p * (1.0 - good / model.batch[a])
                    queue[level] += p
                    if i == 1:
                        left = model.queue[level] - model.batch[a]
                        for k in range(model.arrivals.shape[1]):
                            over = max(left + k - model.queue[-1], 0)
                            overflow += p * model.arrivals[a, k] * over
    return ChainRates(batches, in_time, dropped + overflow, queue, mean_late, overflow)
