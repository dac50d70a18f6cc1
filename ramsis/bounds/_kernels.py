"""Compiled loops of the goodput bound: cheapest start times, runs of requests, nested batches.

Times are in ms after the bound's origin, requests sorted by group and within a group by release,
with deadlines that do not fall. ``duration`` is (types, models, batch), infinite where a batch
cannot be run; it does not fall with the batch. Prices are constant in bins of ``width`` ms:
``price`` is (types, bins) by ms, ``total`` (types, bins + 1) their integral up to each edge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.compiling import njit

_EVEN = 1e-12  # costs nearer than this are ties


class Groups(NamedTuple):
    """Requests sorted by group; group g consists of ``offsets[g]`` … ``offsets[g + 1] − 1``."""

    # release, deadline: shape (requests,); neither falls within a group
    release: FloatArray
    deadline: FloatArray
    offsets: IntArray  # shape (groups + 1,)
    model: IntArray  # shape (groups,)
    # shape (groups,): whether its runs are parts of batches that may hold other requests too
    parts: BoolArray


class Batches(NamedTuple):
    """Batch times in ms by (type, model, batch), and where the tables of costs have each time."""

    duration: FloatArray
    row: IntArray  # index of the time in :func:`cell_costs`


class BinPrices(NamedTuple):
    """Prices of worker time, constant in bins, with the costs that :func:`cell_costs` returns."""

    per_ms: FloatArray  # shape (types, bins)
    total: FloatArray  # integral of the price up to each edge, shape (types, bins + 1)
    width: float  # of a bin, in ms
    bends: FloatArray  # shape (lengths, bins, 2)
    least: FloatArray  # shape (lengths, levels, bins)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _integral(at: float, price: FloatArray, total: FloatArray, width: float) -> float:
    """Return the integral of one worker type's price from 0 up to a time."""
    k = int(at / width)
    if k < 0:
        return 0.0
    if k >= price.size:
        return float(total[price.size])
    return float(total[k] + price[k] * (at - k * width))


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _cheapest(
    low: float, high: float, length: float, price: FloatArray, total: FloatArray, width: float,
    coin: int,
) -> tuple[float, float]:
    """Return the least cost of ``length`` ms of workers that start in [low, high], and a start.

    Of starts that cost the same, ``coin`` chooses.
    The cost is linear between starts at which the first or the last ms crosses an edge.
    """
    best = _integral(low + length, price, total, width) - _integral(low, price, total, width)
    start = low
    cost = _integral(high + length, price, total, width) - _integral(high, price, total, width)
    if cost < best - _EVEN or (cost <= best + _EVEN and coin % 2 == 0):
        best, start = min(best, cost), high
    # Prices are >= 0, so nothing is cheaper.
    if best <= 0.0:
        return best, start
    bins = price.size
    whole = int(length / width)
    remainder = length - whole * width
    first, past = int(low / width) + 1, min(int(high / width) + 1, bins)
    turn = coin % max(past - first, 1)  # a start for each coin, to spread what is free
    for step in range(past - first):
        k = first + step + turn
        if k >= past:
            k -= past - first
        last = k + whole
        end = total[last] + price[last] * remainder if last < bins else total[bins]
        cost = end - total[k]
        if cost < best - _EVEN:
            best, start = cost, k * width
            if cost <= 0.0:
                return best, min(max(start, low), high)
    # Starts that are at an edge are done; these are those whose end is at one.
    first, past = int((low + length) / width) + 1, min(int((high + length) / width) + 1, bins)
    for k in range(max(first, whole + 1), past):
        cost = total[k] - total[k - whole - 1] - price[k - whole - 1] * (width - remainder)
        if cost < best - _EVEN:
            best, start = cost, k * width - length
    return best, min(max(start, low), high)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def cheapest(
    low: float, high: float, length: float, price: FloatArray, total: FloatArray, width: float,
) -> float:
    """Return the least cost of ``length`` ms of one type's workers that start in [low, high]."""
    cost, _ = _cheapest(low, high, length, price, total, width, 1)
    return cost


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _place(
    release: float, deadline: float, model: int, size: int, duration: FloatArray,
    price: FloatArray, total: FloatArray, width: float,
) -> float:
    """Return the least cost of a batch on any type; infinite if it misses its deadline."""
    best = np.inf
    for t in range(duration.shape[0]):
        length = duration[t, model, size - 1]
        if release + length > deadline:
            continue
        cost, _ = _cheapest(release, deadline - length, length, price[t], total[t], width, 1)
        best = min(best, cost)
    return best


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def cell_costs(
    lengths: FloatArray, types: IntArray, levels: int, price: FloatArray, total: FloatArray,
    width: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the cost of each length at its breakpoints, and a sparse table of the minima.

    Each bin has two breakpoints: a start at its edge, and a start that ends at an edge. Shapes are
    (lengths, bins, 2), and (lengths, levels, bins) for the least of 2^level bins from k on.
    """
    bins = price.shape[1]
    bends = np.empty((lengths.size, bins, 2))
    least = np.empty((lengths.size, levels, bins))
    for u in range(lengths.size):
        t = types[u]
        whole = int(lengths[u] / width)
        remainder = lengths[u] - whole * width
        for k in range(bins):
            last = k + whole
            end = total[t, last] + price[t, last] * remainder if last < bins else total[t, bins]
            bends[u, k, 0] = end - total[t, k]
            bends[u, k, 1] = (total[t, min(last + 1, bins)] - total[t, k]
                              - price[t, k] * (width - remainder))
            least[u, 0, k] = min(bends[u, k, 0], bends[u, k, 1])
        # A table of spans of 2^level bins gives the least of any span by two look-ups.
        for level in range(1, levels):
            half = 1 << (level - 1)
            for k in range(bins):
                least[u, level, k] = min(least[u, level - 1, k],
                                         least[u, level - 1, min(k + half, bins - 1)])
    return bends, least


@njit(inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _least_cost(
    low: float, high: float, length: float, at_low: float, at_end: float, t: int, u: int,
    prices: BinPrices,
) -> float:
    """Return the least cost of :func:`_cheapest` from the tables of :func:`cell_costs`.

    Arrays are passed whole, as slicing them would take longer than the computation.
    """
    price, total, width, bends, least = prices
    bins, per_ms = price.shape[1], 1.0 / width
    first, last = int(low * per_ms), min(int(high * per_ms), bins - 1)
    end = min(int((low + length) * per_ms), bins - 1)
    best = min(total[t, end] + price[t, end] * (low + length - end * width) - at_low,
               at_end - total[t, last] - price[t, last] * (high - last * width))
    if best <= 0.0:
        return 0.0
    bend = width - (length - int(length * per_ms) * width)
    if first * width + bend >= low and first * width + bend <= high:
        best = min(best, bends[u, first, 1])
    if last > first:
        best = min(best, bends[u, last, 0])
        if last * width + bend <= high:
            best = min(best, bends[u, last, 1])
        inner = last - first - 1
        if inner > 0:
            # Two spans of 2^level bins, which may overlap, cover the bins between.
            level = 0
            while (2 << level) <= inner:
                level += 1
            best = min(best, least[u, level, first + 1],
                       least[u, level, last - (1 << level)])
    return float(best)


class At(NamedTuple):
    """Integrals of the prices up to each release and up to each deadline, (types, requests)."""

    release: FloatArray
    deadline: FloatArray


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def at_times(groups: Groups, prices: BinPrices) -> At:
    """Integrate the price of worker time up to the release and the deadline of each request."""
    types, count = prices.total.shape[0], groups.release.size
    at = At(np.empty((types, count)), np.empty((types, count)))
    for t in range(types):
        price, total = prices.per_ms[t], prices.total[t]
        for i in range(count):
            at.release[t, i] = _integral(groups.release[i], price, total, prices.width)
            at.deadline[t, i] = _integral(groups.deadline[i], price, total, prices.width)
    return at


class Runs(NamedTuple):
    """Runs of consecutive requests of a group, each answered by one batch.

    The first two axes are the last request of a run and its size less 1: (requests, sizes).
    """

    gain: FloatArray  # size less least cost; -inf where the run does not fit, or cannot matter
    # on, ran: worker type and batch size of the least cost
    on: NDArray[np.int16]
    ran: NDArray[np.int16]
    # shape (requests + 1,): largest Σ (size − cost) over the first 0, 1, … requests
    best: FloatArray
    taken: IntArray  # size of the last run of that optimum, 0 without one, shape (requests + 1,)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def runs_of(
    groups: Groups, batches: Batches, prices: BinPrices, at: At, g: int, everything: bool
) -> Runs:
    """Return the runs of a group by dynamic programming; dominated runs only if ``everything``."""
    release, deadline, offsets, model, parts = groups
    duration, row = batches
    at_release, at_deadline = at
    first, count, m = offsets[g], offsets[g + 1] - offsets[g], model[g]
    types, _, sizes = duration.shape
    gain = np.full((count, sizes), -np.inf)
    on, ran = np.zeros((count, sizes), np.int16), np.zeros((count, sizes), np.int16)
    best, taken = np.zeros(count + 1), np.zeros(count + 1, np.int64)
    shortest = duration[:, m, 0].min()
    for j in range(1, count + 1):
        best[j] = best[j - 1]
        last = first + j - 1
        released = release[last]
        for size in range(1, min(sizes, j) + 1):
            head = first + j - size
            # A longer run has an earlier first deadline and a longer batch, so none fits either.
            if released + shortest > deadline[head]:
                break
            # As prices are >= 0, a run gains no more than its size.
            if not everything and best[j - size] + size <= best[j]:
                continue
            top = -np.inf
            for whole in range(size, (sizes if parts[g] else size) + 1):
                for t in range(types):
                    length = duration[t, m, whole - 1]
                    if released + length > deadline[head]:
                        continue
                    cost = _least_cost(
                        released, deadline[head] - length, length, at_release[t, last],
                        at_deadline[t, head], t, row[t, m, whole - 1], prices)
                    value = size - cost * size / whole
                    if value > top:
                        top, on[j - 1, size - 1], ran[j - 1, size - 1] = value, t, whole
            gain[j - 1, size - 1] = top
            if best[j - size] + top > best[j]:
                best[j], taken[j] = best[j - size] + top, size
    return Runs(gain, on, ran, best, taken)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def use_run(
    groups: Groups, batches: Batches, prices: BinPrices, run: tuple[int, int, int],
    batch: tuple[int, int], seed: int, used: FloatArray,
) -> None:
    """Add a run's share of its batch to the time ``used``, at the batch's cheapest start."""
    g, head, last = run
    t, whole = batch
    length = batches.duration[t, groups.model[g], whole - 1]
    # A hash of request and seed: starts of equal cost are spread, so that subgradients differ.
    coin = (((last + 1) * 7919 + seed * 104729) * 2654435761 >> 7) & 0xFFFFFF
    _, start = _cheapest(groups.release[last], groups.deadline[head] - length, length,
                         prices.per_ms[t], prices.total[t], prices.width, coin)
    _use(start, length, (last - head + 1) / whole, used[t], prices.width)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def best_runs(
    groups: Groups, batches: Batches, prices: BinPrices, seed: int, used: FloatArray
) -> FloatArray:
    """Return Σ (size − cost) of each group's best set of runs of consecutive requests.

    The ms for which these runs use each bin are added to ``used`` (types, bins).
    """
    offsets, model = groups.offsets, groups.model
    worth = np.zeros(model.size)
    at = at_times(groups, prices)
    for g in range(model.size):
        _, on, ran, best, taken = runs_of(groups, batches, prices, at, g, False)
        j = taken.size - 1
        worth[g] = best[j]
        while j > 0:
            size = taken[j]
            if size == 0:
                j -= 1
                continue
            last = offsets[g] + j - 1
            use_run(groups, batches, prices, (g, last - size + 1, last),
                    (on[j - 1, size - 1], ran[j - 1, size - 1]), seed, used)
            j -= size
    return worth


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _use(start: float, length: float, share: float, used: FloatArray, width: float) -> None:
    """Add ``share`` of ``length`` ms of worker time from ``start`` on to the bins of ``used``."""
    k, left, at = int(start / width), length, start
    while left > 0.0 and k < used.size:
        step = min((k + 1) * width - at, left)
        used[k] += share * step
        left -= step
        at += step
        k += 1
        if step <= 0.0:
            at = k * width


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _spans(
    release: FloatArray, deadline: FloatArray, first: int, last: int, shortest: float,
) -> IntArray:
    """Return for each request i how many requests i, i + 1, … could share a batch with it; >= 1.

    Request j can join if it is released at least ``shortest`` before the deadline of request i.
    """
    span = np.ones(last - first, np.int64)
    j = first
    for i in range(first, last):
        j = max(j, i)
        while j < last and release[j] + shortest <= deadline[i]:
            j += 1
        span[i - first] = max(j - i, 1)
    return span


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def nested_work(
    release: FloatArray, deadline: FloatArray, offsets: IntArray, model: IntArray,
    duration: FloatArray, least: int,
) -> FloatArray:
    """Estimate the steps of :func:`best_nested` per group; 0 if no batch fits within another."""
    work = np.zeros(model.size)
    sizes = duration.shape[2]
    if sizes < 2:
        return work
    for g in range(model.size):
        shortest = duration[:, model[g], 1].min()
        if shortest == np.inf:
            continue
        span = _spans(release, deadline, offsets[g], offsets[g + 1], shortest)
        if span.size == 0 or span.max() < least:
            continue
        for i in range(span.size):
            work[g] += float(span[i]) ** 2 * min(sizes, span[i]) / 2 + 1
    return work


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _gaps(duration: FloatArray) -> tuple[int, int]:
    """Return the fewest requests of a gap that can be of use, and the largest batch with a gap.

    A gap is between members of a batch: its requests are answered by another batch. That must take
    longer (``duration``, (types, batch)), so with one type it is larger: of 3 requests or more.
    """
    sizes = duration.shape[1]
    if duration.shape[0] > 1:
        return 1, sizes
    most = 0
    for n in range(1, sizes):
        if duration[0, n - 1] < duration[0, sizes - 1]:
            most = n
    return 3, most


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def best_nested(
    release: FloatArray, deadline: FloatArray, model: int, duration: FloatArray,
    price: FloatArray, total: FloatArray, width: float,
) -> tuple[float, FloatArray]:
    """Return the best set of disjoint or nested batches of one group, max Σ (size − cost).

    Filled by falling i: ``within[i, k]`` is the best of requests i to i + k − 1, and
    ``single[i, k]`` the best batch with first request i and last i + k − 1, with what lies in its
    gaps. The second result is ``within``, (requests, span + 1).
    """
    count, sizes = release.size, duration.shape[2]
    span = _spans(release, deadline, 0, count, duration[:, model, 0].min())
    least, most = _gaps(duration[:, model])
    widest = int(span.max())
    within = np.zeros((count + 1, widest + 1))
    single = np.full((count + 1, widest + 1), -np.inf)
    chosen = np.zeros((widest + 1, sizes + 1))  # [k, n]: n taken of the first k, k-th among them
    best = np.zeros(count + 1)
    for i in range(count - 1, -1, -1):
        reach = min(int(span[i]), count - i)
        chosen[:, :] = -np.inf
        chosen[1, 1] = 0.0
        for k in range(1, reach + 1):
            for n in range(2, min(k, sizes) + 1):
                top = chosen[k - 1, n - 1]
                if n <= most:  # or with a gap after the first ``before`` requests
                    for before in range(n - 1, k - least):
                        top = max(top, chosen[before, n - 1] + within[i + before, k - before - 1])
                chosen[k, n] = top
            top = -np.inf
            for n in range(1, min(k, sizes) + 1):
                top = max(top, chosen[k, n] + n)
                if n < min(k, sizes) and (
                        duration[:, model, n] == duration[:, model, n - 1]).all():
                    continue  # the next size costs the same
                if top > max(single[i, k], within[i + 1, k - 1]):
                    cost = _place(release[i + k - 1], deadline[i], model, n, duration, price,
                                  total, width)
                    single[i, k] = max(single[i, k], top - cost)
                top = -np.inf
        for k in range(1, min(widest, count - i) + 1):
            top = within[i + 1, k - 1]
            for j in range(1, min(k, reach) + 1):
                top = max(top, single[i, j] + within[i + j, k - j])
            within[i, k] = top
        best[i] = best[i + 1]
        for j in range(1, reach + 1):
            best[i] = max(best[i], single[i, j] + best[i + j])
    return best[0], within[:-1]
