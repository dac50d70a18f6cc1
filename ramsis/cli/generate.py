"""``ramsis generate``: policy files for load levels."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from ramsis import profiles
from ramsis.arrivals import Arrivals
from ramsis.cli.mixed import MixedFleet, fleet_of, generate_mixed
from ramsis.cli.options import (
    load_option,
    mixed_fleet_options,
    policy_arrivals_option,
    policy_service_option,
)
from ramsis.cli.params import GRID, ByType
from ramsis.cli.rows import (
    Column,
    budget_row,
    json_option,
    policy_row,
    print_json,
    print_rows,
    progress,
)
from ramsis.cluster.slo_class import SloClass
from ramsis.errors import InvalidValueError, describe
from ramsis.policy import (
    MANIFEST_NAME,
    Policy,
    policy_file_name,
)
from ramsis.synthesis import (
    FleetSettings,
    SynthesisSettings,
    choose_loads,
    generate_set,
)
from ramsis.synthesis.settings import OWN_QUEUES
from ramsis.worker.actions import Batching, LateRule
from ramsis.worker.grid import DEFAULT_GRID
from ramsis.worker.problem import Objective
from ramsis.worker.solve import SOLVERS, SolverName

__all__ = ["PROMISE_COLUMNS", "generate"]

PROMISE_COLUMNS = (
    Column("load_qps", "load (QPS)", "g"),
    Column("expected_accuracy", "accuracy", ".4f"),
    Column("expected_violation_rate", "violations", ".4%"),
    Column("expected_effective_accuracy", "effective acc.", ".4f"),
    Column("upper_bound", "upper bound", ".4f"),
    Column("utilisation", "utilisation", ".1%"),
    Column("state", "state"),
)


@click.command("generate")
@mixed_fleet_options
@load_option()
@click.option("--out", required=True, metavar="DIR", type=click.Path(path_type=Path),
              help="Folder for the policy files and their manifest.")
@click.option("--scheme", type=click.Choice(["worker", "fleet"]), default="worker",
              show_default=True,
              help="Policies for each worker's own queue, or for a central queue of the fleet.")
@click.option("--grid", type=GRID, default=None, metavar="fixed:D|model",
              help="Slack grid: D equal steps, or the profiled latencies.  [default: fixed:100; "
                   "for a fleet the latencies, or fixed:60 where times are drawn]")
@click.option("--objective", type=click.Choice([o.value for o in Objective]),
              default=Objective.PER_QUERY.value, show_default=True,
              help="Accuracy averaged over queries, or over decisions as in the paper.")
@click.option("--dispatch", type=click.Choice(OWN_QUEUES), default=OWN_QUEUES[0],
              show_default=True,
              help="Queries go to the workers in turn, or each to the worker with the fewest.")
@policy_arrivals_option
@policy_service_option
@click.option("--late", type=click.Choice([rule.value for rule in LateRule]), default=None,
              help="Requests that nothing can answer in time: a worker's fastest model serves the "
                   "whole queue, they are dropped, or any model may serve.  [default: serve; a "
                   "fleet drops them]")
@click.option("--batching", type=click.Choice([way.value for way in Batching]),
              default=Batching.MAXIMAL.value, show_default=True,
              help="Batches of a worker: its whole queue, or any part of it.")
@click.option("--violation-price", type=float, default=None,
              help="What a late or dropped query costs, in units of accuracy; at 0 effective "
                   "accuracy alone counts.  [default: 0; for a fleet 1]")
@click.option("--max-violation", type=float, default=None, metavar="X",
              help="Budget of violations, such as 0.001: makes the most accurate policy that "
                   "keeps to it in simulation, at the price that this takes; some ten seconds a "
                   "load.")
@click.option("--max-queue", type=int, default=32, show_default=True,
              help="Longest queue that a worker's table tells apart; a fleet's largest batch.")
@click.option("--max-accuracy-step", type=float, default=None, metavar="X",
              help="Choose the fewest levels between the lowest and the highest --load whose "
                   "expected accuracies differ by at most X, such as 0.01.")
@click.option("--solver", type=click.Choice(get_args(SolverName)), default=SOLVERS[0],
              show_default=True, help="The last two are slow and meant for comparisons.")
@click.option("--overwrite", is_flag=True,
              help="Remove the set that DIR holds before writing, whatever it was made from.")
@json_option
def generate(
    profile_names: ByType[str],
    slo_ms: tuple[SloClass, ...],
    workers: ByType[int],
    loads: tuple[float, ...],
    out: Path,
    scheme: str,
    grid: str | None,
    objective: str,
    dispatch: str,
    arrivals: Arrivals,
    service: str | None,
    late: str | None,
    batching: str,
    violation_price: float | None,
    max_violation: float | None,
    max_queue: int,
    max_accuracy_step: float | None,
    solver: SolverName,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Make a model-selection policy for each load level.

    With --scheme fleet the policy decides about one central queue for all workers. Options that are
    of workers only: --objective, --dispatch, --arrivals, --late, --batching and --solver.

    Writes one policy file per level and a manifest into DIR, and prints what each policy will
    deliver: accuracy of the queries answered in time, share of SLO violations, effective
    accuracy (late queries count 0), and the upper bound that no scheme with batches up to
    --max-queue can beat. State OVERLOAD: the load passes the capacity, or more than a tenth of
    the queries will be late. A set in DIR made from the same inputs is extended, also by
    policies for another arrival process. `ramsis arrivals fit` finds the process of a trace.

    With several worker types or SLO classes DIR gets a folder of policies for each station, and
    the manifest says which share of each class goes to which station;
    "shared" and "apart" are what classes get from common workers and from workers of their own,
    of which the better is made.

    \b
    Examples:
      $ ramsis generate --profiles digits-cpu --slo-ms 100 --workers 4 --load 50:200:50 --out out
      $ ramsis generate --profiles digits-cpu --slo-ms 100 --workers 4 --load 80 --out out2 --json
      $ ramsis generate --profiles digits-cpu --slo-ms 25 --workers 40 --load 4000 --scheme fleet --out out3
      $ ramsis generate --profiles digits-cpu --slo-ms 15:0.3,25:0.7 --workers 8 --load 400 --scheme fleet --out out4
      $ ramsis generate --profiles digits-cpu --slo-ms 25 --workers 4 --load 400 --dispatch shortest-queue --out out5
    """  # noqa: E501 - an example is one line
    if None not in (max_violation, violation_price):
        raise click.UsageError("--max-violation finds the price: leave --violation-price out.")
    serving = fleet_of(profile_names, slo_ms, workers)
    settings: SynthesisSettings | FleetSettings
    if scheme == "fleet":
        settings = _fleet_settings(serving.slo_ms, serving.workers, grid, objective, dispatch,
                                   arrivals.text, service, late, batching, violation_price,
                                   max_violation, max_queue, solver)
    else:
        settings = SynthesisSettings(
            slo_ms=serving.slo_ms, workers=serving.workers, arrivals=arrivals.text,
            service=service, dispatch=dispatch,
            objective=objective, grid=DEFAULT_GRID if grid is None else grid,
            max_queue=max_queue, late=late or LateRule.SERVE.value, batching=batching,
            violation_price=violation_price or 0.0, solver=solver, max_violation=max_violation,
        )
    if isinstance(serving, MixedFleet):
        if max_accuracy_step is not None:
            raise InvalidValueError(describe("not for a mixed fleet", where="--max-accuracy-step",
                                             value=max_accuracy_step, allowed="levels in --load"))
        generate_mixed(serving, loads, settings, out, overwrite=overwrite, as_json=as_json)
        return
    profile = profiles.load(profile_names.one)
    if max_accuracy_step is not None:
        with progress("choosing load levels", 1):
            loads = choose_loads(profile, loads[0], loads[-1], settings, max_accuracy_step)
    with progress("policies", len(loads)) as advance:
        policies = generate_set(
            profile, loads, settings, out, overwrite=overwrite, on_policy=lambda _: advance()
        )
    rows = [_row(policy, out) for policy in policies]
    if as_json:
        print_json(rows)
        return
    print_rows(PROMISE_COLUMNS, rows)
    count = f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}"
    click.echo(f"\n{count} in {out} ({MANIFEST_NAME} lists them)")


def _fleet_settings(
    slo_ms: float, workers: int, grid: str | None, objective: str, dispatch: str, arrivals: str,
    service: str | None, late: str | None, batching: str, violation_price: float | None,
    max_violation: float | None, max_queue: int, solver: str,
) -> FleetSettings:
    """Settings of a fleet; options that it does not have must be at their defaults."""
    for option, value, only in (("--objective", objective, "per-query"),
                                ("--dispatch", dispatch, OWN_QUEUES[0]),
                                ("--arrivals", arrivals, "poisson"),
                                ("--late", late or "drop", "drop"),
                                ("--batching", batching, Batching.MAXIMAL.value),
                                ("--solver", solver, SOLVERS[0])):
        if value != only:
            raise InvalidValueError(describe("not for --scheme fleet", where=option, value=value,
                                             allowed=only))
    return FleetSettings(slo_ms=slo_ms, workers=workers, service=service, grid=grid,
                         violation_price=1.0 if violation_price is None else violation_price,
                         max_batch=max_queue, max_violation=max_violation)


def _row(policy: Policy, folder: Path) -> dict[str, object]:
    name = policy_file_name(policy.dispatch, policy.load_qps, policy.arrivals)
    state = "OVERLOAD" if policy.expectations.overloaded else "ok"
    if policy.randomised is not None:
        state += ", one action by chance"
    return {**policy_row(policy), **budget_row(policy), "file": str(folder / name),
            "state": state}
