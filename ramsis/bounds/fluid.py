"""The fluid upper bound on effective accuracy, for schedulers that ask one model for each request.

*The problem.* Requests of classes c arrive at rates λ_c, λ in all, and want an answer within
SLO_c. There are K_t workers of type t; a batch of b of model m takes L_t(m, b) on one of them. An
answer in time is worth the accuracy of its model, and a request without one costs a price π >= 0.
Let y be the rate at which requests of class c are answered in batches of b of model m on workers
of type t:

    max  Σ (accuracy_t(m) + π)·P(L_t(m, b) <= SLO_c)·y_{t,c,m,b} / λ − π
    s.t. Σ_{c,m,b} E[L_t(m, b)]/b·y_{t,c,m,b}            <= K_t          for each type t,
         Σ_{t,m,b} y_{t,c,m,b}                           <= λ_c          for each class c,
         Σ P(L_t(m, b) <= SLO_c)·y_{t,c,m,b}             >= (1 − V)·λ    where violations are
                                                                         limited to a share V,

and, on request, the gathering windows below. The objective is effective accuracy − π·violation
rate. It is a linear program, solved in closed form where there are only two limits
(:mod:`ramsis.bounds.single_type`), else by HiGHS; the columns are those of
:mod:`ramsis.bounds.columns`. The same program for given targets and unknown K_t is in
:mod:`ramsis.bounds.workers`.

*A bound whatever the solver does.* HiGHS stops within a tolerance, so its optimum may be below the
true one. The bound is therefore taken from the dual prices d >= 0 of the rows A·y <= r: the price
of each class's row is raised by the largest amount by which a column's worth exceeds d·A, if any,
and then d·r is no less than the worth of any point of the program.

*A price above 10^4.* Rounding would lose the accuracies beside it. The optimum is convex in π, and
falls by at least 1 − S for each unit, S being the largest share that can be in time. So the bound
for 10^4, less (1 − S)·(π − 10^4), is a bound for π.

*Service times fixed at l.* Then P is 1 for l(m, b) <= SLO, and the bound holds for every policy,
those that know all arrivals in advance too, as long as each request is answered once by one model,
a worker runs one batch at a time, none is aborted, batches reach no further than the table, and l
does not fall with b (a latency table sees to that by padding).

*Service times drawn.* It holds for policies that may know all arrivals, but no service time before
its end; L is independent of all else.

*Batches may mix classes.* Give each request of a batch the b-th part of the time that the batch
takes. What any policy does is then a point of the program: the parts add up to the busy time of
each type, each request counts once in its class, and earns at most what its column says, by its
own deadline. So it holds for shared and for separate queues.

It is a bound on the long-run average, and on a finite run of length T with n requests when λ is
n/(T + SLO): batches in time run within T + SLO. For drawn times it then bounds the expectation.
A policy's distance to it is what queueing and the gathering of batches cost.

*Gathering windows* tighten it for Poisson arrivals, fixed service times and one SLO. All b
requests of a batch that is in time arrived within SLO − l(m, b). So for any s and w, no more
requests can be in time in batches of at least s with SLO − l <= w than lie in some window of
length w with s arrivals:

    Σ_{b >= s, SLO − l_t(m,b) <= w} y_{t,m,b} / λ <= 1 − (1 − P(at least s − 1 arrivals in w))^s.

A request can have s positions in a group of s consecutive requests. Each of these s groups fits
into w with the probability in the bracket. That a group does not fit is a rising event in the gaps
between arrivals, which are independent; so none fits with at least the product of the
probabilities (Harris 1960, "A lower bound for the critical probability in a certain percolation
process"). A batch that is in time for only some of its requests counts as the smaller batch of
these.

Dual prices say what the constraints are worth: one more worker, one more request per second. Types
that are alike are merged, and so are classes of one SLO, before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.bounds.columns import Columns, GatheringWindows, solved
from ramsis.bounds.single_type import Mix, best_mix
from ramsis.bounds.targets import outward
from ramsis.cluster.cluster import SloClass, check_reachable, classes_of, numbered_alike
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import (
    FRACTION,
    InfeasibleError,
    InvalidValueError,
    check_not_negative,
    check_positive,
)
from ramsis.profiles import LatencyTable
from ramsis.reprs import dataclass

Times = ServiceTimes | LatencyTable

_LARGEST = 1e19  # what the linear programs' solver still takes for a finite number
_ROUNDING = 1e-8  # of a limit on violations, which messages state to six decimals
_HIGHEST_PRICE = 1e4  # that bounds follow from; beyond it digits of the accuracy are lost
_DEAREST = 1e9  # that a mix follows from
_LEAST_WORTH = 1e-300  # of a column, by which others are divided
_ALL_COLUMNS = 3_000
"""Columns up to which a program is solved with all at once; HiGHS takes 12 s for 32,000."""
_COLUMNS_A_ROUND = 200
_UNTAKEN = 1e-11
"""Share of the largest worth that a column may earn beyond the prices and still be left out."""
_EXACT = 1e-12  # of a share of the requests


@dataclass(frozen=True, eq=False)
class FluidBound:
    """Solution of the fluid linear program for T worker types and C classes.

    Attributes
    ----------
    upper_bound : float
        Bound on effective accuracy − price × violation rate; at most 1 without a price, and
        possibly negative with one.
    effective_accuracy : float
        Effective accuracy of the optimum, over all requests; a fraction.
    served_fraction : float
        Share of the requests that the optimum answers in time; below 1 in overload, and where
        answering fewer of them more accurately is worth more.
    capacity_qps : float
        Largest load that can be answered in time, were all requests of the class with the
        longest SLO: Σ_t K_t·max b / E[L_t(m, b)].
    query_price : float
        Gain in λ·bound by one more request per second; minus the price of violations if it could
        not be answered. NaN with gathering windows, which depend on the load.
    worker_price : ndarray, shape (T,)
        Marginal gain in the bound by an additional worker of each type.
    class_accuracy, class_served : ndarray, shape (C,)
        Effective accuracy, and share answered in time, of the requests of each class.
    type_share : ndarray, shape (T, C)
        Share of all requests that each type takes of each class.
    batch_share : tuple of T ndarrays, shape (C, M, B)
        Share of all requests of each class that the type answers with model m in batches of
        b = column + 1.
    classes : tuple of SloClass
        By rising SLO, merged.
    """

    upper_bound: float
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

    @property
    def violation_rate(self) -> float:
        """Share of the requests that the optimum does not answer in time, in [0, 1]."""
        return max(0.0, 1.0 - self.served_fraction)


def fluid_bound(
    times: Times | Sequence[Times],
    *,
    slo_ms: float | Sequence[SloClass],
    workers: int | Sequence[int],
    load_qps: float,
    max_batch: int | None = None,
    violation_price: float = 0.0,
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
        λ > 0, requests per second of all classes together.
    max_batch : int, optional
        Largest batch, at most the largest of ``times``; this by default.
    violation_price : float
        π >= 0, what a request that is not answered in time costs, in units of accuracy.
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
        The SLO is below every latency, or no scheduler keeps ``max_violation``; the message has
        the least violation rate that there can be.
    NotConvergedError
        The linear program was not solved.
    """
    terms = _Terms(violation_price, max_violation, gathering)
    times_of_type = [times] if isinstance(times, Times) else list(times)
    types = [ServiceTimes.of_table(table) if isinstance(table, LatencyTable) else table
             for table in times_of_type]
    if not types:
        raise InvalidValueError("no worker types", where="workers", allowed="one or more")
    counts = np.array(workers, dtype=float).reshape(-1)
    classes = classes_of(slo_ms)
    check_positive(workers=float(counts.min()), load_qps=load_qps)
    if len(counts) != len(types):
        raise InvalidValueError("not a number of workers for each type", where="workers",
                                value=counts.tolist(), allowed=f"{len(types)} numbers")
    longest = _checked_limits(types, classes, max_batch, terms)
    # Types with equal service times are merged into one; its shares are split in proportion to the
    # workers of each type.
    kinds = np.array(numbered_alike(types))
    merged = [types[int(np.argmax(kinds == k))] for k in range(int(kinds.max()) + 1)]
    check_reachable(merged, classes)
    cluster = _Merged(tuple(merged), np.bincount(kinds, counts).astype(float), classes,
                      load_qps / 1000.0)
    optimum = _optimum(cluster, Columns.of(merged, classes, max_batch or longest), terms)
    part = counts / cluster.workers[kinds]
    return replace(optimum, worker_price=optimum.worker_price[kinds],
                   type_share=optimum.type_share[kinds] * part[:, None],
                   batch_share=tuple(optimum.batch_share[k] * share
                                     for k, share in zip(kinds.tolist(), part, strict=True)))


class _Terms(NamedTuple):
    """Objective and limits of a bound, as the parameters of :func:`fluid_bound`."""

    violation_price: float = 0.0
    max_violation: float | None = None
    gathering: bool = False


def _checked_limits(
    types: Sequence[ServiceTimes], classes: Sequence[SloClass], max_batch: int | None,
    terms: _Terms,
) -> int:
    """Check the limits and return the largest batch of all types."""
    longest = max(worker_type.max_batch for worker_type in types)
    if max_batch is not None and not 1 <= max_batch <= longest:
        raise InvalidValueError("largest batch out of range", where="max_batch", value=max_batch,
                                allowed=f"1 to {longest}, the latency table's largest")
    price, max_violation, gathering = terms
    check_not_negative("not a price", violation_price=price)
    FRACTION.check("not a share of violations", optional=True, max_violation=max_violation)
    if gathering and len(classes) > 1:
        raise InvalidValueError("gathering windows need one SLO", where="gathering",
                                allowed="a single SLO class")
    if gathering and any(worker_type.distributed for worker_type in types):
        raise InvalidValueError("gathering windows need fixed service times", where="gathering",
                                allowed="a latency statistic")
    return longest


@dataclass(frozen=True, eq=False)
class _Merged:
    """Instance of a bound: distinct types, ``workers`` (T,), ``load`` in requests per ms."""

    times: tuple[ServiceTimes, ...]
    workers: FloatArray
    classes: tuple[SloClass, ...]
    load: float


def _optimum(cluster: _Merged, columns: Columns, terms: _Terms) -> FluidBound:
    """Solve the program; the solution has a row for each type and class."""
    share = np.array([slo_class.share for slo_class in cluster.classes])
    # Unknowns are shares of the requests, or of what can be served where that is less (1/scale of
    # them), so that the program is of the size of 1 at any load.
    fastest, total = float(columns.time_ms.min()), float(cluster.workers.sum())
    scale = max(1.0, fastest * cluster.load / total)
    of_type, of_class = columns.of_types(len(cluster.times)), columns.of_classes(len(share))
    busy = _busy(of_type * columns.time_ms, cluster, scale)
    windows = (GatheringWindows(columns, cluster.classes[0].slo_ms, cluster.load)
               if terms.gathering else None)
    program = _Program(busy, of_class, np.minimum(share * scale, _LARGEST), windows)
    if terms.max_violation is not None:
        _limit_violations(program, columns.in_time, terms.max_violation, cluster.load)
    price = min(terms.violation_price, _HIGHEST_PRICE)
    solution = program.largest(columns.reward + price * columns.in_time)
    # No more than the best answer's, which rounding could pass.
    bound = min(solution.value / scale - price,
                float((columns.reward - price * (1.0 - columns.in_time)).max()))
    worker_price = solution.prices[: len(of_type)] / scale / cluster.workers
    if terms.violation_price > price:
        above, served = terms.violation_price - price, program.largest(columns.in_time)
        bound -= above * max(0.0, 1.0 - served.value / scale - _EXACT)
        worker_price += above * (served.prices[: len(of_type)] / scale / cluster.workers)
        if (served.amount - solution.amount) @ columns.in_time > _EXACT:
            # At the lower price, violations for the sake of accuracy paid; at the true one they
            # need not, so the mix is computed again.
            dear = min(terms.violation_price, _DEAREST)
            solution = program.largest(columns.reward + dear * columns.in_time)
    shares = solution.amount / scale
    taken = np.zeros((len(of_type), len(share)))
    np.add.at(taken, (columns.worker_type, columns.slo_class), shares)
    query_price = bound - float(worker_price @ cluster.workers)
    if terms.max_violation is None:  # which one more request may break
        query_price = max(-terms.violation_price, query_price)
    rate = np.where(of_type, 1.0 / columns.time_ms, 0.0).max(axis=1)
    return FluidBound(
        upper_bound=bound,
        effective_accuracy=min(float(solution.amount @ columns.reward) / scale,
                               float(columns.reward.max())),
        served_fraction=float(solution.amount @ columns.in_time / scale),
        capacity_qps=float(1000.0 * cluster.workers @ rate),
        query_price=math.nan if terms.gathering else query_price,
        worker_price=worker_price,
        class_accuracy=of_class @ (shares * columns.reward) / share,
        class_served=of_class @ (shares * columns.in_time) / share,
        type_share=taken,
        batch_share=_batch_shares(cluster, columns, shares),
        classes=cluster.classes,
    )


def _busy(time_ms: FloatArray, cluster: _Merged, scale: float) -> FloatArray:
    """Compute the share of each type's workers' time that each unknown takes, (T, n)."""
    with np.errstate(over="ignore", invalid="ignore"):
        busy = time_ms * cluster.load / cluster.workers[:, None] / scale
    if not np.isfinite(busy).all():  # at loads near the largest number that there is
        fastest = float(time_ms[time_ms > 0].min())
        busy = time_ms / fastest * (cluster.workers.sum() / cluster.workers)[:, None]
    return busy


class _Program:
    """Linear program over the columns; violated gathering windows are added as cuts.

    Its limits are the workers' time, ``busy``·y <= 1 for (T, n) shares of it, and the requests of
    each class, ``of_class``·y <= ``most`` for a mask (C, n).
    """

    def __init__(
        self, busy: FloatArray, of_class: NDArray[np.bool_], most: FloatArray,
        windows: GatheringWindows | None,
    ) -> None:
        self._of_class, self.most, self._windows = of_class, most, windows
        self._taken = np.zeros(0, dtype=np.intp)  # of the last solution
        self._rows = [busy, of_class.astype(float)]
        self._limits = [np.ones(len(busy)), most]

    def limit(self, rows: FloatArray, most: FloatArray) -> None:
        """Add the constraints ``rows·y <= most`` to the program."""
        self._rows.append(rows)
        self._limits.append(most)

    def largest(self, worth: FloatArray) -> Mix:
        """Maximise ``worth·y`` over y >= 0 within the limits and windows.

        Windows that the solution breaks become limits until it breaks none; the value falls in
        each round, and there are finitely many windows.
        """
        busy, of_class = self._rows[:2]
        if self._windows is None and len(self._rows) == 2 and len(busy) == len(of_class) == 1:
            return best_mix(busy[0], worth, float(self.most[0]))
        while True:
            solution = self._solved(worth)
            if self._windows is None:
                return solution
            whole = float(self.most.sum())
            rows, shares = self._windows.broken(solution.amount / whole)
            if not len(rows):
                return solution
            self.limit(rows, shares * whole)

    def _solved(self, worth: FloatArray) -> Mix:
        """Solve with the present rows; the value comes from dual prices that certify it."""
        limits = np.concatenate(self._limits)
        # HiGHS takes worth below 1e-7 for none. A power of two leaves the digits as they are.
        unit = float(2.0 ** np.frexp(max(np.abs(worth).max(), _LEAST_WORTH))[1])
        taken = self._to_begin_with(worth)
        while True:
            solution = solved("fluid bound", c=-worth[taken] / unit, b_ub=limits,
                              A_ub=np.vstack([block[:, taken] for block in self._rows]))
            prices = np.maximum(-solution.ineqlin.marginals * unit, 0.0)
            cost = self._cost(prices)
            left = worth - cost
            left[taken] = 0.0
            # Columns that earn more than the prices, the best first; none is taken twice. What is
            # below the tolerance is in the bound, as `unpaid`.
            more = np.argsort(-left, kind="stable")[:_COLUMNS_A_ROUND]
            more = more[left[more] > _UNTAKEN * unit]
            if not len(more):
                break
            taken = np.union1d(taken, more)
        self._taken = taken
        amount = np.zeros(len(worth))
        amount[taken] = solution.x
        unpaid = np.where(self._of_class, worth - cost, 0.0).max(axis=1)
        return Mix(amount, float(prices @ limits + unpaid @ self.most), prices)

    def _cost(self, prices: FloatArray) -> FloatArray:
        """Return each column's cost at dual prices; do not copy the rows of large programs."""
        if len(self._of_class[0]) <= _ALL_COLUMNS:
            return np.asarray(prices @ np.vstack(self._rows))
        ends = np.cumsum([len(block) for block in self._rows])[:-1]
        return np.asarray(np.sum([part @ block for part, block in zip(
            np.split(prices, ends), self._rows, strict=True)], axis=0))

    def _to_begin_with(self, worth: FloatArray) -> NDArray[np.intp]:
        """Return the initial columns: all if few, else the last solution's and promising ones."""
        if len(worth) <= _ALL_COLUMNS:
            return np.arange(len(worth))
        good = [np.argsort(-worth / np.maximum(row, _LEAST_WORTH) ** power, kind="stable")[:64]
                for row in self._rows[0] for power in (0.0, 0.5, 1.0)]
        return np.unique(np.concatenate([self._taken, *good]))


def _limit_violations(
    program: _Program, in_time: FloatArray, max_violation: float, load: float
) -> None:
    """Limit the share of violations; refuse an infeasible limit."""
    whole, in_time_share = float(program.most.sum()), program.largest(in_time)
    largest = in_time_share.value / whole
    if largest < 1.0 - max_violation - _ROUNDING:
        raise InfeasibleError(
            f"too few workers for so few violations at {1000.0 * load:g} QPS",
            where="max_violation", value=max_violation,
            allowed=f"more workers, or at least {outward(1.0 - largest, up=True)}")
    # Rounding must not require more than the solution above serves.
    served = min((1.0 - max_violation) * whole, float(in_time_share.amount @ in_time))
    program.limit(-in_time[None, :], np.array([-served]))


def _batch_shares(
    cluster: _Merged, columns: Columns, shares: FloatArray
) -> tuple[FloatArray, ...]:
    """Return shares of the requests by class, model and batch for each type."""
    result = []
    for t, times in enumerate(cluster.times):
        of_type = columns.worker_type == t
        part = np.zeros((len(cluster.classes), len(times.models), times.max_batch))
        place = columns.slo_class[of_type], columns.model[of_type], columns.batch[of_type] - 1
        np.add.at(part, place, shares[of_type])
        result.append(part)
    return tuple(result)


def certified_gap(
    effective_accuracy: float, violation_rate: float, violation_price: float, upper_bound: float
) -> float | None:
    """Return the relative gap between a scheduler and the bound at a price of violations.

    None where the bound is not above 0.

    >>> certified_gap(0.75, 0.0, violation_price=1.0, upper_bound=1.0)
    0.25
    """
    if upper_bound <= 0:
        return None
    return 1.0 - (effective_accuracy - violation_price * violation_rate) / upper_bound


def realised_bound(
    times: Times | Sequence[Times], *, slo_ms: float | Sequence[SloClass],
    workers: int | Sequence[int], duration_ms: float, counts: Sequence[int],
    max_batch: int | None = None, violation_price: float = 0.0,
) -> float | None:
    """Return an upper bound for all schedulers on finite traces: the mean of their fluid bounds.

    A trace of n requests in T ms is served with the capacity of K·(T + SLO), with the longest SLO.
    Where classes are drawn it bounds the expectation, as the bound is concave in their loads. None
    where there is no trace, or one has no requests.

    Parameters
    ----------
    times, slo_ms, workers, max_batch, violation_price
        As for :func:`fluid_bound`.
    duration_ms : float
        T, until arrivals stop.
    counts : sequence of int
        n of each trace.
    """
    if not counts or not all(counts):
        return None
    longest_ms = slo_ms if isinstance(slo_ms, (int, float)) else max(
        slo_class.slo_ms for slo_class in slo_ms)
    seconds = (duration_ms + longest_ms) / 1000.0
    bounds = [fluid_bound(times, slo_ms=slo_ms, workers=workers, load_qps=count / seconds,
                          max_batch=max_batch, violation_price=violation_price).upper_bound
              for count in counts]
    return sum(bounds) / len(bounds)
