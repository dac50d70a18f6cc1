"""Compiled loops for a central queue: the linear system of a policy's values, and its rates.

A *level* is a point of the grid of idle workers (i) or of queued requests (n). Indices: x = 0 just
after an arrival, 1 at an end of a batch; j a slack bin of the first request, a an action. A policy
drops down to queue level ``to[i, n, j]``, then runs action ``action[i, n, j]``, or waits if this
is negative. Rows of idle level 0 are empty but for the diagonal: with no worker idle nothing is
decided.
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
    """Sparse linear system Σ weight·x[column] + cost·gain = constant, its rows in any order."""

    # start, end: first entry of each row, on the diagonal, and the one after its last
    start: IntArray
    end: IntArray
    # column, weight: entries; while the system is built there is room for more
    column: IntArray
    weight: FloatArray
    # constant, cost: right-hand side, and factor of the gain
    constant: FloatArray
    cost: FloatArray


class ChainRates(NamedTuple):
    """Transition rates per ms of a central queue under a policy."""

    batches: FloatArray  # batches started, by action and slack bin of the head, shape (A, J)
    in_time: FloatArray  # requests of each action in time, shape (A,)
    dropped: float  # requests
    queue: FloatArray  # batches started, by queue level, shape (N,)
    mean_late: float  # batches, each counted by the share of its requests that is late
    overflow: float  # requests dropped because the queue was at its highest level


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _as_before(
    first: int, n: int, j: int, to: NDArray[np.int16], action: NDArray[np.int16]
) -> bool:
    """Return whether the policy decides alike in the bins j and j − 1 with one idle worker."""
    return (j > first and action[1, n, j] >= 0
            and to[1, n, j] == to[1, n, j - 1] and action[1, n, j] == action[1, n, j - 1])


def rows(model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16]) -> System:
    """Build the linear system of a policy's values; see :mod:`ramsis.central.solve`.

    Unknowns: waiting at i·N + n, deciding at an end of a batch at S + i·N + n, after an arrival at
    2S + i·N + n, with S = I·N; deciding with one worker idle at 3S + n·J + j; and, where the
    head's age is kept, what follows action a when it takes the whole queue at 3S + N·J + a.

    There is a compiled function for the last rows if the age is kept, and another one if it is
    not, as a policy needs only one of them.
    """
    system, e = first_rows(model, to, action)
    e = (last_rows_kept if model.carries else last_rows)(model, to, action, system, e)
    return system._replace(column=system.column[:e], weight=system.weight[:e])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def first_rows(
    model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16]
) -> tuple[System, int]:
    """Start the system with the rows of waiting and deciding; return it and the entries used."""
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    unknowns = 3 * model.idle.size * lengths + lengths * bins
    unknowns += model.batch.size if model.carries else 0
    room = _room(model, to, action)
    system = System(np.empty(unknowns, np.int64), np.empty(unknowns, np.int64),
                    np.empty(room, np.int64), np.empty(room), np.zeros(unknowns),
                    np.zeros(unknowns))
    return system, _deciding_rows(model, to, action, system, _waiting_rows(model, system, 0))


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def last_rows(
    model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16], system: System, e: int
) -> int:
    """Write the rows of deciding with one worker idle; return the number of entries used."""
    start, end, column, weight, constant, _ = system
    earned, after_drop, lowest, highest = (
        model.earned, model.after_drop, model.lowest, model.highest)
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    for n in range(lengths):
        for j in range(bins):
            r = 3 * model.idle.size * lengths + n * bins + j
            e = _start_row(start, column, weight, r, e)
            if n == 0:
                e = _write(column, weight, e, lengths, -1.0)
            elif lowest[n] <= j <= highest[n]:
                level, a = to[1, n, j], action[1, n, j]
                if _as_before(lowest[n], n, j, to, action):
                    # The row of the bin before may have hundreds of entries. This one differs from
                    # it only in what the batch earns, so it leads to that row.
                    e = _write(column, weight, e, r - 1, -1.0)
                    constant[r] = (earned[level, a, after_drop[n, level, j]]
                                   - earned[level, a, after_drop[n, level, j - 1]])
                else:
                    e = _last_row(model, n, j, level, a, system, e)
            end[r] = e
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def last_rows_kept(
    model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16], system: System, e: int
) -> int:
    """Write the rows of deciding with one worker idle where the head's age is kept."""
    start, end, column, weight, constant, cost = system
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    first = 3 * model.idle.size * lengths
    for n in range(lengths):
        for j in range(bins):
            r = first + n * bins + j
            e = _start_row(start, column, weight, r, e)
            if n == 0:
                e = _write(column, weight, e, lengths, -1.0)
            elif model.lowest[n] <= j <= model.highest[n]:
                level, a = to[1, n, j], action[1, n, j]
                constant[r] -= model.price * (model.queue[n] - model.queue[level])
                if a < 0:
                    e = _write(column, weight, e, lengths + level, -1.0)
                else:
                    jj = model.after_drop[n, level, j]
                    constant[r] += model.earned[level, a, jj]
                    if model.queue[level] == model.batch[a]:  # the next head has yet to arrive
                        e = _write(column, weight, e, first + lengths * bins + a, -1.0)
                    else:
                        cost[r] += model.mean_ms[a] / model.workers
                        e = _kept_row(model, level, jj, a, r, system, e)
            end[r] = e
    for a in range(model.batch.size):
        e = _anew_row(model, a, system, e)
    return e


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _write(columns: IntArray, weights: FloatArray, e: int, column: int, weight: float) -> int:
    """Append an entry to the current row; return the number of entries used."""
    columns[e], weights[e] = column, weight
    return e + 1


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _start_row(
    start: IntArray, columns: IntArray, weights: FloatArray, r: int, e: int
) -> int:
    """Begin row r with 1 on the diagonal; return the number of entries used."""
    start[r], columns[e], weights[e] = e, r, 1.0
    return e + 1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _waiting_rows(model: CentralArrays, system: System, e: int) -> int:
    """Write the rows of waiting; return the number of entries used."""
    start, end, column, weight, constant, cost = system
    queue, idle, load, restart = model.queue, model.idle, model.load, model.restart
    lengths = queue.size
    size = idle.size * lengths
    for s in range(size):
        i, n, entry = s // lengths, s % lengths, e
        e = _start_row(start, column, weight, s, e)
        if i > 0:
            cost[s] = 1.0
            if n + 1 < lengths:
                rate = load / (queue[n + 1] - queue[n])
                e = _write(column, weight, e, 2 * size + s + 1, -rate)
            else:
                # The longest queue drops its head when one more comes, and decides anew.
                rate = load
                e = _write(column, weight, e, size + s, -rate)
                constant[s] -= rate * model.price
            # A restart leads to home, whose value is 0: it adds to the total alone.
            total = restart + rate
            busy = model.workers - idle[i]
            if busy > 0:
                rate = model.leave * busy / (idle[i + 1] - idle[i])
                e = _write(column, weight, e, size + s + lengths, -rate)
                total += rate
            weight[entry] = total
        end[s] = e
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _deciding_rows(
    model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16], system: System, e: int
) -> int:
    """Write the rows of deciding just after an arrival and at an end of a batch."""
    start, end, column, weight, constant, _ = system
    queue, idle, batch, held = model.queue, model.idle, model.batch, model.held
    drawn, price, low, split = model.slack_probability, model.price, model.low, model.share
    earned, after_drop = model.earned, model.after_drop
    lengths, bins = queue.size, drawn.shape[2]
    size = idle.size * lengths
    share, level_of, what = np.empty((2, bins)), np.empty(bins, np.int64), np.empty(bins, np.int64)
    for n in range(lengths):
        # Bins in which the slack may be at all.
        first, last = 0, bins - 1
        while drawn[0, n, first] == 0.0 and drawn[1, n, first] == 0.0:
            first += 1
        while drawn[0, n, last] == 0.0 and drawn[1, n, last] == 0.0:
            last -= 1
        for i in range(idle.size):
            s, runs, j = i * lengths + n, 0, first
            step = float(idle[i] - idle[max(i - 1, 0)])
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
                dropped = price * (queue[n] - queue[level])
                constant[2 * size + s] += of_p - p * dropped
                constant[size + s] += of_q - q * dropped
                share[0, runs], share[1, runs], level_of[runs], what[runs] = p, q, level, a
                runs += 1
            # An empty queue waits. With one worker idle, the row leads to those by bin. Else a run
            # of bins, with probability p, waits at its level or starts a batch there.
            for x in range(2):
                r = (2 - x) * size + s
                e = _start_row(start, column, weight, r, e)
                if i > 0 and n == 0:
                    e = _write(column, weight, e, s, -1.0)
                elif i == 1:
                    for j in range(bins):
                        if drawn[x, n, j] > 0.0:
                            e = _write(column, weight, e, 3 * size + n * bins + j, -drawn[x, n, j])
                for k in range(runs):
                    p, level, a = share[x, k], level_of[k], what[k]
                    if p > 0.0 and a < 0:
                        e = _write(column, weight, e, i * lengths + level, -p)
                    elif p > 0.0:
                        left = queue[level] - batch[a]
                        c, y = size + s - n + low[left], split[left]
                        # The batch lowers the idle level with the probability h over the distance
                        # of the levels; a queue between two levels is a mix of both.
                        down = p * held[a] / step
                        e = _write(column, weight, e, c - lengths, -down * (1.0 - y))
                        if y > 0.0:
                            e = _write(column, weight, e, c - lengths + 1, -down * y)
                        if down < p:
                            e = _write(column, weight, e, c, -(p - down) * (1.0 - y))
                            if y > 0.0 and c + 1 != r:
                                e = _write(column, weight, e, c + 1, -(p - down) * y)
                            elif y > 0.0:  # levels further apart than the batch is large
                                weight[start[r]] -= (p - down) * y
                end[r] = e
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _room(model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16]) -> int:
    """Return an upper bound on the entries of the linear system."""
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
    """Write a row of deciding with one worker idle; return the number of entries used."""
    _, _, column, weight, constant, cost = system
    queue, low, split, arrivals = model.queue, model.low, model.share, model.arrivals
    lengths, bins = queue.size, model.slack_probability.shape[2]
    first = 3 * model.idle.size * lengths
    r = first + n * bins + j
    constant[r] -= model.price * (queue[n] - queue[level])
    if a < 0:
        return _write(column, weight, e, lengths + level, -1.0)
    jj = model.after_drop[n, level, j]
    constant[r] += model.earned[level, a, jj]
    left = queue[level] - model.batch[a]
    cost[r] += model.mean_ms[a] / model.workers  # mean time until the next worker is free
    for k in range(arrivals.shape[1]):
        w = arrivals[a, k]
        if w == 0.0:
            continue
        over = max(left + k - queue[-1], 0)
        constant[r] -= w * model.price * over
        at, x = low[left + k - over], split[left + k - over]
        e = _write(column, weight, e, (model.idle.size + 1) * lengths + at, -w * (1.0 - x))
        if x > 0.0:
            e = _write(column, weight, e, (model.idle.size + 1) * lengths + at + 1, -w * x)
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _kept_row(
    model: CentralArrays, n: int, j: int, a: int, r: int, system: System, e: int
) -> int:
    """Write a row of starting part of a queue on the last idle worker, by the head's age."""
    _, _, column, weight, constant, _ = system
    queue, low, split, arrivals = model.queue, model.low, model.share, model.arrivals
    parts, spacing_ms, slack_ms = model.parts, model.spacing_ms, model.slack_ms
    lowest, highest = model.lowest, model.highest
    lengths, bins = queue.size, model.slack_probability.shape[2]
    first = 3 * model.idle.size * lengths
    left = queue[n] - model.batch[a]
    for part in range(parts.size):
        head = model.slo_ms - model.age_ms[n, j] * model.left_age[n, a, part]
        below = bins - 1
        for k in range(arrivals.shape[1]):
            w = parts[part] * arrivals[a, k]
            if w == 0.0:
                continue
            over = max(left + k - queue[-1], 0)
            constant[r] -= w * model.price * over
            at, x = low[left + k - over], split[left + k - over]
            slack = head - spacing_ms[a, k]
            below = bin_below(slack_ms, slack, below)
            # Each level has rows from its own lowest to its own highest bin only.
            for more in range(2 if x > 0.0 else 1):
                share = x if more else 1.0 - x
                b, y = around(slack_ms, slack, below, lowest[at + more],
                              highest[at + more])
                to = first + (at + more) * bins + b
                e = _write(column, weight, e, to, -w * share * (1.0 - y))
                if y > 0.0:
                    e = _write(column, weight, e, to + 1, -w * share * y)
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _anew_row(model: CentralArrays, a: int, system: System, e: int) -> int:
    """Write the row after action a takes the whole queue; return the number of entries used."""
    start, end, column, weight, constant, cost = system
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    first = 3 * model.idle.size * lengths
    r = first + lengths * bins + a
    cost[r] = model.mean_ms[a] / model.workers
    e = _start_row(start, column, weight, r, e)
    # Without an arrival one worker waits with nothing queued.
    e = _write(column, weight, e, lengths, -model.arrivals[a, 0])
    for k in range(1, model.arrivals.shape[1]):
        w = model.arrivals[a, k]
        if w == 0.0:
            continue
        slack = oldest(model.edge_ms, model.slo_ms, model.spacing_ms[a, k], k)
        length = min(k, model.queue[-1])
        constant[r] -= w * model.price * (k - length)
        for more in range(2 if model.share[length] > 0.0 else 1):
            share = model.share[length] if more else 1.0 - model.share[length]
            at = model.low[length] + more
            for j in range(bins):
                if w * share * slack[j] > 0.0:
                    b = min(max(j, model.lowest[at]), model.highest[at])
                    e = _write(column, weight, e, first + at * bins + b, -w * share * slack[j])
    end[r] = e
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def residuals(system: System, solution: FloatArray, home: int, turned: bool) -> FloatArray:
    """Return the residual of each row of a solution of the system or its transpose."""
    start, end, column, weight, constant, cost = system
    residual = np.zeros(constant.size)
    if turned:
        residual[home] = 1.0
        for r in range(constant.size):
            residual[home] -= cost[r] * solution[r]
            for x in range(start[r], end[r]):
                if column[x] != home:
                    residual[column[x]] -= weight[x] * solution[r]
    else:
        for r in range(constant.size):
            residual[r] = constant[r] - cost[r] * solution[home]
            for x in range(start[r], end[r]):
                if column[x] != home:
                    residual[r] -= weight[x] * solution[column[x]]
    return residual


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rates(
    model: CentralArrays, to: NDArray[np.int16], action: NDArray[np.int16], visits: FloatArray,
    last: FloatArray,
) -> ChainRates:
    """Return the rates of a policy.

    ``visits``, (3, I, N), are the rates of waiting, of decisions at an end of a batch, and of
    those after an arrival; ``last``, (N, J), of decisions with one idle worker. There a bin that
    decides as the one below it refers to that row, so its visits are taken off again.
    """
    queue_of, batch, arrivals, drawn = (
        model.queue, model.batch, model.arrivals, model.slack_probability)
    in_time_of, after_drop = model.in_time, model.after_drop
    lowest, highest, carries = model.lowest, model.highest, model.carries
    lengths, bins = queue_of.size, drawn.shape[2]
    batches, in_time = np.zeros((batch.size, bins)), np.zeros(batch.size)
    queue = np.zeros(lengths)
    dropped, mean_late, overflow = 0.0, 0.0, 0.0
    for i in range(1, model.idle.size):
        overflow += visits[0, i, lengths - 1] * model.load
        for n in range(1, lengths):
            for x in range(2):
                for j in range(bins):
                    p = visits[2 - x, i, n] * drawn[x, n, j]
                    if i == 1:
                        p = last[n, j] if x == 0 else 0.0
                        if x == 0 and j < highest[n] and not carries and _as_before(
                                lowest[n], n, j + 1, to, action):
                            p -= last[n, j + 1]  # that row leads through this one
                    if p == 0.0:
                        continue
                    level, a = to[i, n, j], action[i, n, j]
                    dropped += p * (queue_of[n] - queue_of[level])
                    if a < 0:
                        continue
                    jj = after_drop[n, level, j]
                    good = in_time_of[level, a, jj]
                    batches[a, jj] += p
                    in_time[a] += p * good
                    mean_late += p * (1.0 - good / batch[a])
                    queue[level] += p
                    if i == 1:
                        left = queue_of[level] - batch[a]
                        for k in range(arrivals.shape[1]):
                            over = max(left + k - queue_of[-1], 0)
                            overflow += p * arrivals[a, k] * over
    return ChainRates(batches, in_time, dropped + overflow, queue, mean_late, overflow)
