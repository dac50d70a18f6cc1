"""Compiled loops of re-planning: rates, loads in balance, the best change of what workers hold.

W workers, M models. ``held`` and ``serving`` (W, M) say what each worker holds, or will, and what
it can run meanwhile; ``work`` (W, M) is the demand for a model if the worker served it alone,
infinite where it cannot run it; see :mod:`ramsis.sim.schedulers.loading.replanning`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.compiling import njit, put

_TANGENT_AT = 0.95
_OVERLOAD = 1.0 / (1.0 - _TANGENT_AT) ** 2  # slope of the measure there
_ROUNDS = 3


class HoldingArrays(NamedTuple):
    """Current and possible holdings of W workers and M models; arrays change in place."""

    held: BoolArray  # shape (W, M): what each worker holds, or will when its load ends
    serving: BoolArray  # what it can run until then, shape (W, M)
    # shape (W, M): demand for a model if the worker served it alone, in workers; infinite where
    # it cannot run it
    work: FloatArray
    load_s: FloatArray  # time of a load, shape (W, M)
    memory_mb: FloatArray  # shape (M,)
    # room_mb, places: shape (W,): memory for models, and most models, infinite where it does not
    # matter
    room_mb: FloatArray
    places: FloatArray
    movable: BoolArray  # whether what the worker holds may be changed, shape (W,)


class Seen(NamedTuple):
    """Arrivals that have been seen, and the windows that they are counted in."""

    times_ms: FloatArray  # A stretch for each model
    first: IntArray  # where each window begins; moves on, shape (M, K)
    end: IntArray  # where the stretch of a model ends, shape (M,)
    windows_ms: FloatArray  # shape (K,)
    z: float  # standard deviations that a shorter window has to be above the mean


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _queue(load: float) -> float:
    """Mean number of requests at a worker with a load."""
    if load < _TANGENT_AT:
        return load / (1.0 - load)
    return _TANGENT_AT / (1.0 - _TANGENT_AT) + _OVERLOAD * (load - _TANGENT_AT)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _sorted(places: IntArray, values: FloatArray) -> IntArray:
    """Places by rising values there, for few of them."""
    order = places.copy()
    for i in range(1, order.size):
        one, j = order[i], i
        while j > 0 and values[order[j - 1]] > values[one]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = one
    return order


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _spread(
    order: IntArray, m: int, work: FloatArray, loads: FloatArray, part: FloatArray
) -> None:
    """Add one model's demand to its holders, so that those which take some have equal load.

    The holders are put into the order of their loads.
    """
    for i in range(1, order.size):
        one, j = order[i], i
        while j > 0 and loads[order[j - 1]] > loads[one]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = one
    # Water filling: the level rises past holder after holder until all of the demand is in.
    speed, filled, level = 0.0, 0.0, 0.0
    for i in range(order.size):
        base = loads[order[i]]
        if i and filled + speed * (base - level) >= 1.0:
            break
        if i:
            filled += speed * (base - level)
        level = base
        speed += 1.0 / work[order[i], m]
    level += (1.0 - filled) / speed
    for w in order:
        part[w] = max(level - loads[w], 0.0)
        loads[w] += part[w]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _balanced(
    held: BoolArray, work: FloatArray, loads: FloatArray, part: FloatArray, holders: IntArray,
    order: IntArray,
) -> float:
    """Balance loads (:func:`balanced`) in given work arrays: parts, holders (M, W), order (W,)."""
    workers, models = held.shape
    loads[:] = 0.0
    part[:] = 0.0
    nowhere = 0.0
    for sweep in range(_ROUNDS):
        for m in range(models):
            count = 0
            if sweep == 0:
                for w in range(workers):
                    if held[w, m] and work[w, m] > 0.0:
                        holders[m, count] = w
                        count += 1
                if count < workers:
                    holders[m, count] = -1
            while count < workers and holders[m, count] >= 0:
                count += 1
            # Each model is spread anew beside all others; a few sweeps come near the balance of
            # all.
            if count:
                for i in range(count):
                    w = holders[m, i]
                    order[i] = w
                    loads[w] -= part[m, w]
                _spread(order[:count], m, work, loads, part[m])
            elif sweep == 0:
                least = work[:, m].min()
                nowhere += least if least < np.inf else 0.0
    total = _OVERLOAD * nowhere
    for w in range(workers):
        total += _queue(loads[w])
    return total


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def balanced(held: BoolArray, work: FloatArray, loads: FloatArray) -> float:
    """The measure of a state; ``loads`` (W,) gets the loads of its workers."""
    workers, models = held.shape
    return _balanced(held, work, loads, np.zeros((models, workers)),
                     np.zeros((models, workers), np.int64), np.zeros(workers, np.int64))


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _cost(
    w: int, load_s: float, given_up: BoolArray, holding: HoldingArrays
) -> float:
    """Request-seconds that a load costs; infinite if it takes the last copy that is wanted."""
    held, serving, work = holding.held, holding.serving, holding.work
    cost = load_s
    for m in range(held.shape[1]):
        if not held[w, m] or work[w, m] <= 0.0:
            continue
        others, serve = 0, 0
        for v in range(held.shape[0]):
            if v != w:
                others += held[v, m]
                serve += serving[v, m]
        if given_up[m] and others == 0:
            return np.inf
        if serve == 0:
            cost += _OVERLOAD * work[w, m] * load_s
    return cost


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def best_change(
    holding: HoldingArrays, wanted: BoolArray, lasts_s: float, given_up: BoolArray
) -> tuple[float, int, int]:
    """Return saving, worker and model of the best change; ``given_up`` (M,) gets the evicted.

    What gives way is any one model if that is enough, else models by rising demand.
    """
    held, _, work, load_s, memory_mb, room_mb, places, movable = holding
    workers, models = held.shape
    loads = np.zeros(workers)
    part = np.zeros((models, workers))
    holders, room = np.zeros((models, workers), np.int64), np.zeros(workers, np.int64)
    now = _balanced(held, work, loads, part, holders, room)
    best, worker, model = 0.0, -1, -1
    state = held.copy()
    every = np.arange(models)
    going = np.zeros(models, np.bool_)
    for w in range(workers):
        if not movable[w]:
            continue
        free_mb, free = room_mb[w], places[w]
        for m in range(models):
            if held[w, m]:
                free_mb -= memory_mb[m]
                free -= 1
        order = _sorted(every, work[w])
        for m in range(models):
            if held[w, m] or not wanted[m] or work[w, m] == np.inf or memory_mb[m] > room_mb[w]:
                continue
            # Way -1 gives up nothing, way e model e alone, way M the first ones in order.
            single = False
            for way in range(-1, models + 1):
                going[:] = False
                enough = memory_mb[m] <= free_mb and free >= 1
                if way == -1:
                    if not enough:
                        continue
                elif way < models:
                    if not held[w, way] or memory_mb[m] > free_mb + memory_mb[way] or free < 0:
                        continue
                    going[way] = True
                    single = True
                else:
                    if single:
                        break
                    mb, slots = free_mb, free
                    for e in order:
                        if mb >= memory_mb[m] and slots >= 1:
                            break
                        if held[w, e]:
                            going[e] = True
                            mb += memory_mb[e]
                            slots += 1
                state[w] = held[w] & ~going
                state[w, m] = True
                saved = lasts_s * (now - _balanced(state, work, loads, part, holders, room))
                if saved > best:
                    worth = saved - _cost(w, load_s[w, m], going, holding)
                    if worth > best:
                        best, worker, model = worth, w, m
                        put(going, given_up)
                if way == -1:
                    break
            state[w] = held[w]
    return best, worker, model


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def set_work(
    per_ms: FloatArray, each_ms: FloatArray, margin: float, work: FloatArray
) -> None:
    """Demand (W, M) at rates, with a margin in square roots of it."""
    workers, models = each_ms.shape
    for w in range(workers):
        for m in range(models):
            alone = per_ms[m] * each_ms[w, m]
            work[w, m] = alone + margin * np.sqrt(alone) if each_ms[w, m] < np.inf else np.inf


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def overloaded(held: BoolArray, work: FloatArray, enough: float, wanted: BoolArray) -> bool:
    """Whether holders of some model all have a load of ``enough``; ``wanted`` (M,) says which."""
    workers, models = held.shape
    loads = np.zeros(workers)
    balanced(held, work, loads)
    found = False
    for m in range(models):
        least, asked = np.inf, False
        for w in range(workers):
            asked |= work[w, m] > 0.0
            if held[w, m]:
                least = min(least, loads[w])
        wanted[m] = asked and enough <= least < np.inf
        found |= wanted[m]
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rate_of(m: int, seen: Seen, now_ms: float) -> float:
    """Requests per ms for a model."""
    times_ms, first, end, windows_ms, z = seen
    count = end[m]
    rate = 0.0
    for k in range(windows_ms.size):
        window_ms = windows_ms[k]
        if k == 0:
            window_ms = min(window_ms, max(now_ms, 1000.0))
        place = first[m, k]
        while place < count and times_ms[place] < now_ms - window_ms:
            place += 1
        first[m, k] = place
        n = count - place
        rate = n / window_ms if k == 0 else max(rate, (n - z * np.sqrt(n)) / window_ms)
    return rate


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rates(seen: Seen, now_ms: float, found: FloatArray) -> None:
    """The rate of each model, into ``found`` (M,)."""
    for m in range(found.size):
        found[m] = rate_of(m, seen, now_ms)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def least_missed(
    model: int, free: BoolArray, loaded: BoolArray, seen: Seen, now_ms: float
) -> int:
    """Return the free holder of a model that other models need least.

    A model needs each of the free workers that hold it by its rate over their number.
    """
    workers, models = loaded.shape
    need = np.full(models, -1.0)
    least, worker = np.inf, -1
    for w in range(workers):
        if not (free[w] and loaded[w, model]):
            continue
        missed = 0.0
        for m in range(models):
            if m == model or not loaded[w, m]:
                continue
            if need[m] < 0.0:
                count = 0
                for v in range(workers):
                    count += free[v] and loaded[v, m]
                need[m] = rate_of(m, seen, now_ms) / count
            missed += need[m]
        if missed < least:
            least, worker = missed, w
    return worker
