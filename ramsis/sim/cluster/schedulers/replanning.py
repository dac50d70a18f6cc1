"""What to load where, from demand: the next change of what the workers hold.

*The measure.* Let ρ_m be the demand for model m: the number of workers that its requests keep
busy. Each worker w that holds m can take a part x_mw of it, Σ_w x_mw = ρ_m, and then has the load
x_w = Σ_m x_mw. The measure of a state is the mean number of requests that are there with these
loads, were each worker an M/M/1 queue,

    L = Σ_w x_w / (1 − x_w),

continued by its tangent from a load of 0.95 on, so that overload is dear and not infinite; demand
for what no worker holds has that slope. Parts are balanced: in a few rounds each model in turn is
spread over its holders so that those that take some have the same load (water-filling).

*A change* loads a model onto a worker in the place of others. It saves H·(L − L') request-seconds
in the time H for which the demand is taken to last, and costs the time of the load, for the
worker and for those requests for the models that it keeps, or gives up, that no other worker can
take meanwhile. :func:`next_change` is the best of all changes that save more than they cost.

That is a local search: a best state that several changes at once lead to can be missed. The bound
on requests in time says what is missed at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from ramsis.sim.cluster.schedulers import _kernels as kernels

__all__ = ["Change", "Demand", "Holding", "loads_in_balance", "next_change"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Demand:
    """Requests per second by model, from what has been seen.

    Each rate is the mean of ``long_ms``, or that of a shorter window, as far as it is above what
    chance makes of a mean: (n − z·√n) / window.

    Parameters
    ----------
    models : int
    long_ms : float
    short_ms : sequence of float
    z : float
    """

    def __init__(
        self, models: int, long_ms: float = 30_000.0,
        short_ms: Sequence[float] = (500.0, 1000.0, 3000.0), z: float = 1.5,
    ) -> None:
        self.long_ms, self.short_ms, self.z = long_ms, tuple(short_ms), z
        self._times: list[list[float]] = [[] for _ in range(models)]

    def seen(self, model: int, at_ms: float) -> None:
        """A request has arrived."""
        times = self._times[model]
        times.append(at_ms)
        if times[len(times) // 2] < at_ms - self.long_ms:
            del times[:len(times) // 2]

    def per_ms(self, model: int, now_ms: float) -> float:
        """The rate now."""
        times = self._times[model]
        count = len(times)
        if not count:
            return 0.0
        long_ms = min(self.long_ms, max(now_ms, 1000.0))
        rate = (count - bisect_left(times, now_ms - long_ms)) / long_ms
        for window_ms in self.short_ms:
            n = count - bisect_left(times, now_ms - window_ms)
            rate = max(rate, (n - self.z * sqrt(n)) / window_ms)
        return rate


@dataclass(frozen=True, slots=True)
class Change:
    """Load ``model`` onto ``worker`` in the place of ``given_up``."""

    worker: int
    model: int
    given_up: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Holding:
    """What workers hold and could hold; W workers, M models.

    Attributes
    ----------
    held : ndarray of bool, shape (W, M)
        What each worker holds, or will when its load ends.
    serving : ndarray of bool, shape (W, M)
        What it can run until then.
    work : ndarray, shape (W, M)
        Demand for a model if the worker served it alone, in workers; infinite where it cannot
        run it.
    load_s : ndarray, shape (W, M)
        Time of a load.
    memory_mb : ndarray, shape (M,)
    room_mb, places : ndarrays, shape (W,)
        Memory for models, and most models, infinite where it does not matter.
    movable : ndarray of bool, shape (W,)
        Whether what the worker holds may be changed.
    """

    held: BoolArray
    serving: BoolArray
    work: FloatArray
    load_s: FloatArray
    memory_mb: FloatArray
    room_mb: FloatArray
    places: FloatArray
    movable: BoolArray

    def make(self, change: Change) -> None:
        """What follows from a change until its load has ended."""
        self.held[change.worker, list(change.given_up)] = False
        self.held[change.worker, change.model] = True
        self.serving[change.worker] = False
        self.movable[change.worker] = False


def loads_in_balance(holding: Holding) -> FloatArray:
    """The load of each worker, shape (W,)."""
    loads = np.zeros(len(holding.held))
    kernels.balanced(holding.held, holding.work, loads)
    return loads


def next_change(holding: Holding, wanted: BoolArray, lasts_s: float) -> Change | None:
    """The change that saves most, if any saves more than it costs.

    Parameters
    ----------
    holding : Holding
    wanted : ndarray of bool, shape (M,)
        Models to consider for loading.
    lasts_s : float
        For how long the demand is taken to last.
    """
    given_up = np.zeros(len(wanted), dtype=bool)
    _, worker, model = kernels.best_change(
        holding.held, holding.serving, holding.work, holding.load_s, holding.memory_mb,
        holding.room_mb, holding.places, holding.movable, wanted, lasts_s, given_up)
    return None if worker < 0 else Change(worker, model, tuple(np.flatnonzero(given_up).tolist()))
