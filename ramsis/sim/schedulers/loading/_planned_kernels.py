"""Compiled choice of the batch that a free worker runs now, by latest start times.

M models of K kinds, W workers; see :mod:`ramsis.sim.schedulers.loading.planned`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import njit, put

EPSILON_MS = 1e-9


class Waiting(NamedTuple):
    """Waiting requests by model, (M,); arrays change in place."""

    length: IntArray  # requests that wait
    due_ms: FloatArray  # the earliest deadline among them
    kind: IntArray  # of the model; models of a kind take the same times
    share: FloatArray  # part of a batch's time that a holder counts, 1/√holders
    shortest_ms: FloatArray  # shortest time of a batch of one


class WorkerTimes(NamedTuple):
    """Batch times on a worker, by kind and number of requests, (K, B + 1)."""

    took_ms: FloatArray  # time of a batch of that many requests
    best: IntArray  # size up to that many of least time per request; 0 where no size can be run


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def first_batch(
    now_ms: float, held: IntArray, wait: Waiting, times: WorkerTimes, busy_ms: FloatArray,
    look_ahead: int, pooled: bool,
) -> tuple[int, int, bool]:
    """Return model and size of the batch to run now, and whether its oldest request limits it.

    Return (-1, 0, False) if there is no batch, and (-2 - m, 0, False) if the oldest request of
    model m can no longer be in time. If ``pooled``, all workers hold all models, and batches are
    planned on the worker that is free first. Else they are planned on this worker, which counts
    the models' ``share`` of their time.
    """
    length, due_ms, kind, share, shortest_ms = wait
    took_ms, best = times
    most = best.shape[1] - 1
    latest = np.empty(look_ahead)
    keys = np.empty(look_ahead)
    model = np.empty(look_ahead, np.int64)
    size = np.empty(look_ahead, np.int64)
    count = 0
    # Collect the batch of each model, sorted by key: the latest start, or if not pooled the middle
    # between latest start and deadline. Only the first ``look_ahead`` batches are kept.
    for m in held:
        waiting = length[m]
        if waiting == 0:
            continue
        k = kind[m]
        b = best[k, min(waiting, most)]
        if b == 0:
            continue
        start = due_ms[m] - took_ms[k, b]
        # Smaller batches until the oldest request is in time.
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
    # Hodgson's rule: plan the batches in this order; when one is late, put off the batch with most
    # time per request among those kept so far.
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
            # The worker of each batch depends on all batches before it, so the plan is repeated.
            put(before_ms, free_ms)
            for j in range(i + 1):
                if kept[j]:
                    free_ms[np.argmin(free_ms)] += length_ms[j]
    # The first batch that is not put off runs; if all are, the one of least time per request.
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

    Candidates are the numbers of drops after which the next batch of some size is in time. For
    each, the rest of the queue is simulated: the largest batches that are in time, one after the
    other, each taking 1 / ``lanes`` of its time; so many batches of the model can run at a time.
    ``due_ms`` are the deadlines of the queue, rising; ``took_ms`` and ``best``, (B + 1,), rows of
    the model in :class:`WorkerTimes`.
    """
    waiting, most = len(due_ms), len(best) - 1
    drops, served = 0, -1
    for size in range(1, min(waiting, most) + 1):
        first = np.searchsorted(due_ms, now_ms + took_ms[size] - EPSILON_MS)
        # Skipped: sizes that are not run, no further drops, and too few requests left to win.
        if best[size] != size or (served >= 0 and first <= drops) or waiting - first <= served:
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
            drops, served = first, count
    return int(drops)
