"""Compiled loops of re-planning: loads in balance, and the best change of what workers hold.

W workers, M models. ``held`` and ``serving`` (W, M) say what each worker holds, or will, and what
it can run meanwhile; ``work`` (W, M) is the demand for a model if the worker served it alone,
infinite where it cannot run it; see :mod:`ramsis.sim.cluster.schedulers.replanning`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit

__all__ = ["balanced", "best_change"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_TANGENT_AT = 0.95
_OVERLOAD = 1.0 / (1.0 - _TANGENT_AT) ** 2  # slope of the measure there
_ROUNDS = 3


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _queue(load: float) -> float:
    """Mean number of requests at a worker with a load."""
    if load < _TANGENT_AT:
        return load / (1.0 - load)
    return _TANGENT_AT / (1.0 - _TANGENT_AT) + _OVERLOAD * (load - _TANGENT_AT)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _sorted(places: NDArray[np.int64], values: FloatArray) -> NDArray[np.int64]:
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
    where: NDArray[np.int64], count: int, alone: FloatArray, loads: FloatArray, part: FloatArray,
) -> None:
    """Add one model's demand to its holders' loads, so that those that take some are level."""
    order = _sorted(where[:count], loads)
    speed, filled, level = 0.0, 0.0, 0.0
    for i in range(count):
        base = loads[order[i]]
        if i and filled + speed * (base - level) >= 1.0:
            break
        if i:
            filled += speed * (base - level)
        level = base
        speed += 1.0 / alone[order[i]]
    level += (1.0 - filled) / speed
    for i in range(count):
        w = order[i]
        part[w] = max(level - loads[w], 0.0)
        loads[w] += part[w]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def balanced(held: BoolArray, work: FloatArray, loads: FloatArray) -> float:
    """The measure of a state; ``loads`` (W,) gets the loads of its workers."""
    workers, models = held.shape
    loads[:] = 0.0
    part = np.zeros((models, workers))
    where = np.zeros(workers, np.int64)
    nowhere = 0.0
    for sweep in range(_ROUNDS):
        for m in range(models):
            count = 0
            for w in range(workers):
                if held[w, m] and work[w, m] > 0.0:
                    where[count] = w
                    count += 1
                    loads[w] -= part[m, w]
            if count:
                _spread(where, count, work[:, m], loads, part[m])
            elif sweep == 0:
                least = work[:, m].min()
                nowhere += least if least < np.inf else 0.0
    total = _OVERLOAD * nowhere
    for w in range(workers):
        total += _queue(loads[w])
    return total


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _cost(
    w: int, load_s: float, given_up: BoolArray, held: BoolArray, serving: BoolArray,
    work: FloatArray,
) -> float:
    """Request-seconds that a load costs; infinite if it takes the last copy that is wanted."""
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
    held: BoolArray, serving: BoolArray, work: FloatArray, load_s: FloatArray,
    memory_mb: FloatArray, room_mb: FloatArray, places: FloatArray, movable: BoolArray,
    wanted: BoolArray, lasts_s: float, given_up: BoolArray,
) -> tuple[float, int, int]:
    """What the best change saves, its worker and model; ``given_up`` (M,) gets what gives way.

    What gives way is any one model if that is enough, else models by rising demand.
    """
    workers, models = held.shape
    loads = np.zeros(workers)
    now = balanced(held, work, loads)
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
                saved = lasts_s * (now - balanced(state, work, loads))
                if saved > best:
                    worth = saved - _cost(w, load_s[w, m], going, held, serving, work)
                    if worth > best:
                        best, worker, model = worth, w, m
                        given_up[:] = going
                if way == -1:
                    break
            state[w] = held[w]
    return best, worker, model
