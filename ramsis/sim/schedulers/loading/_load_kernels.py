"""Compiled choice of the next load: the one that gains most requests beyond those that it costs.

W workers, M models; see :mod:`ramsis.sim.schedulers.loading.loads` for gain and cost of a load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.compiling import njit, put

_WITHOUT = 0.85  # busy share up to which other holders can take over the requests of one of them


class Places(NamedTuple):
    """Models that workers hold and could load; arrays change in place."""

    # held, runs: whether a worker holds, and can run, a model, shape (W, M)
    held: BoolArray
    runs: BoolArray
    memory_mb: FloatArray  # shape (M,)
    load_ms: FloatArray  # time of a load, shape (W, M)
    blocking: BoolArray  # whether a load blocks batches, shape (W,)
    lanes: FloatArray  # batches that run at a time, shape (W,)


class Room(NamedTuple):
    """Workers on which a load could begin now."""

    able: BoolArray  # shape (W,)
    at_work: BoolArray  # models that run there now and must not be unloaded, shape (W, M)
    # free_mb, free_places: memory and models that still fit, shape (W,)
    free_mb: FloatArray
    free_places: FloatArray


class AskedFor(NamedTuple):
    """Estimated demand by model, (M,); arrays change in place."""

    rate: FloatArray  # requests per ms
    slack_ms: FloatArray  # how long a request can wait
    cost_ms: FloatArray  # worker time of a request
    copies: IntArray  # workers that hold the model
    length: IntArray  # waiting requests
    # due_ms, last_ms: earliest and latest deadline of the waiting requests
    due_ms: FloatArray
    last_ms: FloatArray
    coming: IntArray  # loads in progress
    taken: FloatArray  # share of each worker's time for batches and blocking loads, shape (W,)
    least_ms: FloatArray  # worker time of a request in the largest batches that leave it time
    least_busy: FloatArray  # share of each worker's time that such batches take, shape (W,)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def least_each(
    batch_ms: FloatArray, batch_each_ms: FloatArray, slack_ms: FloatArray, least_ms: FloatArray
) -> None:
    """Set ``least_ms`` (M,) to the least time per request in batches that leave requests time.

    These are batches that take at most half of the time to the deadline, ``slack_ms`` plus the
    time of a batch of one, so that a request can wait for one of them and run in the next.
    ``batch_ms`` and ``batch_each_ms`` (M, B) are the time of a batch, and per request in it.
    """
    for m in range(least_ms.size):
        most_ms = 0.5 * (slack_ms[m] + batch_ms[m, 0])
        least_ms[m] = batch_each_ms[m, 0]
        for b in range(1, batch_ms.shape[1]):
            if batch_ms[m, b] <= most_ms:
                least_ms[m] = min(least_ms[m], batch_each_ms[m, b])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def set_shares(
    cost_ms: FloatArray, loading_ms: FloatArray, window_ms: float, batch_ms: FloatArray,
    batch_each_ms: FloatArray, places: Places, demand: AskedFor,
) -> None:
    """Update the least times per request and the workers' busy shares in ``demand``.

    ``taken`` follows from the present time per request, ``cost_ms`` (M,), and from the time
    ``loading_ms`` (W,) that blocking loads took in ``window_ms``; ``least_busy`` from
    ``least_ms``. ``batch_ms`` and ``batch_each_ms`` (M, B) are the time of a batch, and per
    request in it.
    """
    least_each(batch_ms, batch_each_ms, demand.slack_ms, demand.least_ms)
    workers, models = places.held.shape
    for w in range(workers):
        taken, least = 0.0, 0.0
        for m in range(models):
            if places.held[w, m]:
                taken += demand.rate[m] * cost_ms[m] / demand.copies[m]
                least += demand.rate[m] * demand.least_ms[m] / demand.copies[m]
        demand.taken[w] = taken / places.lanes[w] + loading_ms[w] / window_ms
        demand.least_busy[w] = least / places.lanes[w]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _late(k: int, load_ms: float, spare: float, demand: AskedFor, now_ms: float) -> float:
    """Return how many requests for held model k become late if a load blocks its worker.

    Requests that arrive during the load can wait ``slack_ms``, as far as the worker has ``spare``
    time (a share) afterwards. Other copies of k take their part of the late requests.
    """
    late = demand.rate[k] * max(load_ms - demand.slack_ms[k] * spare, 0.0)
    if demand.length[k] > 0 and demand.due_ms[k] < now_ms + load_ms + demand.cost_ms[k]:
        late += demand.length[k]
    return float(late / demand.copies[k])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _unrelieved(w: int, e: int, places: Places, demand: AskedFor) -> float:
    """Return the requests per ms of worker w's copy of model e that other holders cannot take."""
    each = demand.rate[e] * demand.least_ms[e] / demand.copies[e]
    spare = 0.0
    for v in range(places.held.shape[0]):
        if v != w and places.held[v, e]:
            spare += max(_WITHOUT - demand.least_busy[v], 0.0) * places.lanes[v]
    return float(max(each - spare, 0.0) / demand.least_ms[e])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _add_unserved(
    now_ms: float, places: Places, demand: AskedFor, missed: FloatArray
) -> None:
    """Add to ``missed``, (M,), the waiting requests that holders cannot serve in time.

    The assumption is that a holder shares its time among all requests waiting for its models.
    """
    held, lanes = places.held, places.lanes
    _, _, cost_ms, copies, length, _, last_ms, _, _, _, _ = demand
    workers, models = held.shape
    for w in range(workers):
        work_ms = 0.0
        for m in range(models):
            if length[m] > 0 and held[w, m]:
                work_ms += length[m] * cost_ms[m] / copies[m]
        work_ms /= lanes[w]
        for m in range(models):
            left_ms = last_ms[m] - now_ms
            if length[m] > 0 and held[w, m] and work_ms > left_ms:
                share = 1.0 - max(left_ms, 0.0) / work_ms
                missed[m] += length[m] * share / copies[m]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def best_load(
    now_ms: float, cold: IntArray, room: Room, places: Places, demand: AskedFor,
    gone: BoolArray, overload: bool,
) -> tuple[int, int]:
    """Return the load with the largest net gain of requests per ms, as (model, worker).

    Return (-1, -1) if no load has a positive net gain. ``cold``, (C,), are the models that no
    worker holds and whose waiting requests can be in time after a load; if ``overload``, held
    models that are overloaded may get a further copy. ``gone``, (M,), is overwritten with the
    models that the worker has to unload first.
    """
    able, at_work, free_mb, free_places = room
    held, runs, memory_mb, load_ms, blocking, _ = places
    rate, slack_ms, cost_ms, copies, length, _, _, coming, taken, _, least_busy = demand
    workers, models = held.shape
    gone[:] = False
    missed = np.zeros(models)
    if overload:
        _add_unserved(now_ms, places, demand, missed)
    best, model, worker = 0.0, -1, -1
    lost = np.empty(models)
    going = np.zeros(models, np.bool_)
    # Candidates: the cold models, then all models as overloaded ones (missed is 0 for others).
    for i in range(cold.size + models):
        m = cold[i] if i < cold.size else i - cold.size
        waiting = float(length[m])
        # More holders help a model only if several requests wait and none is on its way.
        if i >= cold.size:
            waiting = missed[m]
            if waiting < 1.0 or length[m] < 2 or coming[m] > 0:
                continue
        for w in range(workers):
            if not able[w] or not runs[w, m] or held[w, m]:
                continue
            took_ms = load_ms[w, m]
            away_ms = took_ms + cost_ms[m]  # evicted models are away for the load and a batch
            # Gain: the requests that wait now, and those that arrive during the load.
            gain = waiting + rate[m] * min(took_ms, slack_ms[m])
            free_share = max(1.0 - taken[w], 0.0)
            blocked = 0.0  # requests for the worker's models that a blocking load makes late
            if blocking[w]:
                for k in range(models):
                    if held[w, k]:
                        blocked += _late(k, took_ms, free_share, demand, now_ms)
            cost = 0.0
            # The cost takes long to compute, and can only make the load worth less.
            if gain / away_ms <= best:
                continue
            mb, free = free_mb[w], free_places[w]
            going[:] = False
            fits = memory_mb[m] <= mb * (1 + 1e-12) + 1e-9 and free >= 1
            if not fits:
                # Cost of evicting model e: requests that other holders cannot take over, or those
                # that arrive until e could be loaded again and cannot wait that long.
                spare = max(1.0 - least_busy[w], 0.0)
                for e in range(models):
                    lost[e] = np.inf
                    if not held[w, e] or at_work[w, e] or length[e] > 0:
                        continue
                    if copies[e] > 1:
                        lost[e] = _unrelieved(w, e, places, demand) * away_ms
                    else:
                        again_ms = load_ms[w, e]
                        lost[e] = rate[e] * max(
                            away_ms + again_ms - slack_ms[e] * spare, 0.0)
                        if blocking[w]:
                            for k in range(models):
                                if held[w, k] and k != e:
                                    lost[e] += _late(k, again_ms, free_share, demand, -np.inf)
                    if blocking[w]:
                        lost[e] -= _late(e, took_ms, free_share, demand, now_ms)
                    # Of models that cost nothing, the one that loads fastest goes first.
                    lost[e] += 1e-3 * rate[e] * load_ms[w, e]
                # Evict models by rising cost per MB until the model fits.
                while not fits:
                    e = -1
                    for k in range(models):
                        if (lost[k] < np.inf and not going[k] and (
                                e < 0 or lost[k] / memory_mb[k] < lost[e] / memory_mb[e])):
                            e = k
                    if e < 0:
                        break
                    going[e] = True
                    cost += lost[e]
                    mb += memory_mb[e]
                    free += 1
                    fits = memory_mb[m] <= mb * (1 + 1e-12) + 1e-9 and free >= 1
                if not fits:
                    continue
            density = (gain - cost - blocked) / away_ms
            if density > best:
                best, model, worker = density, m, w
                put(going, gone)
    return model, worker
