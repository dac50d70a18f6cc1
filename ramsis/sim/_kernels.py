"""Compiled simulation of table-driven schedulers, for one dispatch rule each.

Each kernel gives the same batches as the plain engine on the same arrivals, bit for bit: the order
of events and the arithmetic of slack, load and service times are the same. With round robin each
worker has its own queue and fixed turns, so workers do not interact and are simulated one by one.

Requests are given by their arrival times; a batch is written as start, finish, worker, model,
size, and its index as ``batch_of`` of its requests. Kernels return the number of batches;
:func:`central_queue` keeps it in its state, so that a caller can change the workers in between.

For speed, arrays are taken out of their tuples once, before the loops, and helpers that take
arrays have one return, few loops, and no branch between two uses of an array. Otherwise numba
updates the reference count at each use, an atomic operation that takes longer than all the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.cluster._kernels import quantile
from ramsis.cluster.service_times import near_levels
from ramsis.compiling import index, njit, uniform
from ramsis.runtime.monitor import SHORTEST_SPAN, WINDOW_MS
from ramsis.runtime.routing import AS_SHORT
from ramsis.scenario import Requests
from ramsis.sim.fleet import Fleet
from ramsis.sim.tables import Tables

_STRETCH = 32  # requests of a worker that are simulated before the next worker's turn


class RunTerms(NamedTuple):
    """Settings of a run: deadlines, workers, levels and the load monitor."""

    slo_ms: float
    network_ms: float
    workers: int
    level: int  # the level to use throughout, or -1: the load monitor's
    # window_ms, shortest_ms: the load monitor's window, and the least span that it averages over
    window_ms: float
    shortest_ms: float
    quantiles_ms: FloatArray  # shape (M, B, Q)
    quantile_levels: FloatArray  # shape (Q,)
    near_level: NDArray[np.int64]  # as of :func:`~ramsis.cluster.service_times.near_levels`
    uniform: FloatArray  # draws the service time of a batch by its first request, shape (n,)
    # service time as a multiple of what the tables assume; as in
    # :meth:`ramsis.runtime.selector.Selector.when_slow`
    slowness: float = 1.0

    @classmethod
    def of(
        cls, fleet: Fleet, requests: Requests, level: int = 0, monitor_ms: float = WINDOW_MS,
        slowness: float = 1.0,
    ) -> RunTerms:
        """Return the settings of a run of a fleet, with the load monitor's window in ms."""
        times = fleet.service_times
        return uniform(cls(
            slo_ms=float(fleet.slo_ms), network_ms=float(fleet.network_ms), workers=fleet.workers,
            level=level, window_ms=monitor_ms, shortest_ms=SHORTEST_SPAN * monitor_ms,
            quantiles_ms=np.ascontiguousarray(times.quantiles_ms), quantile_levels=times.levels,
            near_level=near_levels(times.levels),
            uniform=requests.uniform if fleet.draws else np.empty(0), slowness=slowness))


class Lines(NamedTuple):
    """Queue by deadline: a FIFO line per SLO, whose head has the earliest deadline of its line."""

    slo_ms: FloatArray  # of each line, shape (C,)
    line: NDArray[np.int64]  # of each request; empty where there is one line, shape (n,)
    # shape (n,): requests line by line, in order of arrival; empty where there is one line
    order: NDArray[np.int64]
    # shape (C,): where the waiting requests of each line begin and end in ``order``; kernels
    # change both
    first: NDArray[np.int64]
    end: NDArray[np.int64]


ARRIVED, QUEUED, BATCHES, _GONE, IDLE, FIRST_IDLE, BUSY, FIRST, LEAVING, _COUNTS = range(10)
_TIMER, _WAKE, LEFT, _TIMES = range(4)


class CentralState(NamedTuple):
    """State of a central queue and its workers between two calls of :func:`central_queue`."""

    # shape (9,): arrived requests, waiting requests and batches so far; arrivals older than the
    # load monitor's window; idle workers, and first slot of their ring; busy workers, and first
    # slot of theirs; workers that leave when a batch ends, the earliest ends first
    counts: NDArray[np.int64]
    # shape (3,): time of the next lookup without an event, and the slack then; sum of leaving
    # times: plus the time at which a worker left, minus the one of its removal (by the caller)
    times: FloatArray
    # rings of 2^i slots each, more than there are workers: ends of the running batches, sorted,
    # and their workers; idle workers, the one that has been idle longest first
    finish_ms: FloatArray
    busy: NDArray[np.int64]
    idle: NDArray[np.int64]
    batch: NDArray[np.int64]  # last batch of each worker, by its number

    @classmethod
    def of(cls, workers: int) -> CentralState:
        """Return the state of an empty queue with so many workers, all idle."""
        counts, ring = np.zeros(_COUNTS, dtype=np.int64), 1 << workers.bit_length()
        counts[IDLE] = workers
        return cls(counts, np.array([np.inf, np.inf, 0.0]), np.empty(ring),
                   np.empty(ring, dtype=np.int64), np.arange(ring),
                   np.empty(ring, dtype=np.int64))


class DecisionRoom(NamedTuple):
    """Output arrays for the decisions, each as long as there are requests."""

    # start_ms, finish_ms, worker, model, size: of each batch
    start_ms: FloatArray
    finish_ms: FloatArray
    worker: NDArray[np.int32]
    model: NDArray[np.int32]
    size: NDArray[np.int32]
    queued: NDArray[np.int32]  # requests in the queue that a batch is taken from, just before
    batch_of: NDArray[np.int32]  # batch of each request; -2 where it was dropped
    # of each request that was dropped: the queue just before, itself included
    drop_queued: NDArray[np.int32]

    @classmethod
    def of(cls, requests: int) -> DecisionRoom:
        """Return room for the decisions about so many requests, of which none is served yet."""
        room = cls(*np.empty((2, requests)), *np.empty((6, requests), dtype=np.int32))
        room.batch_of[:] = -1
        return room


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _near_bin(
    per_ms: FloatArray, first_bin: NDArray[np.int64], level: int, slack_ms: float
) -> int:
    """Return a bin at or slightly below the slack's bin; the caller searches upward from there.

    ``first_bin`` holds, by level and bucket of equal width (``per_ms`` buckets per ms), the slack
    bin of the bucket's lower end.
    """
    bucket = min(max(slack_ms, 0.0) * per_ms[level], float(first_bin.shape[1] - 1))
    return int(first_bin[index(level), index(bucket)])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _first(times: FloatArray, value: float, start: int, right: bool) -> int:
    """Return the index, from ``start`` on, of the first time >= value (``right``: > value).

    Steps double before the bisection, as the index is usually near ``start``.
    """
    step, low = 1, start
    size = times.size
    high = start
    while high < size and (times[high] < value or (right and times[high] == value)):
        low = high + 1
        high += step
        step *= 2
    high = min(high, size)
    while low < high:
        middle = (low + high) // 2
        if times[middle] < value or (right and times[middle] == value):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _level(
    tables: Tables, terms: RunTerms, arrival_ms: FloatArray, now_ms: float,
    recorded: int, gone: int,
) -> int:
    """Return the load level for the load monitor's moving average.

    ``recorded`` is the number of arrivals so far, ``gone`` the number of these before the window.
    """
    span = min(terms.window_ms, max(now_ms - arrival_ms[0], terms.shortest_ms))
    load = 1000.0 * (recorded - gone) / span
    return min(_first(tables.load_qps, load, 0, False), tables.load_qps.size - 1)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def round_robin(
    arrival_ms: FloatArray, tables: Tables, terms: RunTerms, out: DecisionRoom, drop_ms: FloatArray
) -> int:
    """Simulate round robin: each worker gets every K-th request; return the number of batches.

    All workers are simulated through one stretch of the arrivals before the next, so that these
    stay in the processor's cache.
    """
    _, _, _, queue_row, slack_ms, per_ms, first_bin, codes, models, batches, _ = tables
    quantiles_ms, levels, uniform = terms.quantiles_ms, terms.quantile_levels, terms.uniform
    near, slowness = terms.near_level, terms.slowness
    start_ms, finish_ms, worker_of, model_of, size_of, queued_of, batch_of, drop_queued = out
    n, workers = arrival_ms.size, terms.workers
    # By worker: its oldest request without a batch, whose successors are each ``workers`` further;
    # how many of these had arrived at its last decision; the end of its batch.
    heads, waiting = np.arange(workers), np.zeros(workers, dtype=np.int64)
    free_at = np.full(workers, -np.inf)
    # By worker, for the load monitor: arrivals until its last decision, and those before the
    # monitor's window.
    seen, past = np.zeros(workers, dtype=np.int64), np.zeros(workers, dtype=np.int64)
    count, level, last_row = 0, terms.level, queue_row.shape[1] - 1
    for stretch in range(0, n, _STRETCH * workers):
        end = min(stretch + _STRETCH * workers, n)
        for worker in range(workers):
            head, queued, free_ms = heads[worker], waiting[worker], free_at[worker]
            while head < end:
                first_ms = arrival_ms[index(head)]
                triggered = first_ms >= free_ms
                if triggered:  # the request finds the worker idle
                    now_ms, queued = first_ms, 1
                else:
                    now_ms, tail = free_ms, head + queued * workers
                    # At one instant batches end before requests arrive, so a request that arrives
                    # just now is not counted.
                    while tail < n and arrival_ms[index(tail)] < now_ms:
                        tail += workers
                        queued += 1
                if terms.level < 0:  # by the load monitor, with the arrivals of all workers
                    seen[worker] = (head + 1 if triggered
                                    else _first(arrival_ms, now_ms, seen[worker], False))
                    past[worker] = _first(arrival_ms, now_ms - terms.window_ms, past[worker], True)
                    level = _level(tables, terms, arrival_ms, now_ms, seen[worker], past[worker])
                left_ms = (first_ms + terms.slo_ms - now_ms) / slowness
                j = _near_bin(per_ms, first_bin, level, left_ms)
                j += slack_ms[level, j + 1] <= left_ms
                while slack_ms[level, j + 1] <= left_ms:
                    j += 1
                row = index(min(queued - 1, queue_row[level, last_row]))
                answer = int(codes[level, 0, row, index(j)])
                action = index(max(answer, 0))
                model, batch = int(models[level, action]), int(batches[level, action])
                if answer < 0:
                    batch_of[head] = -2
                    drop_ms[head] = now_ms
                    drop_queued[head] = queued
                    head += workers
                    queued -= 1
                    continue
                if uniform.size == 0:
                    service_ms = quantiles_ms[model, batch - 1, 0]
                else:
                    service_ms = quantile(quantiles_ms, levels, near, (model, batch - 1),
                                          uniform[head])
                free_ms = now_ms + terms.network_ms + service_ms
                new = index(count)
                start_ms[new] = now_ms
                finish_ms[new] = free_ms
                worker_of[new] = worker
                model_of[new] = model
                size_of[new] = batch
                queued_of[new] = queued
                for _ in range(batch):
                    batch_of[index(head)] = count
                    head += workers
                queued -= batch
                count += 1
            heads[worker], waiting[worker], free_at[worker] = head, queued, free_ms
    return count


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _insert(
    times: FloatArray, workers: NDArray[np.int64], first: int, busy: int, finish_ms: float,
    worker: int,
) -> None:
    """Insert a busy worker into the ring sorted by finish, after workers of the same finish.

    The ring holds ``busy`` workers from position ``first`` on, modulo its power-of-two size.
    """
    mask = times.size - 1
    at = first + busy
    while at > first and times[(at - 1) & mask] > finish_ms:
        times[at & mask] = times[(at - 1) & mask]
        workers[at & mask] = workers[(at - 1) & mask]
        at -= 1
    times[at & mask] = finish_ms
    workers[at & mask] = worker


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _ring_size(workers: int) -> int:
    size = 1
    while size < workers + 1:
        size *= 2
    return size


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def shortest_queue(
    arrival_ms: FloatArray, tables: Tables, terms: RunTerms, out: DecisionRoom, drop_ms: FloatArray
) -> int:
    """Simulate dispatch to short queues; return the number of batches.

    Requests are routed as by :class:`ramsis.runtime.routing.ShortestQueue`.
    """
    _, _, _, queue_row, slack_ms, per_ms, first_bin, codes, models, batches, _ = tables
    quantiles_ms, levels, uniform = terms.quantiles_ms, terms.quantile_levels, terms.uniform
    near, slowness = terms.near_level, terms.slowness
    start_ms, finish_of, worker_of, model_of, size_of, queued_of, batch_of, drop_queued = out
    n, workers = arrival_ms.size, terms.workers
    ring = _ring_size(workers)
    mask = ring - 1
    times, who = np.empty(ring), np.empty(ring, dtype=np.int64)
    following = np.full(n, -1, dtype=np.int64)  # next request in the queue of its worker
    head = np.full(workers, -1, dtype=np.int64)
    tail = np.full(workers, -1, dtype=np.int64)
    waiting = np.zeros(workers, dtype=np.int64)
    serving = np.zeros(workers, dtype=np.int64)
    held = np.zeros(workers, dtype=np.int64)  # waiting and serving
    # Linked list of workers by when a request last joined them, from ``oldest`` to ``newest``.
    after = np.arange(1, workers + 1)
    oldest, newest = 0, workers - 1
    first, busy, arrived, count, gone = 0, 0, 0, 0, 0
    level, last_row = terms.level, queue_row.shape[1] - 1
    while True:
        if busy > 0 and (arrived == n or times[first & mask] <= arrival_ms[arrived]):
            now_ms = times[first & mask]
            worker = who[first & mask]
            held[worker] -= serving[worker]
            serving[worker] = 0
            first += 1
            busy -= 1
        elif arrived < n:
            # Of the workers with a short queue, the one joined longest ago gets the request, and
            # moves to the end of the list.
            now_ms = arrival_ms[arrived]
            fewest = held[0]
            for other in range(1, workers):
                fewest = min(fewest, held[other])
            worker, before = oldest, -1
            while held[worker] > AS_SHORT * fewest:
                before, worker = worker, after[worker]
            if worker != newest:
                if before < 0:
                    oldest = after[worker]
                else:
                    after[before] = after[worker]
                after[newest] = worker
                newest = worker
            held[worker] += 1
            if waiting[worker] == 0:
                head[worker] = arrived
            else:
                following[tail[worker]] = arrived
            tail[worker] = arrived
            waiting[worker] += 1
            arrived += 1
        else:
            break
        # Only this worker's queue has changed, so only this worker can start a batch.
        if serving[worker] > 0 or waiting[worker] == 0:
            continue
        if terms.level < 0:
            gone = _first(arrival_ms, now_ms - terms.window_ms, gone, True)
            level = _level(tables, terms, arrival_ms, now_ms, arrived, gone)
        query, answer = head[worker], -2
        while answer < 0 and waiting[worker] > 0:
            left_ms = (arrival_ms[query] + terms.slo_ms - now_ms) / slowness
            j = _near_bin(per_ms, first_bin, level, left_ms)
            while left_ms > 0.0 and slack_ms[level, j + 1] <= left_ms:
                j += 1
            row = index(min(waiting[worker] - 1, queue_row[level, last_row]))
            answer = int(codes[level, 0, row, index(j)])
            if answer < 0:
                batch_of[query] = -2
                drop_ms[query] = now_ms
                drop_queued[query] = waiting[worker]
                query = following[query]
                head[worker] = query
                waiting[worker] -= 1
                held[worker] -= 1
        if answer < 0:
            continue
        model, batch = int(models[level, index(answer)]), int(batches[level, index(answer)])
        if uniform.size == 0:
            service_ms = quantiles_ms[model, batch - 1, 0]
        else:
            service_ms = quantile(quantiles_ms, levels, near, (model, batch - 1), uniform[query])
        finish_ms = now_ms + terms.network_ms + service_ms
        _insert(times, who, first, busy, finish_ms, worker)
        busy += 1
        start_ms[count] = now_ms
        finish_of[count] = finish_ms
        worker_of[count] = worker
        model_of[count] = model
        size_of[count] = batch
        queued_of[count] = waiting[worker]
        for _ in range(batch):
            batch_of[query] = count
            query = following[query]
        head[worker] = query
        waiting[worker] -= batch
        serving[worker] = batch
        count += 1
    return count


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _due(
    arrival_ms: FloatArray, slo_of: FloatArray, order: NDArray[np.int64],
    first: NDArray[np.int64], end: NDArray[np.int64],
) -> int:
    """Return the line whose head is due first; of equal deadlines, that of the older request.

    Line c holds the requests ``order[first[c]:end[c]]``, due ``slo_of[c]`` after their arrivals.
    """
    best, oldest, due_ms = 0, -1, np.inf
    for c in range(slo_of.size):
        if first[c] < end[c]:
            query = order[first[c]]
            at_ms = arrival_ms[query] + slo_of[c]
            if oldest < 0 or at_ms < due_ms or (at_ms == due_ms and query < oldest):
                best, oldest, due_ms = c, query, at_ms
    return best


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def central_queue(
    until_ms: float, changed_ms: float, arrival_ms: FloatArray, lines: Lines,
    tables: Tables, terms: RunTerms, state: CentralState, out: DecisionRoom,
    drop_ms: FloatArray,
) -> None:
    """Simulate one queue by tables that count idle workers, before the time ``until_ms``.

    ``changed_ms`` is the time at which the caller has changed the number of workers, when the
    table is looked up at once, or -inf. Codes of the tables: -1 waits, -2 drops the head, others
    index the answers of a level. A wait may end at a timer (``timer_ms``); the lookup then uses at
    most the slack ``wake_ms``.
    """
    counts, clocks = state.counts, state.times
    times, who, idle, batch_on = state.finish_ms, state.busy, state.idle, state.batch
    slo_of, line_of, order, head_of, end = lines
    _, longest, idle_row, queue_row, edges_ms, per_ms, first_bin, codes, models, batches, \
        longer = tables
    quantiles_ms, levels, uniform = terms.quantiles_ms, terms.quantile_levels, terms.uniform
    near, slowness = terms.near_level, terms.slowness
    start_ms, finish_of, worker_of, model_of, size_of, queued_of, batch_of, drop_queued = out
    n, mask = arrival_ms.size, times.size - 1
    arrived, queued, count, gone = counts[ARRIVED], counts[QUEUED], counts[BATCHES], counts[_GONE]
    first, busy, first_idle, idles = (
        counts[FIRST], counts[BUSY], counts[FIRST_IDLE], counts[IDLE])
    leaving = counts[LEAVING]
    timer_ms, wake_ms, left_ms = clocks[_TIMER], clocks[_WAKE], clocks[LEFT]
    if changed_ms > -np.inf:  # a timer before all other events
        timer_ms, wake_ms = -np.inf, np.inf
    one_line = slo_of.size == 1
    last_bin, last_row = edges_ms.shape[1] - 2, queue_row.shape[1] - 1
    most_idle = idle_row.shape[1] - 1
    level = terms.level
    while True:
        next_ms = arrival_ms[index(arrived)] if arrived < n else np.inf
        finish_ms = times[index(first & mask)] if busy > 0 else np.inf
        at_most, leaves = np.inf, False
        if timer_ms < min(next_ms, finish_ms):
            if timer_ms >= until_ms:
                break
            now_ms, at_most = max(timer_ms, changed_ms), wake_ms
        elif min(next_ms, finish_ms) >= until_ms:
            break
        elif finish_ms <= next_ms:
            now_ms = finish_ms
            worker = who[index(first & mask)]
            first += 1
            busy -= 1
            # No ``continue`` for a worker that leaves: such a branch before further uses of the
            # arrays costs 7 % (see the module).
            leaves = leaving > 0
            idle[index((first_idle + idles) & mask)] = worker
            idles += not leaves
            leaving -= leaves
            if leaves:
                left_ms += now_ms
        else:
            now_ms = next_ms
            if not one_line:
                end[line_of[arrived]] += 1
            arrived += 1
            queued += 1
        timer_ms = timer_ms if leaves else np.inf
        while queued > 0 and not leaves:
            if terms.level < 0:
                gone = _first(arrival_ms, now_ms - terms.window_ms, gone, True)
                level = _level(tables, terms, arrival_ms, now_ms, arrived, gone)
            # ``asked`` is the queue length that is looked up; slow batches make it longer.
            answer, at, asked = -1, index(level), int(queued * slowness)
            # Without an idle worker, the table can only drop from a queue longer than itself.
            if idles == 0 and not (asked > longest[at] and longer[at] == -2):
                break
            c, head = 0, arrived - queued
            if not one_line:
                c = _due(arrival_ms, slo_of, order, head_of, end)
                head = order[head_of[c]]
            deadline_ms = arrival_ms[index(head)] + slo_of[index(c)]
            while True:
                if asked > longest[at]:
                    answer = int(longer[at])
                else:
                    i = index(idle_row[at, index(min(idles, most_idle))])
                    row = index(queue_row[at, index(min(asked, last_row))])
                    slack_ms, j = min((deadline_ms - now_ms) / slowness, at_most), last_bin
                    if not edges_ms[at, index(j)] <= slack_ms:  # as of a head that has just come
                        j = _near_bin(per_ms, first_bin, level, slack_ms)
                        while edges_ms[at, index(j + 1)] <= slack_ms:
                            j += 1
                    answer = int(codes[at, i, row, index(j)])
                    if answer == -1:  # the wait ends at the next lower bin that does not wait
                        while j > 0 and codes[at, i, row, index(j - 1)] == -1:
                            j -= 1
                        if j > 0:  # to be asked again when the slack has fallen below this bin
                            wake_ms = np.nextafter(edges_ms[at, index(j)], -np.inf)
                            timer_ms = max(deadline_ms - wake_ms * slowness, now_ms)
                if answer < 0 or asked == queued or batches[at, index(answer)] <= queued:
                    break
                asked = queued  # the batch exceeds the queue: look up the actual length
            if answer == -1:
                break
            at_most = np.inf
            if answer == -2:
                batch_of[head] = -2
                drop_ms[head] = now_ms
                drop_queued[head] = queued
                if not one_line:
                    head_of[c] += 1
                queued -= 1
                continue
            model, batch = int(models[at, index(answer)]), int(batches[at, index(answer)])
            worker = idle[index(first_idle & mask)]
            if uniform.size == 0:
                service_ms = quantiles_ms[index(model), index(batch - 1), 0]
            else:
                service_ms = quantile(quantiles_ms, levels, near, (model, batch - 1),
                                      uniform[head])
            end_ms = now_ms + terms.network_ms + service_ms
            first_idle += 1
            idles -= 1
            _insert(times, who, first, busy, end_ms, worker)
            busy += 1
            batch_on[index(worker)] = count
            new = index(count)
            start_ms[new] = now_ms
            finish_of[new] = end_ms
            worker_of[new] = worker
            model_of[new] = model
            size_of[new] = batch
            queued_of[new] = queued
            if one_line:
                batch_of[head : head + batch] = count
            else:
                for _ in range(batch):
                    c = _due(arrival_ms, slo_of, order, head_of, end)
                    batch_of[order[head_of[c]]] = count
                    head_of[c] += 1
            queued -= batch
            count += 1
    counts[ARRIVED], counts[QUEUED], counts[BATCHES], counts[_GONE] = arrived, queued, count, gone
    counts[FIRST], counts[BUSY], counts[FIRST_IDLE], counts[IDLE] = (
        first, busy, first_idle, idles)
    counts[LEAVING] = leaving
    clocks[_TIMER], clocks[_WAKE], clocks[LEFT] = timer_ms, wake_ms, left_ms
