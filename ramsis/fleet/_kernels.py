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

__all__ = ["Model", "Totals", "count_in_time", "finish", "follow", "improve", "needed_bins",
           "place", "rows", "totals"]

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
    after_drop : (N, N, J)
        Bin after dropping from a level to a lower one.
    lowest, highest : (N,)
        First and last needed bin.
    slack_ms, age_ms : (J,), (N, J)
        Middle of each bin; mean age of the head in it.
    spacing_ms : (O, k)
        Mean time until the next worker is free, given the arrivals meanwhile.
    low, share : (longest + 1,)
        A queue of any length as two levels: index of the lower one, probability of the next.
    slo_ms : float
    carries : bool
        Whether the head's age is kept when the last idle worker starts.
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
    lowest: IntArray
    highest: IntArray
    slack_ms: FloatArray
    age_ms: FloatArray
    spacing_ms: FloatArray
    after_drop: NDArray[np.int16]
    low: IntArray
    share: FloatArray
    slo_ms: float
    carries: bool
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
    queue: IntArray, slack_ms: FloatArray, batch: IntArray, quantiles: FloatArray
) -> FloatArray:
    """Expected queries in time of each option, (N, J, O); ``slack_ms`` of the k-th: (N, J, B)."""
    result = np.zeros((queue.size, slack_ms.shape[1], batch.size))
    for n in range(1, queue.size):
        for j in range(slack_ms.shape[1]):
            for o in range(batch.size):
                if batch[o] > queue[n]:
                    continue
                total = 0.0
                for k in range(batch[o]):
                    total += _within(quantiles[o], slack_ms[n, j, k] * (1.0 + 1e-12))
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
def needed_bins(
    law: FloatArray, after_drop: NDArray[np.int16]
) -> tuple[IntArray, IntArray]:
    """First and last bin of each queue that is met, or come to by dropping, (N,) each."""
    lengths, bins = law.shape[1:]
    lowest, highest = np.full(lengths, bins - 1), np.zeros(lengths, np.int64)
    for n in range(lengths - 1, -1, -1):
        for j in range(bins):
            if law[0, n, j] > 0 or law[1, n, j] > 0:
                lowest[n], highest[n] = min(lowest[n], j), max(highest[n], j)
        for j in range(lowest[n], highest[n] + 1):
            for d in range(n):
                jj = after_drop[n, d, j]
                lowest[d], highest[d] = min(lowest[d], jj), max(highest[d], jj)
    return lowest, highest


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _after_start(
    model: Model, i: int, n: int, o: int, old: FloatArray, new: FloatArray, gain: float
) -> float:
    """Value of what follows an option: of the new values those that are known already."""
    left = model.queue[n] - model.batch[o]
    if i == 1:
        value = -gain * model.mean_ms[o] / model.workers
        for k in range(model.arrivals.shape[1]):
            over = max(left + k - model.queue[-1], 0)
            value += model.arrivals[o, k] * (_at(old[1], model, left + k - over)
                                             - model.price * over)
        return float(value)
    down = model.held[o] / (model.idle[i] - model.idle[i - 1])
    here = new if model.low[left] + 1 < n or model.share[left] == 0.0 else old
    value = down * _at(new[i - 1], model, left)
    if down < 1.0:
        value += (1.0 - down) * _at(here[i], model, left)
    return float(value)


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _bins(model: Model, n: int, slack_ms: float) -> tuple[int, float]:
    """A slack as two neighbouring bins of a queue: the lower one, and the share of the next."""
    first, last = model.lowest[n], model.highest[n]
    j = np.searchsorted(model.slack_ms, slack_ms, side="right") - 1
    if j < first:
        return int(first), 0.0
    if j >= last:
        return int(last), 0.0
    step = model.slack_ms[j + 1] - model.slack_ms[j]
    return int(j), float((slack_ms - model.slack_ms[j]) / step)


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _slack_then(model: Model, n: int, j: int, o: int, k: int, part: int) -> float:
    """Slack of the head when the next worker is free, k queries having come.

    If none was left it is of the oldest of the k, of whose law ``part`` is a third.
    """
    left = model.queue[n] - model.batch[o]
    spacing = model.spacing_ms[o, k]
    if left > 0:
        return float(model.slo_ms - model.age_ms[n, j] * left / model.queue[n] - spacing)
    return float(model.slo_ms - spacing * ((2 * part + 1) / 6.0) ** (1.0 / k))


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _after_last(
    model: Model, n: int, j: int, o: int, last: FloatArray, gain: float
) -> float:
    """Value of what follows an option that takes the last idle worker; ``last`` is (N, J)."""
    value = -gain * model.mean_ms[o] / model.workers
    left, longest = model.queue[n] - model.batch[o], model.queue[-1]
    parts = 1 if left > 0 else 3
    for k in range(model.arrivals.shape[1]):
        weight = model.arrivals[o, k]
        if weight == 0.0:
            continue
        if left + k == 0:
            value += weight * last[0, 0]
            continue
        over = max(left + k - longest, 0)
        value -= weight * model.price * over
        at, x = model.low[left + k - over], model.share[left + k - over]
        for part in range(parts):
            slack = _slack_then(model, n, j, o, k, part)
            jj, y = _bins(model, at, slack)
            found = last[at, jj] if y == 0.0 else (1.0 - y) * last[at, jj] + y * last[at, jj + 1]
            if x > 0.0:
                jj, y = _bins(model, at + 1, slack)
                more = last[at + 1, jj]
                if y > 0.0:
                    more = (1.0 - y) * more + y * last[at + 1, jj + 1]
                found = (1.0 - x) * found + x * more
            value += weight / parts * found
    return float(value)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def improve(
    model: Model, wait: FloatArray, free: FloatArray, last: FloatArray, gain: float,
    to: NDArray[np.int16], option: NDArray[np.int16],
) -> tuple[int, float]:
    """Make each choice that is not best the best one; how many, and by how much at most.

    What is left after a start is valued by the choices just made, where they are known.

    Parameters
    ----------
    wait, free : (I, N)
        Values of waiting, and of deciding at an end of a batch, under the policy so far.
    last : (N, J)
        Values of deciding with one worker idle.
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
            keeps = i == 1 and model.carries
            if not keeps:
                for o in range(options):
                    if model.batch[o] <= model.queue[n]:
                        after[n, o] = _after_start(model, i, n, o, free, new, gain)
            total = 0.0
            for j in range(model.lowest[n], model.highest[n] + 1):
                top, what = wait[i, n], -1
                for o in range(options):
                    if model.batch[o] <= model.queue[n]:
                        q = model.earned[n, j, o]
                        q += _after_last(model, n, j, o, last, gain) if keeps else after[n, o]
                        if q > top + 1e-12:
                            top, what = q, o
                best[n, j], chosen[n, j] = top, what
                level = n
                if i == 1 or model.law[0, n, j] > 0 or model.law[1, n, j] > 0:
                    for d in range(n - 1, -1, -1):
                        jj = model.after_drop[n, d, j]
                        q = best[d, jj] - model.price * (model.queue[n] - model.queue[d])
                        if q > top + 1e-12:
                            top, level, what = q, d, chosen[d, jj]
                known, kept = to[i, n, j], option[i, n, j]
                if kept < 0:
                    stays = wait[i, known]
                else:
                    jj = model.after_drop[n, known, j]
                    stays = model.earned[known, jj, kept]
                    stays += (_after_last(model, known, jj, kept, last, gain) if keeps
                              else after[known, kept])
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
    2S + i·N + n, with S = I·N, and deciding with one worker idle at 3S + n·J + j.

    Returns
    -------
    row, column, weight, right-hand side, cost of gain
        In coordinates; and for each row its constant and its factor of the gain.
    """
    lengths, bins = model.queue.size, model.law.shape[2]
    size = model.idle.size * lengths
    row, column, weight = _room(model, to, option)
    constant, cost = np.zeros(3 * size + lengths * bins), np.zeros(3 * size + lengths * bins)
    e = 0
    for r in range(3 * size + lengths * bins):
        row[e], column[e], weight[e] = r, r, 1.0
        e += 1
    for i in range(1, model.idle.size):
        busy = model.workers - model.idle[i]
        for n in range(lengths):
            s = i * lengths + n
            cost[s] = 1.0
            total = restart
            row[e], column[e], weight[e] = s, (model.idle.size - 1) * lengths, -restart
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
                        if model.law[x, n, j] > 0.0:
                            row[e], column[e] = r, 3 * size + n * bins + j
                            weight[e] = -model.law[x, n, j]
                            e += 1
                        j += 1
                        continue
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
                    at, x1 = model.low[left], model.share[left]
                    down = model.held[o] / (model.idle[i] - model.idle[i - 1])
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
    for n in range(1, lengths):
        for j in range(model.lowest[n], model.highest[n] + 1):
            e = _last_row(model, n, j, to[1, n, j], option[1, n, j], row, column, weight, constant,
                          cost, e)
    return row[:e], column[:e], weight[:e], constant, cost


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _room(
    model: Model, to: NDArray[np.int16], option: NDArray[np.int16]
) -> tuple[IntArray, IntArray, FloatArray]:
    """Arrays long enough for the entries of the linear system."""
    lengths, bins = model.queue.size, model.law.shape[2]
    room = model.idle.size * lengths * 8 + 3 * lengths * bins + bins
    for i in range(2, model.idle.size):
        for n in range(1, lengths):
            for j in range(bins):
                if j == 0 or to[i, n, j] != to[i, n, j - 1] \
                        or option[i, n, j] != option[i, n, j - 1]:
                    room += 8
    for n in range(1, lengths):
        for j in range(model.lowest[n], model.highest[n] + 1):
            empty = to[1, n, j] > 0 and option[1, n, j] >= 0 \
                and model.queue[to[1, n, j]] == model.batch[option[1, n, j]]
            room += model.arrivals.shape[1] * (12 if empty else 4) + 4
    return np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _last_row(
    model: Model, n: int, j: int, level: int, o: int, row: IntArray, column: IntArray,
    weight: FloatArray, constant: FloatArray, cost: FloatArray, e: int,
) -> int:
    """Write the row of deciding with one worker idle; the number of entries then."""
    lengths, bins = model.queue.size, model.law.shape[2]
    first = 3 * model.idle.size * lengths
    r = first + n * bins + j
    constant[r] -= model.price * (model.queue[n] - model.queue[level])
    if o < 0:
        row[e], column[e], weight[e] = r, lengths + level, -1.0
        return e + 1
    jj = model.after_drop[n, level, j]
    constant[r] += model.earned[level, jj, o]
    cost[r] += model.mean_ms[o] / model.workers
    left = model.queue[level] - model.batch[o]
    parts = 3 if left == 0 and model.carries else 1
    for k in range(model.arrivals.shape[1]):
        w = model.arrivals[o, k]
        if w == 0.0:
            continue
        if left + k == 0:
            row[e], column[e], weight[e] = r, lengths, -w
            e += 1
            continue
        over = max(left + k - model.queue[-1], 0)
        constant[r] -= w * model.price * over
        at, x = model.low[left + k - over], model.share[left + k - over]
        for part in range(parts):
            slack = _slack_then(model, level, jj, o, k, part) if model.carries else 0.0
            for more, share in ((0, 1.0 - x), (1, x)):
                if share == 0.0:
                    continue
                if not model.carries:
                    row[e], column[e] = r, (model.idle.size + 1) * lengths + at + more
                    weight[e] = -w * share
                    e += 1
                    continue
                b, y = _bins(model, at + more, slack)
                row[e], column[e] = r, first + (at + more) * bins + b
                weight[e] = -w / parts * share * (1.0 - y)
                e += 1
                if y > 0.0:
                    row[e], column[e] = r, first + (at + more) * bins + b + 1
                    weight[e] = -w / parts * share * y
                    e += 1
    return e


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def finish(
    model: Model, wait: FloatArray, free: FloatArray, last: FloatArray, gain: float,
    width_ms: FloatArray,
) -> NDArray[np.int16]:
    """The table: what to do next in each (i, n, j), the head's age being kept while waiting.

    Parameters
    ----------
    wait, free : (I, N)
        Values of waiting, and of deciding at an end of a batch, of the optimal policy.
    last : (N, J)
        Values of deciding with one worker idle.
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
            keeps = i == 1 and model.carries
            if not keeps:
                for o in range(options):
                    if model.batch[o] <= model.queue[n]:
                        after[n, o] = _after_start(model, i, n, o, free, free, gain)
            for j in range(bins):
                start[n, j] = -np.inf
                for o in range(options):
                    if model.batch[o] <= model.queue[n]:
                        q = model.earned[n, j, o]
                        q += _after_last(model, n, j, o, last, gain) if keeps else after[n, o]
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
    model: Model, to: NDArray[np.int16], option: NDArray[np.int16], visits: FloatArray,
    last: FloatArray,
) -> Totals:
    """What a policy does, given how often each row is visited: (3, I, N), and (N, J)."""
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
                    if i == 1:
                        p = last[n, j] if x == 0 else 0.0
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
