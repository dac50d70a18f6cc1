"""``ramsis plan``: from a profile, a load and a target to workers, policies and a verdict.

A recipe over other commands. Each runs in a process of its own, in the folder of the plan, which
keeps what it prints: a plan that was cut short goes on where it was, and every command can be run
again by hand.

1. `capacity` finds the fewest workers with a common queue, and with a queue each. At a constant
   load the policies' promise decides, as exactly as it has to be known.
2. `generate` makes the policies for the fewer of the two.
3. `simulate` plays them with seeds that nothing was chosen by. Where they miss the target on a
   trace, or clearly at a constant load, a worker is added, and step 2 comes again.
4. `simulate` plays policies for one worker more: what that worker is worth.
5. `report` writes a page about all of it.
"""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from ramsis import report
from ramsis.arrivals import Arrivals
from ramsis.arrivals.recorded import PROCESS as TRACE
from ramsis.bounds import Targets
from ramsis.cli.options.clusters import Served
from ramsis.cli.options.command import (
    MORE_ARRIVALS,
    Command,
    given_options,
    refuse_options,
)
from ramsis.cli.options.param_types import GROWTH, OUT_FOLDER, TraceName
from ramsis.cli.options.shared import (
    gathered,
    min_in_time_option,
    plot_option,
    profiles_option,
    simulated_service_option,
    sizes_options,
    slo_option,
    target_options,
    workload_options,
)
from ramsis.cli.options.sizes import SizedInputs, workload_of_sizes
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.cli.output.rows import json_option, print_classes, print_json, print_rows, say
from ramsis.cli.planning.plan_run import CASCADES, QUEUES, RUNS, PlanRun, exact
from ramsis.cluster import default_service
from ramsis.cluster.cluster import merged_classes
from ramsis.cluster.service_times import DISTRIBUTION, FIXED
from ramsis.errors import InfeasibleError, InvalidValueError, check_not_negative
from ramsis.profiles import ProfileSet
from ramsis.report.columns import GROWN, PLANNED
from ramsis.sim import ConstantLoad, Fleet, RateTrace, Recorded, Workload, check_load
from ramsis.synthesis.capacity import (
    MOST_WORKERS,
    fewest_by_bound,
    whole_workers,
)
from ramsis.tables import scheduler_words, with_values

_FEWEST_REQUESTS = 10  # in a run
_SECONDS_TO_START = 25.0  # for --dry-run


@click.command("plan", cls=Command, more=(
    "--cascades", "--every", "--growth", "--sizes", "--size-column", "--min-in-time-by-class",
    "--service", "--plot", *MORE_ARRIVALS))
@profiles_option(several=False)
@slo_option()
@target_options
@click.option("--cascades", is_flag=True,
              help="Also plan with second opinions: a second model is asked where the first is "
                   "unsure.\nThe profile needs confidences.")
@click.option("--cost-per-worker", type=float, metavar="C",
              help="Cost of a worker, in any unit, which adds the cost to the result.")
@click.option("--growth", type=GROWTH, metavar="F,...",
              help="Further factors on the load to find the workers for, such as 1.5,2.")
@click.option("--out", required=True, metavar="DIR", type=OUT_FOLDER,
              help="Folder for the plan, or with an interrupted one, which continues.")
@partial(workload_options, several=False)
@sizes_options
@min_in_time_option
@simulated_service_option
@click.option("--dry-run", is_flag=True,
              help="Only print the steps and an estimate of their time.")
@plot_option("accuracy over the number of workers, with target and bound")
@json_option
@gathered(served=Served, targets=Targets)
@click.pass_context
def plan(
    context: click.Context,
    served: Served,
    targets: Targets,
    cascades: bool,
    cost_per_worker: float | None,
    growth: tuple[float, ...] | None,
    out: Path,
    workload: WorkloadOptions,
    min_in_time_by_class: tuple[float, ...] | None,
    service: str | None,
    dry_run: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Plan workers and policies for a load and a target.

    The verdict has the fewest workers, their performance in simulation with fresh seeds, the bound
    for every scheduler that answers each request by one model, and the value of one more worker.
    With --cascades it also has the workers with second opinions, how many requests get one, what
    that adds, which models answer, and the bound for schedulers with cascades.

    With --sizes, or a trace with sizes, requests have a size: the policies decide which of those
    that wait are a batch, and the verdict has the share in time of each size class.

    Writes the policies, the simulations, report.html, and plan.json with the executed commands to
    DIR.

    If no number of workers meets the target, the command reports the best attainable and ends
    with exit code 4.

    \b
    Examples:
      $ ramsis plan --profiles digits-cpu --load 1000 --slo-ms 25 --min-accuracy 0.95 \\
          --out plan --dry-run
      $ ramsis plan --profiles digits-cpu --trace day --slo-ms 25 \\
          --min-effective-accuracy 0.94 --out plan2 --dry-run
    """
    workload.check(targets.every_ms)
    if workload.loads is not None and len(workload.loads) > 1:
        raise click.UsageError("--load is one number here; --trace has loads that change.")
    check_not_negative("not a cost", cost_per_worker=cost_per_worker or 0.0)
    classes = merged_classes(served.slo_ms)
    if served.profile_names.typed or len(classes) > 1:
        raise click.UsageError("A plan is for one profile and one SLO: see `ramsis capacity` for "
                               "several.")
    profile, slo_ms = served.profile(), classes[0].slo_ms
    file = served.profile_names.one
    served_words = ("--profiles", _from_anywhere(file), "--slo-ms", exact(slo_ms))
    wanted = _words({"--min-accuracy": targets.min_accuracy,
                     "--max-violation": targets.max_violation,
                     "--min-effective-accuracy": targets.min_effective_accuracy})
    arrivals = _words_of(context, [item.name for item in fields(WorkloadOptions)])
    inputs = {"profile": profile.fingerprint, "trace": _digest(workload)}
    bound: Callable[[Workload], float]
    sized = workload_of_sizes(workload, served)
    if sized is not None:
        from ramsis.cli.planning.sized_capacity import SizedCapacity, SizedPlanRun
        from ramsis.sized.capacity import fewest_by_bound_of_sizes
        from ramsis.sized.schedulers import POLICY
        from ramsis.sized.search import class_shares

        asked = SizedCapacity.of(
            SizedInputs.of(served, sized), (POLICY,), targets, min_in_time_by_class, range(5),
            service)
        (played,) = asked.inputs.workloads
        bound = partial(fewest_by_bound_of_sizes, asked.problem, targets=targets,
                        min_in_time_by_class=min_in_time_by_class)
        shares = class_shares(asked.problem, min_in_time_by_class)
        of_sizes = () if workload.sizes is None else _words_of(
            context, ("sizes", "size_column"))
        inputs["problem"] = asked.problem.fingerprint
        recipe: PlanRun = SizedPlanRun(
            folder=out, workload=played, slo_ms=slo_ms, targets=targets, wanted=wanted,
            served=(*served_words, *(() if service is None else ("--service", service))),
            arrivals=arrivals, sizes=of_sizes,
            by_class=() if min_in_time_by_class is None else (
                "--min-in-time-by-class", ",".join(map(exact, min_in_time_by_class))),
            shares=None if shares is None else shares.tolist())
    else:
        refuse_options(("min_in_time_by_class",), "needs requests with a size: --sizes.")
        _say_largest(profile, file)
        # Named where it is no default, so that each command does not note it again.
        chosen = service or default_service(profile)
        named = service is not None or chosen not in (DISTRIBUTION, FIXED)
        fleet = Fleet.of(profile, workers=MOST_WORKERS, slo_ms=slo_ms, service=chosen)
        (played,) = workload.workloads(fleet)
        bound = partial(_checked_bound, fleet, profile, targets=targets, slo_ms=slo_ms,
                        service=chosen, cascades=cascades)
        recipe = PlanRun(
            folder=out, workload=played, slo_ms=slo_ms, targets=targets,
            served=(*served_words, *(("--service", chosen) if named else ())), arrivals=arrivals,
            wanted=(*wanted, *(() if targets.every_ms is None else (
                "--every", f"{exact(targets.every_ms)}ms"))),
            queues=tuple(name for name in QUEUES if cascades or name != CASCADES))
    if workload.loads is None:
        _check_requests(played)
    least = whole_workers(bound(played))
    grown = {factor: _grown(factor, played, bound) for factor in growth or ()}
    if dry_run:
        _say_what(recipe, least)
        return
    recipe.begin(inputs)
    plan_result = recipe.run(cost_per_worker, grown)
    if plot is not None:
        report.plot_charts(report.plan_charts(
            plan_result["rows"], plan_result["inputs"]["options"]), plot)
    if as_json:
        print_json(plan_result.pop("rows"), **plan_result)
        return
    for line in plan_result["words"]:
        say(line)
    click.echo()
    print_rows(with_values(PLANNED, plan_result["rows"]), [
        {**row, "dispatch": scheduler_words(row["dispatch"])} for row in plan_result["rows"]])
    if "by_class" in plan_result["verdict"]:
        print_classes(PLANNED[:2], [plan_result["verdict"]], plan_result["verdict"]["unit"])
    click.echo()
    if growth:
        print_rows(GROWN, plan_result["growth"])
        click.echo()
    say(f"{out}: {plan_result['verdict']['policies']}, report.html, and plan.json with the "
        f"{len(plan_result['commands'])} commands that were run there")


def _check_requests(workload: Workload) -> None:
    """Refuse a trace of so few requests that it shows nothing."""
    run_s = workload.duration_ms / 1000.0
    requests = (workload.load_qps or 0.0) * run_s
    if requests < _FEWEST_REQUESTS:
        raise InvalidValueError(
            "too few requests for a verdict", where="--trace",
            value=f"about {requests:.3g} in {run_s:g} s",
            allowed=f"at least {_FEWEST_REQUESTS}: a longer trace")


def _say_largest(profile: ProfileSet, name: str) -> None:
    """Note on stderr that each request counts as the largest, where models have times by size."""
    for model in profile.models:
        if model.sized is not None:
            click.echo(f"note: {name}: each request counts as the largest, of "
                       f"{model.sized.sizes[-1]} {model.sized.unit}; --sizes counts workers by "
                       "size", err=True)
            break


def _checked_bound(fleet: Fleet, profile: ProfileSet, workload: Workload, **terms: Any) -> float:
    """Bound the busy workers from below; refuse a trace that no fleet could serve."""
    if not isinstance(workload, ConstantLoad):
        check_load(fleet, workload)
    return fewest_by_bound(profile, workload, **terms)


def _grown(
    factor: float, workload: Workload, bound: Callable[[Workload], float]
) -> Workload:
    """Return the workload at a multiple of its load; refuse one beyond what can be planned."""
    try:
        if isinstance(workload, ConstantLoad):
            grown: Workload = replace(workload, load_qps=workload.load_qps * factor)
        else:
            assert isinstance(workload, RateTrace | Recorded)  # all that --trace reads
            grown = workload.scaled(factor)
            _check_requests(grown)
        whole_workers(bound(grown))
        return grown
    except (InvalidValueError, InfeasibleError) as error:
        raise type(error)(f"--growth {factor:g}: {error}") from None


def _say_what(recipe: PlanRun, least: int) -> None:
    """Print the steps and a rough estimate of their duration."""
    levels = len(recipe.loads_qps)
    requests = (recipe.workload.load_qps or 0.0) * recipe.run_ms / 1000.0
    tried = 4 + 2 * math.ceil(math.log2(1 + least))
    seconds = _SECONDS_TO_START + (
        tried * (levels * recipe.each_policy_s
                 + (0 if recipe.constant else 5) * requests / recipe.requests_each_s)
        + 2 * RUNS * requests / recipe.requests_each_s)
    click.echo(f"{levels} load level{'s' if levels > 1 else ''}, {requests:,.0f} requests a run, "
               f"at least {least} worker{'s' if least > 1 else ''} by the bound; about "
               f"{seconds:.0f} s")
    click.echo(f"first {shlex.join(['ramsis', *recipe.search])}")
    click.echo("then `generate`, `simulate` twice, and `report`, for the workers that it finds")


def _words(options: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return the options that have a value, as command-line words."""
    return tuple(word for name, value in options.items() if value is not None
                 for word in (name, exact(value)))


def _words_of(context: click.Context, names: Collection[str]) -> tuple[str, ...]:
    """Return the options among ``names`` that the user has set, with absolute paths."""
    options: list[str] = []
    for option in given_options(context):
        if option.name in names:
            options += [option.opts[0], _word(context.params[option.name or ""])]
    return tuple(options)


def _word(value: Any) -> str:
    """Return the text of an option, files with their absolute path."""
    if isinstance(value, TraceName):
        return _from_anywhere(value.name)
    if isinstance(value, Path):
        return _from_anywhere(str(value))
    if isinstance(value, tuple):
        return ",".join(exact(item) for item in value)
    if isinstance(value, float):
        return exact(value)
    if isinstance(value, Arrivals) and value.name == TRACE:
        return f"{TRACE}:{_from_anywhere(dict(value.parameters)['file'])}"
    return getattr(value, "text", None) or str(value)


def _from_anywhere(name: str) -> str:
    """Return the absolute path of a file; other names are returned unchanged."""
    path = Path(name)
    return str(path.resolve()) if path.exists() else name


def _digest(workload: WorkloadOptions) -> str | None:
    """Return a digest of the trace, so that a plan is not resumed after the trace changed."""
    if workload.trace is None:
        return None
    with workload.trace.path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
