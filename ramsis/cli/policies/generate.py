"""``ramsis generate``: policy files for load levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ramsis import report
from ramsis.cli.options.clusters import Served, cluster_terms
from ramsis.cli.options.command import MORE_COMPUTING, Command, refuse_options
from ramsis.cli.options.param_types import OUT_FOLDER, SLOWNESS
from ramsis.cli.options.policies import policy_options
from ramsis.cli.options.shared import (
    cluster_options,
    engine_options,
    gathered,
    load_option,
    min_in_time_option,
    models_option,
    plot_option,
    sizes_options,
)
from ramsis.cli.output.rows import (
    Column,
    budget_row,
    command_line,
    headroom_row,
    policy_row,
    print_json,
    print_rows,
    progress,
    say,
    strict_option,
    table_options,
    tell_overload,
)
from ramsis.cluster import Cluster
from ramsis.policy import MANIFEST_NAME, Level, Policy, made_by, policy_file_name
from ramsis.profiles import ProfileSet
from ramsis.report.columns import OPINIONS, PROMISED
from ramsis.runtime.manifest import read_manifest
from ramsis.sweep import Engine
from ramsis.synthesis import SynthesisSettings, choose_loads, generate_set
from ramsis.synthesis.long_batches import needed_batches
from ramsis.tables import with_values

_HEADROOM = (
    Column("headroom_factor", "planned service time (factor)", "g", wide=True),
    Column("slower_effective_accuracy", "effective accuracy at +10 % service time", ".4f",
           wide=True),
    Column("slower_violation_rate", "violations at +10 % service time", ".4%", wide=True),
)
_PROMISE = (*PROMISED, *OPINIONS[:2], Column("utilisation", "utilisation", ".1%"), *_HEADROOM,
                   Column("state", "state"))
_STATIONS = (
    *PROMISED,
    Column("shared_effective_accuracy", "with common workers", ".4f", wide=True),
    Column("apart_effective_accuracy", "with own workers", ".4f", wide=True),
    Column("words", "stations (share of the load)"),
)
_PROMISES = ("expected_accuracy", "expected_violation_rate", "expected_effective_accuracy",
             "upper_bound", "shared_effective_accuracy", "shared_violation_rate",
             "apart_effective_accuracy", "apart_violation_rate")

_MORE = (
    "--models", "--overwrite", "--grid", "--objective", "--service", "--late", "--batching",
    "--violation-price",
    "--confidence", "--overhead-ms", "--max-queue", "--max-accuracy-step", "--slowness",
    "--size-column", "--min-in-time-by-class",
    "--solver", "--paper", *MORE_COMPUTING, "--plot", "--strict")
"""Options that only --help-all shows."""


@click.command("generate", cls=Command, more=_MORE)
@cluster_options
@load_option()
@models_option
@click.option("--out", required=True, metavar="DIR", type=OUT_FOLDER,
              help="Folder for the policy files and their manifest.")
@policy_options()
@click.option("--max-accuracy-step", type=float, default=None, metavar="X",
              help="Choose the fewest levels between the lowest and the highest --load whose "
                   "expected accuracies differ by at most X, such as 0.01.")
@click.option("--slowness", type=SLOWNESS, default="1", show_default=True, metavar="F,F,…",
              help="Make policies of each level for each slowness F, such as 1,1.15,1.3,1.5, "
                   "without headroom.")
@sizes_options
@min_in_time_option
@click.option("--overwrite", is_flag=True,
              help="Replace any set in DIR once the new one is complete.")
@engine_options(1)
@plot_option("the promises over the load, with the bound")
@strict_option
@table_options
@gathered(served=Served)
def generate(
    served: Served,
    loads: tuple[float, ...],
    out: Path,
    settings: dict[str, Any],
    max_accuracy_step: float | None,
    slowness: tuple[float, ...],
    sizes: Path | None,
    size_column: str | None,
    min_in_time_by_class: tuple[float, ...] | None,
    overwrite: bool,
    engine: Engine,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Make a model-selection policy for each load level.

    Writes one policy file per level and a manifest into DIR, and prints what each policy will
    deliver, beside the upper bound for every scheduler that answers each request once, by one
    model, in batches up to --max-queue.

    Effective accuracy counts late requests as 0; accuracy is that of the requests answered in
    time. State OVERLOAD: the load passes the capacity,
    or more than a tenth of the requests will be late.

    With --dispatch central-queue the policy decides about one queue for all workers. Which values
    of the other options go with which dispatch, and why: docs/options.md.

    A set in DIR made from the same inputs is extended, also by policies for another arrival
    process. `ramsis arrivals fit` finds the process of a trace. With several worker types or SLO
    classes DIR gets a folder of policies for each station, and the manifest says which share of
    each class goes to which station. Classes get common workers or workers of their own,
    whichever is better.

    With --sizes requests have a size, and models times by size: the policy decides which of those
    that wait are a batch. Rows have the share in time by size class. It goes with --dispatch
    central-queue, one SLO and one type of workers.

    With --slowness the set has policies for times in which batches take longer than profiled, and
    promises what they deliver then. A server measures the slowness, and takes them by itself.

    \b
    Examples:
      $ ramsis generate --profiles digits-cpu --slo-ms 100 --workers 4 --load 50:200:50 --out out
      $ ramsis generate --profiles digits-cpu --slo-ms 100 --workers 4 --load 80 --out out2 --json
      $ ramsis generate --profiles digits-cpu --slo-ms 25 --workers 40 --load 4000 \\
          --dispatch central-queue --out out3
      $ ramsis generate --profiles digits-cpu --slo-ms 15:0.3,25:0.7 --workers 8 --load 400 \\
          --dispatch central-queue --out out4
      $ ramsis generate --profiles digits-cpu --slo-ms 25 --workers 4 --load 400 \\
          --dispatch shortest-queue --out out5
    """
    if sizes is not None:
        from ramsis.cli.policies.sized import generate_with_sizes

        generate_with_sizes(served, loads, out, settings, sizes, size_column,
                            min_in_time_by_class, overwrite=overwrite, as_json=as_json)
        return
    refuse_options(("size_column", "min_in_time_by_class"),
                   "is for requests with a size: --sizes.")
    if {"max_violation", "violation_price"} <= settings.keys():
        raise click.UsageError("--max-violation finds the price: leave --violation-price out.")
    if slowness != (1.0,) and settings.get("headroom"):
        raise click.UsageError("--slowness makes policies without headroom: leave --headroom "
                               "out.")
    cluster = served.cluster()
    chosen = SynthesisSettings(slo_ms=cluster.slo_ms, workers=cluster.workers, **settings)
    several = (chosen,) if slowness == (1.0,) else chosen.when_slow(*slowness)
    if max_accuracy_step is not None:
        with progress("choosing load levels", 1):
            loads = choose_loads(cluster, loads[0], loads[-1], several[0], max_accuracy_step)
    make = None
    if engine.elsewhere and len(loads) * len(slowness) > 1:
        from ramsis.cli.parallel_jobs import level_maker  # which takes long to load

        make = level_maker(cluster, engine)
    with progress("levels", len(loads) * len(slowness)) as advance, made_by(command_line()):
        generated = generate_set(cluster, loads, several, out, overwrite=overwrite,
                                 on_level=lambda _: advance(), make=make)
    rows = [_policy_row(level.policy, out) if cluster.simple else _stations_row(cluster, level)
            for level in generated.levels]
    if plot is not None:
        report.plot_promises(rows, plot)
    if as_json:
        print_json(rows)
    else:
        _print(cluster, generated.levels, rows, out)
    tell_overload(warning for level in generated.levels for warning in _overload(level))
    if cluster.simple:
        _tell_long_batches(generated.levels, cluster.worker_types[0].profile)
    used = generated.levels[0].stations[0].policy
    if cluster.workers == 1 and used.dispatch != chosen.dispatch:
        click.echo("note: the queue of a single worker is a central queue: the policies are "
                   f"those of --dispatch {used.dispatch}", err=True)
    elif used.batching != chosen.batching:
        click.echo(f"note: no batch of more than {used.max_queue} requests is in time: the "
                   f"policies are those of --batching {used.batching} --max-queue "
                   f"{used.max_queue}", err=True)


def _print(
    cluster: Cluster, levels: Sequence[Level[Policy]], rows: Sequence[Mapping[str, Any]],
    folder: Path,
) -> None:
    """Print a row for each level of a cluster."""
    chosen: Sequence[Column] = _PROMISE if cluster.simple else _STATIONS
    if all(level.slowness == 1.0 for level in levels):
        chosen = [column for column in chosen if column.key != "slowness"]
    filled = with_values(chosen, rows)
    columns = [column for column in chosen
               if column not in (*_HEADROOM, *OPINIONS) or column in filled]
    if cluster.simple:
        print_rows(columns, rows)
        held = len(read_manifest(folder).levels)  # a folder may have held others before
        count = f"{held} {'policy' if held == 1 else 'policies'}"
        new = "" if held == len(levels) else f", {len(levels)} of them made now"
        click.echo()
        say(f"{count} in {folder} ({MANIFEST_NAME} lists them){new}")
        return
    shown = [column for column in columns if column in filled or column.key == "words"]
    print_rows(shown, [{**row, "words": ", ".join(
        f"{station.name} ({station.policy.load_qps / level.load_qps:.1%})"
        for station in level.stations)} for row, level in zip(rows, levels, strict=True)])
    click.echo()
    say(f"{folder / MANIFEST_NAME} lists the policies of each station")


def _policy_row(policy: Policy, folder: Path) -> dict[str, Any]:
    """Return the row of a level with a single station."""
    name = policy_file_name(policy.dispatch, policy.load_qps, policy.arrivals, policy.slowness)
    state = "OVERLOAD" if policy.expectations.overloaded else "ok"
    return {**policy_row(policy), **headroom_row(policy), **budget_row(policy),
            "file": str(folder / name), "state": state}


def _overload(level: Level[Policy]) -> Iterator[str]:
    """Describe the overloaded stations of a level."""
    for station in level.stations:
        expected = station.policy.expectations
        where = level.words + (f", {station.name}" if len(level.stations) > 1 else "")
        if expected.unstable:
            yield (f"{where}: OVERLOAD, queues of more than {station.policy.max_queue} grow "
                   "without end; a longer --max-queue has larger batches, --late drop gives up")
        elif expected.overloaded:
            yield (f"{where}: OVERLOAD, {expected.violation_rate:.1%} of the requests late or "
                   f"dropped; with batches up to --max-queue no scheduler answers more "
                   f"than {expected.capacity_qps:.6g} QPS in time")


def _tell_long_batches(levels: Sequence[Level[Policy]], profile: ProfileSet) -> None:
    """Note on stderr the load at which a longer queue would bring most accurate answers."""
    for level in levels:
        (station,) = level.stations
        needed = needed_batches(station.policy, profile)
        if needed is not None:
            click.echo(f"note: {level.words}: {needed.model} keeps up in batches of "
                       f"{needed.batch}, which --max-queue {station.policy.max_queue} rules out; "
                       f"try --max-queue {needed.max_queue}", err=True)
            return


def _stations_row(cluster: Cluster, level: Level[Policy]) -> dict[str, Any]:
    """Return the row of a level with several stations, each station listed under ``parts``."""
    return {
        "scheduler": level.stations[0].policy.dispatch, **cluster_terms(cluster),
        "load_qps": level.load_qps, "slowness": level.slowness,
        **{name: level.expected.get(name) for name in _PROMISES},
        "parts": [{
            "folder": station.name, "types": list(station.worker_types),
            "workers": station.workers,
            "load_qps": station.policy.load_qps,
            "share": [{"slo_ms": slo, "share": share}
                      for slo, share in sorted(station.share.items())],
            "expected_effective_accuracy": station.policy.expectations.effective_accuracy,
            "expected_violation_rate": station.policy.expectations.violation_rate,
            "upper_bound": station.policy.expectations.upper_bound} for station in level.stations],
    }
