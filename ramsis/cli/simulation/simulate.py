"""``ramsis simulate``: compare schedulers on a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from ramsis import report
from ramsis.arrays import IntArray, six_digits
from ramsis.audit.request_log import write_request_log
from ramsis.audit.simulated_log import requests_of_run
from ramsis.bounds import Targets
from ramsis.cli.options.clusters import Served, cluster_terms_if_several
from ramsis.cli.options.command import MORE_ARRIVALS, Command, allow_options, refuse_options
from ramsis.cli.options.param_types import (
    OUT_FILE,
    SCHEDULER_TEXT,
    SLOW_SPELLS,
    complete_files,
)
from ramsis.cli.options.policies import overhead_option
from ramsis.cli.options.shared import (
    cluster_options,
    gathered,
    models_option,
    plot_option,
    scheduler_option,
    seed_options,
    setting_option,
    sizes_options,
    target_options,
    workload_options,
)
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.cli.output.rows import (
    gap_words,
    model_words,
    overloaded,
    print_classes,
    print_json,
    print_rows,
    progress,
    say,
    strict_option,
    table_options,
    tell_overload,
    wide,
)
from ramsis.cli.simulation.cluster import (
    Output,
    by_option,
    simulate_scaling,
    simulate_scenario,
    simulate_sharing,
)
from ramsis.cli.simulation.placement import require_fleet, simulate_placement_file
from ramsis.cli.simulation.sized import (
    SizedTerms,
    simulate_sized,
    sized_workload,
    with_upper_bounds,
)
from ramsis.cluster import Cluster, ServiceTimes
from ramsis.cluster.service_times import DEFAULT_SERVICE
from ramsis.errors import check_positive
from ramsis.policy import SERVICES, Policy, Station
from ramsis.profiles import ProfileSet
from ramsis.report.columns import SIMULATED
from ramsis.report.verdicts import setting_words, simulation_verdict
from ramsis.runtime.routing import DISPATCH_NAMES
from ramsis.sim import (
    SCHEDULERS,
    ClusterPlan,
    Fleets,
    Policies,
    Run,
    SchedulerSpec,
    SimulationResult,
    SimulationSettings,
    SlowSpells,
    Workload,
    check_load,
    over_time,
    simulate,
)
from ramsis.sim.experiment import largest_batch
from ramsis.sim.workload import MOST_REQUESTS, Burst, recovery_ms
from ramsis.synthesis.capacity.trials import Windows, busiest_tenth
from ramsis.synthesis.certified import (
    bound_on_arrivals,
    cascade_bound_on_arrivals,
    counts_of,
    gap_in_simulation,
    gives_second_opinions,
)
from ramsis.synthesis.schedulers import (
    ComparedScheduler,
    Ready,
    fleet_scheduler,
    planned_arrivals,
)
from ramsis.tables import with_values

_ANY_VIOLATION = 1.0 - 1e-12
_SAME_TIMES = 1.01  # factor between means up to which times differ by rounding only
_MOST_BINS = 300  # of the figures over time; more would not be visible
_OF_SCENARIOS = ("scenario_file", "policies", "scheduler_texts", "bound", "by", "arrivals",
                 "seed", "seeds", "as_json", "csv_file", "plot", "timeline")
_PROMISE = ("accuracy", "violation_rate", "effective_accuracy")


@dataclass(frozen=True)
class _Entry:
    """One of the schedulers that `ramsis simulate` compares."""

    label: str
    plan: ClusterPlan
    policies: Policies | None
    path: str | None


_MORE = (
    "--models", "--fixed", "--interference", "--scaling", "--bound", "--by", *MORE_ARRIVALS,
    "--seed", "--seeds",
    "--service", "--network-ms", "--overhead-ms", "--max-violation", "--min-effective-accuracy",
    "--min-accuracy", "--every", "--burst", "--slow-spells", "--monitor",
    "--monitor-ms", "--told", "--slowness", "--told-slowness", "--from-s", "--stretch",
    "--forecast", "--sizes", "--size-column", "--csv", "--timeline", "--request-log", "--strict")
"""Options that only --help-all shows."""


def _stated(
    max_violation: float | None, min_effective_accuracy: float | None, min_accuracy: float | None
) -> dict[str, float]:
    """Return the targets that are given; rows are judged by these alone."""
    return {name: value for name, value in (
        ("max_violation", max_violation), ("min_accuracy", min_accuracy),
        ("min_effective_accuracy", min_effective_accuracy)) if value is not None}


@click.command("simulate", cls=Command, more=_MORE)
@click.argument("scenario_file", metavar="[SCENARIO]", required=False,
                shell_complete=complete_files)
@partial(cluster_options, required=False)  # a placement says what serves
@models_option
@click.option("--placement", type=click.Path(dir_okay=False), metavar="FILE",
              help="Simulate a placement of `place`, without workers and schedulers.")
@click.option("--fixed", is_flag=True,
              help="With --placement: its fixed batches, without policies.")
@click.option("--interference", type=click.Choice(("thesis", "thesis-driver-550", "none")),
              help="With --placement of models that share GPUs: its fixed batches, and the "
                   "interference of models on a GPU.")
@click.option("--policy", "policies", multiple=True, metavar="DIR|FILE",
              help="Policies to simulate.\nRepeat to compare.")
@scheduler_option("jellyfish-plus, model-switching, greedy, infaas, clipper, bentoml, symphony, "
                  "delay, fixed, slackfit, fixed-threshold or cascade-serve; or policies made for "
                  f"the loads, by their dispatch: {DISPATCH_NAMES}.\nRepeat to compare. With "
                  "parameters as jellyfish-plus:headroom=1.05 or central-queue:violation_price=0, "
                  "see `ramsis help schedulers`.",
                  variable="scheduler_texts", type=SCHEDULER_TEXT, metavar="NAME")
@click.option("--scaling", multiple=True, metavar="DIR|FILE|RULE",
              help="Scaling policy of `scale`, in place of workers and schedulers; and rules that "
                   "use its decision tables: static, hpa, keda, knative, ray-serve, wva or dynamo,"
                   " with parameters as hpa:target=0.7; repeat to compare.")
@click.option("--from-s", type=float, default=0.0, show_default=True, metavar="S",
              help="With --scaling: measure from S on; the time before is simulated first.")
@click.option("--stretch", type=float, default=1.0, show_default=True, metavar="F",
              help="With --scaling: factor on the times of a trace of loads, not on its loads.")
@click.option("--forecast", type=click.Path(path_type=Path), metavar="FILE",
              help="With --scaling: forecast of the load, as for `scale`.")
@click.option("--bound", is_flag=True,
              help="For SCENARIO, add an upper bound for every scheduler, and each row's share of "
                   "it.")
@by_option
@workload_options
@sizes_options
@seed_options(1)
@click.option("--service", type=click.Choice(SERVICES),
              help="Statistic that batches take, or drawn from the distribution.  [default: that "
              f"of the policies replayed, where they agree; else {DEFAULT_SERVICE}]")
@setting_option(SimulationSettings, "network_ms")
@overhead_option
@partial(target_options, max_violation=None)
@click.option("--burst", type=click.IntRange(1, MOST_REQUESTS), metavar="N",
              help="Add N simultaneous requests in the middle of each run, and print the time "
                   "until the system has recovered.")
@click.option("--slow-spells", type=SLOW_SPELLS, metavar="share=S,factor=F,length-ms=L|profile",
              help="Each worker is F times slower for a share S of the time, in spells of L ms on "
                   "average; or the spells recorded in the profile.")
@setting_option(SimulationSettings, "monitor", click.Choice(["on", "off"]))
@setting_option(SimulationSettings, "monitor_ms")
@setting_option(SimulationSettings, "stated_load", option="--told")
@setting_option(SimulationSettings, "slowness")
@setting_option(SimulationSettings, "stated_slowness", option="--told-slowness")
@table_options
@strict_option
@click.option("--csv", "csv_file", type=OUT_FILE,
              metavar="FILE", help="Also write the rows to this file.")
@plot_option("the comparison")
@click.option("--timeline", type=OUT_FILE, metavar="FILE",
              help="Write the batches of the first seed at the first load for Perfetto.")
@click.option("--request-log", type=OUT_FILE, metavar="FILE",
              help="Write the outcome of each request, for `audit`: first seed, first load, one "
                   "scheduler.")
@gathered(served=Served, stated=_stated, output=Output)
def simulate_command(
    scenario_file: str | None,
    served: Served,
    placement: str | None,
    fixed: bool,
    interference: str | None,
    policies: tuple[str, ...],
    scheduler_texts: tuple[str, ...],
    scaling: tuple[str, ...],
    from_s: float,
    stretch: float,
    forecast: Path | None,
    bound: bool,
    by: tuple[str, ...],
    workload: WorkloadOptions,
    seeds: range,
    service: str | None,
    network_ms: float,
    stated: dict[str, float],
    every_ms: float | None,
    burst: int | None,
    slow_spells: SlowSpells | str | None,
    monitor: str | None,
    monitor_ms: float,
    told: float,
    slowness: float,
    told_slowness: float | None,
    output: Output,
) -> None:
    """Replay policy files and other schedulers on the same arrivals, side by side.

    One row per scheduler and load: accuracy of the requests in time, violations, effective
    accuracy (violations count 0), and the bound for every scheduler that asks one model for each
    request.

    Figures are means over the seeds. Intervals are half-widths at 95 % confidence. The certified
    gap of policies is the share that they are short of the bound at their own price of violations.
    At a constant load schedulers are told the load; on a trace the load monitor anticipates it. On
    several worker types requests are routed at random: to the stations of a DIR by its shares, to
    those of another scheduler, one of each type, by their capacity.

    With --placement the file alone says what serves whom: all families at once, each with its
    demand and SLO, by policies made for its stations or (--fixed) by the placement's batches. With
    --interference models share GPUs: rows have goodput, and what the segments of a request's way
    take.

    With --scaling the fleet starts and stops workers as scaling policies and rules say: rows have
    worker-seconds, those of workers that start and leave included, violations and effective
    accuracy.

    Requests have a size where --sizes gives sizes or the trace has them, and the profile has times
    by size: rows also have the share in time by size class. Schedulers are then tei, infinity,
    token-budget, turbo-dp, replanned-dp and delay, see `ramsis help sized-schedulers`.

    SCENARIO is a file of the format ramsis.scenario/1 (JSON or TOML). It states worker types,
    models that are loaded and unloaded, and streams of requests. Rows have the share of requests
    in time, response times, loads, cold starts, and the utilisation of workers.

    \b
    Examples:
      $ ramsis simulate --profiles digits-cpu --slo-ms 25 --workers 4 --load 400 \\
          --policy policies_out/example --scheduler greedy
      $ ramsis simulate --profiles digits-cpu --slo-ms 25 --workers 4 --trace day \\
          --duration-s 5 --scheduler model-switching
      $ ramsis simulate scenario.json --scheduler clockwork --scheduler lru --seeds 5 --bound
      $ ramsis simulate scenario.json --scheduler own.py:Mine:alpha=2 --plot usage.png
      $ ramsis simulate --placement placement.json --duration-s 5
      $ ramsis simulate --scaling scaled --scaling hpa:target=0.7 --trace day --scale 0.3
    """
    if placement is not None and interference is not None:
        simulate_sharing(placement, seeds, interference=interference,
                         duration_s=workload.constant_s, as_json=output.as_json)
        return
    if placement is not None:
        simulate_placement_file(placement, fixed=fixed, duration_s=workload.constant_s,
                                seeds=seeds, output=output)
        return
    if scaling:
        simulate_scaling(scaling, workload.for_scaling(stretch), from_s=from_s,
                         forecast=forecast, seed=seeds[0], output=output)
        return
    refuse_options(("from_s", "stretch", "forecast"), "is for --scaling.")
    if scenario_file is not None:
        allow_options(_OF_SCENARIOS, "is not for a scenario: the file says what serves, and what "
                      "is asked for.")
        simulate_scenario(scenario_file, _of_scenario(policies, scheduler_texts),
                          seeds, bound=bound, by=by, output=output)
        return
    require_fleet(click.get_current_context())
    if bound:
        raise click.UsageError("--bound is for a scenario: rows of fleets have it.")
    if by:
        raise click.UsageError("--by is for a scenario, whose file names streams and models.")
    targets = Targets(**{"max_violation": _ANY_VIOLATION, **stated}, every_ms=every_ms)
    if every_ms is not None and not stated:
        raise click.UsageError("--every is for a target: --max-violation or --min-accuracy.")
    if not (policies or scheduler_texts):
        raise click.UsageError("Nothing to simulate: give --policy or --scheduler.")
    if output.request_log is not None and len(policies) + len(scheduler_texts) > 1:
        raise click.UsageError("--request-log is for a single --policy or --scheduler.")
    workload.check(every_ms)
    check_positive(told=told)
    told_slowness = slowness if told_slowness is None else told_slowness
    results = _Report(workload.trace is not None, output)
    sized = sized_workload(policies, scheduler_texts, workload, served)
    if sized is not None:
        terms = SizedTerms.of(policies, scheduler_texts, served, sized)
        rows, first, drawn_sizes = simulate_sized(
            terms, seeds=seeds, service=service, slowness=slowness, told_slowness=told_slowness)
        _warn_of_none(rows)
        bounded = with_upper_bounds(rows, terms, seeds=seeds, service=service, slowness=slowness)
        results.write([{**row, **_met(row, stated, targets, None)} for row in bounded], first,
                      [terms.inputs.profile], sizes=drawn_sizes)
        return
    schedulers = [fleet_scheduler(text) for text in scheduler_texts]
    if burst is not None and workload.loads is None:
        raise click.UsageError("--burst is for --load, which does not change before the burst.")
    cluster = served.cluster()
    sets = [Policies.load(path) for path in policies]
    service = service or _service_of(sets, cluster)
    settings = SimulationSettings(
        service=service, monitor=None if monitor is None else monitor == "on",
        monitor_ms=monitor_ms, stated_load=told, slowness=slowness,
        stated_slowness=told_slowness, network_ms=network_ms,
        slow_spells=_spells(slow_spells, cluster), seeds=seeds)
    largest = max([largest_batch(sets), *(spec.largest_batch for spec in schedulers)])
    fleets = Fleets.of(cluster, service=service, network_ms=network_ms, max_batch=largest,
                       slowness=slowness, told_slowness=told_slowness)
    workloads = workload.workloads(fleets)
    for offered in workloads:
        check_load(fleets, offered)
    if burst is not None:
        workloads = [Burst(offered, burst) for offered in workloads]
    compared = [*(Ready(spec, spec) for spec in sets),
                *_ready(schedulers, scheduler_texts, cluster, workloads, service, told)]
    labels = [*(f"{spec.name} {path}" for spec, path in zip(sets, policies, strict=True)),
              *scheduler_texts]
    entries = [_Entry(label, ready.spec.on_cluster(fleets), ready.policies, path)
               for label, ready, path in zip_longest(labels, compared, policies)]
    played, first = _simulated(
        cluster, entries, workloads, settings, targets,
        keep_first=any((output.plot, output.timeline, output.request_log,
                        results.traced and output.as_json)))
    # The schedulers of a comparison have the same arrivals.
    bound_on = cache(partial(bound_on_arrivals, fleets))
    confidences = cluster.worker_types[0].profile.confidences
    rows = []
    for entry, offered, result, recovered_ms, windows in played:
        row = {**_row(entry, result, bound_on, settings), **cluster_terms_if_several(cluster),
               **gap_in_simulation(result, entry.policies, fleets, offered, confidences)}
        if gives_second_opinions(result, entry.policies, fleets) or (
                entry.policies is None and entry.plan.cascades):
            row |= {"upper_bound": cascade_bound_on_arrivals(fleets, confidences, result),
                    "upper_bound_one_model": row["upper_bound"]}
        row |= _met(row, stated, targets, windows)
        if burst is not None:
            row |= {"burst": burst, "recovery_ms": _mean(recovered_ms)}
        rows.append(row)
    _warn_of_none(rows)
    _warn_of_burst(rows)
    _warn_above_highest(played, told_slowness)
    _warn_of_service(entries, service)
    _warn_of_times(entries, cluster, service)
    results.write(rows, first, [worker_type.profile for worker_type in cluster.worker_types],
                  [policy for entry in entries if entry.policies is not None
                   for policy in entry.policies.policies])


@dataclass(frozen=True)
class _Report:
    """Output of a comparison: form and files of its rows."""

    traced: bool  # whether the load is that of a trace
    output: Output

    def write(
        self, rows: list[dict[str, Any]], first: Mapping[str, Run],
        profiles: Sequence[ProfileSet], policies: Sequence[Policy] = (),
        sizes: IntArray | None = None,
    ) -> None:
        """Print the rows and write the files.

        ``first`` are runs of the first load and seed, ``sizes`` the sizes of their requests, if
        any.
        """
        if self.output.as_json:
            print_json([{**{k: v for k, v in row.items() if k != "models"},
                         **(_over_time(first[row["label"]]) if self.traced else {})}
                        for row in rows],
                       models={model.name: model.accuracy for profile in profiles
                               for model in profile.models},
                       fingerprints={profile.name: profile.fingerprint for profile in profiles})
        else:
            columns = with_values(SIMULATED, rows)
            print_rows(columns, rows)
            if wide() and any(column.key == "certified_gap" for column in columns):
                say(gap_words(policies))
            if "by_class" in rows[0]:
                print_classes(SIMULATED[:2], rows, rows[0]["unit"])
            if "meets_target" in rows[0]:
                for line in simulation_verdict(rows):
                    say(line)
        self.output.write_files(_flat(rows), partial(self._draw, rows, first), first)
        if self.output.request_log is not None:
            write_request_log(self.output.request_log, requests_of_run(
                next(iter(first.values())), sizes), sized=sizes is not None)
        tell_overload(overloaded(rows, "label"))

    def _draw(self, rows: list[dict[str, Any]], first: Mapping[str, Run], plot: Path) -> None:
        charts = report.over_time_charts(
            [{"label": label, **_over_time(run)} for label, run in first.items()], "label",
            "Load over time") if self.traced else report.simulation_charts(rows)
        report.plot_charts(charts, plot, setting_words(rows[0]))


def _of_scenario(policies: Sequence[str], texts: Sequence[str]) -> list[SchedulerSpec]:
    """Return the schedulers of a scenario: policies of files, then named schedulers."""
    from ramsis.planning import scheduler_named  # here, as it takes long to load

    if not (policies or texts):
        raise click.UsageError("Nothing to simulate: give --policy or --scheduler.")
    return [*(SchedulerSpec(f"policies {path}", SCHEDULERS["policies"], {"files": path})
              for path in policies), *map(scheduler_named, texts)]


def _service_of(sets: Sequence[Policies], cluster: Cluster) -> str:
    """Return the statistic of service times that all policies are made for, as in --service.

    If they differ, or there are none, it is the cluster's default.
    """
    made_for = {policy.service for policies in sets for policy in policies.policies}
    return made_for.pop() if len(made_for) == 1 else cluster.default_service


def _spells(given: SlowSpells | str | None, cluster: Cluster) -> SlowSpells | None:
    """Return the slow spells to simulate; for a text, those of the first type's profile."""
    if isinstance(given, str):
        return SlowSpells.recorded(cluster.worker_types[0].profile.measurement, "--slow-spells")
    return given


def _ready(
    schedulers: Sequence[ComparedScheduler], texts: Sequence[str], cluster: Cluster,
    workloads: Sequence[Workload], service: str, stated_load: float,
) -> list[Ready]:
    """Prepare the schedulers of these texts, with policies for the loads of the workloads.

    At a constant load there are policies for ``stated_load`` times the load, too. All workloads
    have one arrival process, under which a promise is hardest to measure at the highest load.
    """
    highest = max(workloads, key=lambda workload: workload.load_qps or 0.0)
    arrivals = planned_arrivals(highest, cluster.slo_ms, divided=not cluster.simple)

    def levels(spec: ComparedScheduler) -> list[float]:
        return sorted({load * factor for workload in workloads
                       for load in spec.loads_for(workload)
                       for factor in ({1.0} if workload.varies else {1.0, stated_load})})

    with progress("policies", sum(len(levels(spec)) for spec in schedulers)) as advance:
        return [spec.ready(cluster, levels(spec), service=service, source=text, on_level=advance,
                           arrivals=arrivals)
                for text, spec in zip(texts, schedulers, strict=True)]


class _Played(NamedTuple):
    """Result of simulating one scheduler on one workload."""

    entry: _Entry
    workload: Workload
    result: SimulationResult
    recovered_ms: list[float | None]  # of each seed's run from its burst; empty without one
    windows: Windows | None  # if the target applies to each window


def _simulated(
    cluster: Cluster, entries: Sequence[_Entry], workloads: Sequence[Workload],
    settings: SimulationSettings, targets: Targets, *, keep_first: bool,
) -> tuple[list[_Played], dict[str, Run]]:
    """Simulate every scheduler on every workload.

    Returns also, by label, the runs of the first workload and seed.
    """
    played: list[_Played] = []
    first: dict[str, Run] = {}
    with progress("runs", len(entries) * len(workloads) * len(settings.seeds)) as advance:
        for workload, entry in product(workloads, entries):
            times: list[float | None] = []

            def note(
                run: Run, label: str = entry.label, workload: Workload = workload,
                times: list[float | None] = times,
            ) -> None:
                if keep_first:
                    first.setdefault(label, run)
                if isinstance(workload, Burst):
                    times.append(recovery_ms(run, workload.at_ms))
                advance()

            result = simulate(cluster, entry.plan, workload, settings, on_run=note,
                              keep_runs=targets.every_ms is not None)
            # Runs are large: they are compared with the target here, and not kept.
            played.append(_Played(entry, workload, replace(result, runs=()), times,
                                  Windows.of(result.runs, targets)))
    return played, first


def _row(
    entry: _Entry, result: SimulationResult,
    bound: Callable[[float, tuple[int, ...]], float | None], settings: SimulationSettings,
) -> dict[str, Any]:
    """Return a result's row with the promise for this load, under the common column names.

    The promise is None unless a policy of exactly this load and slowness was used.
    """
    row = result.row()
    promise: dict[str, Any] = dict.fromkeys(f"expected_{name}" for name in _PROMISE)
    if entry.policies is not None and result.told_qps is not None:
        used = entry.policies.at(result.told_qps, settings.told_slowness).level
        if used.load_qps == result.load_qps and used.slowness == settings.slowness:
            promise = {name: used.expected.get(name) for name in promise}
    return {**row, "label": entry.label, "policy": entry.path,
            "upper_bound": bound(result.duration_ms, counts_of(result)), **promise,
            "models": model_words(row["model_share"]),
            **({} if settings.slowness == settings.told_slowness == 1.0 else
               {"slowness": settings.slowness, "told_slowness": settings.told_slowness})}


def _mean(times: Sequence[float | None]) -> float | None:
    """Return the mean over the seeds; None if one of them has no time."""
    finite = [time for time in times if time is not None]
    return float(np.mean(finite)) if len(finite) == len(times) else None


def _met(
    row: Mapping[str, Any], stated: Mapping[str, float], targets: Targets,
    windows: Windows | None,
) -> dict[str, Any]:
    """Return the stated targets and whether a row meets them; empty without any.

    The latter is None if no request arrived.
    """
    if not stated:
        return {}
    if not row["queries"]:
        return {**stated, "meets_target": None}
    met = targets.met(row["accuracy"] or 0.0, row["violation_rate"])
    return {**stated, "meets_target": met and not (windows and windows.missed),
            **(windows.row() if windows else {})}


def _over_time(run: Run) -> dict[str, Any]:
    """Return load, accuracy and violations over time, and those of the busiest tenth."""
    series = over_time(run, max(1000.0, run.duration_ms / _MOST_BINS))
    return {"busiest_tenth_effective_accuracy": busiest_tenth(series), "over_time": six_digits({
        "time_s": series.start_ms / 1000.0, "load_qps": series.load_qps,
        "accuracy": series.accuracy, "violation_rate": series.violation_rate})}


def _warn_of_none(rows: Sequence[Mapping[str, Any]]) -> None:
    """Note on stderr the loads without any request, whose rates are undefined."""
    for load_qps in dict.fromkeys(row["load_qps"] for row in rows if not row["queries"]):
        click.echo(f"note: {load_qps:g} QPS: no request arrived, so these rows have no rates; "
                   "a longer --duration-s is needed", err=True)


def _warn_of_burst(rows: Sequence[Mapping[str, Any]]) -> None:
    """Note on stderr the schedulers that have not recovered from a burst at the run's end."""
    for row in rows:
        if "burst" in row and row["recovery_ms"] is None:
            click.echo(f"note: {row['label']}, {row['load_qps']:g} QPS: not recovered from the "
                       "burst at the end of the run; a longer --duration-s shows whether it is "
                       "later on", err=True)


def _warn_above_highest(played: Sequence[_Played], slowness: float) -> None:
    warned: set[str] = set()
    for entry, _, result, *_ in played:
        load_qps = result.load_qps if result.told_qps is None else result.told_qps
        if entry.policies is None or load_qps is None or entry.label in warned:
            continue
        used = entry.policies.at(load_qps, slowness)
        if used.above_highest:
            warned.add(entry.label)
            click.echo(f"note: {entry.label}: a load of {load_qps:g} QPS is above the "
                       f"highest level, {used.level_qps:g}, which is used", err=True)


def _warn_of_service(entries: Sequence[_Entry], service: str) -> None:
    for entry in entries:
        made_for = {policy.service for policy in entry.policies.policies
                    } if entry.policies else {service}
        if made_for != {service}:
            click.echo(f"note: {entry.label}: made for --service {', '.join(sorted(made_for))}, "
                       f"simulated with {service}: its promise is for other service times",
                       err=True)


def _warn_of_times(entries: Sequence[_Entry], cluster: Cluster, service: str) -> None:
    """Note on stderr the policy files with other service times than the profile."""
    for entry in entries:
        if entry.path is None or entry.policies is None:
            continue
        factor = max((_factor(station, cluster) for level in entry.policies.levels.levels
                      for station in level.stations if station.policy.service == service),
                     default=1.0)  # of other statistics :func:`_warn_of_service` tells
        if factor > _SAME_TIMES:
            click.echo(f"note: {entry.label}: made for other service times than the profile's, "
                       f"longer or shorter by a factor of up to {factor:.3g}: its promise is for "
                       "those", err=True)


def _factor(station: Station[Policy], cluster: Cluster) -> float:
    """Return the largest factor, >= 1, between a policy's mean batch times and the profile's."""
    policy = station.policy
    worker_type = next((offered for offered in cluster.worker_types
                        if offered.name in station.worker_types), cluster.worker_types[0])
    stated = policy.service_times
    profiled = ServiceTimes.of_all(worker_type.profile.slower(policy.slowness), policy.service,
                              policy.latency_ms.shape[1])
    model, batch = policy.actions.T
    row = np.array([profiled.models.index(name) for name in stated.models])
    ratio = stated.mean_ms[model, batch - 1] / profiled.mean_ms[row[model], batch - 1]
    return float(np.maximum(ratio, 1.0 / ratio).max())


def _flat(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows for a CSV file, the shares of models in one cell as ``small=0.7;large=0.3``.

    Figures by size class have columns such as ``in_time_rate_1_16``.
    """
    return [{**{name: value for name, value in row.items() if name not in ("by_class", "models")},
             "model_share": ";".join(f"{name}={value:.6g}"
                                     for name, value in row["model_share"].items()),
             **{f"in_time_rate_{low}_{high}": entry["in_time_rate"]
                for entry in row.get("by_class", ()) for low, high in (entry["sizes"],)}}
            for row in rows]
