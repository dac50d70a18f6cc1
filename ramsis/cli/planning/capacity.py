"""``ramsis capacity``: the fewest workers that reach an accuracy and a violation rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click

from ramsis.cli.options.clusters import profiles_of
from ramsis.cli.options.param_types import (
    COSTS,
    FIGURE,
    LIMITS,
    OUT_PLACE,
    PROFILES,
    SCHEDULER,
    SLOS,
    ByType,
    NamedScheduler,
)
from ramsis.cli.options.shared import (
    engine_options,
    models_option,
    overhead_option,
    padding_option,
    scheduler_option,
    seed_options,
    simulated_service_option,
    target_options,
    workload_options,
)
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.cli.output.rows import Column, json_option, print_json, print_rows, progress
from ramsis.cluster import SloClass, WorkerType, default_service, merged_classes
from ramsis.errors import InfeasibleError, InvalidValueError, describe
from ramsis.profiles import ProfileSet
from ramsis.sim import ConstantLoad, Fleet
from ramsis.sweep import Engine
from ramsis.synthesis.capacity import (
    MOST_WORKERS,
    Capacity,
    Targets,
    Trial,
    fewest_by_bound,
    fewest_workers,
    fluid_mixes,
)

__all__ = ["capacity"]

_CASE = (
    Column("scheduler", "scheduler"),
    Column("load_qps", "load (QPS)", ".6g"),
)
_WORKERS = (
    Column("workers", "workers", "d"),
    Column("workers_bound", "bound", "d"),
    Column("gap", "gap", "d"),
)
_TYPES = (
    Column("mix", "workers"),
    Column("cost", "cost", "g"),
    Column("cost_bound", "bound", "g"),
    Column("gap", "gap", ".6g"),
)
_FIGURES = (
    Column("expected_accuracy", "promised acc.", ".4f"),
    Column("accuracy", "accuracy", ".4f"),
    Column("accuracy_half_width", "±", ".4f"),
    Column("expected_violation_rate", "promised viol.", ".4%"),
    Column("violation_rate", "violations", ".4%"),
    Column("violation_rate_half_width", "±", ".4%"),
    Column("effective_accuracy", "effective acc.", ".4f"),
    Column("clear_word", "clear"),
)


_CONSTANT_POISSON = "the bound on combinations of types is for constant Poisson loads"
_OF_ONE_TYPE = {
    **dict.fromkeys(("trace", "unit", "time_column", "scale", "arrivals"), _CONSTANT_POISSON),
    "plot": "the figure shows one number of workers for each load",
}
"""Options without a meaning for several types, and why."""


@click.command("capacity")
@click.option("--profiles", "profile_names", type=PROFILES, required=True,
              metavar="FILE|NAME|TYPE=FILE,...",
              help="Profile file, or the name of a shipped profile set; of several worker types: "
              "gpu=a.json,cpu=b.json.")
@models_option
@click.option("--slo-ms", "classes", type=SLOS, required=True, metavar="MS",
              help="Deadline after arrival, in ms.")
@click.option("--cost", type=COSTS, metavar="TYPE=X,...",
              help="What one worker of each type costs: gpu=3,cpu=0.5.  [default: 1]")
@click.option("--max-workers", type=LIMITS, metavar="TYPE=N,...",
              help="How many workers of a type there are: gpu=8.  [default: any number]")
@scheduler_option("Policies by their dispatch, central-queue, round-robin or shortest-queue, with "
                  "settings as round-robin:grid=model, or a scheduler of `simulate`, as "
                  "jellyfish-plus:headroom=1.05; repeat to compare.  [default: central-queue]",
                  type=SCHEDULER, metavar="NAME", default=("central-queue",))
@target_options
@workload_options
@seed_options(5)
@simulated_service_option
@overhead_option
@padding_option
@engine_options(processes=1)
@click.option("--keep", type=OUT_PLACE, metavar="DIR|URL",
              help="Keep answers there, and do not search again for those that are.")
@json_option
@click.option("--plot", type=FIGURE, metavar="FILE",
              help="Draw workers over loads: .png, .pdf or .svg.")
@click.pass_context
def capacity(
    context: click.Context,
    profile_names: ByType[str],
    models: list[str] | None,
    classes: tuple[SloClass, ...],
    cost: ByType[float] | None,
    max_workers: ByType[int] | None,
    schedulers: tuple[NamedScheduler, ...],
    min_accuracy: float | None,
    min_effective_accuracy: float | None,
    max_violation: float,
    workload: WorkloadOptions,
    seed: int,
    seeds: int,
    service: str | None,
    overhead_ms: float,
    padding: bool,
    engine: Engine,
    keep: Path | str | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Find the fewest workers that reach an accuracy and a violation rate.

    One row per scheduler and load, or for the whole trace. "workers" is what simulation confirms, with
    policies made for that number; "bound" the number that no scheduler can do with fewer than, "gap"
    the difference. What the policy for a constant load promises stands beside what was simulated
    and the half-width of its 95 % confidence interval; "clear" says whether the targets are met
    at the bad ends of these intervals too.

    Of several worker types (--profiles TYPE=FILE,...) the cheapest workers are found, by --cost;
    "bound" is then the cost that no scheduler can do with less than. For policies, and Poisson
    arrivals at constant loads.

    A target that no number of workers reaches is refused with the nearest that can be reached
    (exit code 4); so is a scheduler that does not get there with ten times the bound, once the
    other rows are printed.

    \b
    Examples:
      $ ramsis capacity --profiles digits-cpu --slo-ms 25 --load 2000 --min-accuracy 0.95 --duration-s 5
      $ ramsis capacity --profiles digits-cpu --slo-ms 25 --load 1000,2000 --min-accuracy 0.95 --scheduler round-robin --scheduler jellyfish-plus --duration-s 5
      $ ramsis capacity --profiles digits-cpu --slo-ms 25 --trace day --duration-s 20 --min-effective-accuracy 0.94 --scheduler greedy --json
      $ ramsis capacity --profiles big=digits-cpu,small=digits-cpu --cost big=1.5,small=1 --max-workers small=3 --slo-ms 25 --load 1000 --min-accuracy 0.95 --scheduler round-robin --duration-s 5
    """  # noqa: E501 - an example is one line
    workload.check()
    if plot is not None and workload.loads is None:
        raise click.UsageError("--plot is for --load.")
    targets = Targets(max_violation, min_accuracy, min_effective_accuracy)
    names = [one.text for one in schedulers]
    _check_types(profile_names, cost, max_workers)
    read = profiles_of(profile_names, models, overhead_ms, padding)
    terms: dict[str, Any] = {"slo_ms": merged_classes(classes),
                             "service": service or default_service(*read.values())}
    runs = {"seeds": range(seed, seed + seeds), **terms}
    types = _offered_types(profile_names, read, cost, max_workers)
    if types:
        _refuse_beside_types(context)
        workloads: Any = [ConstantLoad(qps, 1000.0 * workload.constant_s)
                          for qps in workload.loads or ()]
        for one in workloads:  # refuses what nothing reaches before anything is simulated
            fluid_mixes(types, one.load_qps, targets, **terms)
    else:
        profile = read[profile_names.one]
        workloads = workload.workloads(Fleet.of(
            profile, workers=MOST_WORKERS, slo_ms=terms["slo_ms"][-1].slo_ms,
            service=terms["service"]))
        for one in workloads:
            fewest_by_bound(profile, one, targets, **terms)
    output = _Output(as_json, plot, {one.name: one.fingerprint for one in read.values()})
    offered: Any = types or profile
    if engine.elsewhere or keep is not None:
        from ramsis.cli.parallel_jobs import capacity_question, rows_of  # which take long to load

        questions = [capacity_question(offered, load, name, targets=targets, **runs)
                     for load, name in product(workloads, names)]
        with progress("searches", len(questions)) as advance:
            _tell(*rows_of(questions, engine, keep, advance), output)
        return
    _run(product(workloads, names), lambda load, name, tell: fewest_workers(
        offered, load, targets, scheduler=name, on_trial=tell, **runs), output)


@dataclass(frozen=True)
class _Output:
    """Where the rows go, and the profiles that they rest on, by fingerprint."""

    as_json: bool
    plot: Path | None
    fingerprints: Mapping[str, str]


def _run(
    cases: Iterable[tuple[Any, str]],
    search: Callable[[Any, str, Callable[[Trial], object]], Capacity],
    output: _Output,
) -> None:
    """Search for each workload and scheduler, and print what was found before what was not."""
    rows: list[dict[str, Any]] = []
    missed: list[InfeasibleError] = []
    for workload, name in cases:
        what = name if workload.varies else f"{name}, {workload.load_qps:g} QPS"
        with progress(f"{what}: workers tried", None) as advance:
            try:
                rows.append(search(workload, name, lambda _: advance()).row())
            except InfeasibleError as error:
                missed.append(error)
    _tell(rows, missed, output)


def _tell(
    rows: list[dict[str, Any]], missed: list[InfeasibleError], output: _Output
) -> None:
    """Print what was found, then what was not."""
    if rows:
        _show(rows, output)
    for row in rows:
        if not row.get("complete", True):
            click.echo(f"note: {row['scheduler']}, {row['load_qps']:g} QPS: not all cheaper "
                       "workers that the bound allows were tried", err=True)
    for other in missed[1:]:
        click.echo(f"note: {other}", err=True)
    if missed:
        raise missed[0]


def _show(rows: list[dict[str, Any]], output: _Output) -> None:
    if output.as_json:
        print_json(rows, fingerprints=output.fingerprints)
    else:
        words = {True: "yes", False: "no", None: None}
        shown = [{**row, "clear_word": words[row["clear"]]} for row in rows]
        if "worker_types" in rows[0]:
            shown = [{**row, "mix": _type_words(row)} for row in shown]
            print_rows((*_CASE, *_TYPES, *_FIGURES), shown)
        else:
            print_rows((*_CASE, *_WORKERS, *_FIGURES), shown)
    if output.plot is not None:
        from ramsis.report.capacity import plot_capacity

        plot_capacity(rows, output.plot)


def _check_types(
    profile_names: ByType[str], cost: ByType[float] | None, max_workers: ByType[int] | None
) -> None:
    """Refuse costs or numbers of workers of types without a profile."""
    for where, given in (("--cost", cost), ("--max-workers", max_workers)):
        if given is not None and not profile_names.typed:
            raise InvalidValueError(describe("there is one worker type only", where=where,
                                             value=given.text, allowed="--profiles TYPE=FILE,…"))
        for name in given.values if given is not None else ():
            if name not in profile_names.values:
                raise InvalidValueError(describe("unknown worker type", where=where, value=name,
                                                 allowed=", ".join(profile_names.values)))


def _offered_types(
    profile_names: ByType[str], read: Mapping[str, ProfileSet], cost: ByType[float] | None,
    max_workers: ByType[int] | None,
) -> tuple[WorkerType, ...]:
    """The worker types that ``--profiles TYPE=FILE,…`` names; none for a single profile."""
    if not profile_names.typed:
        return ()
    costs = cost.values if cost is not None else {}
    most = max_workers.values if max_workers is not None else {}
    return tuple(WorkerType(name, read[file], most.get(name), costs.get(name, 1.0))
                 for name, file in profile_names.values.items())


def _type_words(row: Mapping[str, Any]) -> str:
    """The workers of each type that there are any of."""
    return ", ".join(f"{name}={count}" for name, count in row["worker_types"].items() if count)


def _refuse_beside_types(context: click.Context) -> None:
    """Refuse options that several worker types do not have, if they were given."""
    for name, why in _OF_ONE_TYPE.items():
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is not for several worker types: {why}.")
