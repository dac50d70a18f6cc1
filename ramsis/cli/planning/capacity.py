"""``ramsis capacity``: the fewest workers that reach an accuracy and a violation rate."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click

from ramsis import report
from ramsis.cli.options.clusters import (
    BOTH,
    Served,
    also_with_cascades,
    compared_options,
    dispatch_words,
)
from ramsis.cli.options.command import (
    MORE_ARRIVALS,
    MORE_COMPUTING,
    Command,
    allow_options,
    refuse_options,
)
from ramsis.cli.options.param_types import (
    COSTS,
    LIMITS,
    OUT_PLACE,
    SCHEDULER_TEXT,
    ByType,
    complete_files,
)
from ramsis.cli.options.policies import overhead_option
from ramsis.cli.options.shared import (
    engine_options,
    gathered,
    min_in_time_option,
    models_option,
    plot_option,
    profiles_option,
    seed_options,
    simulated_service_option,
    sizes_options,
    slo_option,
    target_options,
    workload_options,
)
from ramsis.cli.options.sizes import SizedInputs, workload_of_sizes
from ramsis.cli.options.workloads import WorkloadOptions, process_text
from ramsis.cli.output.rows import (
    print_classes,
    print_json,
    print_rows,
    progress,
    say_command,
    table_options,
)
from ramsis.cli.parallel_jobs import capacity_question, rows_of
from ramsis.cluster import WorkerType, default_service, merged_classes
from ramsis.cluster.service_times import DISTRIBUTION
from ramsis.errors import InvalidValueError, check_known
from ramsis.profiles import ProfileSet
from ramsis.report.columns import capacity_columns
from ramsis.report.verdicts import target_words
from ramsis.sim import ConstantLoad, Fleet, Recorded, Workload
from ramsis.sweep import Engine
from ramsis.sweep.engines import Question
from ramsis.synthesis.capacity import (
    MOST_WORKERS,
    Targets,
    check_second_opinions,
    fewest_by_bound,
    fluid_mixes,
)
from ramsis.synthesis.schedulers import fleet_scheduler, planned_arrivals
from ramsis.tables import scheduler_words, with_values

_CONSTANT_POISSON = "the bound on combinations of types is for constant Poisson loads"
_OF_ONE_TYPE = {
    **dict.fromkeys(("trace", "unit", "time_column", "load_columns", "scale", "arrivals"),
                    _CONSTANT_POISSON),
    "plot": "the figure shows one number of workers for each load",
}
"""Options without a meaning for several types, and why."""

_OF_SCENARIOS = ("scenario_file", "grow", "schedulers", "max_violation", "max_workers", "seed",
                 "seeds", "engine", "address", "processes", "keep", "as_json")
"""What a scenario's workers are asked for with."""
_MORE = (
    "--scenario", "--grow", "--sizes", "--size-column", "--min-in-time-by-class", "--models",
    "--cost", "--max-workers", *MORE_ARRIVALS,
    "--duration-s", "--seed", "--seeds", "--service", "--overhead-ms", "--cascades",
    *MORE_COMPUTING, "--keep", "--every")
"""Options that only --help-all shows."""


@click.command("capacity", cls=Command, more=_MORE)
@profiles_option(required=False)
@models_option
@slo_option(required=False)
@click.option("--cost", type=COSTS, metavar="TYPE=X,...",
              help="Cost of one worker of each type: gpu=3,cpu=0.5.  [default: 1]")
@click.option("--max-workers", type=LIMITS, metavar="TYPE=N,...",
              help="Most workers of a type: gpu=8.  [default: any number]")
@click.option("--scenario", "scenario_file", metavar="FILE", shell_complete=complete_files,
              help="Scenario of models that are loaded and unloaded, in place of --profiles, "
                   "--slo-ms and a load.")
@click.option("--grow", metavar="TYPE[:memory]",
              help="Worker type of the scenario whose count varies; gpu:memory: whose memory "
                   "varies.")
@compared_options(SCHEDULER_TEXT, "A scheduler of `simulate`, or policies with settings, as "
                  "round-robin:grid=model.\nWith --scenario a scheduler of clusters, as "
                  "clockwork. Repeat to compare.")
@click.option("--cascades", is_flag=True,
              help="Search for policies with second opinions, too: a second model is asked where "
                   "the first is unsure.\nThe profile needs confidences.")
@target_options
@workload_options
@sizes_options
@min_in_time_option
@seed_options(5)
@simulated_service_option
@overhead_option
@engine_options(1)
@click.option("--keep", type=OUT_PLACE, metavar="DIR|URL",
              help="Folder that keeps results, which are not searched for again.")
@table_options
@plot_option("workers over loads")
@gathered(served=Served, targets=Targets)
@click.pass_context
def capacity(
    context: click.Context,
    served: Served,
    scenario_file: str | None,
    grow: str | None,
    cost: ByType[float] | None,
    max_workers: ByType[int] | None,
    schedulers: tuple[str, ...],
    cascades: bool,
    targets: Targets,
    workload: WorkloadOptions,
    min_in_time_by_class: tuple[float, ...] | None,
    seeds: range,
    service: str | None,
    engine: Engine,
    keep: Path | str | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Find the fewest workers that reach an accuracy and a violation rate.

    One row per scheduler and load, with the lower bound for every scheduler that answers each
    request once, by one model. A trace has one row.

    Simulation confirms the workers, with policies made for that number. A row is certain if the
    targets also hold at the pessimistic ends of the 95 % confidence intervals.

    If no scheduler is named, both dispatch rules are compared: a queue for each worker
    (round-robin), and a common queue (central-queue), which needs fewer workers. The commands
    that make their policies follow.

    With --cascades each dispatch rule has a second row, with second opinions. Its lower bound is
    for every scheduler that answers a request by one model or by a cascade of the profile's pairs.

    With several worker types (--profiles TYPE=FILE,...) the command finds the cheapest
    combination, by --cost, for policies and Poisson arrivals at constant loads.

    With --sizes it finds them for requests with a size, and a share in time of each size class.

    With --scenario it finds the number of workers of the type --grow, for each cluster
    scheduler. The other types are fixed; --max-workers TYPE=N limits the search. With --grow
    TYPE:memory it finds the least memory of each such worker, in steps of the smallest model's.

    If no number of workers reaches the target, the exit code is 4, and the message has the best
    attainable. The same holds for a scheduler that needs more than ten times the bound, once the
    other rows are printed.

    \b
    Examples:
      $ ramsis capacity --profiles digits-cpu --slo-ms 25 --load 2000 --min-accuracy 0.95 \\
          --duration-s 5
      $ ramsis capacity --profiles digits-cpu --slo-ms 25 --load 1000,2000 \\
          --min-accuracy 0.95 --dispatch round-robin --scheduler jellyfish-plus --duration-s 5
      $ ramsis capacity --profiles digits-cpu --slo-ms 25 --trace day --duration-s 20 \\
          --min-effective-accuracy 0.94 --scheduler greedy --json
      $ ramsis capacity --scenario scenario.json --grow gpu --scheduler clockwork \\
          --scheduler planned --max-violation 0.01 --seeds 3
      $ ramsis capacity --profiles big=digits-cpu,small=digits-cpu --cost big=1.5,small=1 \\
          --max-workers small=3 --slo-ms 25 --load 1000 --min-accuracy 0.95 \\
          --dispatch round-robin --duration-s 5
      $ ramsis capacity --profiles digits-cpu --slo-ms 60 --load 3200 --service p95 \\
          --min-effective-accuracy 0.93 --dispatch central-queue --cascades
    """
    if scenario_file is not None:
        from ramsis.cli.planning.scenario_capacity import scenario_capacity  # takes long to load

        allow_options(_OF_SCENARIOS, "is not for a scenario.")
        scenario_capacity(
            scenario_file, grow, schedulers or ("clockwork",),
            {"max_violation": targets.max_violation, "seeds": seeds,
             "most": _most(max_workers, grow)}, engine=engine, keep=keep, as_json=as_json)
        return
    if grow is not None:
        raise click.UsageError("--grow is for --scenario.")
    if served.profile_names is None or served.slo_ms is None:
        missing = "--profiles" if served.profile_names is None else "--slo-ms"
        raise click.UsageError(f"Missing option '{missing}'; or --scenario for models that come "
                               "and go.")
    workload.check(targets.every_ms)
    if plot is not None and workload.loads is None:
        raise click.UsageError("--plot is for --load.")
    sized = workload_of_sizes(workload, served)
    if sized is not None:
        from ramsis.cli.planning.sized_capacity import SizedCapacity, next_command
        from ramsis.sized.schedulers import POLICY

        inputs = SizedInputs.of(served, sized)
        asked = SizedCapacity.of(inputs, schedulers or (POLICY,), targets, min_in_time_by_class,
                                 seeds, service)
        _search(asked.questions(), engine, keep, _Output(
            as_json, plot, {inputs.profile.name: inputs.profile.fingerprint},
            None if schedulers else partial(next_command, context.params, inputs.workloads[0]),
            [load.load_qps for load in inputs.workloads]))
        return
    refuse_options(("min_in_time_by_class",), "needs requests with a size: --sizes.")
    compared = schedulers or BOTH
    names = also_with_cascades(compared) if cascades else compared
    specs = [fleet_scheduler(name) for name in names]
    opinions = any(spec.given.get("cascades") for spec in specs)
    _check_types(served.profile_names, cost, max_workers)
    read = served.profiles()
    terms: dict[str, Any] = {"slo_ms": merged_classes(served.slo_ms),
                             "service": service or default_service(*read.values())}
    types = _offered_types(served.profile_names, read, cost, max_workers)
    if types:
        for name, why in _OF_ONE_TYPE.items():
            refuse_options((name,), f"is not for several worker types: {why}.")
        workloads: Any = [ConstantLoad(qps, 1000.0 * workload.constant_s)
                          for qps in workload.loads or ()]
        for demand in workloads:  # refuses what nothing reaches before anything is simulated
            if opinions:
                check_second_opinions([kind.profile for kind in types], demand, terms["slo_ms"])
            fluid_mixes(types, demand.load_qps, targets, **terms)
    else:
        profile = read[served.profile_names.one]
        workloads = workload.workloads(Fleet.of(
            profile, workers=MOST_WORKERS, slo_ms=terms["slo_ms"][-1].slo_ms,
            service=terms["service"]))
        for demand in workloads:
            # What only cascades reach is refused for the other schedulers by their searches.
            fewest_by_bound(profile, demand, targets, **terms, cascades=opinions)
        if workload.trace is not None:
            _say_what_varies(workloads[0], terms["service"])
    output = _Output(
        as_json, plot,
        {profile_set.name: profile_set.fingerprint for profile_set in read.values()},
        None if schedulers else partial(_next_command, context, workloads),
        [workload.load_qps for workload in workloads])
    offered: Any = types or profile
    searches = [capacity_question(offered, load, name, targets=targets, seeds=seeds, **terms)
                for load, name in product(workloads, names)]
    _search(searches, engine, keep, output)


def _search(
    questions: Sequence[Question], engine: Engine, keep: Path | str | None, output: _Output
) -> None:
    """Run the searches; print the rows, notes on them, and the searches without an answer.

    The first of the last is raised, unless the rows are enough.
    """
    # In this process each search shows its own progress.
    with progress("searches", len(questions), shown=engine.elsewhere) as advance:
        rows, missed = rows_of(questions, engine, keep, advance)
    if rows:
        _show(rows, output)
    for row in rows:
        if not row.get("complete", True):
            click.echo(f"note: {row['scheduler']}, {row['load_qps']:g} QPS: not all cheaper "
                       "workers that the bound allows were tried", err=True)
        if (hidden := row.get("violation_rate_at_ticks", 0.0)) > row["max_violation"]:
            click.echo(f"note: {row['scheduler']}: not certain, as the clock of the trace hides "
                       "bursts; were all requests of a tick at its beginning, "
                       f"{row['workers']} worker{'s' if row['workers'] > 1 else ''} would miss "
                       f"{hidden:.2%}", err=True)
    enough = output.enough(rows)
    for other in missed[0 if enough else 1:]:
        click.echo(f"note: {other}", err=True)
    if missed and not enough:
        raise missed[0]


def _say_what_varies(trace: Workload, service: str) -> None:
    """Note on stderr which randomness the confidence interval of a trace covers."""
    drawn = [*(() if isinstance(trace, Recorded) else ("arrivals",)),
             *(("service times",) if service == DISTRIBUTION else ())]
    click.echo(f"note: the trace is played from beginning to end; the seeds vary "
               f"{' and '.join(drawn) or 'nothing, so that its figures have no error'}", err=True)


def _most(max_workers: ByType[int] | None, grow: str | None) -> int | None:
    """Return ``--max-workers`` of the type that ``--grow`` names; None without either."""
    if max_workers is None or grow is None:
        return None
    if ":" in grow:
        raise InvalidValueError("for numbers of workers", where="--max-workers",
                                value=max_workers.text, allowed=f"nothing with {grow}")
    if set(max_workers.values) != {grow}:
        raise InvalidValueError("not the worker type that grows", where="--max-workers",
                                value=max_workers.text, allowed=f"{grow}=N")
    return max_workers.values[grow]


@dataclass(frozen=True)
class _Output:
    """Where the rows go, and the profiles that they rest on, by fingerprint."""

    as_json: bool
    plot: Path | None
    fingerprints: Mapping[str, str]
    next_command: Callable[[Mapping[str, Any]], list[str]] | None
    """The command that makes the policies of a row, where no scheduler was named."""
    loads_qps: Sequence[float | None]

    def enough(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether no scheduler was named, and each load has some answer."""
        return self.next_command is not None and (
            {row["load_qps"] for row in rows} >= set(self.loads_qps) or (len(
                self.loads_qps) == 1 and bool(rows)))


def _show(rows: list[dict[str, Any]], output: _Output) -> None:
    if output.as_json:
        print_json(rows, fingerprints=output.fingerprints, **(
            {} if output.next_command is None else {
                "next": [shlex.join(output.next_command(row)) for row in rows]}))
    else:
        words = {True: "yes", False: "no", None: None}
        shown = [{**row, "scheduler": scheduler_words(row["scheduler"]),
                  "clear_word": words[row["clear"]]} for row in rows]
        typed = "worker_types" in rows[0]
        if typed:
            shown = [{**row, "mix": _type_words(row)} for row in shown]
        columns = capacity_columns(typed=typed)
        print_rows(with_values(columns, shown), shown)
        if "by_class" in rows[0]:
            print_classes(columns[:2], rows, rows[0]["unit"])
        if output.next_command is not None:
            click.echo("\nnext, one of:")
            for row in rows:
                say_command(output.next_command(row))
    if output.plot is not None:
        named = [{**row, "scheduler": scheduler_words(row["scheduler"])} for row in rows]
        report.plot_charts(report.capacity_charts(named), output.plot,
                           f"SLO {rows[0]['slo_ms']:g} ms, {target_words(rows[0])}")


def _next_command(
    context: click.Context, workloads: Sequence[Workload], row: Mapping[str, Any]
) -> list[str]:
    """Return the command that generates the policies of a row."""
    params = context.params
    played = next((workload for workload in workloads if workload.load_qps == row["load_qps"]),
                  workloads[0])
    loads = fleet_scheduler(row["scheduler"]).loads_for(played)
    workers = (_type_words(row).replace(" ", "") if "worker_types" in row else str(row["workers"]))
    words = ["ramsis", "generate", "--profiles", params["profile_names"].text,
             "--slo-ms", ",".join(f"{slo_class.slo_ms:.10g}" + (
                 f":{slo_class.share:.10g}" if len(params["slo_ms"]) > 1 else "")
                 for slo_class in params["slo_ms"]),
             "--workers", workers, "--load", ",".join(f"{load:.10g}" for load in loads)]
    if params["models"]:
        words += ["--models", ",".join(params["models"])]
    if params["service"]:
        words += ["--service", params["service"]]
    if params["overhead_ms"]:
        words += ["--overhead-ms", f"{params['overhead_ms']:.10g}"]
    classes = params["slo_ms"]
    process = process_text(planned_arrivals(
        played, max(slo_class.slo_ms for slo_class in classes),
        divided="worker_types" in row or len(classes) > 1))
    if process:
        words += ["--arrivals", process]
    folder = scheduler_words(row["scheduler"]).replace(" with ", "-")
    return [*words, *dispatch_words(row["scheduler"]),
            "--out", f"policies-{folder}-{row['workers']}"]


def _check_types(
    profile_names: ByType[str], cost: ByType[float] | None, max_workers: ByType[int] | None
) -> None:
    """Refuse costs or numbers of workers of types without a profile."""
    for where, option in (("--cost", cost), ("--max-workers", max_workers)):
        if option is not None and not profile_names.typed:
            raise InvalidValueError("there is one worker type only", where=where,
                                    value=option.text,
                                    allowed="--profiles TYPE=FILE,…")
        for name in option.values if option is not None else ():
            check_known("unknown worker type", name, profile_names.values, where)


def _offered_types(
    profile_names: ByType[str], read: Mapping[str, ProfileSet], cost: ByType[float] | None,
    max_workers: ByType[int] | None,
) -> tuple[WorkerType, ...]:
    """Return the worker types in ``--profiles TYPE=FILE,…``; none for a single profile."""
    if not profile_names.typed:
        return ()
    costs = cost.values if cost is not None else {}
    most = max_workers.values if max_workers is not None else {}
    return tuple(WorkerType(name, read[file], most.get(name), costs.get(name, 1.0))
                 for name, file in profile_names.values.items())


def _type_words(row: Mapping[str, Any]) -> str:
    """Return the number of workers of each type that is used."""
    return ", ".join(f"{name}={count}" for name, count in row["worker_types"].items() if count)
