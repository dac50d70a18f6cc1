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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramsis.arrays import BoolArray, FloatArray
from ramsis.sim.schedulers.loading import _kernels as kernels

_ROOM = 64  # arrivals of a model that are kept at the start


class Demand:
    """Requests per ms by model, from what has been seen; time goes forward.

    Each rate is the mean of ``long_ms``, or that of a shorter window, as far as it is above what
    chance makes of a mean: (n − z·√n) / window. The arrivals of a model stand in a stretch of one
    array, which moves to a larger one when it is full of arrivals that still count; where each
    window begins is kept, and moves on.
    """

    def __init__(
        self, models: int, long_ms: float = 30_000.0,
        short_ms: Sequence[float] = (500.0, 1000.0, 3000.0), z: float = 1.5,
    ) -> None:
        self._windows_ms, self._z = np.array((long_ms, *short_ms)), z
        self._begin = [_ROOM * model for model in range(models)]
        self._limit = [_ROOM * (model + 1) for model in range(models)]
        self._end = np.array(self._begin, dtype=np.int64)
        self._first = np.repeat(self._end[:, None], len(self._windows_ms), axis=1)
        self._ends: Any = self._end.data  # much quicker to write a number to
        self._used = _ROOM * models
        self._times = np.zeros(self._used)
        self._at: Any = self._times.data

    def seen(self, model: int, at_ms: float) -> None:
        """A request has arrived."""
        end = self._ends[model]
        if end == self._limit[model]:
            end = self._room(model, at_ms)
        self._at[end] = at_ms
        self._ends[model] = end + 1

    def per_ms(self, model: int, now_ms: float) -> float:
        """The rate of a model now."""
        return float(kernels.rate_of(model, self._seen, now_ms))

    def rates(self, now_ms: float) -> FloatArray:
        """The rate of each model now."""
        found = np.empty(len(self._begin))
        kernels.rates(self._seen, now_ms, found)
        return found

    def least_missed(
        self, model: int, free: BoolArray, loaded: BoolArray, now_ms: float
    ) -> int:
        """Return the free holder of a model that other models need least.

        A model needs each free worker that holds it by its rate over their number.

        Parameters
        ----------
        free : ndarray of bool, shape (W,)
        loaded : ndarray of bool, shape (W, M)
        """
        return int(kernels.least_missed(model, free, loaded, self._seen, now_ms))

    @property
    def _seen(self) -> kernels.Seen:
        return kernels.Seen(self._times, self._first, self._end, self._windows_ms, self._z)

    def _room(self, model: int, now_ms: float) -> int:
        """Make room in a stretch that is full; where the next arrival goes."""
        begin, limit = self._begin[model], self._limit[model]
        stretch = self._times[begin:limit]
        old = begin + int(np.searchsorted(stretch, now_ms - self._windows_ms.max()))
        kept = self._times[old:limit].copy()
        if 2 * len(kept) > limit - begin:
            begin = self._begin[model] = self._used
            self._used += 2 * len(stretch)
            self._limit[model] = self._used
            if self._used > len(self._times):
                self._times = np.concatenate([self._times, np.zeros(self._used)])
                self._at = self._times.data
        self._times[begin:begin + len(kept)] = kept
        self._first[model] = begin + np.maximum(self._first[model] - old, 0)
        self._end[model] = begin + len(kept)
        return begin + len(kept)


@dataclass(frozen=True, slots=True)
class Change:
    """Load ``model`` onto ``worker`` in the place of ``given_up``."""

    worker: int
    model: int
    given_up: tuple[int, ...]


class FleetHoldings(kernels.HoldingArrays):
    """Current and possible holdings of workers, and the effect of changes."""

    __slots__ = ()

    def make(self, change: Change) -> None:
        """What follows from a change until its load has ended."""
        self.held[change.worker, list(change.given_up)] = False
        self.held[change.worker, change.model] = True
        self.serving[change.worker] = False
        self.movable[change.worker] = False


def set_work(
    holding: FleetHoldings, per_ms: FloatArray, each_ms: FloatArray, active: int, margin: float
) -> None:
    """Set the demand for each model, and add a margin to it.

    Parameters
    ----------
    per_ms : ndarray, shape (M,)
        Rates of requests.
    each_ms : ndarray, shape (W, M)
        What a request takes; infinite where it is not run.
    active : int
        Active workers; the margin is no more than they have left.
    margin : float
        In square roots of the demand.
    """
    least = per_ms * each_ms.min(axis=0)
    roots = float(np.sqrt(least).sum())
    left = min(max((active - float(least.sum())) / roots, 0.0), margin) if roots else 0.0
    kernels.set_work(per_ms, each_ms, left, holding.work)


def overloaded(holding: FleetHoldings, enough: float) -> BoolArray | None:
    """The models that are asked for and whose holders all have a load of ``enough`` or more.

    Returns
    -------
    ndarray of bool, shape (M,), or None
        ``None`` where there is no such model.
    """
    wanted = np.empty(holding.held.shape[1], dtype=bool)
    return wanted if kernels.overloaded(holding.held, holding.work, enough, wanted) else None


def next_change(holding: FleetHoldings, wanted: BoolArray, lasts_s: float) -> Change | None:
    """The change that saves most, if any saves more than it costs.

    Parameters
    ----------
    wanted : ndarray of bool, shape (M,)
        Models to consider for loading.
    lasts_s : float
        For how long the demand is taken to last.
    """
    given_up = np.zeros(len(wanted), dtype=bool)
    _, worker, model = kernels.best_change(holding, wanted, lasts_s, given_up)
    return None if worker < 0 else Change(worker, model, tuple(np.flatnonzero(given_up).tolist()))
