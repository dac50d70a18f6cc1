"""``ramsis simulate SCENARIO``: schedulers on a cluster that loads and unloads models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from ramsis import report
from ramsis.cli.options.command import allow_options
from ramsis.cli.output.rows import (
    overloaded,
    print_json,
    print_rows,
    progress,
    say,
    tell_overload,
    with_words,
)
from ramsis.errors import InvalidValueError
from ramsis.files import write_atomic
from ramsis.report.columns import GROUPS, PLAYED, SCALED, scheduler_columns
from ramsis.sim import Run, Workload
from ramsis.tables import csv_text, with_values

if TYPE_CHECKING:
    from ramsis.sim.registry import SchedulerSpec

_ALLOWED = ("scaling", "from_s", "stretch", "forecast", "loads", "trace", "trace_format", "unit",
            "time_column", "load_columns", "scale", "arrivals", "duration_s", "seed", "as_json",
            "csv_file", "plot")

_OF_SHARING = ("placement", "interference", "duration_s", "seed", "seeds", "as_json")
_GROUPINGS = ("stream", "tenant", "family", "model", "copy")


by_option = click.option(
    "--by", multiple=True, type=click.Choice(_GROUPINGS),
    help="Add results by stream, tenant, family, model or copy of a model: requests in time, "
         "stages of the response time, fairness; repeat for several.")


class Output(NamedTuple):
    """Form of the rows of a simulation, and the files that are asked for."""

    as_json: bool
    csv_file: Path | None
    plot: Path | None
    timeline: Path | None
    request_log: Path | None

    def write_files(
        self, rows: Sequence[Mapping[str, Any]], draw: Callable[[Path], object],
        first: Mapping[str, Run],
    ) -> None:
        """Write rows, figure and timeline; ``first`` are the runs of the first load and seed."""
        if self.csv_file is not None:
            write_atomic(self.csv_file, csv_text(rows))
        if self.plot is not None:
            draw(self.plot)
        if self.timeline is not None:
            from ramsis.sim.time_series import write_timeline

            write_timeline(first, self.timeline)


def simulate_scenario(
    scenario_file: str, schedulers: Sequence[SchedulerSpec], seeds: range, *, bound: bool,
    by: Sequence[str], output: Output,
) -> None:
    """Simulate schedulers on a scenario; print and write a row for each."""
    from ramsis.planning import compare
    from ramsis.scenario import read_scenario

    scenario = read_scenario(scenario_file)
    with progress("runs", len(schedulers) * len(seeds)) as advance:
        compared = compare(scenario, schedulers, seeds, bound=bound, by=by, on_run=advance)
    rows = [result.row() for result in compared]
    if output.as_json:
        print_json(rows, scenario=scenario_file, name=scenario.name,
                   duration_s=scenario.duration_s)
    else:
        print_rows(scheduler_columns(rows), rows)
        for grouping in dict.fromkeys(by):
            _print_groups(grouping, rows)
    first = {result.scheduler: result.first for result in compared}
    output.write_files([{key: value for key, value in row.items() if key != "by"}
                        for row in rows], partial(report.plot_cluster, first), first)
    tell_overload(overloaded(rows, "scheduler"))


def _print_groups(by: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a row for each group, and the fairness of each scheduler."""
    groups = [{"scheduler": row["scheduler"], **group}
              for row in rows for group in row["by"][by]["groups"]]
    click.echo()
    print_rows([replace(group, title=group.title.format(by=by)) for group in GROUPS
                if group.key != "scheduler" or len(rows) > 1], groups)
    click.echo()
    for row in rows:
        grouped = row["by"][by]
        if grouped["worst"] is not None:
            say(f"{row['scheduler']}: fairness {grouped['fairness']:.4f}, worst {by} "
                f"{grouped['worst']} with {grouped['worst_in_time']:.4f} in time")


def simulate_sharing(
    path: str, seeds: range, *, interference: str, duration_s: float, as_json: bool
) -> None:
    """Simulate a placement of models that share GPUs, and print a row for each family."""
    allow_options(_OF_SHARING, "is not for a placement of models that share GPUs.")
    from ramsis.studies.sharing.gpu.interference import INTERFERENCES
    from ramsis.studies.sharing.play.placement import (
        play_placement,  # here, as it takes long to load
    )

    with progress("runs", len(seeds)) as advance:
        rows, total = play_placement(path, seeds, interference=INTERFERENCES[interference],
                                     duration_s=duration_s, on_run=advance)
    if as_json:
        print_json(rows, placement=path, interference=interference, duration_s=duration_s,
                   **total)
        return
    print_rows(PLAYED, rows)
    click.echo(f"\ngoodput {total['goodput_rps']:.1f} rps (at most {total['bound_rps']:.1f}), "
               f"fairness {total['fairness']:.3f}, least in time {total['smallest_share']:.1%}")


def simulate_scaling(
    names: Sequence[str], workload: Workload, *, from_s: float, forecast: Path | None, seed: int,
    output: Output,
) -> None:
    """Simulate scaling policies and rules; print the rows and write the requested files."""
    from ramsis.scaling.comparison import Comparison, Part
    from ramsis.scaling.levels import read_forecast
    from ramsis.scaling.policy_file import SavedScaling
    from ramsis.scaling.rules import rule_of

    allow_options(_ALLOWED, "is not for --scaling: the scaling policy says what serves, and by "
                  "which policies.")
    duration_s = workload.duration_ms / 1000.0
    if not 0 <= from_s < duration_s:
        raise InvalidValueError("not a time of the trace", where="--from-s", value=from_s,
                                allowed=f"0 to less than {duration_s:g}")
    saved = {name: SavedScaling.load(name) for name in names if Path(name).exists()}
    rules = {name: rule_of(name, error=InvalidValueError) for name in names if name not in saved}
    if not saved:
        raise click.UsageError("--scaling: rules play the decision tables of a scaling policy; "
                               "give its folder, too.")
    forecasts = None if forecast is None else read_forecast(forecast)
    arrival_ms = workload.arrivals_ms(np.random.default_rng(seed))

    def comparison(saved: SavedScaling) -> Comparison:
        initial, rest = (
            Part.of(arrival_ms, *times, saved.known["rate_per_worker_qps"], saved.fleet, forecasts)
            if times[1] else None for times in ((0.0, from_s), (from_s, duration_s)))
        assert rest is not None
        return Comparison(saved.played, saved.target, saved.fleet, initial, rest, saved.known,
                          seed)

    on = {name: comparison(policy) for name, policy in saved.items()}
    by_first = next(iter(on.values()))  # whose decision tables the rules play
    rows: list[dict[str, Any]] = []
    with progress("runs", len(names)) as advance:
        for name in names:
            row = (on[name].policy_row(saved[name].table) if name in saved
                   else by_first.rule_row(*rules[name], tuned=False))
            rows.append({**row, "scheduler": name})
            advance()
    if output.as_json:
        print_json(rows)
    else:
        shown = with_words(rows)
        print_rows([column for column in with_values(SCALED, shown)
                    if column.key != "tuned_word"], shown)
    output.write_files(
        [{key: value for key, value in row.items() if key not in ("over_time", "parameters")}
         for row in with_words(rows)],
        lambda plot: report.plot_charts(report.scaling_charts(rows, {}), plot), {})
