"""Comparison of a scaling policy with autoscaler rules on the held-out part of a trace.

All use the same decision tables. The parameters of each rule are tuned on the part of the trace
that the policy is fitted on. Each begins the held-out part with the number of workers that it had
at the end of the fitted part, as if it had gone on.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray
from ramsis.bounds import (
    Targets,
    WorkerSecondsBound,
    WorkerSecondsTerms,
    fewest_worker_seconds,
    least_cost,
)
from ramsis.cluster import Cluster, ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import ProfileSet
from ramsis.runtime.scaling_table import ScalingTable
from ramsis.scaling.fleet import DecisionTables, FleetTerms, ScaledFleet, ScaledRun, play
from ramsis.scaling.levels import Forecast, interval_loads
from ramsis.scaling.policy import Candidate, TableRule, choose_policy
from ramsis.scaling.prices import Delivered, Prices, meets
from ramsis.scaling.promise import Promise, promise
from ramsis.scaling.rule import ScalingRule
from ramsis.scaling.rules import made, tunable
from ramsis.scaling.synthesis import FleetLoads, FleetTables, fleet_tables
from ramsis.synthesis import SynthesisSettings

_LEAST_LOAD = 0.2  # lowest load of the decision tables, as a share of the mean load
_ROOM = 1.5  # default limit of workers, as a multiple of those for the highest load
_MAX_BATCH = 32  # largest batch of the lower bound
# The aim is tightened until the promise meets the target: by the factor of the miss, between 0.2
# and 0.7. The sixth aim allows at most 0.7^5 = 17 % of the target's violations.
_AIMS = 6
_STRICTER, _STRICTEST = 0.7, 0.2


@dataclass(frozen=True, eq=False)
class Part:
    """Arrivals of a stretch of a trace, on which a fleet is simulated."""

    arrival_ms: FloatArray  # sorted, relative to the start of the part, shape (n,)
    duration_s: float
    start: int  # number of workers that serves its mean load
    forecast: Forecast | None = None  # for the policy; relative to the start of the part

    @property
    def load_qps(self) -> float:
        """Mean load in requests per second."""
        return len(self.arrival_ms) / self.duration_s

    @classmethod
    def of(cls, arrival_ms: FloatArray, from_s: float, to_s: float, rate_per_worker_qps: float,
           fleet: ScaledFleet, forecast: Forecast | None = None) -> Part:
        """Return the part of the arrivals between two times."""
        first, last = np.searchsorted(arrival_ms, [1000.0 * from_s, 1000.0 * to_s])
        times = arrival_ms[first:last] - 1000.0 * from_s
        needed = math.ceil(len(times) / (to_s - from_s) / rate_per_worker_qps)
        return cls(times, to_s - from_s, min(max(needed, fleet.least), fleet.most),
                   None if forecast is None else forecast.later(-from_s))

    def played(self, rule: ScalingRule, tables: DecisionTables, fleet: ScaledFleet, seed: int,
               start: int) -> ScaledRun:
        """Simulate a rule on this part."""
        return play(self.arrival_ms, tables, rule, FleetTerms(
            **asdict(fleet), start=start, duration_s=self.duration_s, seed=seed,
            forecast=self.forecast))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Trace parts, tables and fleet on which a scaling policy and rules are compared."""

    tables: DecisionTables  # shared by the policy and all rules
    target: Targets | Prices
    fleet: ScaledFleet
    # part before ``rest``, for tuning of the rules' parameters. Without it parameters are tuned on
    # ``rest``, and a run begins with the workers that the mean load needs.
    fit: Part | None
    rest: Part  # held-out part: the rows hold its figures
    known: Mapping[str, float]  # defaults for parameters, see :func:`ramsis.scaling.made`
    seed: int  # seed of the simulated runs

    def policy_row(self, table: ScalingTable) -> dict[str, Any]:
        """Simulate the scaling policy, and return its figures as a row."""
        start = table.wanted(self._first.load_qps, 0, 0)
        return self._row("ramsis", True, {}, self._run(lambda: TableRule(table), start))

    def rule_row(self, name: str, parameters: Mapping[str, Any], *, tuned: bool) -> dict[str, Any]:
        """Simulate a rule with the parameters, and return its figures as a row."""
        start = parameters["workers"] if name == "static" else self._first.start
        return self._row(name, tuned, parameters, self._run(
            partial(made, name, parameters, **self.known),
            min(max(start, self.fleet.least), self.fleet.most)))

    def rule_rows(self, name: str) -> list[dict[str, Any]]:
        """Return two rows of a rule: with default and with tuned parameters."""
        fit = self._first
        terms = FleetTerms(**asdict(self.fleet), start=fit.start, duration_s=fit.duration_s,
                           seed=self.seed)
        tuned = tune(name, fit.arrival_ms, self.tables, self.target, terms, defaults=self.known)
        # A static fleet has no default: take the largest fleet, as for the highest load.
        usual = {"workers": self.fleet.most} if name == "static" else {}
        return [self.rule_row(name, usual, tuned=False), self.rule_row(name, tuned, tuned=True)]

    @property
    def _first(self) -> Part:
        return self.rest if self.fit is None else self.fit

    def _run(self, rule: Callable[[], ScalingRule], start: int
             ) -> tuple[ScaledRun | None, ScaledRun]:
        """Simulate both parts, the first only if there is one.

        The second starts with the workers last wanted in the first, empty and with a new rule.
        """
        before = None
        if self.fit is not None:
            before = self.fit.played(rule(), self.tables, self.fleet, self.seed, start)
            start = int(before.wanted[-1])
        return before, self.rest.played(rule(), self.tables, self.fleet, self.seed, start)

    def _row(self, name: str, tuned: bool, parameters: Mapping[str, Any],
             runs: tuple[ScaledRun | None, ScaledRun]) -> dict[str, Any]:
        """Return the figures of the second run as a row, with those of the fitted part's run."""
        before, run = runs
        target, real = self.target, Delivered.of(run)
        asked = ({"meets_target": None,
                  "cost_worker_s": target.total(real, float(self.tables.accuracy.max()))}
                 if isinstance(target, Prices) else
                 {"meets_target": meets(real, target)})
        return {"scheduler": name, "tuned": tuned, "parameters": dict(parameters),
                **real._asdict(), **asked, "changes": run.changes, "starts": run.starts,
                "fitted": None if before is None else Delivered.of(before)._asdict(),
                "over_time": run.over_time()}


def tune(
    name: str,
    arrival_ms: ArrayLike,
    tables: DecisionTables,
    target: Targets | Prices,
    fleet: FleetTerms,
    *,
    defaults: Mapping[str, float] | None = None,
    grid: Iterable[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Find a rule's cheapest parameters on a trace that meet a target, or at prices.

    The candidates are ``grid``, or the rule's defaults and those of
    :func:`ramsis.scaling.tunable`; so the result is never worse than the defaults. If none meets
    the target, the candidate with the fewest violations wins, ties by effective accuracy. The size
    of a static fleet is found by bisection: the smallest that meets the target, or ``most``
    workers; at prices, the smallest that one more worker makes no cheaper. ``defaults`` are those
    of :func:`ramsis.scaling.made`; the result is without them.
    """
    def run(parameters: Mapping[str, Any]) -> ScaledRun:
        rule = made(name, parameters, **{"slo_ms": fleet.slo_ms, **(defaults or {})})
        return play(arrival_ms, tables, rule, fleet)

    def rank(run: ScaledRun) -> tuple[float, ...]:
        if isinstance(target, Prices):
            return (target.total(Delivered.of(run), float(tables.accuracy.max())),)
        if meets(run, target):
            return 0.0, run.worker_s
        return 1.0, run.violation_rate, -run.effective_accuracy, run.worker_s

    if name == "static" and grid is None:
        def fixed(workers: int) -> ScaledRun:
            return play(arrival_ms, tables, made(name, {"workers": workers}),
                        replace(fleet, start=workers))

        def enough(workers: int) -> bool:
            if isinstance(target, Prices):
                return rank(fixed(workers)) <= rank(fixed(workers + 1))
            return meets(fixed(workers), target)

        return {"workers": bisect_left(range(fleet.most), True, fleet.least, key=enough)}
    tried = [dict(parameters) for parameters in (
        ({}, *tunable(name)) if grid is None else grid)]
    return min(tried, key=lambda parameters: rank(run(parameters)))


@dataclass(frozen=True, eq=False)
class Study:
    """Scaling study of a trace and a profile, for any start-up time."""

    profile: ProfileSet
    slo_ms: float
    target: Targets | Prices
    dispatch: str  # ``round-robin`` or ``central-queue``
    seed: int  # seed of the simulated runs
    arrival_ms: FloatArray  # sorted, shape (n,); the first half is fitted, the second held out
    # duration of the trace, and time between decisions
    duration_s: float
    interval_s: float
    least: int
    most: int | None  # limit of workers; by default 1.5 times those that the highest load needs
    levels: int  # number of loads per worker with a table
    forecast: Forecast | None = None  # relative to the start of the trace

    @property
    def half_s(self) -> float:
        """Length in seconds of each half of the trace: one to fit on, one to evaluate."""
        return self.duration_s / 2.0

    def check(self, startup_s: float) -> None:
        """Refuse a half without load, and a start-up longer than the second half."""
        for name, from_s in (("first", 0.0), ("second", self.half_s)):
            first, last = np.searchsorted(self.arrival_ms,
                                          [1000.0 * from_s, 1000.0 * (from_s + self.half_s)])
            times_s = self.arrival_ms[first:last] / 1000.0
            span_s = float(times_s[-1] - times_s[0]) if len(times_s) else 0.0
            if span_s == 0.0:
                raise InvalidValueError(
                    f"no load on the {name} half", where="trace", value=len(times_s),
                    allowed="arrivals at two times or more on each half")
        if startup_s > span_s:
            raise InvalidValueError(
                "longer than the half of the trace that the policy is tried on",
                where="startup_s", value=startup_s, allowed=f"0 to {math.floor(span_s)}")

    def make_tables(self, on_policy: Callable[[], object] = lambda: None) -> FleetTables:
        """Make the decision tables, and cache them as :attr:`tables`."""
        loads = interval_loads(self.arrival_ms, self.interval_s, self.duration_s)
        least_qps = max(float(loads.min()), _LEAST_LOAD * float(loads.mean()))
        tables = fleet_tables(
            self.profile, SynthesisSettings(slo_ms=self.slo_ms, workers=1, dispatch=self.dispatch,
                                            headroom=0.0),
            self.target, FleetLoads(least_qps, _ROOM * float(loads.max()), self.levels, self.least,
                                    self.most), on_policy=on_policy)
        self.__dict__["tables"] = tables  # fill the cached property
        return tables

    @cached_property
    def tables(self) -> FleetTables:
        """Decision tables of the fleet, made on first use."""
        return self.make_tables()

    @cached_property
    def played(self) -> DecisionTables:
        """Decision tables of each number of workers, for simulation."""
        return self.tables.for_fleet()

    @property
    def known(self) -> dict[str, float]:
        """Return the default parameters of rules that follow from a worker's capacity."""
        return self.tables.known(self.slo_ms, self.target)

    def fleet(self, startup_s: float) -> ScaledFleet:
        """Return the settings of the fleet with this start-up time of workers."""
        return ScaledFleet(self.slo_ms, startup_s, self.interval_s, self.least, self.tables.most)

    def comparison(self, startup_s: float) -> Comparison:
        """Return the comparison on both halves of the trace."""
        fleet = self.fleet(startup_s)
        fit, held_out = (self._half(at, startup_s) for at in (0.0, self.half_s))
        return Comparison(self.played, self.target, fleet, fit, held_out,
                          {**self.known, "slo_ms": self.slo_ms}, self.seed)

    def _half(self, from_s: float, startup_s: float) -> Part:
        return Part.of(self.arrival_ms, from_s, from_s + self.half_s, self.tables.largest_qps,
                       self.fleet(startup_s), self.forecast)

    def chosen(self, startup_s: float, on_play: Callable[[], object] | None = None,
               aim: Targets | None = None) -> Candidate:
        """Choose the policy on the first half, for the study's target or another ``aim``."""
        fit = self._half(0.0, startup_s)
        return choose_policy(fit.arrival_ms, self.tables, aim or self.target,
                             self.fleet(startup_s), duration_s=self.half_s, seed=self.seed,
                             forecast=fit.forecast, on_play=on_play)

    def promised(self, chosen: Candidate, startup_s: float,
                 on_play: Callable[[], object] | None = None) -> Promise:
        """Return the promise of the policy if the load continues as on the first half."""
        return promise(chosen, self.tables, self.played, self.fleet(startup_s),
                       intervals=int(self.half_s / self.interval_s),
                       seed=self.seed + 1, on_play=on_play, target=self.target)

    def kept(self, startup_s: float, on_play: Callable[[], object] | None = None
             ) -> tuple[Candidate, Promise]:
        """Choose a policy on the first half whose promised figures also meet the target.

        The first half is one sample of the load, and may be an easy one. While the promise, over
        many sampled loads, misses the target, the policy is chosen again for a stricter aim.
        """
        target = self.target
        aim = target if isinstance(target, Targets) else None
        best: Promise | None = None
        for _ in range(_AIMS):
            try:
                chosen = self.chosen(startup_s, on_play, aim)
            except InfeasibleError:
                if best is None:
                    raise
                break
            result = self.promised(chosen, startup_s, on_play)
            if aim is None or isinstance(target, Prices) or result.meets(target):
                return chosen, result
            if best is None or result.violation_rate.mean < best.violation_rate.mean:
                best = result
            aim = _stricter(aim, target, result)
        assert best is not None
        assert isinstance(target, Targets)
        late, accuracy = best.violation_rate, best.effective_accuracy
        raise InfeasibleError(
            f"no policy of up to {self.tables.most} workers was found that promises this",
            where=f"target of at most {target.max_violation:g} violations and at least "
            f"{target.min_effective_accuracy or 0:g} effective accuracy",
            value=f"{late.mean:.4g} ± {late.half_width:.2g} violations, effective accuracy "
            f"{accuracy.mean:.4f} ± {accuracy.half_width:.4f}",
            allowed="more workers at most, a shorter start-up, or another target")

    def bound(self, startup_s: float) -> WorkerSecondsBound:
        """Return the lower bound of worker-seconds for the target on the second half."""
        assert isinstance(self.target, Targets)
        return fewest_worker_seconds(
            *self._bounded(startup_s), replace(
                self._terms(startup_s), max_violation=self.target.max_violation,
                min_effective_accuracy=self.target.min_effective_accuracy))

    def least_cost(self, startup_s: float) -> float:
        """Return the lower bound on the cost of the second half, for one model per request."""
        assert isinstance(self.target, Prices)
        return least_cost(*self._bounded(startup_s), self._terms(startup_s),
                          violation_worker_s=self.target.violation,
                          accuracy_worker_s=self.target.accuracy,
                          # No table contains the models that are too slow for the SLO.
                          best_accuracy=self.tables.accuracy)

    def _bounded(self, startup_s: float) -> tuple[FloatArray, ServiceTimes]:
        """Return the arrivals and service times for the bound."""
        cluster = Cluster.of(self.profile, workers=1, slo_ms=self.slo_ms)
        return (self._half(self.half_s, startup_s).arrival_ms,
                cluster.worker_types[0].service_times(cluster.default_service, _MAX_BATCH))

    def _terms(self, startup_s: float) -> WorkerSecondsTerms:
        return WorkerSecondsTerms(slo_ms=self.slo_ms, startup_s=startup_s, most=self.tables.most,
                                  least=self.least, duration_s=self.half_s)


def _stricter(aim: Targets, target: Targets, result: Promise) -> Targets:
    """Return a stricter aim that compensates for how far a promise misses the target."""
    late, least = result.violation_rate.mean, target.min_effective_accuracy
    if late > target.max_violation:
        share = max(min(target.max_violation / late, _STRICTER), _STRICTEST)
        aim = replace(aim, max_violation=share * aim.max_violation)
    if least is not None and result.effective_accuracy.mean < least:
        assert aim.min_effective_accuracy is not None
        more = least - result.effective_accuracy.mean
        aim = replace(aim, min_effective_accuracy=min(aim.min_effective_accuracy + more, 1.0))
    return aim
