"""``ramsis simulate --placement``: simulate a placement file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from ramsis import report
from ramsis.cli.options.command import allow_options
from ramsis.cli.output.rows import (
    overloaded,
    print_json,
    print_rows,
    progress,
    say,
    tell_overload,
)
from ramsis.cli.simulation.cluster import Output
from ramsis.report.columns import PLACED

if TYPE_CHECKING:  # at run time where they are used: placements load what other commands do not
    from ramsis.synthesis.placement import FamilyOutcome, PlacementOutcome, StationOutcome
    from ramsis.synthesis.placement.streams import Figures

_ALLOWED = ("placement", "fixed", "duration_s", "seed", "seeds", "as_json", "csv_file", "plot",
            "timeline")
_NEARLY = 0.9  # share of the time; workers that are busy for more answer many requests late
_RATES = ("accuracy", "violation_rate", "effective_accuracy", "response_p99_ms")
_WITH_INTERVAL = ("violation_rate", "effective_accuracy")


def require_fleet(context: click.Context) -> None:
    """Refuse a command without ``--placement`` that does not state a fleet.

    Profile, SLO and workers are required then; ``--fixed`` and ``--interference`` are refused, as
    only a placement can be simulated with them.
    """
    for option in context.command.params:
        if option.name in ("profile_names", "slo_ms", "workers") and not context.params.get(
                option.name):
            raise click.MissingParameter(ctx=context, param=option)
    if context.params["fixed"]:
        raise click.UsageError("--fixed is for a placement: give --placement.")
    if context.params["interference"] is not None:
        raise click.UsageError("--interference is for a placement: give --placement.")


def simulate_placement_file(
    path: str, *, fixed: bool, duration_s: float, seeds: range, output: Output
) -> None:
    """Simulate a placement; print the rows and write the requested files.

    With ``fixed`` workers run the placement's batches, without policies.
    """
    import placement_milp
    from ramsis.synthesis.placement import placed_stations, simulate_placement

    allow_options(_ALLOWED, "is not for a placement: the file says what serves whom, and how "
                  "much.")
    placed = placement_milp.read_placement(path)
    steps = len(placed_stations(placed.problem, placed.groups)) + len(seeds)
    with progress("policies and runs", steps) as advance:
        outcome = simulate_placement(
            placed.problem, placed.groups, duration_ms=1000.0 * duration_s, seeds=seeds,
            fixed=fixed, on_step=advance)
    terms = {"duration_s": duration_s, "seeds": len(seeds)}
    rows = [_family_row(family, outcome, terms) for family in outcome.families]
    if output.as_json:
        print_json(rows, placement=path, name=placed.problem.name, fixed=fixed)
    else:
        _print(rows, placed.problem.rules.in_time_quantile)
    output.write_files(_flat(rows), lambda plot: report.plot_charts(
        report.placed_charts(rows), plot), {placed.problem.name: outcome.first})
    tell_overload(overloaded(rows, "family"))


def _family_row(
    family: FamilyOutcome, outcome: PlacementOutcome, terms: Mapping[str, Any]
) -> dict[str, Any]:
    name = family.family.name
    return {
        "family": name, "load_qps": family.family.demand_qps, "slo_ms": family.family.slo_ms,
        "sent_share": family.sent_share, "utilisation": family.utilisation,
        "placement_effective_accuracy": family.placement_accuracy,
        "expected_effective_accuracy": family.policies_accuracy,
        "upper_bound": family.upper_bound, **_simulated(family.simulated), **terms,
        "stations": [_station_row(station, name, i) for station in outcome.stations
                     for i, use in enumerate(station.uses) if use.use.family.name == name],
    }


def _station_row(placed: StationOutcome, family: str, use: int) -> dict[str, Any]:
    station, outcome = placed.station, placed.uses[use]
    promise = None if placed.policy is None else placed.policy.expectations
    return {
        "family": family, "station": station.name, "worker_type": station.worker_type,
        "workers": list(station.workers), "variants": list(outcome.use.variants),
        "batch": outcome.use.batch, "dispatch": (
            placed.policy.dispatch if placed.policy is not None else
            "duty-cycle" if len(placed.uses) > 1 else "fixed"),
        "load_qps": outcome.use.load_qps,
        "slo_ms": outcome.use.family.slo_ms, "utilisation": station.utilisation,
        "simulated_utilisation": sum(placed.busy) / len(placed.busy),
        "placement_effective_accuracy": outcome.use.accuracy * outcome.use.in_time,
        "expected_effective_accuracy": promise and promise.effective_accuracy,
        "expected_violation_rate": promise and promise.violation_rate,
        "upper_bound": promise and promise.upper_bound, **_simulated(outcome.simulated),
    }


def _simulated(seeds: Sequence[Figures]) -> dict[str, Any]:
    """Return sums of counts and means of rates over the seeds."""
    from ramsis.synthesis.placement import estimate

    row: dict[str, Any] = {
        item.name: sum(getattr(seed, item.name) for seed in seeds) for item in fields(seeds[0])
        if item.name not in _RATES}
    for name in _RATES:
        measured = any(getattr(seed, name) is not None for seed in seeds)
        row[name] = estimate(seeds, name).mean if measured else None
    for name in _WITH_INTERVAL:
        row[f"{name}_half_width"] = estimate(seeds, name).half_width
    return row


def _print(rows: Sequence[Mapping[str, Any]], quantile: float | None) -> None:
    lines: list[Mapping[str, Any]] = []
    for row in rows:
        lines.append(row)
        lines += [{**station, "family": f"  {station['station']}"} for station in row["stations"]]
    print_rows(PLACED, lines)
    click.echo()
    for row in rows:
        if row["sent_share"] < 1 - 1e-6:
            say(f"not sent to any worker: {(1 - row['sent_share']) * row['load_qps']:.4g} "
                       f"QPS of family {row['family']}; they count as not answered")
    if quantile is None:
        say(_difference(rows))
    else:
        click.echo(f"the placement promises that {quantile:g} of the requests are in time")


def _difference(rows: Sequence[Mapping[str, Any]]) -> str:
    """Explain why simulated figures differ from a placement that ignores queueing."""
    busy = [f"{row['family']} {row['utilisation']:.1%}" for row in
            sorted(rows, key=lambda row: -row["utilisation"]) if row["utilisation"] > _NEARLY]
    late = f": here {', '.join(busy)}" if busy else ""
    return ("the placement counts batch / latency as a rate: full batches, and no queueing; "
            f"workers that are busy nearly all the time answer many late{late}")


def _flat(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows for a CSV file: each family, followed by its stations."""
    flat: list[dict[str, Any]] = []
    for row in rows:
        flat.append({"family": row["family"], "station": None, **{
            name: value for name, value in row.items() if name != "stations"}})
        flat += [{**station, "workers": ";".join(station["workers"]),
                  "variants": ";".join(station["variants"])} for station in row["stations"]]
    return flat
