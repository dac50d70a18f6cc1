"""Policies of mixed fleets: worker types with their own profiles, and SLO classes.

A fleet is served in *parts*: some workers of one type with a policy of their own, and for each SLO
class the share of its queries that comes to them. Each query goes to a part at random by these
shares, so that arrivals at a part are Poisson again. What is maximised is the sum over the parts
of load × what the part's policy promises: effective accuracy less violation price × violation
rate. With a budget of violations the price divides the fleet, and then each part gets the best
policy within the budget, so that the whole is within it.

1. Worker types that are alike are merged, and so are classes of one SLO.
2. *Between types* each class's load is divided in 128ths: from the fluid bound's division, from
   everything on one type, and from loads by capacity, the best of exchanges
   (:mod:`ramsis.synthesis.division`). So it is never worse than the best type alone.
3. *Within a type* the classes share all its workers by one queue in the order of deadlines
   (:mod:`ramsis.central.classes`), or each has workers of its own, the best division of the
   workers being found by exchanges from that of the fluid bounds. While loads are divided the one
   that promises more counts; in the end the one that does better in simulation is made, as
   promises of shared queues err more than others. Worker policies know one deadline only, so for
   them classes are always apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ramsis.bounds import FluidBound, fluid_bound
from ramsis.cluster.checks import check_reachable, numbered_alike
from ramsis.cluster.service_times import ServiceTimes
from ramsis.cluster.slo_class import SloClass
from ramsis.cluster.station import Cluster
from ramsis.cluster.worker_type import WorkerType
from ramsis.errors import InfeasibleError, InvalidValueError, describe
from ramsis.policy import Level, Policy, Rates, Station, rates_of, station_name
from ramsis.synthesis.division import Division, best_division, rounded
from ramsis.synthesis.generate import generate_policy
from ramsis.synthesis.settings import SynthesisSettings
from ramsis.synthesis.simulated import simulated

__all__ = ["MixProblem"]

UNITS = 128
"""Parts that a class's load is divided into between worker types."""

_LOAD_STEPS = (32, 16, 8, 4, 2, 1)
_LOAD_STEPS_WITH_CLASSES = (32, 16, 8)  # each valuation divides the workers, too


_QUERIES, _RUNS = 800_000, 8
_SEED = 1 << 21  # away from those that are used for checks


_Loads = tuple[float, ...]  # of each class


@dataclass(frozen=True, eq=False)
class _Within:
    """The two ways to serve some loads by one type, each a tuple of parts or None."""

    shared: tuple[Station[Policy], ...] | None
    apart: tuple[Station[Policy], ...] | None


class MixProblem:
    """A mixed fleet, checked; :meth:`level` makes its policies for a load.

    Parameters
    ----------
    types : sequence of WorkerType
        One or more, of different names.
    classes : sequence of SloClass
        Their shares sum to 1.
    settings : SynthesisSettings
        All but workers and SLOs, which are those of the parts.

    Raises
    ------
    InvalidValueError
        No types, a name twice, not a number of workers, shares that do not sum to 1, or arrivals
        that are not Poisson.
    InfeasibleError
        The SLO of a class is below every latency.
    """

    def __init__(
        self,
        types: Sequence[WorkerType],
        classes: Sequence[SloClass],
        settings: SynthesisSettings,
    ) -> None:
        self.cluster = Cluster(tuple(types), tuple(classes))
        if settings.arrivals != "poisson":
            raise InvalidValueError(describe("a mixed fleet divides Poisson arrivals only",
                                             where="arrivals", value=settings.arrivals,
                                             allowed="poisson"))
        self.classes = self.cluster.classes
        self.settings = settings
        laws = [_law(one, settings) for one in types]
        kinds = numbered_alike(laws)
        check_reachable(laws, self.classes)
        first = [kinds.index(k) for k in range(len(set(kinds)))]
        self.laws = tuple(laws[i] for i in first)
        self.profiles = tuple(types[i].profile for i in first)
        members = [[one for one, k in zip(types, kinds, strict=True) if k == kind]
                   for kind in range(len(first))]
        self.names = tuple(tuple(one.name for one in group) for group in members)
        self.workers = tuple(sum(one.count or 0 for one in group) for group in members)
        self._policy = cache(self._made)
        self._within = cache(self._ways)
        self._at_most = cache(self._most)
        self._fluid = cache(self._apart)
        self._replayed = cache(lambda policy: simulated(policy, queries=_QUERIES, runs=_RUNS,
                                                        seed=_SEED))

    def bound(self, load_qps: float) -> FluidBound:
        """What no scheme can beat, with a row for each merged type."""
        return fluid_bound(self.laws, slo_ms=self.classes, workers=self.workers,
                           load_qps=load_qps)

    def level(self, load_qps: float) -> Level[Policy]:
        """The best policies found for a load.

        Raises
        ------
        NotConvergedError
            A solver stopped before its rule was met.
        """
        bound = self.bound(load_qps)
        steps = _LOAD_STEPS if len(self.classes) == 1 else _LOAD_STEPS_WITH_CLASSES
        division = best_division(
            lambda d: sum(self._worth(t, loads) for t, loads in self._loads(d, load_qps)),
            lambda d: sum(self._at_most(t, loads) for t, loads in self._loads(d, load_qps)),
            self._starts(bound), steps if len(self.laws) > 1 else ())
        if sum(self._at_most(t, loads) for t, loads in self._loads(division, load_qps)) < 0:
            raise InfeasibleError(describe("fewer workers of a type than SLO classes",
                                           where="workers",
                                           allowed="a worker for each class, or --dispatch "
                                                   "central-queue"))
        ways = [self._within(t, loads) for t, loads in self._loads(division, load_qps)]
        parts = [self._within_budget(part) for way in ways for part in self._made_of(way)]
        several = len(self.classes) > 1
        shared = [part for way in ways for part in way.shared or ()]
        apart = [part for way in ways for part in way.apart or ()]
        stations = tuple(_with_shares(part, self.classes, load_qps) for part in parts)
        return Level(load_qps, "poisson", stations, _expected(
            rates_of((part.policy.load_qps / load_qps, part.policy) for part in parts),
            self._simulated(shared, load_qps) if several and all(
                way.shared is not None for way in ways) else None,
            self._simulated(apart, load_qps) if several and all(
                way.apart is not None for way in ways) else None,
            bound.effective_accuracy, parts))

    def _loads(self, division: Division, load_qps: float) -> list[tuple[int, _Loads]]:
        """Types that get any load, and their loads by class in QPS."""
        loads = [tuple(load_qps * one.share * (row[t] / UNITS)
                       for one, row in zip(self.classes, division, strict=True))
                 for t in range(len(self.laws))]
        return [(t, own) for t, own in enumerate(loads) if sum(own) > 0]

    def _starts(self, bound: FluidBound) -> list[Division]:
        """Divisions of the classes' loads between types to start from."""
        able = np.array([[float(law.quantiles_ms[:, :, 0].min()) <= one.slo_ms
                          for one in self.classes] for law in self.laws])
        speed = np.array([workers / float(law.quantiles_ms[:, 0, 0].min())
                          for law, workers in zip(self.laws, self.workers, strict=True)])
        by_speed = able * speed[:, None]
        fluid = np.where(bound.type_share.sum(axis=0) > 0, bound.type_share, by_speed)
        weights = [fluid, by_speed]
        for t in range(len(self.laws)):
            alone = np.zeros(able.shape)
            alone[t] = able[t]
            weights.append(np.where(able[t], alone, by_speed))
        return [tuple(rounded(column.tolist(), UNITS) for column in weight.T)
                for weight in weights]

    def _worth(self, t: int, loads: _Loads) -> float:
        if self._at_most(t, loads) == -math.inf:
            return -math.inf
        return _worth(self._better(self._within(t, loads)))

    def _most(self, t: int, loads: _Loads) -> float:
        """Accuracy per second that a type reaches at most with some loads."""
        total = sum(loads)
        fastest = float(self.laws[t].quantiles_ms[:, :, 0].min())
        own = [SloClass(one.slo_ms, load / total)
               for one, load in zip(self.classes, loads, strict=True) if load > 0]
        shares = not self.settings.rule.own_queues
        if own[0].slo_ms < fastest or not (shares or self.workers[t] >= len(own)):
            return -math.inf
        return total * fluid_bound(self.laws[t], slo_ms=own, workers=self.workers[t],
                                   load_qps=total).effective_accuracy

    def _better(self, way: _Within) -> tuple[Station[Policy], ...]:
        """Sharing, unless being apart promises more."""
        shared, apart = way.shared or (), way.apart or ()
        if not shared or (apart and _worth(apart) > _worth(shared)):
            return apart
        return shared

    def _made_of(self, way: _Within) -> tuple[Station[Policy], ...]:
        """The way that does better in simulation."""
        if way.shared is None or way.apart is None or way.shared == way.apart:
            return self._better(way)
        gains = []
        for parts in (way.shared, way.apart):
            price = parts[0].policy.violation_price
            found = self._simulated(parts, sum(part.policy.load_qps for part in parts))
            gains.append(found.effective_accuracy - price * found.violation_rate)
        return way.shared if gains[0] >= gains[1] else way.apart

    def _simulated(self, parts: Sequence[Station[Policy]], load_qps: float) -> Rates:
        """What parts do together in simulation."""
        found = [(part.policy.load_qps / load_qps, self._replayed(part.policy)) for part in parts]
        return Rates(math.fsum(share * one.effective_accuracy for share, one in found),
                     math.fsum(share * one.violation_rate for share, one in found))

    def _ways(self, t: int, loads: _Loads) -> _Within:
        """Serve some loads by one type, both ways."""
        total, workers = sum(loads), self.workers[t]
        own = tuple((one.slo_ms, load)
                    for one, load in zip(self.classes, loads, strict=True) if load > 0)
        if len(own) == 1:
            one = (self._part(t, workers, own),)
            return _Within(one, one)
        shared = ((self._part(t, workers, own),)
                  if not self.settings.rule.own_queues else None)
        if workers < len(own):
            return _Within(shared, None)

        def parts(division: Division) -> tuple[Station[Policy], ...]:
            return tuple(self._part(t, count, (one,))
                         for one, count in zip(own, division[0], strict=True))

        def most(division: Division) -> float:
            if min(division[0]) < 1:
                return -math.inf
            return sum(self._fluid(t, count, *one)
                       for one, count in zip(own, division[0], strict=True))

        start: Division = (rounded([load / total for _, load in own], workers, least=1),)
        steps = [step for step in (64, 16, 4, 1) if step < workers]
        start = best_division(most, most, [start], steps)
        best = best_division(lambda d: _worth(parts(d)), most, [start], steps[-2:])
        return _Within(shared, parts(best))

    def _apart(self, t: int, workers: int, slo_ms: float, load_qps: float) -> float:
        """Accuracy per second that some workers reach at most with one class."""
        return load_qps * fluid_bound(self.laws[t], slo_ms=slo_ms, workers=workers,
                                      load_qps=load_qps).effective_accuracy

    def _part(self, t: int, workers: int, own: tuple[tuple[float, float], ...]) -> Station[Policy]:
        return _station(self.names[t], dict(own), self._policy(t, workers, own))

    def _within_budget(self, part: Station[Policy]) -> Station[Policy]:
        """The part with the best policy within the budget of violations, if there is one."""
        if self.settings.max_violation is None:
            return part
        own = tuple(sorted(part.share.items()))
        policy = self._made(self.names.index(part.worker_types), part.workers, own,
                            self.settings.max_violation)
        return _station(part.worker_types, part.share, policy)

    def _made(
        self, t: int, workers: int, own: tuple[tuple[float, float], ...],
        max_violation: float | None = None,
    ) -> Policy:
        """The policy of a type for loads in QPS by SLO in ms."""
        total = sum(load for _, load in own)
        settings = replace(self.settings, slo_ms=own[-1][0], workers=workers,
                           max_violation=max_violation)
        if len(own) > 1:
            settings = replace(settings, slo_classes=tuple(SloClass(slo, load / total)
                                                       for slo, load in own))
        return generate_policy(self.profiles[t], total, settings)


def _station(
    types: tuple[str, ...], share: Mapping[float, float], policy: Policy
) -> Station[Policy]:
    """Workers of a type with their policy."""
    return Station(station_name(types, policy), types, policy.workers, policy.load_qps, share,
                   policy)


def _worth(parts: Sequence[Station[Policy]]) -> float:
    """Load × promise, summed; in accuracy per second."""
    total = 0.0
    for part in parts:
        expected, policy = part.policy.expectations, part.policy
        total += policy.load_qps * (expected.effective_accuracy
                                    - policy.violation_price * expected.violation_rate)
    return total


def _expected(
    promise: Rates, shared: Rates | None, apart: Rates | None, upper_bound: float,
    stations: Sequence[Station[Policy]],
) -> dict[str, Any]:
    """The promise of a level under the manifest's names.

    ``shared`` and ``apart`` are what classes get in simulation from common workers and from
    workers of their own.
    """
    return {
        "expected_accuracy": promise.accuracy,
        "expected_violation_rate": promise.violation_rate,
        "expected_effective_accuracy": promise.effective_accuracy,
        "upper_bound": upper_bound,
        "shared_effective_accuracy": shared and shared.effective_accuracy,
        "shared_violation_rate": shared and shared.violation_rate,
        "apart_effective_accuracy": apart and apart.effective_accuracy,
        "apart_violation_rate": apart and apart.violation_rate,
        "overloaded": any(one.policy.expectations.overloaded for one in stations),
    }


def _with_shares(
    part: Station[Policy], classes: Sequence[SloClass], load_qps: float
) -> Station[Policy]:
    """The station with shares of each class in place of loads."""
    whole = {one.slo_ms: one.share * load_qps for one in classes}
    return part._replace(share={slo: min(load / whole[slo], 1.0)
                                for slo, load in part.share.items()})


def _law(one: WorkerType, settings: SynthesisSettings) -> ServiceTimes:
    return one.service_times(settings.chosen_service(one.profile), settings.max_queue)
