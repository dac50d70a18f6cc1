"""Compiled simulation of a central queue whose requests have a size.

Every scheduler has a kernel of its own, which calls the steps of this module::

    while _next(stream, terms, room):              # events move on
        while room.at[IDLE] > 0:                   # a worker is idle
            if room.at[STARTED] < room.at[BATCHES]:
                _start(stream, times, terms, room)  # a batch that is composed already
                continue
            if room.at[HEAD] == room.at[TAIL]:     # nothing waits
                break
            ...                                    # the scheduler's rule:
            _take(room, request)                   # members of a batch, one after the other,
            _compose(room, model, count)           # which the next idle worker starts;
            _drop(room, request)                   # or requests that are given up;
            _remove_taken(room)                    # then taken out of the middle of the queue;
            room.when_ms[TIMER] = …; break         # or nothing before this time, or an event

Requests that wait are ``room.waiting[head:tail]``, the oldest first. A rule that takes requests
from the front only moves ``HEAD``, so a queue of thousands costs it nothing.

All that happens at one instant is taken in before a decision: a burst that comes at once can be
one batch. Ends of batches come before arrivals. Of several idle workers the one that has been idle
longest takes the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import njit
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sized.problem import BatchTimes

WAITS, DROPPED = -1, -2  # in ``batch_of``
# Places of ``Room.at`` …
HEAD, TAIL = 0, 1  # of ``waiting``
ARRIVED = 2  # requests that have come
TAKEN = 3  # requests that are in batches, in ``member``
BATCHES, STARTED = 4, 5  # batches that are composed, and those of them that run or ran
FIRST_BUSY, BUSY = 6, 7  # the ring of busy workers, by the end of their batch
FIRST_IDLE, IDLE = 8, 9  # the ring of idle workers
INSIDE = 10  # requests that wait or are served
PLACES = 11
# … and of ``Room.when_ms``
NOW, TIMER = 0, 1

_TOLERANCE_MS = SLACK_TOLERANCE_MS
URGENT, DENSE = 0, 1  # which batch of a plan runs first


class Stream(NamedTuple):
    """Requests in the order of arrival, shape (n,)."""

    arrival_ms: FloatArray
    size: IntArray


class Terms(NamedTuple):
    """Settings of a simulated run of requests with a size."""

    slo_ms: float
    workers: int
    slower: float = 1.0  # service times as a multiple of those that schedulers assume
    most_inside: int = 0  # a request is rejected while so many wait or are served; 0: never


class Room(NamedTuple):
    """State of a run, and the record of its decisions."""

    at: IntArray  # counts and places, see above
    when_ms: FloatArray  # the time, and when the rule is asked again; infinite: never
    waiting: IntArray  # requests, shape (n,)
    end_ms: FloatArray  # of busy workers, a ring
    busy: IntArray  # the workers of ``end_ms``, and their batches in the next
    runs: IntArray
    idle: IntArray  # a ring
    batch_of: IntArray  # batch of each request, or one of the codes above, shape (n,)
    drop_ms: FloatArray  # when a request was dropped, shape (n,)
    member: IntArray  # requests in the order of their batches, shape (n,)
    # start_ms, finish_ms, worker, model, requests (how many): of each batch, shape (n,)
    start_ms: FloatArray
    finish_ms: FloatArray
    worker: IntArray
    model: IntArray
    requests: IntArray
    upto: IntArray  # place in ``member`` behind the last one of each batch


def room_for(requests: int, workers: int) -> Room:
    """Return the initial state of a run with all workers idle."""
    ring = 1
    while ring < workers + 1:
        ring *= 2
    at = np.zeros(PLACES, dtype=np.int64)
    at[IDLE] = workers
    idle = np.zeros(ring, dtype=np.int64)
    idle[:workers] = np.arange(workers)
    waiting, member, worker, model, counts, upto = np.empty((6, requests), dtype=np.int64)
    drop_ms, start_ms, finish_ms = np.empty((3, requests))
    return Room(at, np.array([0.0, np.inf]), waiting, np.empty(ring),
                np.empty(ring, dtype=np.int64), np.empty(ring, dtype=np.int64), idle,
                np.full(requests, WAITS, dtype=np.int64), drop_ms, member, start_ms, finish_ms,
                worker, model, counts, upto)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def batch_ms(times: BatchTimes, model: int, count: int, measure: int) -> float:
    """Return the time of a batch by its longest size (padded law) or its total size (packed).

    Infinite where the table does not reach.
    """
    place = measure // times.step
    beyond = measure - place * times.step
    if count > times.time_ms.shape[1] or place + (beyond > 0) >= times.time_ms.shape[2]:
        return np.inf
    before_ms = times.time_ms[model, count - 1, place]
    if beyond == 0:
        return before_ms  # type: ignore[no-any-return]
    after_ms = times.time_ms[model, count - 1, place + 1]
    return before_ms + (after_ms - before_ms) * (beyond / times.step)  # type: ignore[no-any-return]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _next(stream: Stream, terms: Terms, room: Room) -> bool:
    """Advance to the next event time and process its events; return False after the last one."""
    at, n = room.at, stream.arrival_ms.size
    mask = room.end_ms.size - 1
    next_ms = stream.arrival_ms[at[ARRIVED]] if at[ARRIVED] < n else np.inf
    if at[BUSY] > 0:
        next_ms = min(next_ms, room.end_ms[at[FIRST_BUSY] & mask])
    now_ms = min(next_ms, room.when_ms[TIMER])  # timers do not outlive the next event
    if now_ms == np.inf:
        return False
    room.when_ms[NOW], room.when_ms[TIMER] = now_ms, np.inf
    while at[BUSY] > 0 and room.end_ms[at[FIRST_BUSY] & mask] <= now_ms:
        place = at[FIRST_BUSY] & mask
        room.idle[(at[FIRST_IDLE] + at[IDLE]) & mask] = room.busy[place]
        at[INSIDE] -= room.requests[room.runs[place]]
        at[IDLE] += 1
        at[FIRST_BUSY] += 1
        at[BUSY] -= 1
    while at[ARRIVED] < n and stream.arrival_ms[at[ARRIVED]] <= now_ms:
        request = at[ARRIVED]
        at[ARRIVED] += 1
        if terms.most_inside > 0 and at[INSIDE] >= terms.most_inside:
            room.batch_of[request] = DROPPED
            room.drop_ms[request] = now_ms
            continue
        room.waiting[at[TAIL]] = request
        at[TAIL] += 1
        at[INSIDE] += 1
    return True


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _take(room: Room, request: int) -> None:
    """Add a request to the batch that is being composed."""
    room.member[room.at[TAKEN]] = request
    room.batch_of[request] = room.at[BATCHES]
    room.at[TAKEN] += 1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _compose(room: Room, model: int, count: int) -> None:
    """Make a batch of the ``count`` requests taken last."""
    batch = room.at[BATCHES]
    room.model[batch], room.requests[batch], room.upto[batch] = model, count, room.at[TAKEN]
    room.at[BATCHES] += 1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _drop(room: Room, request: int) -> None:
    """Record that a waiting request is dropped now."""
    room.batch_of[request] = DROPPED
    room.drop_ms[request] = room.when_ms[NOW]
    room.at[INSIDE] -= 1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _remove_taken(room: Room) -> None:
    """Remove requests that are taken or dropped from the queue, which stays in order."""
    kept = room.at[HEAD]
    for place in range(room.at[HEAD], room.at[TAIL]):
        request = room.waiting[place]
        if room.batch_of[request] == WAITS:
            room.waiting[kept] = request
            kept += 1
    room.at[TAIL] = kept


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _drop_hopeless(
    stream: Stream, times: BatchTimes, terms: Terms, room: Room, model: int
) -> None:
    """Drop waiting requests that even a batch of one, started now, would answer late."""
    kept = room.at[HEAD]
    latest_ms = room.when_ms[NOW] - terms.slo_ms - _TOLERANCE_MS
    for place in range(room.at[HEAD], room.at[TAIL]):
        request = room.waiting[place]
        if stream.arrival_ms[request] - latest_ms < batch_ms(
                times, model, 1, stream.size[request]):
            _drop(room, request)
        else:
            room.waiting[kept] = request
            kept += 1
    room.at[TAIL] = kept


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _start(stream: Stream, times: BatchTimes, terms: Terms, room: Room) -> None:
    """Start the oldest composed batch on the worker that has been idle longest."""
    at, mask = room.at, room.end_ms.size - 1
    batch = at[STARTED]
    at[STARTED] += 1
    longest, total = 0, 0
    for place in range(room.upto[batch] - room.requests[batch], room.upto[batch]):
        size = stream.size[room.member[place]]
        longest = max(longest, size)
        total += size
    measure = longest if times.padded else total
    now_ms = room.when_ms[NOW]
    finish_ms = now_ms + terms.slower * batch_ms(
        times, room.model[batch], room.requests[batch], measure)
    worker = room.idle[at[FIRST_IDLE] & mask]
    at[FIRST_IDLE] += 1
    at[IDLE] -= 1
    room.worker[batch], room.start_ms[batch], room.finish_ms[batch] = worker, now_ms, finish_ms
    place = at[FIRST_BUSY] + at[BUSY]  # insertion into the ring, which is sorted by end
    while place > at[FIRST_BUSY] and room.end_ms[(place - 1) & mask] > finish_ms:
        before = (place - 1) & mask
        room.end_ms[place & mask] = room.end_ms[before]
        room.busy[place & mask], room.runs[place & mask] = room.busy[before], room.runs[before]
        place -= 1
    room.end_ms[place & mask] = finish_ms
    room.busy[place & mask], room.runs[place & mask] = worker, batch
    at[BUSY] += 1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _by_size(stream: Stream, room: Room, upto: int) -> IntArray:
    """Return the requests from the head of the queue up to place ``upto``, by size, then arrival.

    They are Shell-sorted as integers with the size in the high half.
    """
    head = room.at[HEAD]
    keys = np.empty(upto - head, dtype=np.int64)
    for place in range(keys.size):
        request = room.waiting[head + place]
        keys[place] = (stream.size[request] << 32) | request
    gap = 1
    while gap < keys.size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, keys.size):
            key, j = keys[i], i
            while j >= gap and keys[j - gap] > key:
                keys[j] = keys[j - gap]
                j -= gap
            keys[j] = key
        gap //= 3
    for place in range(keys.size):
        keys[place] &= 0xFFFFFFFF
    return keys


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def first_come(
    stream: Stream, times: BatchTimes, terms: Terms, room: Room, model: int, most: int,
    budget: int, drop: bool, wait_ms: float,
) -> None:
    """Serve first come, first served, in batches up to a size budget and a batch limit.

    The budget is on count × longest size (padded law) or on the total size (packed); the first
    request is served even beyond it. A batch that neither the limit nor the budget ends waits for
    others until its first request has waited ``wait_ms``.
    """
    at = room.at
    while _next(stream, terms, room):
        while at[IDLE] > 0:
            if drop:
                _drop_hopeless(stream, times, terms, room, model)
            if at[HEAD] == at[TAIL]:
                break
            count, longest, total = 0, 0, 0
            while count < most and at[HEAD] + count < at[TAIL]:
                size = stream.size[room.waiting[at[HEAD] + count]]
                longest_now = max(longest, size)
                measure = longest_now if times.padded else total + size
                padded = measure * (count + 1) if times.padded else measure
                if count > 0 and (padded > budget or batch_ms(
                        times, model, count + 1, measure) == np.inf):
                    break
                longest, total = longest_now, total + size
                count += 1
            # The batch is not full and has all that wait: more may come in time.
            if count < most and at[HEAD] + count == at[TAIL] and wait_ms > 0.0:
                due_ms = stream.arrival_ms[room.waiting[at[HEAD]]] + wait_ms
                if room.when_ms[NOW] < due_ms - _TOLERANCE_MS:
                    room.when_ms[TIMER] = due_ms
                    break
            for _ in range(count):
                _take(room, room.waiting[at[HEAD]])
                at[HEAD] += 1
            _compose(room, model, count)
            _start(stream, times, terms, room)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def shortest_first(
    stream: Stream, times: BatchTimes, terms: Terms, room: Room, model: int, most: int,
    budget: int,
) -> None:
    """Serve the shortest requests that can be in time, within a size budget and a batch limit."""
    at = room.at
    while _next(stream, terms, room):
        while at[IDLE] > 0:
            _drop_hopeless(stream, times, terms, room, model)
            if at[HEAD] == at[TAIL]:
                break
            requests = _by_size(stream, room, at[TAIL])
            count, total = 0, 0
            while count < most and count < requests.size:
                size = stream.size[requests[count]]
                measure = size if times.padded else total + size
                padded = measure * (count + 1) if times.padded else measure
                if count > 0 and (padded > budget or batch_ms(
                        times, model, count + 1, measure) == np.inf):
                    break
                total += size
                _take(room, requests[count])
                count += 1
            _compose(room, model, count)
            _remove_taken(room)
            _start(stream, times, terms, room)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def sorted_window(
    stream: Stream, times: BatchTimes, terms: Terms, room: Room, model: int, most: int,
    batches: int,
) -> None:
    """Serve the oldest requests in batches of similar sizes, several full batches at a time.

    As many whole batches as wait, at least one and at most ``batches``, are taken from the front
    of the queue, sorted by size where they are several, and cut.
    """
    at = room.at
    while _next(stream, terms, room):
        while at[IDLE] > 0:
            if at[STARTED] < at[BATCHES]:
                _start(stream, times, terms, room)
                continue
            if at[HEAD] == at[TAIL]:
                break
            queued = at[TAIL] - at[HEAD]
            whole = min(batches, max(1, queued // most))
            upto = at[HEAD] + min(queued, whole * most)
            requests = (_by_size(stream, room, upto) if whole > 1
                        else room.waiting[at[HEAD]:upto])
            count, total = 0, 0
            for request in requests:
                size = stream.size[request]
                # A batch is cut when it is full, or where the table of times ends.
                if count == most or (count > 0 and not times.padded and batch_ms(
                        times, model, count + 1, total + size) == np.inf):
                    _compose(room, model, count)
                    count, total = 0, 0
                _take(room, request)
                count += 1
                total += size
            _compose(room, model, count)
            at[HEAD] = upto


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _plan(
    stream: Stream, times: BatchTimes, requests: IntArray, model: int, most: int
) -> IntArray:
    """Cut requests, sorted by size, into batches of least total time; return the cuts.

    Batch i has the requests from cut i up to cut i + 1. With f(0) = 0 the least time of the first
    e requests is f(e) = min over b of f(e − b) + time of the last b of them; of equal ones the
    larger batch is taken.
    """
    n = requests.size
    least_ms, begin_of = np.zeros(n + 1), np.zeros(n + 1, dtype=np.int64)
    upto = np.zeros(n + 1, dtype=np.int64)  # total size of the first ones
    most = min(most, times.time_ms.shape[1])
    for end in range(1, n + 1):
        size = stream.size[requests[end - 1]]
        upto[end] = upto[end - 1] + size
        best_ms, best = np.inf, end - 1
        for begin in range(max(0, end - most), end):
            if times.padded:
                time_ms = times.time_ms[model, end - begin - 1, size]
            else:
                time_ms = batch_ms(times, model, end - begin, upto[end] - upto[begin])
            if least_ms[begin] + time_ms < best_ms:
                best_ms, best = least_ms[begin] + time_ms, begin
        least_ms[end], begin_of[end] = best_ms, best
    batches, end = 0, n
    while end > 0:
        end = begin_of[end]
        batches += 1
    cuts, end = np.zeros(batches + 1, dtype=np.int64), n
    for i in range(batches, 0, -1):
        cuts[i] = end
        end = begin_of[end]
    return cuts


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def planned(
    stream: Stream, times: BatchTimes, terms: Terms, room: Room, model: int, most: int, drop: bool
) -> None:
    """Cut all waiting requests into batches of least total time; run small sizes first."""
    at = room.at
    while _next(stream, terms, room):
        while at[IDLE] > 0:
            if at[STARTED] < at[BATCHES]:
                _start(stream, times, terms, room)
                continue
            if drop:
                _drop_hopeless(stream, times, terms, room, model)
            if at[HEAD] == at[TAIL]:
                break
            requests = _by_size(stream, room, at[TAIL])
            cuts = _plan(stream, times, requests, model, most)
            for i in range(cuts.size - 1):
                for place in range(cuts[i], cuts[i + 1]):
                    _take(room, requests[place])
                _compose(room, model, cuts[i + 1] - cuts[i])
            at[HEAD] = at[TAIL]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def replanned(
    stream: Stream, times: BatchTimes, terms: Terms, room: Room, model: int, most: int,
    order: int, keep: float,
) -> None:
    """Plan anew before each batch, and run one batch of the plan, without its late members.

    Among batches that answer at least a share ``keep`` of their requests in time, ``order``
    chooses that with the oldest request, or that with most requests per ms. Without such a batch,
    that with most answers in time per ms runs. Of equal ones the smallest sizes go first.
    """
    at = room.at
    while _next(stream, terms, room):
        while at[IDLE] > 0:
            _drop_hopeless(stream, times, terms, room, model)
            if at[HEAD] == at[TAIL]:
                break
            requests = _by_size(stream, room, at[TAIL])
            cuts = _plan(stream, times, requests, model, most)
            latest_ms = room.when_ms[NOW] - terms.slo_ms - _TOLERANCE_MS
            # A request is in time for a batch that takes no more than its arrival − ``latest_ms``.
            chosen, key, chosen_ms, enough = 0, np.inf, 0.0, False
            for i in range(cuts.size - 1):
                count = cuts[i + 1] - cuts[i]
                measure = stream.size[requests[cuts[i + 1] - 1]]
                if not times.padded:
                    measure = 0
                    for place in range(cuts[i], cuts[i + 1]):
                        measure += stream.size[requests[place]]
                time_ms = batch_ms(times, model, count, measure)
                in_time, oldest = 0, requests[cuts[i]]
                for place in range(cuts[i], cuts[i + 1]):
                    in_time += stream.arrival_ms[requests[place]] - latest_ms >= time_ms
                    oldest = min(oldest, requests[place])
                fits = in_time > 0 and in_time >= keep * count
                # Batches that reach ``keep`` go before all others; ranks are lowest for the best.
                if enough and not fits:
                    continue
                if fits and order == URGENT:
                    rank = float(oldest)
                elif fits:
                    rank = -count / time_ms
                else:
                    rank = -in_time / time_ms
                if rank < key or (fits and not enough):
                    chosen, key, chosen_ms, enough = i, rank, time_ms, fits
            count = 0
            for place in range(cuts[chosen], cuts[chosen + 1]):
                if stream.arrival_ms[requests[place]] - latest_ms >= chosen_ms:
                    _take(room, requests[place])
                    count += 1
            if count == 0:  # alone the shortest is in time, or it would have been dropped
                _take(room, requests[cuts[chosen]])
                count = 1
            _compose(room, model, count)
            _remove_taken(room)
            _start(stream, times, terms, room)
