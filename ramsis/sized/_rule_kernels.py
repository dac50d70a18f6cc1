"""The compiled run of the decision rule of :mod:`ramsis.runtime.sized`.

The rule decides by counts of requests in cells of size class and slack; all sums are of whole
numbers, so this and the interpreted lookup take the same batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import njit
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sized._kernels import (
    BUSY,
    FIRST_BUSY,
    HEAD,
    IDLE,
    NOW,
    TAIL,
    TAKEN,
    WAITS,
    Room,
    Stream,
    Terms,
    _compose,
    _drop,
    _next,
    _remove_taken,
    _start,
    _take,
)
from ramsis.sized.problem import BatchTimes

_TOLERANCE_MS = SLACK_TOLERANCE_MS
_UNIT = 1e-6  # of values, as the file has them


class RuleArrays(NamedTuple):
    """The tables of a rule; M models, C size classes, L levels, N bins, G sizes, B counts."""

    padded: bool
    class_of: IntArray  # of each size, shape (max_size + 1,)
    place_of: IntArray  # least place in ``grid`` that holds a size, shape (max_size + 1,)
    grid: FloatArray  # sizes, or total sizes, that times are known at, shape (G,)
    mean_size: FloatArray  # shape (C,)
    work_us: IntArray  # shape (C,)
    level_us: int
    bin_us: int
    order: IntArray  # cells, those to be served first first, shape (M, L, C * N)
    gain: IntArray  # of a request in time over one that waits on, shape (M, L, C * N)
    aging: IntArray  # value lost in each deadline's length, shape (L, C * N)
    price: FloatArray  # value of a ms of a worker, shape (L,)
    time_ms: FloatArray  # shape (M, G, B)
    slope_ms: FloatArray  # least mean time of further members, after 0 … B, shape (M, G, B + 1)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _time_ms(rule: RuleArrays, model: int, count: int, total: float) -> float:
    """Return the time of a batch by its total size, infinite beyond the table."""
    grid = rule.grid
    if total > grid[-1]:
        return np.inf
    if total <= grid[0]:
        return rule.time_ms[model, 0, count - 1]  # type: ignore[no-any-return]
    low, high = 0, grid.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if grid[middle] < total:
            low = middle
        else:
            high = middle
    part = (total - grid[low]) / (grid[high] - grid[low])
    before = rule.time_ms[model, low, count - 1]
    after = rule.time_ms[model, high, count - 1]
    return before + (after - before) * part  # type: ignore[no-any-return]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _bin(
    rule: RuleArrays, stream: Stream, terms: Terms, request: int, now_ms: float, bins: int
) -> int:
    """Return the bin of a request's slack."""
    deadline_us = int(1000.0 * (stream.arrival_ms[request] + terms.slo_ms))
    return min((deadline_us - int(1000.0 * now_ms)) // rule.bin_us, bins - 1)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _fill(
    rule: RuleArrays, model: int, place: int, last: int, most: int, cut_ms: float, worth: float,
    cells: IntArray, n: int, counts: IntArray, gain: IntArray,
) -> tuple[int, int, float, float]:
    """Fill a batch with requests in the order of their cells of size class and slack.

    Return their count, the sum of their gains, the time of the batch, and the least slack of a
    member. ``place`` is that in ``grid`` of the longest size of the batch, where it pads. Members
    are of classes up to ``last``, have a slack of ``cut_ms`` or more, are ``most`` at most, and
    must gain ``worth`` in each ms of the batch. The first n of ``cells`` (C * N,) have waiting
    requests, in the order in which they are taken, ``counts`` (C * N,) of them in each, with the
    ``gain`` (C * N,) of one.
    """
    bins = rule.order.shape[2] // rule.work_us.size
    count, total_gain, least_ms, total = 0, 0, np.inf, 0.0
    best, best_count, best_gain, best_ms, best_least = -np.inf, 0, 0, 0.0, np.inf
    for i in range(n):
        cell = cells[i]
        if cell // bins > last:
            continue
        slack_ms = (cell % bins + 0.5) * rule.bin_us / 1000.0
        if slack_ms < cut_ms:
            continue
        added = min(counts[cell], most - count)
        each = gain[cell]
        if rule.padded:
            # ``slope[b]`` is the least mean time of members beyond b. Members are added while one
            # gains at least ``worth`` times that.
            value = each * _UNIT
            slope = rule.slope_ms[model, place]
            if count > 0 and slope[count] * worth > value:
                break
            upto = count + added
            if upto > 1 and slope[upto - 1] * worth > value:
                upto = count + 1
                while slope[upto] * worth <= value:
                    upto += 1
            added = upto - count
            count, total_gain = upto, total_gain + added * each
            least_ms = min(least_ms, slack_ms)
        else:
            # The whole cell is added; the batch of the largest net value so far is kept.
            count, total_gain = count + added, total_gain + added * each
            total += added * rule.mean_size[cell // bins]
            least_ms = min(least_ms, slack_ms)
            time_ms = _time_ms(rule, model, count, total)
            if time_ms == np.inf:
                break
            value = total_gain * _UNIT - worth * time_ms
            if value > best:
                best, best_count, best_gain = value, count, total_gain
                best_ms, best_least = time_ms, least_ms
        if count == most:
            break
    if rule.padded:
        if count == 0:
            return 0, 0, 0.0, np.inf
        return count, total_gain, rule.time_ms[model, place, count - 1], least_ms
    return best_count, best_gain, best_ms, best_least


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def indexed(
    stream: Stream, times: BatchTimes, terms: Terms, room: Room, rule: RuleArrays
) -> None:
    """Serve the requests of a run by the index rule of :mod:`ramsis.sized.rule`."""
    at, padded = room.at, rule.padded
    models, classes, most = rule.order.shape[0], rule.work_us.size, rule.time_ms.shape[2]
    cells_of_all = rule.order.shape[2]
    bins = cells_of_all // classes
    counts = np.zeros(cells_of_all, dtype=np.int64)
    wanted = np.zeros(cells_of_all, dtype=np.int64)
    cells = np.empty((models, cells_of_all), dtype=np.int64)
    longest = np.zeros(classes, dtype=np.int64)
    single_ms = np.empty(rule.class_of.size)
    for size in range(rule.class_of.size):
        least_ms = np.inf
        for model in range(models):
            if padded:
                time_ms = rule.time_ms[model, rule.place_of[size], 0]
            else:
                time_ms = _time_ms(rule, model, 1, float(size))
            least_ms = min(least_ms, time_ms)
        single_ms[size] = least_ms
    while _next(stream, terms, room):
        while at[IDLE] > 0:
            now_ms = room.when_ms[NOW]
            counts[:] = 0
            longest[:] = 0
            # Drop requests that no model can answer in time, and count the others by cell.
            work_us, kept = np.int64(0), at[HEAD]
            for place in range(at[HEAD], at[TAIL]):
                request = room.waiting[place]
                size = stream.size[request]
                slack_ms = stream.arrival_ms[request] + terms.slo_ms - now_ms
                if slack_ms + _TOLERANCE_MS < single_ms[size]:
                    _drop(room, request)
                    continue
                room.waiting[kept] = request
                kept += 1
                its_class = rule.class_of[size]
                counts[its_class * bins + _bin(rule, stream, terms, request, now_ms, bins)] += 1
                work_us += rule.work_us[its_class]
                longest[its_class] = max(longest[its_class], size)
            at[TAIL] = kept
            if at[HEAD] == at[TAIL]:
                break
            # Those left behind age until this batch ends or another worker is free.
            free_ms = np.inf
            if terms.workers > 1:
                free_ms = 0.0
                if at[IDLE] == 1:
                    mask = room.end_ms.size - 1
                    free_ms = room.end_ms[at[FIRST_BUSY] & mask] - now_ms if at[BUSY] > 0 else 0.0
            level = int(min(work_us // rule.level_us, np.int64(rule.price.size - 1)))
            price, lost = rule.price[level], np.int64(0)
            n = 0
            for model in range(models):
                n = 0
                for i in range(cells_of_all):
                    cell = rule.order[model, level, i]
                    if counts[cell] > 0:
                        cells[model, n] = cell
                        n += 1
            for i in range(n):
                lost += counts[cells[0, i]] * rule.aging[level, cells[0, i]]
            aging = lost * _UNIT / terms.slo_ms
            # A candidate is a model and, where it pads, the class of the longest member.
            best, model, last, count, cut_ms, best_ms = -np.inf, -1, 0, 0, 0.0, 0.0
            for m in range(models):
                gain = rule.gain[m, level]
                for c in range(0 if padded else classes - 1, classes):
                    if padded and longest[c] == 0:
                        continue
                    grid_place = rule.place_of[longest[c]] if padded else 0
                    # Waiting costs ``aging`` only until another worker is free, so a long batch is
                    # also filled by the price of worker time alone.
                    for attempt in range(2 if free_ms < np.inf else 1):
                        worth = price + aging if attempt == 0 else price
                        # Members need slack for the batch's time, which depends on their number:
                        # fill with the time of one request, then with that of the batch.
                        cut, limit = rule.time_ms[m, grid_place, 0], most
                        for _ in range(2):
                            taken, gains, time_ms, least_ms = _fill(
                                rule, m, grid_place, c, limit, cut, worth, cells[m], n, counts,
                                gain)
                            if taken == 0:
                                break
                            if least_ms >= time_ms:
                                value = gains * _UNIT - price * time_ms - aging * min(
                                    time_ms, free_ms)
                                if value > best:
                                    best, model, last, count = value, m, c, taken
                                    cut_ms, best_ms = cut, time_ms
                                break
                            cut, limit = time_ms, taken
            # Take the oldest requests of the chosen cells, whose middles had slack enough; those
            # whose own slack has not stay behind.
            members = 0
            if model >= 0:
                need = count
                for i in range(n):
                    cell = cells[model, i]
                    wanted[cell] = 0
                    middle_ms = (cell % bins + 0.5) * rule.bin_us / 1000.0
                    if cell // bins <= last and middle_ms >= cut_ms:
                        wanted[cell] = min(need, counts[cell])
                        need -= wanted[cell]
                total = 0
                for place in range(at[HEAD], at[TAIL]):
                    request = room.waiting[place]
                    size = stream.size[request]
                    slack_ms = stream.arrival_ms[request] + terms.slo_ms - now_ms
                    cell = rule.class_of[size] * bins + _bin(
                        rule, stream, terms, request, now_ms, bins)
                    if wanted[cell] == 0:
                        continue
                    wanted[cell] -= 1
                    if slack_ms + _TOLERANCE_MS >= best_ms:
                        _take(room, request)
                        members += 1
                        total += size
                if not padded and members > 0:
                    members = _without_late(stream, terms, room, rule, model, members, total)
            # Where no batch has a value the oldest request goes alone, on the fastest model.
            if members == 0:
                request = room.waiting[at[HEAD]]
                size = stream.size[request]
                model = 0
                for m in range(1, models):
                    if padded:
                        place = rule.place_of[size]
                        faster = rule.time_ms[m, place, 0] < rule.time_ms[model, place, 0]
                    else:
                        faster = _time_ms(rule, m, 1, float(size)) < _time_ms(
                            rule, model, 1, float(size))
                    if faster:
                        model = m
                _take(room, request)
                members = 1
            _compose(room, model, members)
            _remove_taken(room)
            _start(stream, times, terms, room)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _without_late(
    stream: Stream, terms: Terms, room: Room, rule: RuleArrays, model: int, members: int,
    total: int,
) -> int:
    """Put back the members that a batch of their own total size answers late; return the count."""
    begin = room.at[TAKEN] - members
    time_ms = _time_ms(rule, model, members, float(total))
    kept = begin
    for place in range(begin, begin + members):
        request = room.member[place]
        slack_ms = stream.arrival_ms[request] + terms.slo_ms - room.when_ms[NOW]
        if slack_ms + _TOLERANCE_MS >= time_ms:
            room.member[kept] = request
            kept += 1
        else:
            room.batch_of[request] = WAITS
    room.at[TAKEN] = kept
    return kept - begin  # type: ignore[no-any-return]
