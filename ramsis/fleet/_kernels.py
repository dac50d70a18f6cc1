"""Compiled loops of the fleet's decision problem; symbols are those of the modules around.

Indices: x = 0 just after an arrival, 1 at an end of a batch; i an idle level, n a queue level, j a
slack bin, o an option. Idle level 0 has no row of its own: with no worker idle nothing is decided.
A choice is a number of levels to drop to first (``to``, at most n) and then an option, or -1 to
wait.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["Model", "Totals", "count_in_time", "finish", "follow", "improve", "needed_bins", "place", "rows",
           "totals"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_TIE = 1e-9


class Model(NamedTuple):
    """Everything that the loops need of a problem.

    Attributes
    ----------
    queue : (N,), idle : (I,)
        Levels.
    batch : (O,), accuracy : (O,), mean_ms : (O,)
    held : (O,)
        Probability that a batch occupies its worker, mean / SLO, at most 1.
    arrivals : (O, k)
        Law of the arrivals until the next worker is free.
    law : (2, N, J)
        Law of the slack bin.
    in_time, earned : (N, J, O)
        Expected queries in time of a batch, and accuracy earned by it less price paid.
    needed : (N, J)
        Whether the bin has a probability, or is come to by dropping from one that has.
    after_drop : (N, N, J)
        Bin after dropping from a level to a lower one.
    low, share : (longest + 1,)
        A queue of any length as two levels: index of the lower one, probability of the next.
    load, leave, price, workers
        λ per ms, 1/SLO, violation price, K.
    """

    queue: IntArray
    idle: IntArray
    batch: IntArray
    accuracy: FloatArray
    mean_ms: FloatArray
    held: FloatArray
    arrivals: FloatArray
    law: FloatArray
    in_time: FloatArray
    earned: FloatArray
    needed: NDArray[np.bool_]
    after_drop: NDArray[np.int16]
    low: IntArray
    share: FloatArray
    load: float
    leave: float
    price: float
    workers: int


class Totals(NamedTuple):
    """Rates per ms under a policy.

    Attributes
    ----------
    batches : (O,), in_time : (O,), dropped : float
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


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def place(levels: IntArray, longest: int) -> tuple[IntArray, FloatArray]:
    """Every count up to ``longest`` as two neighbouring levels; beyond the last, the last."""
    low = np.zeros(longest + 1, np.int64)
    share = np.zeros(longest + 1)
    at = 0
    for count in range(longest + 1):
        while at + 1 < levels.size and levels[at + 1] <= count:
            at += 1
        low[count] = at
        if at + 1 < levels.size:
            share[count] = (count - levels[at]) / (levels[at + 1] - levels[at])
    return low, share


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _within(quantiles: FloatArray, slack: float) -> float:
    """P(L <= slack) of a law given by quantiles at midpoints."""
    size = quantiles.size
    below = np.searchsorted(quantiles, slack, side="right")
    if below == 0:
        return 0.0
    if below == size:
        return 1.0
    step = quantiles[below] - quantiles[below - 1]
    return float((below - 0.5 + (slack - quantiles[below - 1]) / step) / size)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def count_in_time(
    queue: IntArray, age_ms: FloatArray, batch: IntArray, quantiles: FloatArray, slo_ms: float
) -> FloatArray:
    """Expected queries in time of each option at each (n, j), shape (N, J, O)."""
    result = np.zeros((queue.size, age_ms.shape[1], batch.size))
    for n in range(1, queue.size):
        for j in range(age_ms.shape[1]):
            for o in range(batch.size):
                if batch[o] > queue[n]:
                    continue
                total = 0.0
                for k in range(batch[o]):
                    slack = slo_ms - age_ms[n, j] * (1.0 - k / queue[n])
                    total += _within(quantiles[o], slack * (1.0 + 1e-12))
                result[n, j, o] = total
    return result


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _at(value: FloatArray, model: Model, count: int) -> float:
    """The value at a queue of any length."""
    n = model.low[count]
    x = model.share[count]
    if x == 0.0:
        return float(value[n])
    return float((1.0 - x) * value[n] + x * value[n + 1])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def needed_bins(law: FloatArray, after_drop: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Bins that have a probability or are come to by dropping from one that has, (N, J)."""
    lengths, bins = law.shape[1:]
    needed = np.zeros((lengths, bins), np.bool_)
    for n in range(lengths):
        for j in range(bins):
            if law[0, n, j] > 0 or law[1, n, j] > 0:
                for d in range(n + 1):
                    needed[d, after_drop[n, d, j]] = True
    return needed


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _after_start(
    model: Model, i: int, n: int, o: int, old: FloatArray, new: FloatArray, gain: float
) -> float:
    """Value of what follows an option: of the new values those that are known already."""
    left = model.queue[n] - model.batch[o]
    if i > 1:
        down = model.held[o] / (model.idle[i] - model.idle[i - 1])
        here = new if model.low[left] + 1 < n or model.share[left] == 0.0 else old
        value = down * _at(new[i - 1], model, left)
        if down < 1.0:
            value += (1.0 - down) * _at(here[i], model, left)
        return value
    value = -gain * model.mean_ms[o] / model.workers
    longest = model.queue[-1]
    for k in range(model.arrivals.shape[1]):
        weight = model.arrivals[o, k]
        over = max(left + k - longest, 0)
        value += weight * (_at(old[1], model, left + k - over) - model.price * over)
    return value


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def improve(
    model: Model, wait: FloatArray, free: FloatArray, gain: float, everywhere: bool,
    to: NDArray[np.int16], option: NDArray[np.int16],
) -> tuple[int, float]:
    """Make each choice that is not best the best one; how many, and by how much at most.

    What is left after a start is valued by the choices just made, where they are known.

    Parameters
    ----------
    wait, free : (I, N)
        Values of waiting, and of deciding at an end of a batch, under the policy so far.
    everywhere : bool
        Also in slack bins that are never met.
    to, option : (I, N, J)
        The policy, changed in place.
    """
    lengths, bins, options = model.queue.size, model.law.shape[2], model.batch.size
    new = free.copy()
    best = np.zeros((lengths, bins))
    chosen = np.full((lengths, bins), -1, np.int16)
    after = np.zeros((lengths, options))
    changed, most = 0, 0.0
    for i in range(1, model.idle.size):
        best[0, :] = wait[i, 0]
        for n in range(1, lengths):
            for o in range(options):
                if model.batch[o] <= model.queue[n]:
                    after[n, o] = _after_start(model, i, n, o, free, new, gain)
            total = 0.0
            for j in range(bins):
                if not (everywhere or model.needed[n, j]):
                    continue
                top, what = wait[i, n], -1
                for o in range(options):
                    if model.batch[o] <= model.queue[n]:
                        q = model.earned[n, j, o] + after[n, o]
                        if q > top + 1e-12:
                            top, what = q, o
                best[n, j], chosen[n, j] = top, what
                level = n
                if everywhere or model.law[0, n, j] > 0 or model.law[1, n, j] > 0:
                    for d in range(n - 1, -1, -1):
                        jj = model.after_drop[n, d, j]
                        q = best[d, jj] - model.price * (model.queue[n] - model.queue[d])
                        if q > top + 1e-12:
                            top, level, what = q, d, chosen[d, jj]
                known, kept = to[i, n, j], option[i, n, j]
                if kept < 0:
                    stays = wait[i, known]
                else:
                    stays = model.earned[known, model.after_drop[n, known, j], kept]
                    stays += after[known, kept]
                stays -= model.price * (model.queue[n] - model.queue[known])
                if top > stays + _TIE * (1.0 + abs(stays)):
                    to[i, n, j], option[i, n, j] = level, what
                    changed += 1
                    most = max(most, top - stays)
                else:
                    top = stays
                total += model.law[1, n, j] * top
            new[i, n] = total
    return changed, most


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rows(
    model: Model, to: NDArray[np.int16], option: NDArray[np.int16], restart: float
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]:
    """The linear system of a policy's values; see :mod:`ramsis.fleet.solve`.

    Unknowns: waiting at i·N + n, deciding at an end of a batch at S + i·N + n, after an arrival at
    2S + i·N + n, with S = I·N.

    Returns
    -------
    row, column, weight, right-hand side, cost of gain
        In coordinates; and for each row its constant and its factor of the gain.
    """
    lengths, bins = model.queue.size, model.law.shape[2]
    size = model.idle.size * lengths
    runs = 0  # room: one entry for each run of equal choices and each of its outcomes
    for i in range(1, model.idle.size):
        for n in range(1, lengths):
            width = 2 * model.arrivals.shape[1] if i == 1 else 4
            for j in range(bins):
                if j == 0 or to[i, n, j] != to[i, n, j - 1] \
                        or option[i, n, j] != option[i, n, j - 1]:
                    runs += 2 * width
    room = runs + 10 * size
    row, column = np.empty(room, np.int64), np.empty(room, np.int64)
    weight = np.empty(room)
    constant, cost = np.zeros(3 * size), np.zeros(3 * size)
    home = (model.idle.size - 1) * lengths
    e = 0
    for n in range(lengths):  # no worker idle: not used
        for part in range(3):
            row[e], column[e], weight[e] = part * size + n, part * size + n, 1.0
            e += 1
    for i in range(1, model.idle.size):
        busy = model.workers - model.idle[i]
        for n in range(lengths):
            s = i * lengths + n
            cost[s] = 1.0
            total = restart
            row[e], column[e], weight[e] = s, home, -restart
            e += 1
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
            row[e], column[e], weight[e] = s, s, total
            e += 1
            for x in range(2):
                r = (2 - x) * size + s
                row[e], column[e], weight[e] = r, r, 1.0
                e += 1
                if n == 0:
                    row[e], column[e], weight[e] = r, s, -1.0
                    e += 1
                    continue
                j = 0
                while j < bins:
                    level, o = to[i, n, j], option[i, n, j]
                    p = 0.0
                    while j < bins and to[i, n, j] == level and option[i, n, j] == o:
                        p += model.law[x, n, j]
                        if o >= 0:
                            jj = model.after_drop[n, level, j]
                            constant[r] += model.law[x, n, j] * model.earned[level, jj, o]
                        j += 1
                    if p == 0.0:
                        continue
                    constant[r] -= p * model.price * (model.queue[n] - model.queue[level])
                    if o < 0:
                        row[e], column[e], weight[e] = r, i * lengths + level, -p
                        e += 1
                        continue
                    left = model.queue[level] - model.batch[o]
                    if i > 1:
                        at, x1 = model.low[left], model.share[left]
                        down = model.held[o] / (model.idle[i] - model.idle[i - 1])
                        base = size + i * lengths + at
                        for step, w in ((lengths, down), (0, 1.0 - down)):
                            row[e], column[e] = r, base - step
                            weight[e] = -p * w * (1.0 - x1)
                            e += 1
                            if x1 > 0:
                                row[e], column[e] = r, base - step + 1
                                weight[e] = -p * w * x1
                                e += 1
                        continue
                    cost[r] += p * model.mean_ms[o] / model.workers
                    for k in range(model.arrivals.shape[1]):
                        w = p * model.arrivals[o, k]
                        if w == 0.0:
                            continue
                        over = max(left + k - model.queue[-1], 0)
                        constant[r] -= w * model.price * over
                        at, x1 = model.low[left + k - over], model.share[left + k - over]
                        row[e], column[e] = r, size + lengths + at
                        weight[e] = -w * (1.0 - x1)
                        e += 1
                        if x1 > 0:
                            row[e], column[e], weight[e] = r, size + lengths + at + 1, -w * x1
                            e += 1
    return row[:e], column[:e], weight[:e], constant, cost


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def finish(
    model: Model, wait: FloatArray, free: FloatArray, gain: float, width_ms: FloatArray
) -> NDArray[np.int16]:
    """The table: what to do next in each (i, n, j), the head's age being kept while waiting.

    Parameters
    ----------
    wait, free : (I, N)
        Values of waiting, and of deciding at an end of a batch, of the optimal policy.
    width_ms : (J,)
        Widths of the slack bins.

    Returns
    -------
    (I, N, J)
        An option, -1 to wait, -2 to drop the head.
    """
    levels, lengths, bins = model.idle.size, model.queue.size, model.law.shape[2]
    options = model.batch.size
    table = np.full((levels, lengths, bins), -1, np.int16)
    start = np.zeros((lengths, bins))
    after = np.zeros((lengths, options))
    value = np.zeros((2, lengths, bins))
    for i in range(levels - 1, 0, -1):
        here, above = value[i % 2], value[(i + 1) % 2]
        busy = model.workers - model.idle[i]
        for n in range(1, lengths):
            for o in range(options):
                if model.batch[o] <= model.queue[n]:
                    after[n, o] = _after_start(model, i, n, o, free, free, gain)
            for j in range(bins):
                start[n, j] = -np.inf
                for o in range(options):
                    if model.batch[o] <= model.queue[n]:
                        q = model.earned[n, j, o] + after[n, o]
                        if q > start[n, j] + 1e-12:
                            start[n, j], table[i, n, j] = q, o
        here[0, :] = wait[i, 0]
        for j in range(bins):
            for n in range(lengths - 1, 0, -1):
                best = start[n, j]
                drop = wait[i, 0] - model.price * model.queue[n]
                for d in range(1, n):
                    q = start[d, model.after_drop[n, d, j]]
                    if j == 0:
                        q = max(q, wait[i, d])
                    drop = max(drop, q - model.price * (model.queue[n] - model.queue[d]))
                if drop > best + 1e-12:
                    best, table[i, n, j] = drop, -2
                if j > 0:
                    total, then = 0.0, -gain
                    if n + 1 < lengths:
                        rate = model.load / (model.queue[n + 1] - model.queue[n])
                        then += rate * here[n + 1, j]
                    else:
                        rate = model.load
                        then += rate * (best - model.price)
                    total += rate
                    if busy > 0:
                        rate = model.leave * busy / (model.idle[i + 1] - model.idle[i])
                        then += rate * above[n, j]
                        total += rate
                    lasts = np.exp(-total * width_ms[j])
                    waits = (1.0 - lasts) * then / total + lasts * here[n, j - 1]
                    if waits > best + 1e-12:
                        best, table[i, n, j] = waits, -1
                here[n, j] = best
    return table


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def follow(
    step: NDArray[np.int16], after_drop: NDArray[np.int16]
) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """The choices that a table of single steps (option, -1 wait, -2 drop) makes, (I, N, J)."""
    to, option = np.zeros_like(step), np.full_like(step, -1)
    for i in range(step.shape[0]):
        for n in range(step.shape[1]):
            for j in range(step.shape[2]):
                level = n
                while level > 0 and step[i, level, after_drop[n, level, j]] == -2:
                    level -= 1
                to[i, n, j] = level
                if level > 0:
                    option[i, n, j] = step[i, level, after_drop[n, level, j]]
    return to, option


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def totals(
    model: Model, to: NDArray[np.int16], option: NDArray[np.int16], visits: FloatArray
) -> Totals:
    """What a policy does, given the rate of each row's visits, shape (3, I, N)."""
    lengths, bins = model.queue.size, model.law.shape[2]
    batches, in_time = np.zeros(model.batch.size), np.zeros(model.batch.size)
    queue, slack = np.zeros(lengths), np.zeros(bins)
    dropped, mean_late, overflow = 0.0, 0.0, 0.0
    for i in range(1, model.idle.size):
        overflow += visits[0, i, lengths - 1] * model.load
        for n in range(1, lengths):
            for x in range(2):
                for j in range(bins):
                    p = visits[2 - x, i, n] * model.law[x, n, j]
                    if p == 0.0:
                        continue
                    level, o = to[i, n, j], option[i, n, j]
                    dropped += p * (model.queue[n] - model.queue[level])
                    if o < 0:
                        continue
                    jj = model.after_drop[n, level, j]
                    good = model.in_time[level, jj, o]
                    batches[o] += p
                    in_time[o] += p * good
                    mean_late += p * (1.0 - good / model.batch[o])
                    queue[level] += p
                    slack[jj] += p
                    if i == 1:
                        left = model.queue[level] - model.batch[o]
                        for k in range(model.arrivals.shape[1]):
                            over = max(left + k - model.queue[-1], 0)
                            overflow += p * model.arrivals[o, k] * over
    return Totals(batches, in_time, dropped + overflow, queue, slack, mean_late, overflow)
