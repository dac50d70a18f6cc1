"""Stations by which the workers of one type serve a load of each SLO class.

There are two ways. The classes share all workers by one queue in the order of deadlines
(:mod:`ramsis.central.classes`), or each class has workers of its own; the division of the workers
is improved by exchanges, from the best one by the fluid bounds. While loads are divided between
types, the way that promises more is used. In the end the way that is better in simulation is
taken, as promises of shared queues err more than others. Policies of workers with their own queues
know one deadline only, so for them classes are always apart.

A division has a row of whole numbers for each quantity that is divided (the workers of a fleet, or
the units of a class's load), with an entry for each part. From the best of some starts, units are
moved within a row from one part to another, in steps that shrink, as long as that gains more than
1e-9; if the value is concave along exchanges, the result is the optimum. A division is not valued
if its cheap upper bound is no higher than the best value so far. So the result is never worse than
any start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations

from ramsis.arrivals import Arrivals
from ramsis.arrivals.process import ShippedProcess
from ramsis.arrivals.registry import format_process
from ramsis.bounds import fluid_bound
from ramsis.cluster.cluster import SloClass
from ramsis.cluster.routing import split
from ramsis.cluster.service_times import ServiceTimes
from ramsis.policy import Policy, Rates, Station, station_name
from ramsis.profiles import ProfileSet
from ramsis.synthesis.generate import generate_policy
from ramsis.synthesis.settings import SynthesisSettings
from ramsis.synthesis.simulated import simulated

Division = tuple[tuple[int, ...], ...]

_LEAST_GAIN = 1e-9  # of value: less is rounding, and would let exchanges go on for ever

QUERIES, RUNS = 800_000, 8
"""Requests and runs of the simulation that compares shared with separate workers."""
SEED = 1 << 21
"""First seed of that simulation, different from the seeds of checks."""

Loads = tuple[float, ...]
"""Load of each class as a share of all requests, so that all shares add up to the exact load."""
Stations = tuple[Station[Policy], ...]
"""Stations whose shares by SLO are of all requests, not of the class."""


@dataclass(frozen=True, eq=False)
class LikeWorkers:
    """Workers of one type, or of several types with equal service times."""

    names: tuple[str, ...]  # of the types
    profile: ProfileSet
    times: ServiceTimes
    workers: int


@dataclass(frozen=True, eq=False)
class Ways:
    """Stations of one worker type for the same loads, with a shared queue and with separate ones.

    None where the workers cannot serve the loads in that way.
    """

    shared: Stations | None  # the classes share all workers
    apart: Stations | None  # each class has workers of its own


class TypeLoads:
    """Cache of the stations of each kind of workers, by their loads of each class.

    ``load_qps`` is the load of all requests; workers and SLOs of ``settings`` are not used.
    """

    def __init__(
        self, kinds: Sequence[LikeWorkers], classes: Sequence[SloClass],
        settings: SynthesisSettings, load_qps: float,
    ) -> None:
        self.kinds, self.classes = tuple(kinds), tuple(classes)
        self.settings, self.load_qps = settings, load_qps
        self._whole = math.fsum(slo_class.share for slo_class in self.classes)
        self.shares_queues = not settings.rule.own_queues
        self.ways = cache(self._ways)
        self.at_most = cache(self._at_most)
        self._policy = cache(self._generated)
        self._one_class = cache(self._one_class_at_most)
        self._in_simulation = cache(lambda policy: simulated(
            policy, queries=QUERIES, runs=RUNS, seed=SEED))

    def arrivals_at(self, share: float) -> str:
        """Return the arrival process of a random ``share`` of the requests, named for settings."""
        arrivals = Arrivals.parse(self.settings.arrivals)
        process = split(arrivals(self.load_qps), share=share).process
        return format_process(process) if isinstance(process, ShippedProcess) else arrivals.text

    def worth(self, t: int, loads: Loads) -> float:
        """Return the promised accuracy per second of shared or separate stations, if better."""
        if self.at_most(t, loads) == -math.inf:
            return -math.inf
        return _worth(_better(self.ways(t, loads)))

    def better_simulated(self, way: Ways) -> Stations:
        """Return the shared or the separate stations, whichever do better in simulation."""
        if way.shared is None or way.apart is None or way.shared == way.apart:
            return _better(way)
        gains = []
        for stations in (way.shared, way.apart):
            price = stations[0].policy.violation_price
            together = self.simulated(
                stations, sum(station.policy.load_qps for station in stations))
            gains.append(together.effective_accuracy - price * together.violation_rate)
        return way.shared if gains[0] >= gains[1] else way.apart

    def both_finished(self, way: Ways) -> Ways:
        """Return the shared and the separate stations, each with its final policies."""
        if way.shared == way.apart:
            same = None if way.shared is None else tuple(map(self.finished, way.shared))
            return Ways(same, same)
        return Ways(*(None if part is None else tuple(map(self.finished, part))
                      for part in (way.shared, way.apart)))

    def simulated(self, stations: Sequence[Station[Policy]], load_qps: float | None = None
                  ) -> Rates:
        """Return simulated rates of stations together, over all requests or over ``load_qps``."""
        total = self.load_qps if load_qps is None else load_qps
        rates = [(station.policy.load_qps / total, self._in_simulation(station.policy))
                 for station in stations]
        return Rates(math.fsum(share * rate.effective_accuracy for share, rate in rates),
                     math.fsum(share * rate.violation_rate for share, rate in rates))

    def finished(self, station: Station[Policy]) -> Station[Policy]:
        """Return a station with its final policy: with headroom, within a budget of violations."""
        if self.settings.max_violation is None and self.settings.headroom == 0.0:
            return station
        t = [kind.names for kind in self.kinds].index(station.worker_types)
        policy = self._generated(t, station.workers, tuple(sorted(station.share.items())),
                                 final=True)
        return _station(station.worker_types, station.share, policy)

    def _at_most(self, t: int, loads: Loads) -> float:
        """Return an upper bound on load × accuracy of a worker type; -inf if it cannot serve."""
        total, kind = self._of_all(loads) * self.load_qps, self.kinds[t]
        classes = self._classes(self._by_slo(loads))
        fastest = float(kind.times.quantiles_ms[:, :, 0].min())
        if classes[0].slo_ms < fastest or not (
                self.shares_queues or kind.workers >= len(classes)):
            return -math.inf
        return total * fluid_bound(kind.times, slo_ms=classes, workers=kind.workers,
                                   load_qps=total).effective_accuracy

    def _by_slo(self, loads: Loads) -> tuple[tuple[float, float], ...]:
        """Return the SLO in ms and the load of each class that has any."""
        return tuple((slo_class.slo_ms, load)
                     for slo_class, load in zip(self.classes, loads, strict=True) if load > 0)

    def _ways(self, t: int, loads: Loads) -> Ways:
        """Return the stations of one type, with workers shared by the classes and divided."""
        workers, by_slo = self.kinds[t].workers, self._by_slo(loads)
        together = (self._serving(t, workers, by_slo),) if (
            self.shares_queues or len(by_slo) == 1) else None
        if len(by_slo) == 1:
            return Ways(together, together)
        if workers < len(by_slo):
            return Ways(together, None)

        def stations(division: Division) -> Stations:
            return tuple(self._serving(t, count, (slo_load,))
                         for slo_load, count in zip(by_slo, division[0], strict=True))

        def most(division: Division) -> float:
            if min(division[0]) < 1:
                return -math.inf
            return sum(self._one_class(t, count, *slo_load)
                       for slo_load, count in zip(by_slo, division[0], strict=True))

        # The search starts from the best division by the fluid bounds, which needs no policies.
        start: Division = (rounded([slo_class.share for slo_class in self._classes(by_slo)],
                                   workers, least=1),)
        steps = [step for step in (64, 16, 4, 1) if step < workers]
        start = best_division(most, most, [start], steps)
        best = best_division(lambda d: _worth(stations(d)), most, [start], steps[-2:])
        return Ways(together, stations(best))

    def _of_all(self, loads: Iterable[float]) -> float:
        """Return the sum of loads as a share of all requests."""
        return math.fsum(loads) / self._whole

    @staticmethod
    def _classes(by_slo: Sequence[tuple[float, float]]) -> tuple[SloClass, ...]:
        """Return SLO classes by pairs of an SLO in ms and a load, with shares of these loads."""
        total = sum(load for _, load in by_slo)
        return tuple(SloClass(slo_ms, load / total) for slo_ms, load in by_slo)

    def _one_class_at_most(self, t: int, workers: int, slo_ms: float, load: float) -> float:
        """Return an upper bound on load × accuracy of some workers that serve one class."""
        load_qps = self.load_qps * self._of_all([load])
        return load_qps * fluid_bound(self.kinds[t].times, slo_ms=slo_ms, workers=workers,
                                      load_qps=load_qps).effective_accuracy

    def _serving(
        self, t: int, workers: int, by_slo: tuple[tuple[float, float], ...]
    ) -> Station[Policy]:
        return _station(self.kinds[t].names, dict(by_slo), self._policy(t, workers, by_slo))

    def _generated(
        self, t: int, workers: int, by_slo: tuple[tuple[float, float], ...], *,
        final: bool = False,
    ) -> Policy:
        """Generate the policy of worker type ``t`` for pairs of an SLO in ms and a load.

        Loads are in the unit of class shares. Headroom and a budget of violations count only
        for the ``final`` policy.
        """
        share = self._of_all(load for _, load in by_slo)
        settings = replace(
            self.settings, slo_ms=by_slo[-1][0], workers=workers,
            max_violation=self.settings.max_violation if final else None,
            headroom=self.settings.headroom if final else 0.0,
            arrivals=self.arrivals_at(share),
            slo_classes=self._classes(by_slo) if len(by_slo) > 1 else ())
        return generate_policy(self.kinds[t].profile, share * self.load_qps, settings)


def _station(
    types: tuple[str, ...], share: Mapping[float, float], policy: Policy
) -> Station[Policy]:
    """Return the station of a type's workers with their policy."""
    return Station(station_name(types, policy), types, policy.workers, policy.load_qps, share,
                   policy)


def _better(way: Ways) -> Stations:
    """Return the shared stations, or those apart if they promise more."""
    shared, apart = way.shared or (), way.apart or ()
    if not shared or (apart and _worth(apart) > _worth(shared)):
        return apart
    return shared


def _worth(stations: Sequence[Station[Policy]]) -> float:
    """Return load × promise at the price of violations, summed over stations, per second."""
    total = 0.0
    for station in stations:
        expected, policy = station.policy.expectations, station.policy
        total += policy.load_qps * (expected.effective_accuracy
                                    - policy.violation_price * expected.violation_rate)
    return total


def best_division(
    value: Callable[[Division], float],
    bound: Callable[[Division], float],
    starts: Iterable[Division],
    steps: Sequence[int],
) -> Division:
    """Search for the best division by falling ``steps``; the module docstring has the method.

    ``bound`` is a cheap upper bound on ``value``; both are -inf where a division is impossible.

    >>> def worth(division):
    ...     (left, right), = division
    ...     return left**0.5 + 2 * right**0.5
    >>> best_division(worth, worth, [((10, 0),)], [4, 2, 1])
    ((2, 8),)
    """
    first, *others = sorted(set(starts), key=bound, reverse=True)
    best, most = first, value(first)

    def try_all(candidates: Iterable[Division]) -> bool:
        nonlocal best, most
        for candidate in candidates:
            if bound(candidate) > most + _LEAST_GAIN:
                worth = value(candidate)
                if worth > most + _LEAST_GAIN:
                    best, most = candidate, worth
                    return True
        return False

    while try_all(others):
        pass
    for step in steps:
        while try_all(list(_moved(best, step))):
            pass
    return best


def _moved(division: Division, step: int) -> Iterator[Division]:
    """Yield the divisions that move ``step`` units from one part to another."""
    for r, row in enumerate(division):
        for a, b in permutations(range(len(row)), 2):
            if row[a] >= step:
                new = list(row)
                new[a] -= step
                new[b] += step
                yield (*division[:r], tuple(new), *division[r + 1 :])


def rounded(weights: Sequence[float], whole: int, least: int = 0) -> tuple[int, ...]:
    """Return whole numbers near the shares of weights; they sum to ``whole``, each >= ``least``.

    >>> rounded([0.5, 0.3, 0.2], 7)
    (4, 2, 1)
    >>> rounded([1.0, 0.0], 5, least=1)
    (4, 1)
    """
    total = sum(weights)
    free = whole - least * len(weights)
    shares = [(weight / total if total > 0 else 1 / len(weights)) * free for weight in weights]
    result = [int(share) for share in shares]
    order = sorted(range(len(shares)), key=lambda i: result[i] - shares[i])
    for i in order[: free - sum(result)]:
        result[i] += 1
    return tuple(least + share for share in result)
