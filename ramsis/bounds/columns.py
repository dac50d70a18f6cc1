"""Columns of the fluid programs: each way in which a request can be answered.

A column is a worker type t, an SLO class c, a model m and a batch of b that can be in time. A
request that it answers takes E[L_t(m, b)] / b of a worker's time, is in time with probability
P(L_t(m, b) <= SLO_c), and then worth the accuracy of m. Where E[L] falls with the batch, running b
requests as a larger batch is a column of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from ramsis.arrays import FloatArray, IntArray
from ramsis.cluster.cluster import SloClass
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import NotConvergedError, describe

_BROKEN = 1e-10  # of the requests: violations below are the solver's rounding


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of the fluid program: a worker type, class, model and batch each; shape (n,)."""

    # worker_type, slo_class, model: index of each; types and classes in the order given
    worker_type: IntArray
    slo_class: IntArray
    model: IntArray
    batch: IntArray  # requests in the batch
    busy_ms: FloatArray  # mean time of the batch
    in_time: FloatArray  # probability of being in time, > 0
    accuracy: FloatArray

    @classmethod
    def of(
        cls, times: Sequence[ServiceTimes], classes: Sequence[SloClass], max_batch: int
    ) -> Columns:
        """Build all columns of some worker types and classes, with batches up to ``max_batch``."""
        parts = [_columns(service_times, t, c, slo.slo_ms, max_batch)
                 for t, service_times in enumerate(times) for c, slo in enumerate(classes)]
        return cls(*(np.concatenate(field) for field in zip(*parts, strict=True)))

    @property
    def time_ms(self) -> FloatArray:
        """Worker time per request of each column, in ms."""
        return self.busy_ms / self.batch

    @property
    def reward(self) -> FloatArray:
        """Expected accuracy of a request; late ones count 0."""
        return self.accuracy * self.in_time

    def of_types(self, types: int) -> NDArray[np.bool_]:
        """Return the columns of each worker type as a mask, shape (types, n)."""
        return np.asarray(self.worker_type == np.arange(types)[:, None])

    def of_classes(self, classes: int) -> NDArray[np.bool_]:
        """Return the columns of each class as a mask, shape (classes, n)."""
        return np.asarray(self.slo_class == np.arange(classes)[:, None])

    def undominated(self) -> Columns:
        """Return the columns that no other column of their type and class dominates.

        A column dominates another if it takes no more time, is in time no less often and is no
        less accurate. Of equal columns the first stays.
        """
        worth = np.stack([-self.time_ms, self.in_time, self.accuracy])
        kept = []
        for i in range(len(self.batch)):
            like = ((self.worker_type == self.worker_type[i])
                    & (self.slo_class == self.slo_class[i]))
            as_good = like & (worth >= worth[:, i, None]).all(axis=0)
            better = as_good & (worth > worth[:, i, None]).any(axis=0)
            if not (better.any() or as_good[:i].any()):
                kept.append(i)
        return Columns(*(getattr(self, name)[kept] for name in self.__dataclass_fields__))


def _columns(
    times: ServiceTimes, t: int, c: int, slo_ms: float, max_batch: int
) -> tuple[IntArray, IntArray, IntArray, IntArray, FloatArray, FloatArray, FloatArray]:
    """Return the fields of :class:`Columns` for one type and one class."""
    mean_ms, in_time = times.mean_ms, times.cdf(slo_ms)
    model, batch = np.nonzero((in_time > 0)[:, :max_batch])
    # A batch of ``size`` + 1 requests runs as one of ``run`` + 1, which may be larger.
    size, run = batch.copy(), batch.copy()
    for m, b in np.argwhere(mean_ms < np.maximum.accumulate(mean_ms, axis=1)).tolist():
        smaller = np.flatnonzero(mean_ms[m, :min(b, max_batch)] > mean_ms[m, b])
        model = np.append(model, np.full(len(smaller), m))
        size, run = np.append(size, smaller), np.append(run, np.full(len(smaller), b))
    return (np.full(len(model), t), np.full(len(model), c), model, size + 1, mean_ms[model, run],
            in_time[model, run], times.accuracy[model])


def solved(what: str, **program: Any) -> Any:
    """Solve a linear program with HiGHS; raise an error if it finds no optimum."""
    from scipy.optimize import linprog  # which takes long to load

    solution: Any = linprog(**program, method="highs")
    if not solution.success:
        raise NotConvergedError(describe(f"{what} not found ({solution.message})"))
    return solution


class GatheringWindows:
    """Limits on shares of the requests, from the windows in which batches of one SLO can gather.

    There is one limit for each width w of a window and each size s: thousands of rows, of which
    few bind. So only rows that a solution violates are added. ``load`` is in requests per ms.
    """

    def __init__(self, columns: Columns, slo_ms: float, load: float) -> None:
        self._batch, self._window_ms = columns.batch, slo_ms - columns.busy_ms
        self._widths, self._place = np.unique(self._window_ms, return_inverse=True)
        sizes = np.arange(1, int(columns.batch.max()) + 1)
        share = 1.0 - pdtr(sizes - 2, load * self._widths[:, None]) ** sizes
        # By width and size; infinite where it cannot bind, or was returned already.
        self._limit = np.where((sizes > 1) & (share >= 0.0) & (share < 1.0), share, np.inf)

    def broken(self, share: FloatArray, most: int = 64) -> tuple[FloatArray, FloatArray]:
        """Return violated rows (k, n) and their limits (k,), worst first, at most one by width.

        ``share`` (n,) is the solution by column. No row is returned twice, as solvers keep rows up
        to a tolerance only.
        """
        taken = np.zeros(self._limit.shape)
        np.add.at(taken, (self._place, self._batch - 1), share)
        taken = taken[:, ::-1].cumsum(axis=1)[:, ::-1].cumsum(axis=0)  # b >= s, window <= w
        excess = taken - self._limit
        size = excess.argmax(axis=1)
        worst = excess[np.arange(len(excess)), size]
        chosen = np.argsort(-worst, kind="stable")[:most]
        chosen = chosen[worst[chosen] > _BROKEN]
        rows = ((self._batch > size[chosen, None])
                & (self._window_ms <= self._widths[chosen, None])).astype(float)
        limits = self._limit[chosen, size[chosen]]
        self._limit[chosen, size[chosen]] = np.inf
        return rows, limits
