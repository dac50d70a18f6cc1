"""``ramsis scale``: how many workers when, and which policy meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ramsis import report
from ramsis.arrays import six_digits
from ramsis.bounds import Targets
from ramsis.cli.options.clusters import Served
from ramsis.cli.options.command import MORE_ARRIVALS, Command, given_options
from ramsis.cli.options.param_types import OUT_FOLDER, TRACE
from ramsis.cli.options.shared import (
    gathered,
    models_option,
    plot_option,
    profiles_option,
    slo_option,
    trace_options,
)
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.cli.output.rows import (
    cheapest,
    command_line,
    print_json,
    print_rows,
    progress,
    say,
    table_options,
    with_words,
)
from ramsis.errors import InfeasibleError, InvalidValueError, check_not_negative, check_positive
from ramsis.files import write_atomic
from ramsis.report.columns import SCALED
from ramsis.tables import with_values

if TYPE_CHECKING:
    from ramsis.bounds import WorkerSecondsBound
    from ramsis.scaling.comparison import Study
    from ramsis.scaling.prices import Prices


_CERTAINTY = {None: "", True: "; the target is met",
              False: "; the target is met, but within the error"}


@click.command("scale", cls=Command, more=("--plot",
    *(name for name in MORE_ARRIVALS if name != "--scale"), "--stretch", "--levels", "--seed",
    "--models", "--interval-s", "--min-workers", "--cost-per-worker-s", "--cost-per-violation",
    "--cost-per-accuracy-point", "--forecast"))
@profiles_option(several=False)
@models_option
@slo_option()
@click.option("--trace", type=TRACE, required=True, metavar="FILE|NAME",
              help="File of timestamps or loads, or a shipped trace: day.\nLines of "
                   "times, or of seconds and QPS, or a public data set, as text, .gz or .zst.")
@trace_options
@click.option("--scale", type=float, default=1.0, show_default=True, metavar="F",
              help="Factor on the load of the trace.\nFor timestamps, on the load of each second, "
                   "in which requests then arrive at random.")
@click.option("--stretch", type=float, default=1.0, show_default=True, metavar="F",
              help="Factor on the times of a trace of loads, not on its loads.")
@click.option("--startup-s", type=float, required=True, metavar="S",
              help="Start-up time of a worker.\nIt costs from its start.")
@click.option("--interval-s", type=float, default=15.0, show_default=True, metavar="S",
              help="Time between decisions.")
@click.option("--min-workers", type=click.IntRange(1, 10_000), default=1, show_default=True,
              metavar="N", help="Fewest workers.")
@click.option("--max-workers", type=click.IntRange(1, 10_000), metavar="N",
              help="Most workers.  [default: half more than the highest load needs]")
@click.option("--cost-per-worker-s", type=float, metavar="C",
              help="Cost of a worker for a second; adds the cost of each row.")
@click.option("--cost-per-violation", type=float, metavar="C",
              help="Cost of a late or dropped request, in place of a target; the policy minimises "
                   "the total cost.")
@click.option("--cost-per-accuracy-point", type=float, metavar="C",
              help="Cost of each point (0.01) of accuracy that a request loses to the best model "
                   "that is fast enough, in place of a target; a late or dropped request loses "
                   "all.")
@click.option("--max-violation", type=float, default=0.001, show_default=True, metavar="V",
              help="Largest share of late or dropped requests.")
@click.option("--min-effective-accuracy", type=float, metavar="E",
              help="Least mean accuracy, with late and dropped requests counted as 0.")
@click.option("--dispatch", type=click.Choice(("round-robin", "central-queue")),
              default="round-robin", show_default=True, metavar="NAME",
              help="How requests reach workers: round-robin or central-queue.\nIn turn, or by "
                   "one queue for all workers.")
@click.option("--levels", type=click.IntRange(4, 200), default=16, show_default=True, metavar="N",
              help="Loads per worker for which decision tables are made.")
@click.option("--forecast", type=click.Path(path_type=Path), metavar="FILE",
              help="Forecast of the load: CSV with the columns time_s, forecast_qps and error, a "
                   "share.")
@click.option("--compare", is_flag=True,
              help="Also tune rules of common autoscalers on the fitted part, and simulate them.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of the arrivals and service times.")
@click.option("--out", required=True, metavar="DIR", type=OUT_FOLDER,
              help="New folder for scaling.json, decision tables and results.")
@plot_option("load, workers, accuracy and violations over time on the second half")
@table_options
@gathered(served=Served, workload=WorkloadOptions)
def scale_command(
    served: Served, workload: WorkloadOptions, stretch: float, startup_s: float,
    interval_s: float, min_workers: int, max_workers: int | None,
    cost_per_worker_s: float | None, cost_per_violation: float | None,
    cost_per_accuracy_point: float | None, max_violation: float,
    min_effective_accuracy: float | None, dispatch: str, levels: int, forecast: Path | None,
    compare: bool, seed: int, out: Path, plot: Path | None, as_json: bool,
) -> None:
    """Plan the number of workers over time, and the policies that they serve by.

    Finds the cheapest scaling policy that meets the target on the first half of the trace, and
    prints its cost and performance on the second half.

    The load is fitted on the first half. The cost is the worker-seconds of serving and starting
    workers; beside it stand violations and effective accuracy. --compare adds the autoscalers of
    Kubernetes, KEDA, Knative, Ray Serve, llm-d and Dynamo and a static fleet, with default
    parameters and tuned on the first half, all with the same decision tables, and prints the lower
    bound on the worker-seconds of every scheduler that answers each request by one model.

    With a cost of violations or of missed accuracy there is no target: the policy has the lowest
    total cost. Without --cost-per-worker-s these costs are in worker-seconds.

    Writes scaling.json (see docs/autoscaling.md), the decision tables for each number of workers,
    and the results to DIR.

    \b
    Examples:
      $ ramsis scale --profiles text-cpu --slo-ms 95 --trace day --scale 0.3 --startup-s 10 \\
          --max-violation 0.001 --min-effective-accuracy 0.86 --out scaled
      $ ramsis scale --profiles text-cpu --slo-ms 95 --trace day --scale 0.3 --startup-s 10 \\
          --max-workers 12 --compare --out compared --json
      $ ramsis scale --profiles text-cpu --slo-ms 95 --trace day --scale 0.3 --startup-s 10 \\
          --cost-per-worker-s 0.0001 --cost-per-violation 0.002 \\
          --cost-per-accuracy-point 0.000002 --out priced
    """
    _check(startup_s, interval_s, min_workers, max_workers, cost_per_worker_s)
    if len(served.slo_ms) > 1:
        raise click.UsageError("--slo-ms: fleets that scale have one SLO.")
    if served.profile_names.typed:
        raise click.UsageError("--profiles: fleets that scale have one worker type.")
    prices = _prices(cost_per_worker_s, cost_per_violation, cost_per_accuracy_point)
    target = prices or Targets(max_violation, None, min_effective_accuracy)
    played = workload.for_scaling(stretch)
    duration_s = played.duration_ms / 1000.0
    if startup_s >= duration_s:
        raise InvalidValueError("longer than the trace", where="--startup-s", value=startup_s,
                                allowed=f"less than {duration_s:g}")
    if duration_s < 8 * interval_s:
        raise InvalidValueError(
            "the trace is too short to fit its load on one half and evaluate on the other",
            where="--interval-s", value=interval_s, allowed=f"up to {duration_s / 8:g}")
    from ramsis.scaling.comparison import Study
    from ramsis.scaling.levels import read_forecast
    from ramsis.scaling.policy_file import check_new

    check_new(out)
    study = Study(
        served.profile(), served.slo_ms[0].slo_ms, target, dispatch, seed,
        played.arrivals_ms(np.random.default_rng(seed)), duration_s, interval_s, min_workers,
        max_workers, levels, None if forecast is None else read_forecast(forecast))
    study.check(startup_s)
    rows, more = _run(study, startup_s, out, compare)
    if cost_per_worker_s is not None:
        rows = [{**row, "cost": cost_per_worker_s * row.get("cost_worker_s", row["worker_s"])}
                for row in rows]
    document = {"created_by": more.pop("created_by"), "command": command_line(), **more,
                "rows": rows}
    write_atomic(out / "results.json", json.dumps(document, indent=1) + "\n")
    if plot is not None:
        report.plot_charts(report.scaling_charts(rows, more["bound"]), plot)
    if as_json:
        print_json(rows, **more)
        return
    # In worker-seconds the cost is said where it is not said in money.
    columns = [column for column in SCALED if cost_per_worker_s is None
               or column.key != "cost_worker_s"]
    shown = with_words(rows)
    print_rows(with_values(columns, shown), shown)
    _say_more(more, rows)


def _run(study: Study, startup_s: float, out: Path, compare: bool
         ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the policy, and return the rows and further entries of the output."""
    from ramsis import __version__
    from ramsis.scaling.policy_file import scaling_document, write_scaling
    from ramsis.scaling.prices import Prices
    from ramsis.scaling.rules import RULES

    with progress("decision tables", None) as advance:
        tables = study.make_tables(advance)
    with progress("runs of scaling policies", None) as advance:
        chosen, promised = study.kept(startup_s, advance)
    document = scaling_document(chosen, tables, promised, study.target, study.fleet(startup_s))
    comparison = study.comparison(startup_s)
    rows = [comparison.policy_row(chosen.table)]
    with progress("rules tuned", None) as advance:
        for name in RULES if compare else ():
            rows += comparison.rule_rows(name)
            advance()
    limits = _limits(study, startup_s)
    write_scaling(out, document, tables)
    rules = rows[1:]
    shown = [cheapest([row for row in rules if row["tuned"] == tuned])
             for tuned in (False, True)]
    for row in rules:
        if not any(row is shown_row for shown_row in shown):
            del row["over_time"]
    _say_overfitted(rules)
    return rows, {
        "created_by": f"ramsis {__version__}", "max_workers": tables.most, **study.known,
        "fitted": {**chosen.delivered._asdict(), "seconds": study.half_s},
        "promise": document["promise"], "bound": limits,
        "promise_clear": None if isinstance(study.target, Prices) else (
            promised.clear(study.target))}


def _say_overfitted(rules: list[dict[str, Any]]) -> None:
    """Name the rules that tuning has made dearer and later on the half that was not fitted."""
    names = [tuned["scheduler"] for usual, tuned in zip(rules[::2], rules[1::2], strict=True)
             if tuned["worker_s"] > usual["worker_s"]
             and tuned["violation_rate"] > usual["violation_rate"]]
    if names:
        click.echo(f"note: tuned on the first half, {', '.join(names)} cost more and are later on "
                   "the second than by their defaults; `fitted` in results.json has the first",
                   err=True)


def _limits(study: Study, startup_s: float) -> dict[str, Any]:
    """Return lower bounds on the cost of the second half, for one model per request."""
    from ramsis.scaling.prices import Prices

    limits: dict[str, Any] = {"worker_s": None, "peak": None, "mean": None}
    if isinstance(study.target, Prices):
        return {**limits, "cost_worker_s": study.least_cost(startup_s)}
    try:
        bound = study.bound(startup_s)
    except InfeasibleError as error:
        click.echo(f"note: bound on the other half: {error}", err=True)
        return limits
    return {"worker_s": bound.worker_s, "peak": bound.peak, "mean": bound.mean,
            **_over_time(bound)}


def _over_time(bound: WorkerSecondsBound) -> dict[str, list[float | None]]:
    """Return the workers of the bound's plan over time, averaged to at most 300 points."""
    paid_s = np.append(0.0, np.cumsum(bound.workers * np.diff(bound.time_s)))
    edges_s = np.linspace(bound.time_s[0], bound.time_s[-1], min(len(bound.workers), 300) + 1)
    means = np.diff(np.interp(edges_s, bound.time_s, paid_s)) / np.diff(edges_s)
    return six_digits({"time_s": edges_s[:-1], "workers": means})


def _check(startup_s: float, interval_s: float, least: int, most: int | None, cost: float | None
           ) -> None:
    """Refuse options of `ramsis scale` that are out of range."""
    from ramsis.scaling.prices import MOST_WORKER_S

    check_positive(interval_s=interval_s)
    if cost is not None and not 0 < cost <= MOST_WORKER_S:
        raise InvalidValueError("not a cost", where="--cost-per-worker-s", value=cost,
                                allowed=f"above 0, up to {MOST_WORKER_S:g}")
    check_not_negative("not a time", startup_s=startup_s)
    if most is not None and least > most:
        raise InvalidValueError("more than at most", where="--min-workers", value=least,
                                allowed=f"up to --max-workers {most}")


def _prices(
    per_worker_s: float | None, per_violation: float | None, per_point: float | None
) -> Prices | None:
    """Return prices in worker-seconds if any is set; refuse them together with a target."""
    from ramsis.scaling.prices import MOST_WORKER_S, Prices

    each = per_worker_s or 1.0
    asked = {"--cost-per-violation": (per_violation, 1.0),
             "--cost-per-accuracy-point": (per_point, 100.0)}
    prices = {name: cost for name, (cost, _) in asked.items() if cost is not None}
    for name, cost in prices.items():
        most = MOST_WORKER_S / asked[name][1]
        if not 0 <= cost <= most * each:
            raise InvalidValueError("not a cost", where=name, value=cost, allowed=(
                f"0 to {most * each:g}, what {most:g} worker-seconds cost"))
    if not prices:
        return None
    for option in given_options(click.get_current_context()):
        if option.name in ("max_violation", "min_effective_accuracy"):
            raise click.UsageError(f"{option.opts[0]} is a target and {next(iter(prices))} stands "
                                   "in place of one; give either.")
    return Prices((per_violation or 0.0) / each, 100.0 * (per_point or 0.0) / each)


def _say_more(more: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    promised, bound = more["promise"], more["bound"]
    workers, late, accuracy = (promised[name] for name in (
        "workers", "violation_rate", "effective_accuracy"))
    click.echo()
    cost = promised.get("cost")
    priced = "" if cost is None else (
        f"; with violations and missed accuracy {cost['mean']:.2f} ± {cost['half_width']:.2f} "
        "worker-seconds a second")
    say(f"promise, where the load goes on as on the first half: {workers['mean']:.2f} ± "
        f"{workers['half_width']:.2f} workers, violations {late['mean']:.4%} ± "
        f"{late['half_width']:.4%}, effective accuracy {accuracy['mean']:.4f} ± "
        f"{accuracy['half_width']:.4f}{priced}{_CERTAINTY[more['promise_clear']]}")
    if "cost_worker_s" in bound:
        say("bound: with one model per request no scheduler costs less than "
            f"{bound['cost_worker_s']:.0f} worker-seconds on the second half, violations and "
            f"missed accuracy included; the policy cost {rows[0]['cost_worker_s']:.0f}")
    if bound["worker_s"] is not None:
        say("bound: with one model per request no scheduler meets the target on the second half "
            f"with less than {bound['worker_s']:.0f} worker-seconds; the policy took "
            f"{rows[0]['worker_s']:.0f}")
