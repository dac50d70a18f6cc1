"""``ramsis simulate`` for mixed fleets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ramsis.bounds import realised_bound
from ramsis.cli.mixed import MixedFleet
from ramsis.cli.rows import Column, print_json, print_rows, progress
from ramsis.errors import InputFileError, describe
from ramsis.policy import Policy, PolicySet, read_set
from ramsis.sim.fleet import MAX_BATCH
from ramsis.sim.stations import StationsResult, simulate_set

__all__ = ["refuse_beside_mix", "simulate_mixed"]

_COLUMNS = (
    Column("label", "scheme"),
    Column("load_qps", "load (QPS)", ".6g"),
    Column("accuracy", "accuracy", ".4f"),
    Column("violation_rate", "violations", ".4%"),
    Column("effective_accuracy", "effective acc.", ".4f"),
    Column("effective_accuracy_half_width", "±", ".4f"),
    Column("expected_effective_accuracy", "promised", ".4f"),
    Column("upper_bound", "upper bound", ".4f"),
)


def simulate_mixed(
    fleet: MixedFleet, folders: Sequence[str], loads: Sequence[float], *,
    duration_s: float, seeds: range,
    service: str, as_json: bool,
) -> None:
    """Simulate policy sets on Poisson arrivals and print a row for each folder and load."""
    sets = [(folder, _checked(read_set(folder), fleet, folder)) for folder in folders]
    profiles = {one.name: one.profile for one in fleet.types}
    rows = []
    with progress("runs", len(loads) * len(sets)) as advance:
        for load_qps in loads:
            for folder, policies in sets:
                result = simulate_set(policies, profiles, load_qps=load_qps,
                                      duration_ms=1000.0 * duration_s, service=service,
                                      seeds=seeds, source=folder)
                rows.append(_row(fleet, policies, folder, result, service, duration_s))
                advance()
    if as_json:
        print_json(rows)
    else:
        print_rows(_COLUMNS, rows)


def _checked(
    policies: PolicySet[Policy], fleet: MixedFleet, folder: str
) -> PolicySet[Policy]:
    """Refuse a set that was made for another fleet."""
    types = {one.name: one.count for one in fleet.types}
    classes = {one.slo_ms: one.share for one in fleet.classes}
    for what, own, wanted in (("worker types", policies.worker_types, types),
                              ("SLO classes", policies.slo_classes, classes)):
        if own != wanted:
            raise InputFileError(describe(f"made for other {what}", where=folder, value=own,
                                          allowed=str(wanted)))
    return policies


def _row(
    fleet: MixedFleet, policies: PolicySet[Policy], folder: str, result: StationsResult,
    service: str, duration_s: float,
) -> dict[str, Any]:
    estimates = {name: result.estimate(name)
                 for name in ("accuracy", "violation_rate", "effective_accuracy")}
    level = policies.at(result.load_qps).level
    expected = level.expected if result.level_qps == result.load_qps else {}
    scheme = level.stations[0].policy.dispatch
    return {
        "scheme": scheme, "label": f"{scheme} {folder}", **fleet.terms(),
        "load_qps": result.load_qps, "service": service, "duration_s": duration_s,
        "seeds": len(result.seeds), "queries": sum(result.queries()),
        **{name: one.mean for name, one in estimates.items()},
        **{f"{name}_half_width": one.half_width for name, one in estimates.items()},
        "expected_accuracy": expected.get("expected_accuracy"),
        "expected_violation_rate": expected.get("expected_violation_rate"),
        "expected_effective_accuracy": expected.get("expected_effective_accuracy"),
        "upper_bound": _bound(fleet, result, service, duration_s),
    }


def _bound(
    fleet: MixedFleet, result: StationsResult, service: str, duration_s: float
) -> float | None:
    """What no scheme can beat on as many queries."""
    return realised_bound(
        [one.service_times(service, MAX_BATCH) for one in fleet.types], slo_ms=fleet.classes,
        workers=[one.count or 0 for one in fleet.types], duration_ms=1000.0 * duration_s,
        counts=result.queries())


def refuse_beside_mix(context: click.Context, names: Sequence[str]) -> None:
    """Refuse options that a mixed fleet does not have, if they were given."""
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "")
        if option.name in names and given is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"{option.opts[0]} is not for mixed fleets.")
