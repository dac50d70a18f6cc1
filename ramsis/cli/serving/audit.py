"""``ramsis audit``: compare a request log with the best policy and a bound, with causes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ramsis import profiles, report
from ramsis.audit.audit import Audit, AuditSettings, audit_log
from ramsis.audit.request_log import LogFormat, RequestLog, read_request_log
from ramsis.cli.options.clusters import (
    BOTH,
    also_with_cascades,
    compared_options,
    dispatch_words,
)
from ramsis.cli.options.command import Command, allow_options
from ramsis.cli.options.param_types import LOG_COLUMN, MODEL_NAME
from ramsis.cli.options.shared import MOST_SEEDS, plot_option
from ramsis.cli.options.sizes import default_statistic
from ramsis.cli.output.rows import (
    print_classes,
    print_json,
    print_rows,
    progress,
    say,
    say_command,
    table_options,
)
from ramsis.cluster.service_times import DEFAULT_SERVICE
from ramsis.policy import SERVICES
from ramsis.profiles import ProfileSet
from ramsis.report.columns import AUDITED, CAUSES
from ramsis.tables import scheduler_words

_TIMES = {"distribution": "distributions", "mean": "means"}
_SHOWN = 0.5e-4  # the last digit of an accuracy, halved
_UNITS = ("s", "ms", "us", "ns", "min", "h")
_ALLOWED_WITH_SIZES = ("log", "profile_name", "workers", "slo_ms", "columns", "unit", "service",
                       "schedulers", "dispatches", "as_json")


@click.command("audit", cls=Command, more=("--unit", "--seeds", "--model", "--map", "--service",
                                                "--cascades"),
               headings={"Log": "column unit model map slo-ms"})
@click.argument("log", type=click.Path(), metavar="LOG")
@click.option("--profiles", "profile_name", required=True, metavar="FILE|NAME",
              help="Profile file of the models that answered, or the name of a shipped set.")
@click.option("--workers", type=int, required=True, help="Workers that served.")
@click.option("--slo-ms", type=float,
              help="Deadline after arrival, if the log has none.")
@click.option("--column", "columns", type=LOG_COLUMN, multiple=True, metavar="FIELD=NAME",
              help="Column of a log of another program, as arrival=received.\nFields are arrival, "
              "start, finish, duration, deadline (ms), outcome, status, success, error, model, "
              "batch and others. Repeat for several.")
@click.option("--model", metavar="NAME",
              help="Model that answered all requests, whatever the log names.")
@click.option("--map", "names", type=MODEL_NAME, multiple=True, metavar="NAME=MODEL",
              help="Model of the profile for a name in the log, as of a router or an ensemble; "
              "repeat.")
@click.option("--unit", type=click.Choice(_UNITS),
              help="Unit of times that are numbers, but not of times since 1970.  [default: that "
              "of the column's name]")
@click.option("--service", type=click.Choice(SERVICES),
              help="Service times to compare the log with.  "
              f"[default: {DEFAULT_SERVICE}]")
@compared_options(click.STRING, "Policies to choose the best from, with settings, as "
                                "round-robin:grid=model.\nRepeat for several.")
@click.option("--cascades", is_flag=True,
              help="Choose among policies with second opinions, too: a second model is asked "
                   "where the first is unsure.\nThe profile needs confidences.")
@click.option("--max-violation", type=float, default=0.001, show_default=True, metavar="X",
              help="Violations allowed for the fewest workers, even if there were fewer.")
@click.option("--seeds", type=click.IntRange(1, MOST_SEEDS), default=3, show_default=True,
              help="Simulations of each policy on the arrivals.")
@table_options
@plot_option("the answers")
def audit(
    log: str,
    profile_name: str,
    workers: int,
    slo_ms: float | None,
    columns: tuple[tuple[str, str], ...],
    model: str | None,
    names: tuple[tuple[str, str], ...],
    unit: str | None,
    service: str | None,
    schedulers: tuple[str, ...],
    cascades: bool,
    max_violation: float,
    seeds: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Compare a request log with the best policy and the bound, and explain its violations.

    LOG is a request log of `serve`, `load` or `simulate`, an access log (nginx, Envoy, load
    balancers), a log of a model server, the result of a load test (k6, vegeta, JMeter), or CSV or
    JSON lines of another program, by usual or named columns.

    The first table compares
    the log with the best policy on the same arrivals (its load level is chosen in hindsight) and
    with the bound on every scheduler that answers each request once, by one model. The workers
    needed are the fewest with which the best policy matches the log. The second table attributes
    each violation to one cause.

    If no policies are named, both dispatch rules are compared: a queue for each worker
    (round-robin), and a common queue (central-queue). The commands that make these policies
    follow. With --cascades each dispatch rule has a second row, with second opinions, and the
    bound a second one, for schedulers with cascades.

    If the requests have a size and the models times by size, the tables are shares in time in all
    and by size class: achieved, by the policy for this load on the same requests, or by
    schedulers that are named (replanned-dp), and the bound.

    \b
    Examples:
      $ ramsis audit requests.csv --profiles digits-cpu --workers 4 \\
          --scheduler central-queue:max_queue=8,grid=fixed:20
      $ ramsis audit gateway.csv --profiles digits-cpu --workers 1 --slo-ms 25 \\
          --column arrival=received --column finish=done --column model=net \\
          --scheduler round-robin:grid=fixed:20 --json
    """
    profile = profiles.load(profile_name)
    by_size = all(served.sized is not None for served in profile.models)
    log_format = LogFormat(dict(columns), unit, slo_ms)
    read = read_request_log(log, log_format) if by_size else None
    if read is not None and read.size.any():
        allow_options(_ALLOWED_WITH_SIZES, "is not for requests with a size.")
        _audit_sizes(log, read, profile, workers, service, schedulers, as_json)
        return
    named, schedulers = bool(schedulers), schedulers or BOTH
    if cascades:
        schedulers = also_with_cascades(schedulers)
    settings = AuditSettings(workers, service, schedulers, max_violation, seeds, model,
                             dict(names))
    if read is None:  # a long log is read after the checks that do not need it
        read = read_request_log(log, log_format)
    apart = cascades or not named
    each = [(scheduler,) for scheduler in schedulers] if apart else [schedulers]
    audits = [audit_log(read, profile, replace(settings, schedulers=some), where=log)
              for some in each]
    # The bound with cascades, of the audits that have one, stands beside the best of all.
    bounds = [each_audit.upper_bound_with_cascades for each_audit in audits]
    best_audit = replace(max(audits, key=_worth), upper_bound_with_cascades=next(
        filter(None, bounds), None))
    for note in best_audit.notes:
        click.echo(f"note: {note}", err=True)
    row = {"log": log, **best_audit.row()}
    if apart:
        row["dispatches"] = [_of_dispatch(dispatch_audit, name)
                             for dispatch_audit, (name,) in zip(audits, each, strict=True)]
    commands = [] if named else [
        _next_command(dispatch_audit, profile_name, name)
        for dispatch_audit, (name,) in zip(audits, each, strict=True)
        if dispatch_audit.best is not None]
    if as_json:
        print_json([row], **({} if named else {"next": list(map(shlex.join, commands))}))
    else:
        _show(best_audit, row, row["dispatches"] if apart else [row])
        if commands:
            click.echo("\nnext, one of:")
        for command in commands:
            say_command(command)
    if plot is not None:
        report.plot_audit(row, plot)


def _audit_sizes(
    log: str, read: RequestLog, profile: ProfileSet, workers: int, service: str | None,
    schedulers: Sequence[str], as_json: bool,
) -> None:
    """Audit requests with a size, and print the share in time by size class."""
    from ramsis.audit.sized import audit_sized
    from ramsis.sized.schedulers import POLICY, sized_scheduler

    compared = {text: None if text == POLICY else sized_scheduler(text)
                for text in schedulers or (POLICY,)}
    with progress("schedulers", len(compared)) as advance:
        result = audit_sized(read, profile, workers, service=service or default_statistic(profile),
                             schedulers=compared, where=log, on_progress=advance)
    for note in read.notes:
        click.echo(f"note: {note}", err=True)
    row = {"log": log, **result.row()}
    if as_json:
        print_json([row])
        return
    levels = [("achieved", row, row["by_class"]),
              *(("policy for this load" if figures["scheduler"] == "central-queue"
                 else figures["scheduler"], figures, figures["by_class"])
                for figures in result.replayed)]
    print_rows(AUDITED[:-1], [
        *({**figures, "what": what} for what, figures, _ in levels),
        {"what": "bound", "effective_accuracy": row["upper_bound"]}])
    shares = [{"sizes": sizes, "in_time_rate": share}
              for sizes, share in zip(result.ranges, result.share, strict=True)]
    print_classes(AUDITED[:1], [
        {"what": "share of all", "by_class": shares},
        *({"what": what, "by_class": classes} for what, _, classes in levels)], result.unit)
    done = result.achieved
    took = ("" if done.service_factor is None else f"; batches took {done.service_factor:.3f} "
            f"times what the profile says; padding: {row['padding']:.0%}")
    busy = "" if done.utilisation is None else f", {done.utilisation:.1%} busy"
    click.echo()
    say(f"{done.requests} requests in {done.duration_s:.6g} s: {done.late} late, {done.dropped} "
        f"dropped, {done.failed} failed; workers: {workers}{busy}{took}")


def _worth(result: Audit) -> tuple[float, int]:
    """Describe the best policy and the fewest workers that suffice."""
    return (-1.0 if result.best is None else result.best.effective_accuracy,
            -result.workers if result.fewest is None else -result.fewest.workers)


def _of_dispatch(result: Audit, dispatch: str) -> dict[str, Any]:
    """Return the entry of a row for policies with one kind of dispatch."""
    row = result.row()
    return {"dispatch": dispatch, **{name: row[name] for name in (
        "best_policy", "gap_to_policy", "fewest_workers", "wasted_workers")}}


def _next_command(result: Audit, profile: str, dispatch: str) -> list[str]:
    """Return the command that generates the best policy for one kind of dispatch."""
    assert result.best is not None
    used = result.fewest or result.best
    load_qps = used.level_qps or result.achieved.load_qps
    return ["ramsis", "generate", "--profiles", profile, "--slo-ms",
            f"{result.achieved.slo_ms:.10g}", "--workers", str(used.workers), "--load",
            f"{load_qps:.6g}", *dispatch_words(dispatch), "--out",
            f"policies-{scheduler_words(dispatch).replace(' with ', '-')}-{used.workers}"]


def _best_words(best: dict[str, Any] | None, dispatch: str) -> str:
    if best is None:
        return f"best policy: {scheduler_words(dispatch) or 'none'}"
    level = f" for {best['level_qps']:.6g} QPS" if best["level_qps"] else ""
    opinions = (f" ({best['second_opinions']:.1%} second opinions)"
                if best.get("second_opinions") else "")
    return f"best policy: {scheduler_words(best['scheduler'])}{level}{opinions}"


def _show(result: Audit, row: dict[str, Any], policies: list[dict[str, Any]]) -> None:
    print_rows(AUDITED, [
        {**row, "what": "achieved"},
        *({**(policy["best_policy"] or {}), "workers": policy["fewest_workers"],
           "what": _best_words(policy["best_policy"], policy.get("dispatch", ""))}
          for policy in policies),
        {"what": "bound (one model per request)", "violation_rate": row["least_violation_rate"],
         "effective_accuracy": row["upper_bound"], "workers": row["workers_bound"]},
        *([{"what": "bound (with cascades)",
            "effective_accuracy": row["upper_bound_with_cascades"]}]
          if "upper_bound_with_cascades" in row else []),
    ])
    done, total = result.achieved, result.achieved.requests
    causes = [{"cause": name, "requests": count, "share": count / total}
              for name, count in result.causes.items() if count]
    click.echo()
    print_rows(CAUSES, [*causes, {"cause": "all", "requests": total - done.served,
                                   "share": done.violation_rate}])
    click.echo()
    busy = "" if done.utilisation is None else f", {done.utilisation:.1%} busy"
    times = _TIMES.get(result.service, f"{result.service[1:]}th percentiles")
    took = (f"times are the profile's {times}" if done.service_factor is None else
            f"batches took {done.service_factor:.3f} times what the profile says")
    say(f"{total} requests in {done.duration_s:.6g} s, workers: {result.workers}{busy}, "
        f"{result.wasted_workers} wasted; {took}")
    if result.best is not None and (
            result.best.effective_accuracy < done.effective_accuracy - _SHOWN):
        why = "" if done.service_factor is not None or result.service in _TIMES else (
            f": it is simulated with the profile's {times}, and most batches take less")
        say(f"the best policy is below what was achieved{why}")
    if done.right is not None:
        say(f"{done.right:.4f} ± {done.right_half_width:.4f} of the answers in time were right")
