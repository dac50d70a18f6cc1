"""``ramsis cluster``: what schedulers do on a cluster on which models come and go."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import click

from ramsis.cli.options import seed_options
from ramsis.cli.params import FIGURE
from ramsis.cli.rows import Column, json_option, print_json, print_rows, progress
from ramsis.files import write_atomic

__all__ = ["cluster_command"]

_DEFAULT = ("clockwork",)
_COLUMNS = (
    Column("scheduler", "scheduler"),
    Column("in_time", "in time", ".4f"),
    Column("in_time_half_width", "±", ".4f"),
    Column("bound", "bound", ".4f"),
    Column("share_of_bound", "of bound", ".2%"),
    Column("violation_rate", "violations", ".3%"),
    Column("response_p50_ms", "p50 (ms)", ".1f"),
    Column("response_p99_ms", "p99 (ms)", ".1f"),
    Column("response_longest_ms", "longest (ms)", ".1f"),
    Column("loads", "loads", "d"),
    Column("loading_s", "loading (s)", ".2f"),
    Column("cold_starts", "cold starts", "d"),
    Column("utilisation", "busy", ".1%"),
)


@click.command("cluster")
@click.argument("scenario_file", metavar="SCENARIO")
@click.option("--scheduler", "schedulers", multiple=True, metavar="NAME:key=value,...",
              help="A scheduler with its parameters, or one of your own as FILE.py:CLASS or "
              "MODULE:CLASS; repeat to compare.  [default: clockwork]")
@seed_options(1)
@click.option("--bound", is_flag=True,
              help="Also what no scheduler can beat, and each row's share of it; not for closed "
              "loops, streams after others, and continuous batches.")
@json_option
@click.option("--csv", "csv_file", type=click.Path(path_type=Path, dir_okay=False),
              metavar="FILE", help="Write the rows as CSV.")
@click.option("--plot", type=FIGURE, metavar="FILE",
              help="Draw machine usage, violations, response times and arrivals of the first "
              "seed (.png, .pdf, .svg).")
@click.option("--timeline", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write batches and loads of the first seed as a trace for ui.perfetto.dev.")
def cluster_command(
    scenario_file: str, schedulers: tuple[str, ...], seed: int, seeds: int, bound: bool,
    as_json: bool, csv_file: Path | None, plot: Path | None, timeline: Path | None,
) -> None:
    """Simulate schedulers on a cluster on which models are loaded and unloaded.

    SCENARIO is a file of the format ramsis.scenario/1 (JSON or TOML): worker types, models,
    streams of requests. Prints a row for each scheduler: what is in time, response times, loads,
    cold starts, and how busy the workers are.

    \b
    Examples:
      $ ramsis cluster scenario.json --scheduler clockwork --scheduler lru --seeds 5 --bound
      $ ramsis cluster scenario.json --scheduler own.py:Mine:alpha=2 --plot usage.png
    """
    from ramsis.planning import compare, scheduler_named  # here, as they take long to load
    from ramsis.scenario import read_scenario

    named = [scheduler_named(text) for text in schedulers or _DEFAULT]
    scenario = read_scenario(scenario_file)
    numbers = range(seed, seed + seeds)
    with progress("runs", len(named) * len(numbers)) as advance:
        found = compare(scenario, named, numbers, bound=bound, on_run=advance)
    rows = [one.row() for one in found]
    first = {one.scheduler: one.first for one in found}
    if csv_file is not None:
        write_atomic(csv_file, _csv_text(rows))
    if plot is not None:
        from ramsis.report.cluster import plot_cluster

        plot_cluster(first, plot)
    if timeline is not None:
        from ramsis.sim.cluster.timeline import write_cluster_timeline

        write_cluster_timeline(first, timeline)
    if as_json:
        print_json(rows, scenario=scenario_file, name=scenario.name,
                   duration_s=scenario.duration_s)
    else:
        print_rows([one for one in _COLUMNS if any(row.get(one.key) is not None for row in rows)],
                   rows)


def _csv_text(rows: list[dict[str, Any]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
