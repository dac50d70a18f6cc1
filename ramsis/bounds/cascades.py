r"""The fluid bounds on effective accuracy and workers where a second model may be asked.

*Which schedulers.* Each request is answered by one model, or by a cascade, a pair (m₁, m₂) of the
profile: m₁ answers first, its confidence lies in one of Q bins, and depending on the bin m₂ may
answer again. The second answer counts if it is in time, otherwise the first one stands. The pair
is chosen before the bin is known, as where each first model has one second model; with
``second_by_confidence`` the second model may be chosen by the bin, too. A bin is unknown until the
first answer; correctness depends on nothing else that a scheduler can know.

*The program.* There are K workers, requests arrive at rate λ and want an answer within SLO, and a
batch of b of model m takes L(m, b). A way k to answer is a first model, a batch and a second model
or none, k = (m₁, b₁, m₂). Let y(k) be the share of the requests in way k, and z(k, j, b₂) the
share which, in way k, lies in bin j and is answered again in a batch of b₂:

    max  Σ accuracy(m₁)·y(k) + Σ increment(m₁, m₂, j)·z(k, j, b₂)
    s.t. Σ y(k) <= 1,   Σ_{b₂} z(k, j, b₂) <= share(m₁, j)·y(k)    for each k and j,
         Σ L(m₁, b₁)/b₁·y(k) + Σ L(m₂, b₂)/b₂·z(k, j, b₂) <= K/λ,

over y with L(m₁, b₁) <= SLO and z with L(m₁, b₁) + L(m₂, b₂) <= SLO. Any set of bins may be asked
again: a threshold is a special case. A price of violations counts as in
:mod:`ramsis.bounds.fluid`.

*Why it holds.* What any such scheduler does is a point of the program, in expectation. Charge each
request of a batch of b the b-th part of its time, whichever answers the batch mixes: the parts add
up to the busy time. Way k is chosen before the bin is known, so of the requests in way k the share
in bin j is share(m₁, j). The second batch begins after the first one has ended, so both fit into
the SLO where the second answer is in time. Given the bin, the second answer is right more often by
increment(m₁, m₂, j).

*Solved by its price.* For any price p >= 0 of a ms of worker time the optimum is at most

    p·K/λ + max(0, max_k [accuracy(m₁) − p·L(m₁, b₁)/b₁
                          + Σ_j share(m₁, j)·max(0, max_{b₂} increment − p·L(m₂, b₂)/b₂)]).

This is convex and piecewise linear in p. Its minimum lies where two lines meet, and is found
exactly by intersecting the lines on both sides of it. The two ways to answer that these lines
stand for are the optimum: mixed so that they take K/λ.

*Gathering windows* tighten it for Poisson arrivals and fixed service times; they and their proofs
are in ``ramsis/bounds/_gathered_cascades.py``.

*Service times drawn.* Whether to ask again may depend on how long the first batch took. The
remaining time is rounded up to a grid, which raises the bound a little, and the increment counts
with the probability that the second batch ends within it.

*Workers for given targets.* Without its second opinions a scheduler with cascades answers each
request by one model, is late no more often, and takes no more worker time. So the bound for one
model per request on the violations alone (:mod:`ramsis.bounds.workers`) holds for it. With V the
largest share of violations, A the least accuracy of answers in time and E the least effective
accuracy, a scheduler that meets the targets has an effective accuracy of at least
max(A·(1 − V), E). The value of the program depends on the worker time K/λ of a request alone, in
which it is concave and does not fall, so K is at least where it reaches the target. A tangent lies
above a concave function: where it reaches the target is never beyond that point. Steps along
tangents, whose slopes are the program's dual prices, approach it from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.bounds._gathered_cascades import GatheredProblem, Pair, gathered_bound
from ramsis.bounds.targets import ROUNDING, Targets, outward
from ramsis.bounds.workers import fewest_workers_bound
from ramsis.cluster.cluster import check_reachable, classes_of
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError, check_not_negative, check_positive
from ramsis.profiles import Confidences
from ramsis.reprs import dataclass

_LEVELS = 64  # of the remaining time where service times are drawn
_STEPS = 200  # intersections; 3 to 15 are enough on profiles that were seen
_EXACT = 1e-14  # of what an answer is worth
_FIRST_MS = 1e-6  # of worker time for a request: less than any target takes
_TANGENTS = 50  # at most 10 were needed
_STILL = 1e-9  # of the time: a smaller step is the last


@dataclass(frozen=True)
class CascadeMix:
    """Component of the optimal mix: a first model and batch, and second opinions on its answers.

    Attributes
    ----------
    share : float
        Share of all requests with this first model and batch.
    second : tuple of (str, int, float)
        Second models, batches, and the share of all requests that get this second opinion.
    """

    model: str
    batch: int
    share: float
    second: tuple[tuple[str, int, float], ...]


@dataclass(frozen=True)
class CascadeBound:
    """Solution of the fluid program with cascades.

    Attributes
    ----------
    upper_bound : float
        Bound on effective accuracy − price × violation rate; the tighter one with gathering. The
        other figures are of the program without them.
    effective_accuracy : float
        Effective accuracy of the optimum, over all requests; a fraction.
    served_fraction : float
        Share of the requests that the optimum answers in time.
    second_share : float
        Share of the requests that the optimum asks a second model about.
    time_price : float
        Dual price of worker time, in accuracy per ms. In the fluid, a second opinion pays if it
        adds at least this much for each ms that it takes.
    worker_price : float
        Marginal gain in the bound by one more worker.
    query_price : float
        Marginal gain in λ·bound by one more request per second.
    mix : tuple of CascadeMix
        The optimum.
    """

    upper_bound: float
    effective_accuracy: float
    served_fraction: float
    second_share: float
    time_price: float
    worker_price: float
    query_price: float
    mix: tuple[CascadeMix, ...]

    @property
    def violation_rate(self) -> float:
        """Share of the requests that the optimum does not answer in time, in [0, 1]."""
        return max(0.0, 1.0 - self.served_fraction)


def cascade_bound(
    times: ServiceTimes,
    confidences: Confidences,
    *,
    slo_ms: float,
    workers: int,
    load_qps: float,
    max_batch: int | None = None,
    violation_price: float = 0.0,
    second_by_confidence: bool = False,
    gathering: bool = False,
) -> CascadeBound:
    """Bound schedulers that may ask a second model about requests with an unsure first answer.

    Parameters
    ----------
    times : ServiceTimes
        Fixed or drawn, of all models (:meth:`ServiceTimes.of_all`), since a model that another
        one beats in accuracy and at every batch can be of use in a cascade.
    confidences : Confidences
        Confidences of these models. A model that has none answers alone.
    slo_ms : float
        > 0.
    workers : int
        K >= 1.
    load_qps : float
        λ > 0, requests per second.
    max_batch : int, optional
        Largest batch, at most the largest of ``times``; this by default.
    violation_price : float
        π >= 0, what a request that is not answered in time costs, in units of accuracy.
    second_by_confidence : bool
        Let schedulers choose the second model by the confidence of the first answer. By default
        they choose it before, such as one for each first model, and the confidence decides only
        whether it is asked.
    gathering : bool
        Count the time that batches take to fill under Poisson arrivals; service times must be
        fixed, and second models chosen before the confidence.

    Raises
    ------
    InvalidValueError
        A number out of range, or gathering windows with drawn times or second models chosen by
        confidence.
    NotConvergedError
        The linear program with gathering windows was not solved.
    InfeasibleError
        An SLO below every latency.
    """
    check_positive(workers=float(workers), load_qps=load_qps)
    check_not_negative("not a price", violation_price=violation_price)
    if max_batch is not None and not 1 <= max_batch <= times.max_batch:
        raise InvalidValueError("largest batch out of range", where="max_batch", value=max_batch,
                                allowed=f"1 to {times.max_batch}, the latency table's largest")
    check_reachable([times], classes_of(slo_ms))
    if gathering and (times.distributed or second_by_confidence):
        raise InvalidValueError(
            "gathering windows need fixed service times, and second models that are chosen before "
            "the confidence", where="gathering",
            allowed="a latency statistic, without second_by_confidence")
    longest = max_batch or times.max_batch
    pairs = _pairs(times.models, confidences, together=second_by_confidence)
    ways = _Ways.of(times, pairs, slo_ms, longest)
    optimum = _cheapest(ways, 1000.0 * workers / load_qps, violation_price)
    answers = [(share, answer) for share, answer in optimum.answers if share > 0.0]
    # Every request costs π, and an answer in time returns it: its value is its accuracy plus π.
    bound = fluid = min(optimum.value, ways.most(violation_price)) - violation_price
    if gathering:
        bound = gathered_bound(GatheredProblem(
            times.accuracy, times.quantiles_ms[:, :longest, 0],
            [Pair(pair.first, int(pair.second[0]), pair.share, pair.increment[0])
             for pair in pairs],
            slo_ms, 1000.0 * workers / load_qps, load_qps / 1000.0, violation_price), fluid,
            optimum.price)
    worker_price = optimum.price * 1000.0 / load_qps
    served = sum(share * answer.in_time for share, answer in answers)
    return CascadeBound(
        upper_bound=bound,
        effective_accuracy=sum(share * answer.accuracy for share, answer in answers),
        served_fraction=served,
        second_share=sum(share * part for share, answer in answers for _, part in answer.second),
        time_price=optimum.price,
        worker_price=worker_price,
        query_price=max(-violation_price, fluid - workers * worker_price),
        mix=tuple(_mix(times.models, ways, share, answer) for share, answer in answers))


def fewest_workers_bound_with_cascades(
    times: ServiceTimes, confidences: Confidences, targets: Targets, *, slo_ms: float,
    load_qps: float,
) -> float:
    """Bound the busy workers that targets require of schedulers with cascades at a constant load.

    Parameters
    ----------
    times : ServiceTimes
        Fixed or drawn, of all models (:meth:`ServiceTimes.of_all`).
    confidences : Confidences
        Confidences of these models.
    slo_ms : float
        > 0.
    load_qps : float
        > 0, requests per second.

    Returns
    -------
    float
        > 0. There must be at least this many workers, rounded up.

    Raises
    ------
    InfeasibleError
        No number of workers reaches the targets; with the most that can be reached.
    NotConvergedError
        The linear program for the violations was not solved.
    """
    busy = fewest_workers_bound(times, Targets(targets.max_violation), slo_ms=slo_ms,
                                load_qps=load_qps)
    wanted = max((targets.min_accuracy or 0.0) * (1.0 - targets.max_violation),
                 targets.min_effective_accuracy or 0.0) - ROUNDING
    if wanted <= 0.0:
        return busy
    value = _effective_by_time(times, confidences, slo_ms)
    most, _ = value(math.inf)
    if most < wanted:
        raise _unreachable(targets, most)
    return max(busy, load_qps / 1000.0 * _least_time(value, wanted))


def _effective_by_time(
    times: ServiceTimes, confidences: Confidences, slo_ms: float
) -> Callable[[float], tuple[float, float]]:
    """Return the bound and its slope as a function of a request's worker time in ms.

    At infinite worker time the slope is 0.
    """
    ways = _Ways.of(times, _pairs(times.models, confidences, together=False), slo_ms,
                    times.max_batch)
    most = ways.most(0.0)

    def value(time_ms: float) -> tuple[float, float]:
        if time_ms == math.inf:
            return most, 0.0
        optimum = _cheapest(ways, time_ms, 0.0)
        return min(most, optimum.value), optimum.price

    return value


def _least_time(value: Callable[[float], tuple[float, float]], wanted: float) -> float:
    """Return the least worker time with which the program reaches a value, from below."""
    time_ms = _FIRST_MS
    for _ in range(_TANGENTS):
        reached, slope = value(time_ms)
        if reached >= wanted or slope <= 0.0:
            break
        step = (wanted - reached) / slope
        time_ms += step
        if step <= _STILL * time_ms:
            break
    return time_ms


def _unreachable(targets: Targets, most: float) -> InfeasibleError:
    name, value = "min_effective_accuracy", targets.min_effective_accuracy
    if (value or 0.0) <= most:
        name, value = "min_accuracy", targets.min_accuracy
        most /= 1.0 - targets.max_violation
    return InfeasibleError("no number of workers reaches this, even with second opinions",
                           where=name, value=value, allowed=f"at most {outward(min(most, 1.0))}")


class _Answer(NamedTuple):
    """First answer of a request, and the share of second opinions by model and batch."""

    way: int  # index of the first answer in :class:`_Ways`
    accuracy: float  # of answers in time; late ones count 0
    in_time: float
    time_ms: float  # of a worker, second opinions included
    second: Sequence[tuple[tuple[int, int], float]]  # share asked again, by model and batch

    def worth(self, violation_price: float) -> float:
        """Return accuracy + ``violation_price`` × P(in time); worker time is not deducted."""
        return self.accuracy + violation_price * self.in_time


class _Pairs(NamedTuple):
    """First model with the S second models that a scheduler may ask, by bin of confidence."""

    first: int
    second: IntArray  # shape (S,)
    share: FloatArray  # of the first answers in each bin, shape (Q,)
    increment: FloatArray  # shape (S, Q)


def _pairs(
    models: tuple[str, ...], confidences: Confidences, *, together: bool
) -> Sequence[_Pairs]:
    """Return the pairs of models: each by itself, or grouped by their first model."""
    place = {name: m for m, name in enumerate(models)}
    groups: dict[tuple[str, ...], list[str]] = {}
    for pair in confidences.pairs:
        if pair.first in place and pair.second in place:
            key = (pair.first,) if together else (pair.first, pair.second)
            groups.setdefault(key, []).append(pair.second)
    return [_Pairs(place[first], np.array([place[second] for second in seconds]),
                   np.array(confidences.model(first).share),
                   np.stack([confidences.increment(first, second) for second in seconds]))
            for (first, *_), seconds in groups.items()]


class _Options(NamedTuple):
    """Undominated batches of second opinions, by model and remaining time.

    Each array has shape (M, G, O); beyond the last option all is 0.
    """

    batch: IntArray
    time_ms: FloatArray  # of a worker, per request
    in_time: FloatArray  # probability

    @classmethod
    def of(cls, times: ServiceTimes, levels: FloatArray, max_batch: int) -> _Options:
        """Return the undominated batches: those with more worker time are in time more often."""
        per_request = times.mean_ms[:, :max_batch] / np.arange(1, max_batch + 1)
        order = np.argsort(per_request, axis=1, kind="stable")[:, None, :]
        in_time = np.stack([times.cdf(level)[:, :max_batch] for level in levels], axis=1)
        in_time = np.take_along_axis(in_time, order, axis=2)
        sooner = np.maximum.accumulate(in_time, axis=2)
        kept = in_time > np.concatenate([np.zeros_like(sooner[:, :, :1]), sooner[:, :, :-1]],
                                        axis=2)
        number = int(kept.sum(axis=2).max(initial=1))
        first = np.argsort(~kept, axis=2, kind="stable")[:, :, :number]
        kept = np.take_along_axis(kept, first, axis=2)
        batch = np.take_along_axis(np.broadcast_to(order, in_time.shape), first, axis=2)
        time_ms = np.take_along_axis(per_request[:, None, :], batch, axis=2)
        return cls(np.where(kept, batch + 1, 0), np.where(kept, time_ms, 0.0),
                   np.where(kept, np.take_along_axis(in_time, first, axis=2), 0.0))


@dataclass(frozen=True, eq=False)
class _Ways:
    """First answers by model and batch size, and the second opinions that may follow them."""

    # shape (n,): model, batch, worker time per request, accuracy and probability in time of a
    # first answer
    model: IntArray
    batch: IntArray
    time_ms: FloatArray
    accuracy: FloatArray
    in_time: FloatArray
    # shape (n, G): probability that each level of the remaining time is left after the first
    # batch
    left: FloatArray
    options: _Options  # of second opinions
    pairs: Sequence[_Pairs]

    @classmethod
    def of(
        cls, times: ServiceTimes, pairs: Sequence[_Pairs], slo_ms: float, max_batch: int
    ) -> _Ways:
        """Return the first answers that can be in time, in batches up to ``max_batch``."""
        in_time = times.cdf(slo_ms)[:, :max_batch]
        model, row = np.nonzero(in_time > 0)
        levels, left = _remaining(times, slo_ms, model, row)
        return cls(model, row + 1, times.mean_ms[model, row] / (row + 1),
                   times.accuracy[model] * in_time[model, row], in_time[model, row], left,
                   _Options.of(times, levels, max_batch), pairs)

    def most(self, violation_price: float) -> float:
        """Return the largest value of a request if worker time is free."""
        return self.best(0.0, violation_price).worth(violation_price)

    def best(self, price: float, violation_price: float) -> _Answer:
        """Return the answer with the largest value less ``price`` times its worker time."""
        alone = self.accuracy + violation_price * self.in_time - price * self.time_ms
        way = int(alone.argmax())
        most, chosen = float(alone[way]), None
        for pairs in self.pairs:
            of_first = np.flatnonzero(self.model == pairs.first)
            gain, pair, option = self._gains(pairs, price)
            value = alone[of_first] + self.left[of_first] @ (pairs.share @ gain)
            if value.size and value.max() > most:
                way, most = int(of_first[value.argmax()]), float(value.max())
                chosen = pairs, gain, pair, option
        answer = _Answer(way, float(self.accuracy[way]), float(self.in_time[way]),
                         float(self.time_ms[way]), ())
        if chosen is None:
            return answer
        pairs, gain, pair, option = chosen
        # By confidence bin q and level g of the remaining time: second opinions that pay.
        share = pairs.share[:, None] * self.left[way]
        q, g = np.nonzero((gain > 0.0) & (share > 0.0))
        s, o, share = pair[q, g], option[q, g], share[q, g]
        m = pairs.second[s]
        second: dict[tuple[int, int], float] = {}
        for key, part in zip(zip(m.tolist(), self.options.batch[m, g, o].tolist(), strict=True),
                             share.tolist(), strict=True):
            second[key] = second.get(key, 0.0) + part
        added = share @ (pairs.increment[s, q] * self.options.in_time[m, g, o])
        return answer._replace(
            accuracy=answer.accuracy + float(added), second=tuple(second.items()),
            time_ms=answer.time_ms + float(share @ self.options.time_ms[m, g, o]))

    def _gains(self, pairs: _Pairs, price: float) -> tuple[FloatArray, IntArray, IntArray]:
        """Return gain, pair and option of the best second opinion by bin and remaining time."""
        worth = (pairs.increment[:, :, None, None] * self.options.in_time[pairs.second][:, None]
                 - price * self.options.time_ms[pairs.second][:, None])
        option = worth.argmax(axis=3)
        worth = np.take_along_axis(worth, option[..., None], axis=3)[..., 0]
        pair = worth.argmax(axis=0)
        gain = np.take_along_axis(worth, pair[None], axis=0)[0]
        return np.maximum(gain, 0.0), pair, np.take_along_axis(option, pair[None], axis=0)[0]


def _remaining(
    times: ServiceTimes, slo_ms: float, model: IntArray, row: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return levels (G,) of the time left after first batches, and their probabilities (n, G)."""
    if not times.distributed:
        left_ms = slo_ms - times.quantiles_ms[model, row, 0]
        levels, place = np.unique(left_ms, return_inverse=True)
        return levels, np.eye(len(levels))[place]
    # A time between two levels counts as the upper one, so that the bound stays one.
    levels = slo_ms * np.arange(1, _LEVELS + 1) / _LEVELS
    ended = np.stack([times.cdf(slo_ms - level)[model, row] for level in (0.0, *levels)], axis=1)
    return levels, -np.diff(ended, axis=1)


class _Optimum(NamedTuple):
    """Least bound over all prices, its price, and the mix of answers that attains it."""

    value: float
    price: float
    answers: Sequence[tuple[float, _Answer]]


def _cheapest(ways: _Ways, available_ms: float, violation_price: float) -> _Optimum:
    """Minimise the bound over the price of worker time."""
    def value(answer: _Answer, price: float) -> float:
        return answer.worth(violation_price) - price * answer.time_ms

    slow = ways.best(0.0, violation_price)
    if slow.time_ms <= available_ms:
        return _Optimum(value(slow, 0.0), 0.0, [(1.0, slow)])
    fast: _Answer | None = None  # none: no answer, which takes no time
    # The bound is convex in the price, and each answer a line below it. Next comes the price where
    # the lines of the slow and the fast answer cross, until no answer lies above the crossing.
    for _ in range(_STEPS):
        less, busy = (fast.worth(violation_price), fast.time_ms) if fast else (0.0, 0.0)
        price = max((slow.worth(violation_price) - less) / (slow.time_ms - busy), 0.0)
        answer = ways.best(price, violation_price)
        if value(answer, price) <= value(slow, price) + _EXACT * (1.0 + violation_price):
            break
        if answer.time_ms > available_ms:
            slow = answer
        else:
            fast = answer
    busy = fast.time_ms if fast else 0.0
    share = (available_ms - busy) / (slow.time_ms - busy)
    mix = [(share, slow)] + ([(1.0 - share, fast)] if fast else [])
    return _Optimum(price * available_ms + max(value(answer, price), 0.0), price, mix)


def _mix(models: tuple[str, ...], ways: _Ways, share: float, answer: _Answer) -> CascadeMix:
    second = tuple((models[m], batch, share * part) for (m, batch), part in answer.second)
    return CascadeMix(models[ways.model[answer.way]], int(ways.batch[answer.way]), share, second)
