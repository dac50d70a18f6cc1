r"""Compiled dynamic program of the goodput bound that decides when a model stays loaded.

Time is in bins k of ``width`` ms. H(k, j) and A(k, j) are the most that the first j requests of a
model can be worth up to the bin k, where it is held at some time of the bin, and where it is not
at some later time of it:

    H(k, j) = max of  H(k − 1, j) − memory in the bin k − 1,
                      H(k, j − n) + n − cost of the run of the last n requests,
                      A(k − N, j) − memory, and the worker if loading blocks it, in the N − 1 bins
                                    between the two,
                      H(k, j − 1),
    A(k, j) = max of  A(k − 1, j), H(k, j),

with N the whole bins of a load, at least 1. Only bins that lie within the time for which a model
is held for certain are paid for. A run is taken in the bin of its start, or of the start of a
later run where that is earlier: it is within the window of both, and the model is held there. So
in each bin j goes from the requests that cannot be started any more to those released, and the
order of runs is that of requests.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.bounds import _kernels as kernels
from ramsis.bounds._kernels import Batches, BinPrices, Groups
from ramsis.compiling import njit

_KEPT, _SKIPPED, _RAN, _DROPPED, _LOADED = 0, 1, 2, 3, 4  # and loaded on type t: _LOADED + t


class HoldingBins(NamedTuple):
    """Costs of holding and loading models, by bin of time."""

    room: FloatArray  # share of a worker's memory, shape (models,)
    preloaded: BoolArray  # whether it is held at the start, shape (models,)
    # shape (types, models): whole bins of a load; below 1 where it cannot be loaded
    load_bins: IntArray
    memory: FloatArray  # price of a worker's whole memory up to each edge, shape (bins + 1,)
    # shape (types, bins + 1): price of a worker up to each edge, 0 where loading does not block
    blocked: FloatArray
    blocks: BoolArray  # shape (types,)
    width: float
    each: int  # price bins in one of these bins


class _States(NamedTuple):
    """States of the dynamic program: bin k with j requests is at ``offset[k] + j − low[k]``."""

    # low, high, offset: shape (bins,)
    low: IntArray
    high: IntArray
    offset: IntArray
    value: FloatArray  # A (row 0) and H (row 1), shape (2, states)
    # how, requests: the choice that attains the value, and j before it, shape (2, states)
    how: NDArray[np.int16]
    requests: NDArray[np.int32]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _room(release: FloatArray, latest: FloatArray, bins: int, width: float) -> _States:
    """Allocate the states of a model whose requests start between release and latest start."""
    low, high = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
    offset = np.zeros(bins, np.int64)
    first, past, count = 0, 0, 0
    for k in range(bins):
        while past < release.size and int(release[past] / width) <= k:
            past += 1
        while first < past and int(latest[first] / width) < k:
            first += 1
        low[k], high[k], offset[k] = first, past, count
        count += past - first + 1
    return _States(low, high, offset, np.full((2, count), -np.inf),
                   np.zeros((2, count), np.int16), np.zeros((2, count), np.int32))


@njit(inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _carry(
    source: FloatArray, target: FloatArray, how: NDArray[np.int16], requests: NDArray[np.int32],
    span: tuple[int, int, int, int, int], cost: float, way: int,
) -> None:
    """Carry values from a bin to a later one; requests past their latest start are dropped.

    ``span`` is the bin's lowest and highest j and its place in ``source``, then the lowest j of
    the later bin and its place in ``target``.
    """
    low, high, start, low_to, start_to = span
    for j in range(low, high + 1):
        value, at = source[start + j] - cost, start_to + max(j, low_to)
        if value > target[at]:
            target[at], how[at], requests[at] = value, way, j


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _fill(
    states: _States, gain: FloatArray, model: int, holding: HoldingBins, share: float
) -> None:
    """Compute H(k, j) and A(k, j) of all states, and the predecessor of each.

    Costs are multiplied by ``share``; ``gain[q, n - 1]`` is the value of a run of n
    requests of which q is the last.
    """
    low, high, offset = states.low, states.high, states.offset
    away, away_how, away_requests = states.value[0], states.how[0], states.requests[0]
    held, held_how, held_requests = states.value[1], states.how[1], states.requests[1]
    room, memory, blocked = share * holding.room[model], holding.memory, holding.blocked
    load_bins = holding.load_bins
    away[0] = 0.0
    if holding.preloaded[model]:
        held[0], held_how[0] = 0.0, _KEPT
    for k in range(low.size):
        at = offset[k] - low[k]
        # A(k − 1, j) and H(k − 1, j): the state stays, and holding costs memory.
        if k > 0:
            span = (low[k - 1], high[k - 1], offset[k - 1] - low[k - 1], low[k], at)
            _carry(away, away, away_how, away_requests, span, 0.0, _KEPT)
            _carry(held, held, held_how, held_requests, span,
                   room * (memory[k] - memory[k - 1]), _KEPT)
        # A(k − N, j): a load on a worker of type t ends.
        for t in range(load_bins.shape[0]):
            whole = load_bins[t, model]
            if 1 <= whole <= k:
                first, begun = k - whole + 1, k - whole
                cost = (room * (memory[k] - memory[first])
                        + share * (blocked[t, k] - blocked[t, first]))
                span = (low[begun], high[begun], offset[begun] - low[begun], low[k], at)
                _carry(away, held, held_how, held_requests, span, cost, _LOADED + t)
        # What was carried from the bin before has all its runs in it. So only requests that are
        # new, that a load has made worth more, or that are within a run of such are looked at.
        seen, changed = high[k - 1] if k > 0 else -1, low[k] - gain.shape[1] - 1
        for j in range(low[k], high[k] + 1):
            i = at + j
            if j <= seen and held_how[i] < _LOADED and j - changed > gain.shape[1]:
                continue
            before = held[i]
            if j > low[k] and held[i - 1] > before:
                held[i], held_how[i], held_requests[i] = held[i - 1], _SKIPPED, j - 1
            for size in range(1, min(gain.shape[1], j - low[k]) + 1):
                candidate = held[i - size] + gain[j - 1, size - 1]
                if candidate > held[i]:
                    held[i], held_how[i], held_requests[i] = candidate, _RAN, j - size
            if held[i] > before or held_how[i] >= _LOADED:
                changed = j
            if held[i] > away[i]:
                away[i], away_how[i], away_requests[i] = held[i], _DROPPED, j


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _last(states: _States) -> tuple[float, int]:
    """Return the largest value in the last bin and its number of requests j."""
    k = states.low.size - 1
    values = states.value[0, states.offset[k]:]
    best = int(values.argmax())
    return values[best], states.low[k] + best


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _use_memory(
    holding: HoldingBins, first: int, past: int, share: float, bin_ms: float, used: FloatArray
) -> None:
    """Add ``share`` of the holding bins from ``first`` up to ``past`` to ``used``, in ms."""
    for i in range(first * holding.each, past * holding.each):
        used[i] += share * bin_ms


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def held_runs(
    groups: Groups, batches: Batches, prices: BinPrices, holding: HoldingBins, share: FloatArray,
    seed: int, used: FloatArray,
) -> FloatArray:
    """Return each group's best Σ (size − cost) of its runs, less the cost of holding its model.

    Each group pays its ``share`` (groups,) of the costs; the last row of ``used`` is for memory.
    """
    offsets, model = groups.offsets, groups.model
    worth = np.zeros(model.size)
    at = kernels.at_times(groups, prices)
    bin_ms, memory = prices.width, used.shape[0] - 1
    for g in range(model.size):
        first, past, m = offsets[g], offsets[g + 1], model[g]
        # A run that is not among the best by itself may be once holding the model has its price.
        gain, on, ran, _, _ = kernels.runs_of(groups, batches, prices, at, g, True)
        shortest = batches.duration[:, m, 0].min()
        states = _room(groups.release[first:past], groups.deadline[first:past] - shortest,
                       holding.memory.size - 1, holding.width)
        _fill(states, gain, m, holding, share[g])
        worth[g], j = _last(states)
        k, what = states.low.size - 1, 0  # back over the choices; what: 0 for A, 1 for H
        while k > 0 or what == 1 or j > 0:
            i = states.offset[k] + j - states.low[k]
            how, before = states.how[what, i], states.requests[what, i]
            if how == _KEPT:
                if k == 0:
                    break
                if what == 1:
                    _use_memory(holding, k - 1, k, share[g] * holding.room[m], bin_ms,
                                used[memory])
                k -= 1
            elif how == _RAN:
                size = j - before
                kernels.use_run(groups, batches, prices, (g, first + before, first + j - 1),
                                (on[j - 1, size - 1], ran[j - 1, size - 1]), seed, used)
            elif how == _DROPPED:
                what = 1
            elif how >= _LOADED:
                begun = k - holding.load_bins[how - _LOADED, m]
                _use_memory(holding, begun + 1, k, share[g] * holding.room[m], bin_ms,
                            used[memory])
                if holding.blocks[how - _LOADED]:
                    _use_memory(holding, begun + 1, k, share[g], bin_ms, used[how - _LOADED])
                k, what = begun, 0
            j = before
    return worth


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def held_blocks(
    release: FloatArray, deadline: FloatArray, within: FloatArray, model: int, shortest: float,
    holding: HoldingBins,
) -> float:
    """Return a group's best Σ (size − cost) of nested batches, less the cost of holding.

    ``within[i, n]`` is the worth of a block of n requests from i on. Its batches count when the
    last one starts: after its first request's latest start by at most the longest window.
    """
    count, widest = release.size, within.shape[1] - 1
    gain = np.full((count, widest), -np.inf)
    for i in range(count):
        for size in range(1, min(widest, count - i) + 1):
            gain[i + size - 1, size - 1] = within[i, size]
    latest = deadline + (deadline - release).max() - shortest
    states = _room(release, latest, holding.memory.size - 1, holding.width)
    _fill(states, gain, model, holding, 1.0)
    value, _ = _last(states)
    return value
