"""Tuning of an autoscaler rule's parameters, for the least cost at a target or at prices."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from ramsis.bounds import Targets
from ramsis.scaling.fleet import DecisionTables, FleetTerms, ScaledRun, play
from ramsis.scaling.prices import Delivered, Prices, meets
from ramsis.scaling.rules import made, tunable


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
