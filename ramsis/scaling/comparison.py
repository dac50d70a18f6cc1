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
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray
from ramsis.bounds import Targets
from ramsis.runtime.scaling_table import ScalingTable
from ramsis.scaling.fleet import DecisionTables, FleetTerms, ScaledFleet, ScaledRun, play
from ramsis.scaling.levels import Forecast
from ramsis.scaling.policy import TableRule
from ramsis.scaling.prices import Delivered, Prices, meets
from ramsis.scaling.rule import ScalingRule
from ramsis.scaling.rules import made, tunable


@dataclass(frozen=True, eq=False)
class Part:
    """Part of a trace."""

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

    The rule's defaults are among the candidates, so the result is never worse. If none meets the
    target, the candidate with the fewest violations wins, ties by effective accuracy. The size of
    a static fleet is found by bisection: the smallest that meets the target, or ``most`` workers;
    at prices, the smallest that one more worker makes no cheaper.

    Parameters
    ----------
    name : str
        One of :data:`ramsis.scaling.RULES`.
    arrival_ms : array of float, shape (n,)
        Arrivals of the fitted part of a trace.
    fleet : FleetTerms
        Settings of the simulated runs.
    defaults : mapping of str to float, optional
        Defaults of :func:`ramsis.scaling.made`; the SLO is the fleet's.
    grid : iterable of mapping, optional
        Candidates; by default the rule's defaults and :func:`ramsis.scaling.tunable`.

    Returns
    -------
    dict
        The parameters without ``defaults``.
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
