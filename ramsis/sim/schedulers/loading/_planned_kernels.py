"""The compiled part of late decisions: which batch a worker that is free runs now.

M models of K kinds, W workers; see :mod:`ramsis.sim.schedulers.loading.planned`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.compiling import njit, put

EPSILON_MS = 1e-9
_HELD = 1.5  # worth of a copy that is held, beside another
_FULL = 0.85  # of a worker's time that a copy serves


class Waiting(NamedTuple):
    """What waits, by model, (M,). The arrays change in place."""

    length: IntArray  # requests that wait
    due_ms: FloatArray  # the earliest deadline among them
    kind: IntArray  # of the model; models of a kind take the same times
    share: FloatArray  # of a batch's time that counts, where workers hold different models
    shortest_ms: FloatArray  # what a batch of one takes at least


class WorkerTimes(NamedTuple):
    """Batch times on a worker, by kind and number of requests, (K, B + 1)."""

    took_ms: FloatArray  # of a batch of as many
    # the size of least time per request among as many requests; 0 where none can be run
    best: IntArray


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def first_batch(
    now_ms: float, held: IntArray, wait: Waiting, times: WorkerTimes, busy_ms: FloatArray,
    look_ahead: int, pooled: bool,
) -> tuple[int, int, bool]:
    """The model and the size of the batch to run now, and whether the oldest keeps it small.

    (-1, 0, False) if there is none; (-2 - m, 0, False) means that the oldest request of model m
    can be in time no more. ``pooled``: all workers hold all models, and batches are planned on
    whichever is free first; else on this one, at the models' ``share`` of their time.
    """
    length, due_ms, kind, share, shortest_ms = wait
    took_ms, best = times
    most = best.shape[1] - 1
    latest = np.empty(look_ahead)
    keys = np.empty(look_ahead)
    model = np.empty(look_ahead, np.int64)
    size = np.empty(look_ahead, np.int64)
    count = 0
    for m in held:
        waiting = length[m]
        if waiting == 0:
            continue
        k = kind[m]
        b = best[k, min(waiting, most)]
        if b == 0:
            continue
        start = due_ms[m] - took_ms[k, b]
        while start < now_ms - EPSILON_MS and b > 1:
            b = max(best[k, b - 1], 1)
            start = due_ms[m] - took_ms[k, b]
        if start < now_ms - EPSILON_MS:
            if due_ms[m] < now_ms + shortest_ms[m] - EPSILON_MS:
                return -2 - m, 0, False
            # A worker of another type may be quick enough.
            continue
        place = count
        key = start if pooled else start + 0.5 * took_ms[k, b]
        if count == look_ahead:
            if key >= keys[count - 1]:
                continue
            place = count - 1
        else:
            count += 1
        while place > 0 and keys[place - 1] > key:
            keys[place], latest[place], model[place], size[place] = (
                keys[place - 1], latest[place - 1], model[place - 1], size[place - 1])
            place -= 1
        keys[place], latest[place], model[place], size[place] = key, start, m, b
    if count == 0:
        return -1, 0, False
    free_ms = np.maximum(busy_ms, now_ms) if pooled else np.full(1, now_ms)
    before_ms = free_ms.copy()
    length_ms = np.empty(count)
    cost = np.empty(count)
    kept = np.zeros(count, np.bool_)
    cheapest, lowest = -1, np.inf
    for i in range(count):
        m = model[i]
        took = took_ms[kind[m], size[i]]
        length_ms[i] = took if pooled else took * share[m]
        cost[i] = took / size[i]
        kept[i] = True
        first = np.argmin(free_ms)
        in_time = free_ms[first] <= latest[i]
        if in_time or not pooled:
            free_ms[first] += length_ms[i]
        if in_time:
            continue
        worst = i
        for j in range(i):
            if kept[j] and cost[j] >= cost[worst]:
                worst = j if cost[j] > cost[worst] or worst == i else worst
        kept[worst] = False
        if cost[worst] < lowest:
            cheapest, lowest = worst, cost[worst]
        if not pooled:
            free_ms[0] -= length_ms[worst]
        elif worst != i:
            # On which worker a batch is planned depends on all before it, so the plan is made
            # anew.
            put(before_ms, free_ms)
            for j in range(i + 1):
                if kept[j]:
                    free_ms[np.argmin(free_ms)] += length_ms[j]
    run = cheapest
    for i in range(count):
        if kept[i]:
            run = i
            break
    m = model[run]
    return m, size[run], size[run] < best[kind[m], min(length[m], most)]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def to_give_up(
    now_ms: float, due_ms: FloatArray, took_ms: FloatArray, best: IntArray, lanes: float
) -> int:
    """Return how many of the oldest requests to drop so that most of a queue is in time.

    Each number is tried that lets the next batch have a further size. After it come the largest
    batches that are in time, one after the other, on as many ``lanes``.

    Parameters
    ----------
    due_ms : ndarray
        The deadlines of the queue, rising.
    took_ms, best : ndarrays, shape (B + 1,)
        Of the model, as in :class:`WorkerTimes`.
    lanes : float
        Batches of the model that can run at a time.
    """
    waiting, most = len(due_ms), len(best) - 1
    found, served = 0, -1
    for size in range(1, min(waiting, most) + 1):
        first = np.searchsorted(due_ms, now_ms + took_ms[size] - EPSILON_MS)
        if best[size] != size or (served >= 0 and first <= found) or waiting - first <= served:
            continue
        at, count, time_ms = first, 0, now_ms
        while at < waiting:
            b = best[min(waiting - at, most)]
            while b > 1 and due_ms[at] < time_ms + took_ms[b] - EPSILON_MS:
                b = max(best[b - 1], 1)
            if due_ms[at] < time_ms + took_ms[b] - EPSILON_MS:
                at += 1
                continue
            at += b
            count += b
            time_ms += took_ms[b] / lanes
        if count > served:
            found, served = first, count
    return int(found)


class CopyWorth(NamedTuple):
    """What copies are worth by; arrays are by model, (M,)."""

    rate: FloatArray  # requests per ms
    work: FloatArray  # largest work of a window, in workers
    # crowd, wait_ms, each_ms: as of :class:`~ramsis.sim.schedulers.loading.copies.Overload`
    crowd: FloatArray
    wait_ms: FloatArray
    each_ms: FloatArray
    load_ms: FloatArray
    memory_mb: FloatArray
    load_weight: float  # what a ms of loading is worth in ms of work


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def count_copies(
    of: CopyWorth, held: BoolArray, runs: BoolArray, least: float, room_mb: float, places: float,
    copies: IntArray,
) -> None:
    """Take copies by falling worth per MB, as long as there is room, and count them in ``copies``.

    The h-th copy of a model comes before its next one where both are worth the same.
    """
    rate, work, crowd, wait_ms, each_ms, load_ms, memory_mb, load_weight = of
    workers, models = held.shape
    asked = rate > 0.0
    mean_wait_ms = wait_ms[asked].mean() if asked.any() else 0.0
    model = np.empty(models * workers, np.int64)
    worth = np.empty(models * workers)
    count = 0
    have, able = np.zeros(models, np.int64), np.zeros(models, np.int64)
    for w in range(workers):
        for m in range(models):
            have[m] += held[w, m]
            able[m] += runs[w, m]
    for h in range(1, workers + 1):
        before = count
        for m in range(models):
            if h == 1:
                if rate[m] <= 0.0:
                    continue
                share = min(1.0, _FULL / max(crowd[m], 1e-12))  # that one copy serves
                gain = load_weight * rate[m] * (min(load_ms[m], wait_ms[m]) * share) + work[m]
            else:
                unserved = min(max(crowd[m] - _FULL * (h - 1), 0.0), _FULL)
                gain = work[m] / (h * (h - 1)) + mean_wait_ms / each_ms[m] * unserved
                if gain <= least or able[m] < h:
                    continue
            model[count] = m
            worth[count] = -gain / memory_mb[m] * (_HELD if have[m] >= h else 1.0)
            count += 1
        # Each further copy gains less than the one before, so no model has one from here on.
        if h > 1 and count == before:
            break
    used = 0.0
    best = np.argsort(worth[:count], kind="mergesort")  # stable: by number where alike
    for taken, i in enumerate(best):
        used += memory_mb[model[i]]
        if used > room_mb or taken >= places:
            break
        copies[model[i]] += 1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _priced(order: IntArray, spent: FloatArray, most: float) -> int:
    """The first in an order at which ``most`` is spent, -1 where it never is."""
    total = 0.0
    for i in order:
        total += spent[i]
        if total >= most:
            return int(i)
    return -1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def most_served(
    memory_mb: FloatArray, room_mb: float, counts: FloatArray, cost_ms: FloatArray, time_ms: float
) -> float:
    """Return an upper bound on served requests over all placements, at prices of time and memory.

    ``counts`` (K, M) are those of windows in each of which all workers have ``time_ms``.
    """
    windows, models = counts.shape
    order = np.argsort(cost_ms, kind="mergesort")
    total = 0.0
    earned = np.zeros(models)
    for k in range(windows):
        last = _priced(order, counts[k] * cost_ms, time_ms)
        price = 0.0 if last < 0 else 1.0 / cost_ms[last]
        total += price * time_ms
        earned += np.maximum(1.0 - price * cost_ms, 0.0) * counts[k]
    by_mb = earned / memory_mb
    last = _priced(np.argsort(-by_mb, kind="mergesort"), memory_mb, room_mb)
    price = 0.0 if last < 0 else by_mb[last]
    return float(total + price * room_mb + np.maximum(earned - price * memory_mb, 0.0).sum())


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def served(
    held: BoolArray, counts: FloatArray, cost_ms: FloatArray, window_ms: float
) -> float:
    """Requests that a placement serves, holders with most time left first.

    Models go by their number of copies, or by time per request: what serves more counts.
    """
    workers, models = held.shape
    by_cost = np.argsort(cost_ms)
    order = np.argsort(held.sum(axis=0), kind="mergesort")
    total = 0.0
    left = np.empty(workers)
    for k in range(counts.shape[0]):
        most = 0.0
        for way in range(2):
            left[:] = window_ms
            found = 0.0
            for i in range(models):
                m = order[i] if way == 0 else by_cost[i]
                work = counts[k, m] * cost_ms[m]
                while work > 0.0:
                    best = -1
                    for w in range(workers):
                        if held[w, m] and left[w] > 0.0 and (best < 0 or left[w] > left[best]):
                            best = w
                    if best < 0:
                        break
                    taken = min(work, left[best])
                    left[best] -= taken
                    work -= taken
                    found += taken / cost_ms[m]
            most = max(most, found)
        total += most
    return total


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _moved(
    m: int, target: BoolArray, busy: FloatArray, each: FloatArray, memory_mb: FloatArray,
    room_mb: FloatArray, places: FloatArray, runs: BoolArray,
) -> int:
    """A worker that has room for a model once one of its copies is moved; -1 if there is none.

    The copy of least work that makes room goes to the worker of least work that has room.
    """
    workers, models = target.shape
    least, giver, taker, moved = np.inf, -1, -1, -1
    for w in range(workers):
        if not runs[w, m] or target[w, m] or places[w] < 0.0:
            continue
        for e in range(models):
            if (not target[w, e] or each[e] >= min(each[m], least)
                    or room_mb[w] + memory_mb[e] < memory_mb[m]):
                continue
            best = -1
            for v in range(workers):
                if (v != w and runs[v, e] and not target[v, e] and room_mb[v] >= memory_mb[e]
                        and places[v] >= 1.0 and (best < 0 or busy[v] < busy[best])):
                    best = v
            if best >= 0:
                least, giver, taker, moved = each[e], w, best, e
    if giver < 0:
        return -1
    for w, sign in ((giver, -1.0), (taker, 1.0)):
        target[w, moved] = sign > 0.0
        room_mb[w] -= sign * memory_mb[moved]
        places[w] -= sign
        busy[w] += sign * each[moved]
    return giver


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def put_copies(
    copies: IntArray, work: FloatArray, memory_mb: FloatArray, all_mb: FloatArray,
    all_places: FloatArray, runs: BoolArray, held: BoolArray, target: BoolArray,
) -> None:
    """Set ``target`` (W, M): models of most work a copy first, held copies where they are.

    ``all_mb`` and ``all_places`` (W,) are what each worker has room for.
    """
    target[:] = False
    workers = len(all_mb)
    room_mb, places = all_mb.copy(), all_places.copy()
    busy = np.zeros(workers)
    left = copies.copy()
    each = work / np.maximum(copies, 1)
    order = np.argsort(-each, kind="mergesort")  # stable: by number where alike
    for stays in (True, False):
        for m in order:
            while left[m] > 0:
                best = -1
                for w in range(workers):
                    if (runs[w, m] and not target[w, m] and (held[w, m] or not stays)
                            and room_mb[w] >= memory_mb[m] and places[w] >= 1.0
                            and (best < 0 or busy[w] < busy[best])):
                        best = w
                if best < 0 and not stays:
                    best = _moved(m, target, busy, each, memory_mb, room_mb, places, runs)
                if best < 0:
                    break
                target[best, m] = True
                room_mb[best] -= memory_mb[m]
                places[best] -= 1.0
                busy[best] += each[m]
                left[m] -= 1
