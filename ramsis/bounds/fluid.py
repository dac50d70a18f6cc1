"""The fluid upper bound on effective accuracy: what no scheme can beat.

*The problem.* Queries of classes c arrive at rates λ_c, λ in all, and want an answer within
SLO_c. There are K_t workers of type t; a batch of b of model m takes L_t(m, b) on one of them. An
answer in time is worth the accuracy of its model. Let y be the rate at which queries of class c
are answered in batches of b of model m on workers of type t:

    max  Σ accuracy_t(m)·P(L_t(m, b) <= SLO_c)·y_{t,c,m,b} / λ
    s.t. Σ_{c,m,b} E[L_t(m, b)]/b·y_{t,c,m,b}            <= K_t          for each type t,
         Σ_{t,m,b} y_{t,c,m,b}                           <= λ_c          for each class c,
         Σ P(L_t(m, b) <= SLO_c)·y_{t,c,m,b}             >= (1 − V)·λ    where violations are
                                                                         limited to a share V,

and, on request, the gathering windows below. It is a linear program, solved to optimality by
HiGHS, or at sight where there are but two limits (:mod:`ramsis.bounds.mix`); the columns are those
of :mod:`ramsis.bounds.columns`. The same program for given targets
and unknown K_t is in :mod:`ramsis.bounds.workers`.

*Service times fixed at l.* Then P is 1 for l(m, b) <= SLO, and the bound holds for every policy,
those that know all arrivals in advance too, as long as each query is answered once by one model, a
worker runs one batch at a time, none is aborted, batches reach no further than the table, and l
does not fall with b (a latency table sees to that by padding).

*Service times drawn.* It holds for policies that may know all arrivals, but no service time before
its end; L is independent of all else.

*Batches may mix classes.* Give each query of a batch the b-th part of the time that the batch
takes. What any policy does is then a point of the program: the parts add up to the busy time of
each type, each query counts once in its class, and earns at most what its column says, by its own
deadline. So it holds for shared and for separate queues.

It is a bound on the long-run average, and on a finite run of length T with n queries when λ is
n/(T + SLO): batches in time run within T + SLO. For drawn times it then bounds the expectation.
Queueing and the gathering of batches cost whatever is missing to it.

*Gathering windows* tighten it for Poisson arrivals, fixed service times and one SLO. All b queries
of a batch that is in time arrived within SLO − l(m, b). So for any s and w, no more queries can be
in time in batches of at least s with SLO − l <= w than lie in some window of length w with s
arrivals:

    Σ_{b >= s, SLO − l_t(m,b) <= w} y_{t,m,b} / λ <= 1 − (1 − P(at least s − 1 arrivals in w))^s.

A query has s positions among s neighbours that fit into w, each with that probability; that none
of them fits are rising events of independent gaps, so at least as likely together as the product
of their probabilities (Harris 1960, "A lower bound for the critical probability in a certain
percolation process"). A batch that is in time for some of its queries only counts as the smaller
batch of these.

Dual prices say what the constraints are worth: one more worker, one more query per second. Types
that are alike are merged, and so are classes of one SLO, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.bounds.columns import Columns, GatheringWindows
from ramsis.bounds.mix import best_mix
from ramsis.cluster.checks import check_reachable, numbered_alike
from ramsis.cluster.service_times import ServiceTimes
from ramsis.cluster.slo_class import SloClass, classes_of
from ramsis.errors import (
    InfeasibleError,
    InvalidValueError,
    NotConvergedError,
    check_positive,
    describe,
)
from ramsis.profiles import LatencyTable

__all__ = ["FluidBound", "fluid_bound", "realised_bound"]

FloatArray = NDArray[np.float64]
Times = ServiceTimes | LatencyTable

_LARGEST = 1e19  # what the linear programs' solver still takes for a finite number
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class FluidBound:
    """Solution of the fluid linear program for T worker types and C classes.

    Attributes
    ----------
    effective_accuracy : float
        The bound over all queries, a fraction.
    served_fraction : float
        Share of the queries that the optimum answers in time; below 1 in overload, and where
        answering fewer of them more accurately is worth more.
    capacity_qps : float
        Largest load that can be answered in time, were all queries of the class with the
        longest SLO: Σ_t K_t·max b / E[L_t(m, b)].
    query_price : float
        Effective accuracy summed over a second that one more query per second adds; 0 where
        it could not be answered.
    worker_price : ndarray, shape (T,)
        Effective accuracy gained per additional worker of each type, at the margin.
    class_accuracy, class_served : ndarray, shape (C,)
        Effective accuracy, and share answered in time, of the queries of each class.
    type_share : ndarray, shape (T, C)
        Share of all queries that each type takes of each class.
    batch_share : tuple of T ndarrays, shape (C, M, B)
        Share of all queries of each class that the type answers with model m in batches of
        b = column + 1.
    classes : tuple of SloClass
        By rising SLO, merged.
    """

    effective_accuracy: float
    served_fraction: float
    capacity_qps: float
    query_price: float
    worker_price: FloatArray
    class_accuracy: FloatArray
    class_served: FloatArray
    type_share: FloatArray
    batch_share: tuple[FloatArray, ...]
    classes: tuple[SloClass, ...]


def fluid_bound(
    times: Times | Sequence[Times],
    *,
    slo_ms: float | Sequence[SloClass],
    workers: int | Sequence[int],
    load_qps: float,
    max_batch: int | None = None,
    max_violation: float | None = None,
    gathering: bool = False,
) -> FluidBound:
    """Solve the fluid linear program.

    Parameters
    ----------
    times : ServiceTimes or LatencyTable, or a sequence of these
        Service times, fixed or drawn, of each worker type.
    slo_ms : float or sequence of SloClass
        > 0, or classes whose shares sum to 1. A model that is slower at a batch of 1 takes no
        part.
    workers : int or sequence of int
        K_t >= 1 of each worker type.
    load_qps : float
        λ > 0, queries per second of all classes together.
    max_batch : int, optional
        Largest batch, at most the largest of ``times``; this by default.
    max_violation : float, optional
        V, in [0, 1]; by default violations are not limited.
    gathering : bool
        Add the gathering windows of Poisson arrivals; service times must be fixed, and there
        must be one SLO.

    Raises
    ------
    InvalidValueError
        A number out of range, no type, shares that do not sum to 1, or gathering windows with
        drawn times or several classes.
    InfeasibleError
        An SLO below every latency, or more violations than allowed whatever is done.
    NotConvergedError
        The linear program was not solved.
    """
    own = [times] if isinstance(times, Times) else list(times)
    types = [ServiceTimes.of_table(one) if isinstance(one, LatencyTable) else one for one in own]
    if not types:
        raise InvalidValueError(describe("no worker types", where="workers",
                                         allowed="one or more"))
    counts = np.array(workers, dtype=float).reshape(-1)
    classes = classes_of(slo_ms)
    check_positive(workers=float(counts.min()), load_qps=load_qps)
    if len(counts) != len(types):
        raise InvalidValueError(describe("not a number of workers for each type",
                                         where="workers", value=counts.tolist(),
                                         allowed=f"{len(types)} numbers"))
    longest = _checked_limits(types, classes, max_batch, max_violation, gathering)
    kinds = np.array(numbered_alike(types))
    merged = [types[int(np.argmax(kinds == k))] for k in range(int(kinds.max()) + 1)]
    check_reachable(merged, classes)
    cluster = _Merged(tuple(merged), np.bincount(kinds, counts).astype(float), classes,
                      load_qps / 1000.0)
    columns = Columns.of(merged, classes, max_batch or longest)
    found = _optimum(cluster, columns, max_violation, gathering=gathering)
    part = counts / cluster.workers[kinds]
    return replace(found, worker_price=found.worker_price[kinds],
                   type_share=found.type_share[kinds] * part[:, None],
                   batch_share=tuple(found.batch_share[k] * share
                                     for k, share in zip(kinds.tolist(), part, strict=True)))


def _checked_limits(
    types: Sequence[ServiceTimes], classes: Sequence[SloClass], max_batch: int | None,
    max_violation: float | None, gathering: bool,
) -> int:
    """The largest batch of all types, if the limits fit them."""
    longest = max(one.max_batch for one in types)
    if max_batch is not None and not 1 <= max_batch <= longest:
        raise InvalidValueError(
            describe("largest batch out of range", where="max_batch", value=max_batch,
                     allowed=f"1 to {longest}, the latency table's largest"))
    if max_violation is not None and not 0 <= max_violation <= 1:
        raise InvalidValueError(describe("not a share of violations", where="max_violation",
                                         value=max_violation, allowed="a fraction in [0, 1]"))
    if gathering and len(classes) > 1:
        raise InvalidValueError(describe("gathering windows need one SLO", where="gathering",
                                         allowed="a single SLO class"))
    if gathering and any(one.distributed for one in types):
        raise InvalidValueError(describe("gathering windows need fixed service times",
                                         where="gathering", allowed="a latency statistic"))
    return longest


@dataclass(frozen=True, eq=False)
class _Merged:
    """What a bound is for: types that differ, ``workers`` (T,), and ``load`` in queries per ms."""

    times: tuple[ServiceTimes, ...]
    workers: FloatArray
    classes: tuple[SloClass, ...]
    load: float


def _optimum(
    cluster: _Merged, columns: Columns, max_violation: float | None = None, *,
    gathering: bool = False,
) -> FluidBound:
    """The solution of the program, with a row for each type and class."""
    share = np.array([one.share for one in cluster.classes])
    # Unknowns are shares of the queries, or of what can be served where that is less (1/scale of
    # them), so that the program is of the size of 1 at any load.
    fastest, total = float(columns.time_ms.min()), float(cluster.workers.sum())
    demand = fastest * cluster.load / total
    scale = max(1.0, demand)
    of_type, of_class = columns.of_types(len(cluster.times)), columns.of_classes(len(share))
    busy = _busy(of_type * columns.time_ms, cluster, scale)
    plain = not gathering and max_violation is None
    if plain and len(of_type) == len(share) == 1:
        mix = best_mix(busy[0], columns.reward, min(scale, _LARGEST))
        found = _Found(mix.amount, mix.value, np.array([mix.price]))
    else:
        program = _Program(scale, GatheringWindows(columns, cluster.classes[0].slo_ms,
                                                   cluster.load) if gathering else None)
        program.limit(busy, np.ones(len(of_type)))
        program.limit(of_class.astype(float), np.minimum(share * scale, _LARGEST))
        if max_violation is not None:
            served = (1.0 - max_violation) * min(scale, _LARGEST)
            _check_served(columns, program, served)
            program.limit(-columns.in_time[None, :], np.array([-served]))
        found = program.largest(columns.reward)
    shares = found.amount / scale
    taken = np.zeros((len(of_type), len(share)))
    np.add.at(taken, (columns.worker_type, columns.slo_class), shares)
    # No more than the best model's, which rounding could pass.
    effective = min(found.value / scale, float(columns.reward.max()))
    worker_price = found.prices[: len(of_type)] / scale / cluster.workers
    rate = np.where(of_type, 1.0 / columns.time_ms, 0.0).max(axis=1)
    return FluidBound(
        effective_accuracy=effective,
        served_fraction=float(found.amount @ columns.in_time / scale),
        capacity_qps=float(1000.0 * cluster.workers @ rate),
        query_price=max(0.0, effective - float(worker_price @ cluster.workers)) if plain else 0.0,
        worker_price=worker_price,
        class_accuracy=of_class @ (shares * columns.reward) / share,
        class_served=of_class @ (shares * columns.in_time) / share,
        type_share=taken,
        batch_share=_batch_shares(cluster, columns, shares),
        classes=cluster.classes,
    )


def _busy(time_ms: FloatArray, cluster: _Merged, scale: float) -> FloatArray:
    """Share of the time of each type's workers that each unknown takes; ``time_ms``: (T, n)."""
    with np.errstate(over="ignore", invalid="ignore"):
        busy = time_ms * cluster.load / cluster.workers[:, None] / scale
    if not np.isfinite(busy).all():  # at loads near the largest number that there is
        fastest = float(time_ms[time_ms > 0].min())
        busy = time_ms / fastest * (cluster.workers.sum() / cluster.workers)[:, None]
    return busy


class _Found(NamedTuple):
    """The optimum of a program: unknowns, value, and what more of each limit would add."""

    amount: FloatArray
    value: float
    prices: FloatArray


class _Program:
    """A linear program over the columns, whose gathering windows are found as they are broken.

    Parameters
    ----------
    scale : float
        What the shares of the queries are multiplied by to be the unknowns.
    windows : GatheringWindows, optional
    """

    def __init__(self, scale: float, windows: GatheringWindows | None) -> None:
        self.scale, self._windows = scale, windows
        self._rows: list[FloatArray] = []
        self._most: list[FloatArray] = []

    def limit(self, rows: FloatArray, most: FloatArray) -> None:
        """Add ``rows·y <= most``."""
        self._rows.append(rows)
        self._most.append(most)

    def largest(self, worth: FloatArray) -> _Found:
        """The largest ``worth·y`` with y >= 0 within the limits and windows.

        Windows that the solution breaks become limits until it breaks none; the value falls in
        each round, and there are finitely many windows.
        """
        from scipy.optimize import linprog  # which takes long to load

        while True:
            found: Any = linprog(c=-worth, A_ub=np.vstack(self._rows),
                                 b_ub=np.concatenate(self._most), method="highs")
            if not found.success:
                raise NotConvergedError(describe(f"fluid bound not found ({found.message})"))
            best = _Found(found.x, -float(found.fun), -found.ineqlin.marginals)
            if self._windows is None:
                return best
            size = min(self.scale, _LARGEST)
            rows, shares = self._windows.broken(found.x / size)
            if not len(rows):
                return best
            self.limit(rows, shares * size)


def _check_served(columns: Columns, program: _Program, served: float) -> None:
    """Refuse a limit on violations that cannot be kept: too few can be answered in time."""
    largest, scale = program.largest(columns.in_time).value, program.scale
    if largest < served * (1.0 - _ROUNDING):
        raise InfeasibleError(describe("too few workers for so few violations",
                                       where="max_violation",
                                       value=1.0 - served / min(scale, _LARGEST),
                                       allowed=f"at least {1.0 - largest / scale:.6g}"))


def _batch_shares(
    cluster: _Merged, columns: Columns, shares: FloatArray
) -> tuple[FloatArray, ...]:
    """Shares of the queries by class, model and batch, for each type."""
    result = []
    for t, times in enumerate(cluster.times):
        own = columns.worker_type == t
        part = np.zeros((len(cluster.classes), len(times.models), times.max_batch))
        np.add.at(part, (columns.slo_class[own], columns.model[own], columns.batch[own] - 1),
                  shares[own])
        result.append(part)
    return tuple(result)


def realised_bound(
    times: Times | Sequence[Times], *, slo_ms: float | Sequence[SloClass],
    workers: int | Sequence[int], duration_ms: float, counts: Sequence[int],
    max_batch: int | None = None,
) -> float | None:
    """What no scheme can beat on finite traces: the mean of their fluid bounds.

    A trace of n queries in T ms is served with the capacity of K·(T + SLO), hence like a load of
    n / (T + SLO), with the longest SLO. Where classes are drawn it bounds the expectation, as the
    bound is concave in their loads. None where a trace has no queries.

    Parameters
    ----------
    times, slo_ms, workers, max_batch
        As for :func:`fluid_bound`.
    duration_ms : float
        T, until arrivals stop.
    counts : sequence of int
        n of each trace.
    """
    if not all(counts):
        return None
    longest_ms = slo_ms if isinstance(slo_ms, (int, float)) else max(one.slo_ms for one in slo_ms)
    seconds = (duration_ms + longest_ms) / 1000.0
    bounds = [fluid_bound(times, slo_ms=slo_ms, workers=workers, load_qps=count / seconds,
                          max_batch=max_batch).effective_accuracy for count in counts]
    return sum(bounds) / len(bounds)
