"""``ramsis audit``: how far a request log is from the best possible, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ramsis import profiles
from ramsis.audit.audit import Audit, AuditSettings, audit_log
from ramsis.audit.request_log import LogFormat, read_request_log
from ramsis.cli.options.param_types import FIGURE, LOG_COLUMN
from ramsis.cli.options.shared import DEFAULT_SERVICE, MOST_SEEDS, scheduler_option
from ramsis.cli.output.rows import Column, json_option, print_json, print_rows
from ramsis.sim.fleet import SERVICES

__all__ = ["audit"]

_UNITS = ("s", "ms", "us", "ns", "min", "h")
_LEVELS = (
    Column("what", "requests"),
    Column("accuracy", "accuracy", ".4f"),
    Column("violation_rate", "violations", ".3%"),
    Column("effective_accuracy", "effective acc.", ".4f"),
    Column("workers", "workers for as much", "d"),
)
_CAUSES = (
    Column("cause", "violations by"),
    Column("requests", "requests", "d"),
    Column("share", "of all", ".3%"),
)


@click.command("audit")
@click.argument("log", type=click.Path(), metavar="LOG")
@click.option("--profiles", "profile_name", required=True, metavar="FILE|NAME",
              help="Profile file of the models that answered, or the name of a shipped set.")
@click.option("--workers", type=int, required=True, help="Workers that served.")
@click.option("--slo-ms", type=float,
              help="Deadline after arrival, where the log does not hold one.")
@click.option("--column", "columns", type=LOG_COLUMN, multiple=True, metavar="FIELD=NAME",
              help="Column of a log of another program: arrival, start, finish, duration, "
              "deadline (ms), outcome, status, model, batch, run_as, worker or correct; repeat.")
@click.option("--model", metavar="NAME",
              help="Model that answered, where the log names none.")
@click.option("--unit", type=click.Choice(_UNITS),
              help="Unit of arrival, start and finish, where they are numbers.  [default: that of "
              "the column's name]")
@click.option("--service", type=click.Choice(SERVICES),
              help="Service times that the log is held against.  "
              f"[default: {DEFAULT_SERVICE}]")
@scheduler_option("Policies among which the best is looked for, with settings as "
                  "round-robin:grid=model; repeat.  [default: central-queue]",
                  metavar="NAME", default=("central-queue",))
@click.option("--max-violation", type=float, default=0.001, show_default=True, metavar="X",
              help="Violations that the fewest workers may have even where there were fewer.")
@click.option("--seeds", type=click.IntRange(1, MOST_SEEDS), default=3, show_default=True,
              help="Simulations of each policy on the arrivals.")
@json_option
@click.option("--plot", type=FIGURE, metavar="FILE",
              help="Draw the answers: .png, .pdf or .svg.")
def audit(
    log: str,
    profile_name: str,
    workers: int,
    slo_ms: float | None,
    columns: tuple[tuple[str, str], ...],
    model: str | None,
    unit: str | None,
    service: str | None,
    schedulers: tuple[str, ...],
    max_violation: float,
    seeds: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Say how far a request log is from the best possible, and where violations came from.

    LOG is a request log of `serve`, `load` or `simulate`, an access log of nginx (combined, with
    $request_time behind it) or Envoy, or CSV or JSON lines of another program, by usual or named
    columns. The first table holds what was achieved against the best policy on the same arrivals
    (the level chosen in hindsight) and against what no scheduler could have beaten; "workers" are
    those that there were, the fewest with which the best policy achieves as much, and a number
    that no scheduler could have gone below. Each violation has one cause, so the second table adds up.

    \b
    Examples:
      $ ramsis audit requests.csv --profiles digits-cpu --workers 4 --scheduler central-queue:max_queue=8,grid=fixed:20
      $ ramsis audit gateway.csv --profiles digits-cpu --workers 1 --slo-ms 25 --column arrival=received --column finish=done --column model=net --scheduler round-robin:grid=fixed:20 --json
    """  # noqa: E501 - an example is one line
    settings = AuditSettings(workers, service, schedulers, max_violation, seeds, model)
    read = read_request_log(log, LogFormat(dict(columns), unit, slo_ms))
    found = audit_log(read, profiles.load(profile_name), settings, where=log)
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    row = {"log": log, **found.row()}
    if as_json:
        print_json([row])
    else:
        _show(found, row)
    if plot is not None:
        from ramsis.report.audit import plot_audit

        plot_audit(row, plot)


def _show(found: Audit, row: dict[str, Any]) -> None:
    best = row["best_policy"] or {}
    named = f"best policy: {best.get('scheduler', 'none')}"
    if best.get("level_qps"):
        named += f" for {best['level_qps']:.6g} QPS"
    print_rows(_LEVELS, [
        {**row, "what": "achieved"},
        {**best, "what": named, "workers": row["fewest_workers"]},
        {"what": "no scheduler beats", "violation_rate": row["least_violation_rate"],
         "effective_accuracy": row["upper_bound"], "workers": row["workers_bound"]},
    ])
    done, total = found.achieved, found.achieved.requests
    causes = [{"cause": name, "requests": count, "share": count / total}
              for name, count in found.causes.items() if count]
    click.echo()
    print_rows(_CAUSES, [*causes, {"cause": "all", "requests": total - done.served,
                                   "share": done.violation_rate}])
    click.echo()
    busy = "" if done.utilisation is None else f", {done.utilisation:.1%} busy"
    click.echo(f"{total} requests in {done.duration_s:.6g} s, workers: {found.workers}{busy}, "
               f"{found.wasted_workers} wasted; batches took {done.service_factor:.3f} times what "
               "the profile says")
    if done.right is not None:
        click.echo(f"{done.right:.4f} ± {done.right_half_width:.4f} of the answers in time were "
                   "right")
