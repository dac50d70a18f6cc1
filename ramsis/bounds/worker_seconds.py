r"""Lower bound on worker-seconds, valid even for schedulers that know the trace.

It holds for schedulers that answer each request once, by one model, in batches up to a limit.

*The problem.* Requests come at a_i and are to be answered by a_i + SLO. W(t) workers serve at t,
a whole number; a worker costs from X (the start-up time) before it serves. A worker that serves
without a pause of more than X costs all the time, so at least k workers are paid for at t if
W >= k somewhere in [t, t + X]. The cost of W is the time that is paid for,

    Σ_k |{t in [0, end] : max of W in [t, t + X] >= k}|.

A request that is answered in a batch of b by model m takes at least l(m, b)/b of worker time
between its arrival and its deadline, and is then worth accuracy(m). It can be in such a batch only
if b requests, itself among them, arrive within SLO − l(m, b). The answers have to reach the
target: a number of answers in time, a sum of accuracies, or both. The relaxed problem treats the
work of a request as a fluid, so it bounds every scheduler that answers each request once, by one
model.

*Prices.* For weights of the two sums and a price s of what is lost to the target, the bound is

    min_W [cost(W) + s·lost(W)] − s·(what may be lost),

for any s >= 0; the largest over s is taken. lost(W) is the value of all requests answered as well
as possible, less the largest value that W(t) workers reach.

*Layers.* The value of a request is concave in its work: let d_i(ρ) be the part of the work of
request i that is worth more than ρ per ms. By the greedy algorithm on polymatroids (requests have
nested deadlines), lost(W) = ∫ Λ_ρ(W) dρ, where Λ_ρ is the least work that is lost if each request
i brings d_i(ρ). It is lost by a queue that accepts only what W serves in time: its backlog stays
between 0 and what W serves in an SLO. As d and Λ fall with ρ, finitely many thresholds ρ give a
lower bound on the integral.

*Bins.* Time is cut into bins of Δ >= SLO. Let K_j be the most workers in bin j.

- Cost. Let worker number k serve at some time in each of the bins i to j, but in neither
  neighbour. It is paid for X before it first serves, and for the bins strictly between i and j
  unless it pauses. With κ = min(Δ, X/2) that is at least X − κ, plus κ for each edge between bins
  that it passes: a pause saves only if it is longer than X, and then it touches two bins, each of
  which is charged half of the next start. Near the beginning X − κ is limited by the start of bin
  i. Time after `end` is free.
- Loss. Let r_j be the backlog after bin j of a queue with K_j workers that starts with a given
  backlog, and u_j the true backlog. The bounds of the bins are such that the true loss up to the
  end of bin j is at least their sum plus (r_j − u_j)+: a smaller backlog than r_j is possible only
  if more was lost. The bound of a bin is the loss of a queue that starts it empty; or the loss of
  one that starts with the backlog which K_j workers throughout would have, less the amount by
  which this exceeds r_{j−1} (a queue that starts with δ less loses at most δ less). If
  K_{j+1} > K_j, requests that arrive in the last SLO of bin j may be served by the additional
  workers: the bound falls by what these can serve in an SLO, at most by what was lost then.

A dynamic programme over (bin, K) finds the cheapest K_1, K_2, ...

*Without bins* the least work that the target takes is a bound as well, and for few requests the
relaxed problem is solved as an integer program (:mod:`ramsis.bounds._few_requests`). The
largest bound is stated.

*Rounding.* Windows are wider by 2e-6 ms, and 1e-9 of the value may be lost in addition.

Service times that are drawn count with the mean of the work until the deadline; the bound is
then on the mean over runs, of schedulers that do not know service times beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.bounds import _worker_seconds_kernels as kernels
from ramsis.bounds._few_requests import FewRequests
from ramsis.bounds.targets import Targets, outward
from ramsis.cluster.service_times import ServiceTimes, cdf
from ramsis.errors import InfeasibleError, InvalidValueError, check_positive, whole
from ramsis.reprs import dataclass
from ramsis.runtime.table import SLACK_TOLERANCE_MS

_SIZES = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128])
_MOST_KINDS = 64
_MOST_LAYERS = 16
_MOST_BINS = 20_000
_EXACT_LEVELS = 96
_LEVEL_STEP = 1.02
_ROUNDS = 30
_EXACT = 1e-9
_SHARES = (2.0, 8.0, 0.5)
_FEW = 40  # requests, of which the integer program is solved
_PARTS = (4.0, 10.0, 25.0)  # bins in a start-up

_Cheapest = Callable[[float], tuple[float, float, IntArray]]
"""At a price of the loss, the cost and the loss of the best plan, and the plan."""


@dataclass(frozen=True, eq=False)
class WorkerSecondsBound:
    """Lower bound on worker-seconds, valid even for schedulers that know the trace.

    It holds for schedulers that answer each request once, by one model, in batches up to a limit.

    Attributes
    ----------
    worker_s : float
        Worker-seconds that are paid for, start-ups included.
    peak : int
        Number of workers that must serve at some time: with fewer throughout, the target is
        missed.
    mean : float
        ``worker_s`` over the time that is paid for.
    time_s : ndarray, shape (n + 1,)
        Edges of the times of ``workers``.
    workers : ndarray, shape (n,)
        Workers, start-ups included, of the plan of the relaxed problem whose cost is the bound.
        At a single time a scheduler may have fewer.
    """

    worker_s: float
    peak: int
    mean: float
    time_s: FloatArray
    workers: FloatArray


@dataclass(frozen=True, kw_only=True)
class WorkerSecondsTerms:
    """SLO, start-up time, limits and target of a fleet whose worker-seconds are bounded.

    Attributes
    ----------
    slo_ms : float
        > 0.
    startup_s : float
        >= 0. A worker costs from when it begins to start, and serves only that much later.
    max_violation : float, optional
        Most violations, in [0, 1).
    min_effective_accuracy : float, optional
        Least mean accuracy over all requests, in (0, 1]; with service times.
    rate_per_worker_qps : float, optional
        Requests that a worker can answer in time per second, > 0; in place of service times.
    max_batch : int
        Largest batch, from 1.
    most, least : int
        Workers that there are at most and at least.
    duration_s : float, optional
        Until when workers cost; by default until the last deadline.
    """

    slo_ms: float
    startup_s: float = 0.0
    max_violation: float | None = None
    min_effective_accuracy: float | None = None
    rate_per_worker_qps: float | None = None
    max_batch: int = 32
    most: int | None = None
    least: int = 0
    duration_s: float | None = None


def fewest_worker_seconds(
    arrival_ms: FloatArray, times: ServiceTimes | None, terms: WorkerSecondsTerms
) -> WorkerSecondsBound:
    """Return a lower bound on the worker-seconds with which a scheduler meets a target.

    Parameters
    ----------
    arrival_ms : ndarray, shape (n,)
        Rising, >= 0, from when the fleet is paid for on.
    times : ServiceTimes or None
        Service times of batches; None with ``rate_per_worker_qps``.
    terms : WorkerSecondsTerms
        SLO, start-up time, limits and target of the fleet.

    Raises
    ------
    InfeasibleError
        No number of workers, or not as many as ``most``, meets the target; with the best.
    """
    if terms.max_violation is None and terms.min_effective_accuracy is None:
        raise InvalidValueError("no target", where="max_violation",
                                allowed="max_violation or min_effective_accuracy")
    problem = _Problem.of(arrival_ms, times, terms)
    problem.target.check(problem.work)
    return _bound(problem)


def least_cost(
    arrival_ms: FloatArray, times: ServiceTimes, terms: WorkerSecondsTerms, *,
    violation_worker_s: float, accuracy_worker_s: float, best_accuracy: float | None = None,
) -> float:
    """Return a lower bound on worker-seconds plus losses at given prices, over all schedulers.

    This is the minimum of cost(W) + s·lost(W) of the module's text, without a target.

    Parameters
    ----------
    arrival_ms, times, terms
        As in :func:`fewest_worker_seconds`; ``terms`` has no targets.
    violation_worker_s, accuracy_worker_s : float
        Price of a request that is late or dropped, and of a unit of accuracy lost, >= 0. An
        answer in time loses ``best_accuracy`` less the accuracy of its model, a violation all of
        it.
    best_accuracy : float, optional
        Accuracy at which an answer loses nothing; by default the largest of the models.
    """
    problem = _Problem.of(arrival_ms, times, terms)
    worth = 1000.0 * accuracy_worker_s, 1000.0 * violation_worker_s
    if not min(worth) >= 0 or not all(map(math.isfinite, worth)):
        raise InvalidValueError(
            "not prices", where="violation_worker_s, accuracy_worker_s",
            value=f"{violation_worker_s:g}, {accuracy_worker_s:g}",
            allowed="finite numbers >= 0")
    cost = problem.fleet.least * problem.fleet.end_ms
    most = problem.work.most(worth)
    if most > 0.0:
        layered = _Layered.of(problem, worth)
        cost = max(layered.least_work_at_price(), *map(layered.at_price, _widths(problem)), cost)
    # Some of the loss is there whatever is done, as where too few requests come for a batch.
    best = float(times.accuracy.max()) if best_accuracy is None else best_accuracy
    whole = len(problem.arrival) * (worth[0] * best + worth[1])
    return (whole - most * (1.0 + _EXACT) + cost) / 1000.0


def _check(arrival: FloatArray, times: ServiceTimes | None, under: WorkerSecondsTerms) -> None:
    """Refuse arrivals, limits and targets that are out of range or contradict each other."""
    rate, max_batch, most, least = (under.rate_per_worker_qps, under.max_batch, under.most,
                                    under.least)
    check_positive(slo_ms=under.slo_ms)
    if arrival.ndim != 1 or not (np.isfinite(arrival).all() and (np.diff(arrival) >= 0).all()
                                 and (arrival >= 0).all() and len(arrival)):
        raise InvalidValueError("not arrivals", where="arrival_ms",
                                allowed="one or more finite times >= 0, rising")
    span_s = float(arrival[-1] - arrival[0]) / 1000.0
    if span_s == 0.0:
        raise InvalidValueError("a trace of one instant", where="arrival_ms",
                                value=float(arrival[0]), allowed="arrivals at two times or more")
    if not 0.0 <= under.startup_s <= span_s:
        raise InvalidValueError(
            "start-up not within the trace", where="startup_s", value=under.startup_s,
            allowed=f"0 to {outward(span_s, slack=0.0)}, from the first arrival to the last")
    if (times is None) == (rate is None):
        raise InvalidValueError(
            "pass either service times or rate_per_worker_qps, not both" if rate is not None
            else "neither service times nor a rate", where="rate_per_worker_qps", value=rate,
            allowed="either service times or a rate")
    if rate is not None:
        check_positive(rate_per_worker_qps=rate)
        if under.min_effective_accuracy is not None:
            raise InvalidValueError(
                "a rate says nothing of accuracy", where="min_effective_accuracy",
                value=under.min_effective_accuracy,
                allowed="service times, or max_violation alone")
    # These refuse what is out of range.
    Targets(under.max_violation or 0.0, min_effective_accuracy=under.min_effective_accuracy)
    longest = max_batch if times is None else times.max_batch
    whole(1, longest).check("largest batch out of range", max_batch=max_batch)
    whole(0).check("not a number of workers", least=least)
    if most is not None and most < max(least, 1):
        raise InvalidValueError("fewer workers than the least", where="most", value=most,
                                allowed=f"a whole number from {max(least, 1)}")
    if under.duration_s is not None and not (
            arrival[-1] / 1000.0 <= under.duration_s < math.inf):
        raise InvalidValueError(
            "ends before the last arrival", where="duration_s", value=under.duration_s,
            allowed=f"from {outward(arrival[-1] / 1000.0, up=True, slack=0.0)}")


@dataclass(frozen=True, eq=False)
class _Work:
    """Worker time and value of each request's possible answers, which its kind determines."""

    kind: IntArray  # shape (n,)
    count: IntArray  # requests of each kind, shape (kinds,)
    # by kind, an entry for each answer (model and batch size): worker time, accuracy times
    # P(in time), and P(in time)
    time_ms: list[FloatArray]
    reward: list[FloatArray]
    in_time: list[FloatArray]

    @classmethod
    def of(
        cls, arrival: FloatArray, times: ServiceTimes | None, window_ms: float, max_batch: int,
        rate_qps: float | None,
    ) -> _Work:
        """Return the work of requests, by ``times`` or at ``rate_qps`` requests/s of a worker.

        The kind of a request is that of the largest batches that can gather around its arrival.
        """
        if times is None:
            assert rate_qps is not None
            ones = np.ones(1)
            return cls(np.zeros(len(arrival), dtype=np.int64), np.array([len(arrival)]),
                       [ones * 1000.0 / rate_qps], [ones], [ones])
        ways = _Ways.of(times, window_ms, max_batch)
        largest, kind = _kinds(kernels.gathered(
            arrival, ways.sizes, np.ascontiguousarray(ways.window_ms)))
        kinds = [ways.up_to(sizes) for sizes in largest.T]
        return cls(kind, np.bincount(kind, minlength=len(kinds)),
                   *(list(field) for field in zip(*kinds, strict=True)))

    def hulls(self, worth: tuple[float, float]) -> list[_Hull]:
        """Return each kind's hull of value by worker time, at weights of accuracy and in time."""
        return [_Hull.of(time, worth[0] * reward + worth[1] * in_time)
                for time, reward, in_time in zip(self.time_ms, self.reward, self.in_time,
                                                 strict=True)]

    def most(self, worth: tuple[float, float]) -> float:
        """Return the largest sum of the requests' values with unlimited workers."""
        return math.fsum(float(count) * float((worth[0] * reward + worth[1] * in_time).max(
            initial=0.0)) for count, reward, in_time in zip(self.count, self.reward, self.in_time,
                                                            strict=True))


@dataclass(frozen=True, eq=False)
class _Ways:
    """Possible answers to a request: model m, a batch of ``sizes[g]`` up to the next size."""

    sizes: IntArray  # shape (G,)
    window_ms: FloatArray  # SLO less batch time, to gather the batch; < 0 if late; shape (M, G)
    # shape (2, p): worker time and probability of being in time, of each model and size
    points: list[list[FloatArray]]
    accuracy: FloatArray  # shape (M,)

    @classmethod
    def of(cls, times: ServiceTimes, window_ms: float, max_batch: int) -> _Ways:
        """Return the models and batch sizes that can answer within ``window_ms``."""
        # A batch with more requests that is faster can be run instead, so times do not fall.
        taken = np.minimum.accumulate(times.quantiles_ms[:, ::-1], axis=1)[:, ::-1]
        sizes = np.extract(max_batch >= _SIZES, _SIZES)
        edges = np.append(sizes, max_batch + 1)
        points = [[np.concatenate([
            _points(taken[m, b - 1], times, window_ms) / np.array([[b], [1.0]])
            for b in range(low, high)], axis=1)
            for low, high in pairwise(edges.tolist())] for m in range(len(taken))]
        return cls(sizes, window_ms - taken[:, sizes - 1, 0], points, times.accuracy)

    def up_to(self, largest: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return worker time, reward and P(in time) of each answer in batches up to ``largest``.

        ``largest`` (M,) is how many of ``sizes`` a batch may have on each model.
        """
        parts = [np.vstack([point, np.full(point.shape[1], accuracy)])
                 for of_model, accuracy, count in zip(self.points, self.accuracy, largest,
                                                      strict=True)
                 for point in of_model[:count]]
        time, in_time, accuracy = np.concatenate([np.zeros((3, 0)), *parts], axis=1)
        return time, accuracy * in_time, in_time


def _points(quantiles: FloatArray, times: ServiceTimes, limit_ms: float) -> FloatArray:
    """Return worker time until the deadline and P(in time) of a batch, by start; (2, p)."""
    if not quantiles[0] <= limit_ms:
        return np.zeros((2, 0))
    left = np.append(quantiles[quantiles < limit_ms], limit_ms)
    if not times.distributed:
        return np.array([[quantiles[0]], [1.0]])
    often = np.array([float(cdf(quantiles, times.levels, left_ms)) for left_ms in left])
    # A batch that starts between two of these times is in time no more often than with the time
    # left of the later one, and takes no less work than with that of the earlier one.
    work = np.minimum(quantiles, left[:, None]) @ times.weights
    corners = _Hull.of(np.append(work[0], work[:-1]), often)
    return np.stack([corners.time_ms, corners.value])


def _kinds(largest: IntArray) -> tuple[IntArray, IntArray]:
    """Group requests by their largest batches (M, n) into kinds.

    Returns the largest batches of each kind, (M, kinds), and the kind of each request, (n,).

    Beyond ``_MOST_KINDS`` similar kinds are joined, and get the larger batches of both.
    """
    codes = np.ravel_multi_index(tuple(largest), tuple(largest.max(axis=1) + 1))
    _, first, kind, count = np.unique(codes, return_index=True, return_inverse=True,
                                      return_counts=True)
    patterns = largest[:, first]
    if len(first) > _MOST_KINDS:
        order = np.lexsort((*patterns, patterns.sum(axis=0)))
        group = np.empty(len(first), dtype=np.int64)
        group[order] = (np.cumsum(count[order]) - 1) * _MOST_KINDS // count.sum()
        _, group = np.unique(group, return_inverse=True)
        joined = np.zeros((len(patterns), int(group.max()) + 1), dtype=np.int64)
        for m, row in enumerate(patterns):
            np.maximum.at(joined[m], group, row)
        patterns, kind = joined, group[kind]
    return patterns, kind.astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Hull:
    """Concave value of a request by worker time: corners after (0, 0), slopes > 0 that fall."""

    time_ms: FloatArray
    slope: FloatArray

    @property
    def value(self) -> FloatArray:
        """Value of the concave hull at each of its corners."""
        return np.cumsum(self.slope * np.diff(self.time_ms, prepend=0.0))

    @classmethod
    def of(cls, time_ms: FloatArray, value: FloatArray) -> _Hull:
        """Return the concave hull of the points (worker time, value) and the origin."""
        at, height = 0.0, 0.0
        times: list[float] = []
        slopes: list[float] = []
        while True:
            ahead = (time_ms > at) & (value > height)
            if not ahead.any():
                return cls(np.array(times), np.array(slopes))
            slope = np.where(ahead, (value - height) / np.where(ahead, time_ms - at, 1.0), 0.0)
            best = np.flatnonzero(slope >= slope.max() * (1.0 - 1e-12))
            furthest = best[np.argmax(time_ms[best])]
            slopes.append(float(slope[furthest]))
            at, height = float(time_ms[furthest]), float(value[furthest])
            times.append(at)


@dataclass(frozen=True)
class _Target:
    """Targets as sums over the requests; None where there is no such target."""

    answered: float | None  # requests in time
    accuracy: float | None  # accuracies of the requests in time
    shown: tuple[float | None, float | None]  # violation rate and effective accuracy as given
    requests: int
    drawn: bool  # whether service times are random, so that targets hold on the mean

    @classmethod
    def of(
        cls, work: _Work, max_violation: float | None, min_effective_accuracy: float | None, *,
        drawn: bool,
    ) -> _Target:
        """Return the targets; whole requests may be late, unless times are drawn."""
        requests = int(work.count.sum())
        answered = None
        if max_violation is not None:
            late = max_violation * requests
            answered = requests - (late if drawn else math.floor(late + 1e-6))
        accuracy = (None if min_effective_accuracy is None
                    else min_effective_accuracy * requests)
        return cls(answered, accuracy, (max_violation, min_effective_accuracy), requests,
                   drawn)

    def directions(self) -> Iterator[tuple[float, float]]:
        """Yield weights (accuracy, answers in time) that single out each of the targets."""
        if self.accuracy is not None:
            yield 1.0, 0.0
        if self.answered is not None:
            yield 0.0, 1.0

    def asked(self, worth: tuple[float, float]) -> float:
        """Return the sum that the targets require, at weights of accuracy and in time."""
        return worth[0] * (self.accuracy or 0.0) + worth[1] * (self.answered or 0.0)

    def check(self, work: _Work) -> None:
        """Refuse a target that no number of workers reaches."""
        for worth in self.directions():
            most = work.most(worth)
            if most < self.asked(worth) * (1.0 - _EXACT):
                raise self.missed(worth, most, "no number of workers reaches")

    def missed(self, worth: tuple[float, float], most: float, what: str) -> InfeasibleError:
        """Return the refusal of an unreachable target, with the nearest reachable one."""
        share = most / self.requests
        slack = _EXACT * share
        if worth[0]:
            return InfeasibleError(f"{what} this effective accuracy",
                                   where="min_effective_accuracy", value=self.shown[1],
                                   allowed=f"at most {outward(share, slack=slack)}")
        return InfeasibleError(f"{what} this share of violations", where="max_violation",
                               value=self.shown[0],
                               allowed=f"at least {outward(1.0 - share, up=True, slack=slack)}")


@dataclass(frozen=True)
class _Fleet:
    """Start-up time and limits of the fleet whose worker-seconds are bounded."""

    startup_ms: float
    most: float  # workers
    least: float
    end_ms: float  # workers are paid for up to here


@dataclass(frozen=True, eq=False)
class _Problem:
    """Checked inputs of the bound on worker-seconds, with times in ms."""

    arrival: FloatArray
    window_ms: float  # SLO, with the tolerance of "in time"
    work: _Work
    target: _Target
    fleet: _Fleet

    @classmethod
    def of(
        cls, arrival_ms: FloatArray, times: ServiceTimes | None, under: WorkerSecondsTerms
    ) -> _Problem:
        """Build the inputs of the bound on worker-seconds from checked terms."""
        arrival = np.ascontiguousarray(arrival_ms, dtype=float)
        _check(arrival, times, under)
        slo_ms = under.slo_ms
        end_ms = arrival[-1] + slo_ms if under.duration_s is None else 1000.0 * under.duration_s
        window_ms = slo_ms + 2.0 * SLACK_TOLERANCE_MS
        work = _Work.of(arrival, times, window_ms, under.max_batch, under.rate_per_worker_qps)
        target = _Target.of(work, under.max_violation, under.min_effective_accuracy,
                            drawn=times is not None and times.distributed)
        most = math.inf if under.most is None else float(under.most)
        return cls(arrival, window_ms, work, target,
                   _Fleet(1000.0 * under.startup_s, most, float(under.least), end_ms))


def _bound(problem: _Problem) -> WorkerSecondsBound:
    """Return the best of the bounds by work, by plans over bins, and by the integer program."""
    fleet, target = problem.fleet, problem.target
    best_ms, peak = fleet.least * fleet.end_ms, int(fleet.least)
    edges, workers = np.array([0.0, fleet.end_ms]), np.array([fleet.least])
    for worth in _tried(target):
        layered = _Layered.of(problem, worth)
        peak = max(peak, layered.peak())
        by_work = layered.least_work()
        if by_work > best_ms:
            best_ms = by_work
            edges, workers = layered.work_profile(by_work)
        for width in _widths(problem):
            cost, profile_edges, profile = layered.over_bins(width)
            if cost > best_ms:
                best_ms, edges, workers = cost, profile_edges, profile
    if len(problem.arrival) <= _FEW:
        work = problem.work
        ways = [np.stack([work.time_ms[k], work.reward[k], work.in_time[k]])
                for k in work.kind.tolist()]
        program = FewRequests(problem.arrival, problem.window_ms, ways, whole=not target.drawn,
                              startup_ms=fleet.startup_ms, end_ms=fleet.end_ms, least=fleet.least,
                              most=fleet.most)
        plan = program.solve((target.accuracy or 0.0, target.answered or 0.0))
        if plan is not None and plan.cost_ms > best_ms:
            best_ms, edges, workers = plan.cost_ms, plan.edges_ms, plan.workers
    return WorkerSecondsBound(best_ms / 1000.0, peak, best_ms / fleet.end_ms, edges / 1000.0,
                              workers)


def _tried(target: _Target) -> Iterator[tuple[float, float]]:
    yield from target.directions()
    if target.answered is not None and target.accuracy is not None:
        for share in _SHARES:
            yield 1.0, share


def _widths(problem: _Problem) -> Iterator[float]:
    """Yield the widths of time bins to try for the bound, in ms."""
    fleet, tried = problem.fleet, set()
    for part in _PARTS if fleet.startup_ms > 0.0 else ():
        shortest_ms = max(problem.window_ms, fleet.startup_ms / part, fleet.end_ms / _MOST_BINS)
        bins = max(1, math.floor(fleet.end_ms / shortest_ms * (1.0 + 1e-12)))
        if fleet.end_ms / bins >= problem.window_ms:
            tried.add(bins)
    for bins in sorted(tried):
        yield fleet.end_ms / bins


@dataclass(frozen=True, eq=False)
class _Layered:
    """The problem with accuracy and answers weighted into one value, cut into layers."""

    problem: _Problem
    worth: tuple[float, float]
    # slope, added_ms: shape (n,): value per ms of each piece of all hulls, and all work on it
    slope: FloatArray
    added_ms: FloatArray
    # shape (layers, kinds): work that is worth more than a layer's threshold per ms, of each
    # request
    demand: FloatArray
    weight: FloatArray  # width of each layer, in value per ms, shape (layers,)
    slack: float  # value that may be lost

    @classmethod
    def of(cls, problem: _Problem, worth: tuple[float, float]) -> _Layered:
        """Weigh accuracy and answers by ``worth``; divide the work into layers by value per ms."""
        work = problem.work
        hulls = work.hulls(worth)
        slope = np.concatenate([hull.slope for hull in hulls])
        added = np.concatenate([np.diff(hull.time_ms, prepend=0.0) * count
                                for hull, count in zip(hulls, work.count, strict=True)])
        threshold = _thresholds(slope, added)
        demand = np.array([[hull.time_ms[(hull.slope >= at).sum() - 1]
                            if (hull.slope >= at).any() else 0.0 for hull in hulls]
                           for at in threshold])
        slack = work.most(worth) - problem.target.asked(worth)
        return cls(problem, worth, slope, added, demand, -np.diff(np.append(threshold, 0.0)),
                   max(slack, 0.0) + _EXACT * work.most(worth))

    def least_work(self) -> float:
        """Return the least worker time that the target requires, in ms."""
        order = np.argsort(self.slope)
        added, lost = self.added_ms[order], 0.0
        total = float(self.added_ms.sum())
        # What is worth least per ms is what the target can best do without.
        for gain, ms in zip((self.slope[order] * added).tolist(), added.tolist(), strict=True):
            part = min(1.0, (self.slack - lost) / gain)
            total -= part * ms
            lost += part * gain
            if part < 1.0:
                break
        return total * (1.0 - _EXACT)

    def least_work_at_price(self) -> float:
        """Return the least sum of worker time and loss, in ms, if work could be done at any time.

        The fleet's least workers are paid for in any case; they do the work that is worth most.
        """
        order = np.argsort(-self.slope)
        slope, added = self.slope[order], self.added_ms[order]
        there_ms = self.problem.fleet.least * self.problem.fleet.end_ms
        beyond = added - np.clip(there_ms - (np.cumsum(added) - added), 0.0, added)
        return there_ms + float(beyond @ np.minimum(slope, 1.0))

    def work_profile(self, total_ms: float) -> tuple[FloatArray, FloatArray]:
        """Return edges and workers of a given amount of work, spread as the arrivals are."""
        problem = self.problem
        end, window = problem.fleet.end_ms, problem.window_ms
        bins = max(1, min(1000, int(end / window)))
        edges = np.linspace(0.0, end, bins + 1)
        arrived = np.histogram(problem.arrival, edges)[0] / len(problem.arrival)
        return edges, arrived * total_ms / np.diff(edges)

    @cached_property
    def _levels(self) -> FloatArray:
        """Numbers of workers that plans may have: all small ones, then in equal ratios."""
        fleet = self.problem.fleet
        levels = np.unique(np.concatenate([
            np.arange(_EXACT_LEVELS + 1),
            np.rint(_EXACT_LEVELS * _LEVEL_STEP ** np.arange(1, 1200))]))
        levels = levels[(levels >= fleet.least) & (levels <= min(fleet.most, 1e10))]
        if np.isfinite(fleet.most) and levels[-1] < fleet.most:
            levels = np.append(levels, fleet.most)
        ample = levels[::8]
        lost = self._constant(ample, self.demand[-1:], np.ones(1))
        enough = ample[np.argmax(lost <= 0.0)] if (lost <= 0.0).any() else levels[-1]
        return np.asarray(levels[levels <= enough], dtype=float)

    def _constant(
        self, levels: FloatArray, demand: FloatArray, weight: FloatArray
    ) -> FloatArray:
        """Return the value lost in the whole trace with constant numbers of workers."""
        problem = self.problem
        return np.asarray(kernels.constant_losses(
            problem.arrival, problem.work.kind, np.ascontiguousarray(demand),
            np.ascontiguousarray(weight), np.ascontiguousarray(levels), problem.window_ms))

    def peak(self) -> int:
        """Return the fewest constant workers that could meet the target.

        A target that the most workers cannot meet is refused.
        """
        levels = self._levels
        lost = self._constant(levels, self.demand, self.weight)
        if lost[-1] > self.slack:
            problem = self.problem
            most = problem.work.most(self.worth) - float(lost[-1])
            raise problem.target.missed(self.worth, most,
                                        f"{problem.fleet.most:g} workers do not reach")
        at = int(np.argmax(lost <= self.slack))
        return int(levels[at - 1] + 1) if at else int(levels[0])

    def over_bins(self, width: float) -> tuple[float, FloatArray, FloatArray]:
        """Return the bound in worker-ms with bins of a width, their edges, and its workers."""
        base, edges, cheapest = self._plans(width)
        path, best = self._dual(cheapest)
        return base + best, edges, self._levels[path]

    def at_price(self, width: float) -> float:
        """Return the least sum of cost and lost value, one worker-ms for each unit of value."""
        base, _, cheapest = self._plans(width)
        cost, loss, _ = cheapest(1.0)
        return base + cost + loss

    def _plans(self, width: float) -> tuple[float, FloatArray, _Cheapest]:
        """Return the fixed cost, the edges, and a function that plans at a price of loss."""
        problem, levels = self.problem, self._levels
        fleet = problem.fleet
        bins = round(fleet.end_ms / width)
        edges: FloatArray = width * np.arange(bins + 1.0)
        first = np.searchsorted(problem.arrival, edges[:-1])
        first = np.append(first, len(problem.arrival))
        losses = kernels.bin_losses(
            problem.arrival, problem.work.kind, first, width, np.ascontiguousarray(self.demand),
            np.ascontiguousarray(self.weight), levels, problem.window_ms)
        # A level stands for all numbers of workers above the level before it, and is charged the
        # fewest of them; what the least workers cost is in the fixed cost.
        least = np.append(0.0, levels[:-1] + 1.0) if levels[0] == 0 else np.append(
            levels[0], levels[:-1] + 1.0)
        paid = np.maximum(least - fleet.least, 0.0)
        # κ and X − κ of the module's text.
        stay = min(width, fleet.startup_ms / 2.0)
        start = np.minimum(fleet.startup_ms - stay, edges[:-1])
        return fleet.least * fleet.end_ms, edges, (
            lambda price: kernels.cheapest_path(losses, paid, start, stay, price))

    def _dual(self, cheapest: _Cheapest) -> tuple[IntArray, float]:
        """Maximise min_path cost + price·(loss − slack) over the price; return path and value."""
        cost, loss, path = cheapest(0.0)
        low = (cost, loss)
        price = 1.0
        # Fourfold steps to a price at which the plan loses no more than is allowed.
        for _ in range(80):
            cost, loss, path = cheapest(price)
            if loss <= self.slack:
                break
            low, price = (cost, loss), 4.0 * price
        high = (cost, loss)
        best = cost + price * (loss - self.slack)
        for _ in range(_ROUNDS):
            if low[1] <= high[1] or low[1] <= self.slack:
                break
            # As a function of the price, each plan is a line above the dual function. The lines of
            # the two plans cross above its maximum, so that price is tried next.
            price = (high[0] - low[0]) / (low[1] - high[1])
            cost, loss, at = cheapest(price)
            value = cost + price * (loss - self.slack)
            gain = value - best
            if value > best:
                best, path = value, at
            upper = low[0] + price * (low[1] - self.slack)
            if upper - value <= 1e-4 * upper or gain == 0.0:
                break
            if loss > self.slack:
                low = (cost, loss)
            else:
                high = (cost, loss)
        return path, best


def _thresholds(slope: FloatArray, added: FloatArray) -> FloatArray:
    """Return falling values per ms that bound the layers: all slopes, or quantiles by work."""
    order = np.argsort(-slope)
    sorted_slope = slope[order]
    new = np.append(True, sorted_slope[1:] < sorted_slope[:-1] * (1.0 - 1e-9))
    distinct = sorted_slope[np.flatnonzero(np.append(new[1:], True))]
    if len(distinct) <= _MOST_LAYERS:
        return distinct
    total = np.cumsum(added[order])
    at = np.searchsorted(total, total[-1] * (np.arange(_MOST_LAYERS) + 1.0) / _MOST_LAYERS)
    return np.unique(sorted_slope[np.minimum(at, len(order) - 1)])[::-1]
