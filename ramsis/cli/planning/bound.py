"""``ramsis bound``: what no scheduler can beat that asks one model for each request, or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from ramsis import report
from ramsis.bounds import (
    FluidBound,
    WorkerSecondsTerms,
    cascade_bound,
    fewest_worker_seconds,
    fluid_bound,
)
from ramsis.cli.options.clusters import Served, cluster_terms_if_several
from ramsis.cli.options.command import MORE_ARRIVALS, Command, by_option, refuse_options
from ramsis.cli.options.policies import overhead_option, service_option
from ramsis.cli.options.shared import (
    cluster_options,
    gathered,
    models_option,
    plot_option,
    sizes_options,
    workload_options,
)
from ramsis.cli.options.sizes import SizedInputs, default_statistic, workload_of_sizes
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.cli.output.rows import Column, print_json, print_rows, progress, say, table_options
from ramsis.cluster import Cluster, ServiceTimes, default_service
from ramsis.errors import InfeasibleError, InputFileError, InvalidValueError
from ramsis.report.columns import LOAD
from ramsis.settings import settings_of
from ramsis.sim import ConstantLoad
from ramsis.sized import SizedProblem, path_bound, upper_bound
from ramsis.sized.problem import MAX_BATCH_BY_DEFAULT
from ramsis.sized.simulate import check_sized_load, drawn
from ramsis.synthesis import SynthesisSettings
from ramsis.worker.problem import MAX_QUEUE

_COLUMNS = (
    Column("load_qps", "load (QPS)", ".6g"),
    Column("upper_bound", "upper bound", ".4f"),
    Column("upper_bound_half_width", "± (95 %)", ".4f"),
    Column("in_time", "in time", ".2%"),
    Column("upper_bound_without_padding", "without padding", ".4f"),
    Column("requests", "requests", "d"),
)
_NOT_OF_SIZES = ("max_violation", "min_effective_accuracy", "violation_price", "cascades",
                 "rate_per_worker", "startup_s", "max_workers")
_LOOSENESS = (
    "The bound holds for every scheduler, even one that knows all arrivals. It is loose since it "
    "lets workers answer a request more than once, at a price, and since its search is on a grid.")

_BOUND = (LOAD, Column("upper_bound", "upper bound", ".4f"))
_POISSON = Column("poisson_upper_bound", "upper bound, Poisson", ".4f")
_OPTIMUM = (Column("served_fraction", "served in time", ".2%"),)
_OPTIMUM_ON_TERMS = (
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("violation_rate", "violations", ".4%"),
)
_OF_ONE = (
    Column("capacity_qps", "capacity (QPS)", ".0f"),
    Column("worker_price", "worth of a worker", "+.5f"),
    Column("mix", "best mix of batches (share)"),
)
_CASCADES = (
    Column("upper_bound_one_model", "one model", ".4f"),
    Column("poisson_upper_bound_one_model", "one model, Poisson", ".4f"),
    Column("second_opinions", "second opinions", ".2%"),
)
_OF_SEVERAL = (
    Column("types", "share of each type (worth of a worker)"),
    Column("classes", "effective accuracy by class"),
)


_MORE = ("--plot", "--size-column", "--rate-per-worker", "--service", "--models", "--max-batch",
         "--overhead-ms", *MORE_ARRIVALS, "--arrivals", "--duration-s", "--seed", "--max-workers",
         "--violation-price")
"""Options that only --help-all shows."""
_OF_TRACES = ("rate_per_worker", "startup_s", "min_effective_accuracy", "max_workers", "seed",
              "arrivals", "duration_s", "scale", "trace_format", "unit", "time_column",
              "load_columns")
_TRACE = (
    Column("requests", "requests", "d"),
    Column("worker_s", "worker-seconds", ".1f"),
    Column("mean_workers", "mean workers", ".3f"),
    Column("peak_workers", "peak workers", "d"),
)


@click.command("bound", cls=Command, more=_MORE)
@partial(cluster_options, required=False)  # a trace has neither loads nor workers
@workload_options
@sizes_options
@click.option("--rate-per-worker", type=float, metavar="QPS",
              help="With --trace: requests/s that a worker answers in time, in place of "
                   "--profiles.")
@click.option("--startup-s", type=float, metavar="X",
              help="With --trace: start-up time of a worker, which counts.  [default: 0]")
@click.option("--min-effective-accuracy", type=float, metavar="E",
              help="With --trace: least mean accuracy, with late requests counted as 0.")
@click.option("--max-workers", type=click.IntRange(min=1), metavar="N",
              help="With --trace: most workers.  [default: any number]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of the arrivals drawn for the loads of a trace, and of requests with a "
                   "size.")
@models_option
@service_option
@click.option("--max-batch", type=click.IntRange(1, MAX_QUEUE), default=32, show_default=True,
              help="Largest batch; with sizes 64 by default.")
@click.option("--violation-price", type=float, default=0.0, show_default=True, metavar="P",
              help="Price of a late or dropped request, in units of accuracy: bounds effective "
                   "accuracy - P x violation rate.")
@click.option("--max-violation", type=float, default=None, metavar="V",
              help="Bound schedulers with at most this share of violations, such as 0.001.")
@click.option("--cascades", is_flag=True,
              help="Bound schedulers that may ask a second model where the first is unsure; the "
                   "profile needs confidences.")
@overhead_option
@plot_option("the bounds over the loads, with --trace the workers over time")
@table_options
@gathered(served=Served)
def bound(
    served: Served,
    workload: WorkloadOptions,
    rate_per_worker: float | None,
    startup_s: float | None,
    min_effective_accuracy: float | None,
    max_workers: int | None,
    seed: int,
    service: str | None,
    max_batch: int,
    violation_price: float,
    max_violation: float | None,
    cascades: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Bound the effective accuracy of schedulers; of a trace, their worker-seconds.

    The bound holds for every scheduler that answers each request once, by one model, in batches up
    to --max-batch, even if it knows all arrivals. A cascade, which asks a second model if the
    first one is unsure, can exceed this bound. With --cascades the bound also holds for cascades,
    and the bound for one model per request is shown beside it.

    With --trace and a target (--max-violation, --min-effective-accuracy) the bound is the fewest
    worker-seconds, start-ups included, with which a scheduler could meet the target. With --load
    and --workers it is on effective accuracy.

    With --sizes, or a trace with sizes and --workers, the bound is a mean over drawn requests of
    these sizes, with its 95 % interval, or holds for the requests of the trace.

    The bound for Poisson arrivals is tighter, as their batches take time to gather; it needs fixed
    service times (--service p95). The best mix has models and batches (b) by their share of the
    requests. If --max-violation is out of reach, the exit code is 4, and the message has the
    lowest possible violation rate.

    \b
    Examples:
      $ ramsis bound --profiles digits-cpu --slo-ms 100 --workers 4 --load 50:200:50
      $ ramsis bound --profiles digits-cpu --slo-ms 100 --workers 4 --load 50 --json
      $ ramsis bound --profiles digits-cpu --slo-ms 25 --workers 4 --load 9000 --violation-price 1
      $ ramsis bound --profiles digits-cpu --slo-ms 15:0.3,25:0.7 --workers old=3,new=1 --load 800
      $ ramsis bound --rate-per-worker 25 --slo-ms 400 --trace day --startup-s 5 \\
          --max-violation 0.01
      $ ramsis bound --profiles digits-cpu --slo-ms 60 --workers 4 --load 9600 --cascades
    """
    workload.check()
    if any(given is not None for given in (workload.sizes, workload.size_column, served.workers)):
        sized = served.profile_names and workload_of_sizes(workload, served)
        if sized:
            _draw(bound_of_sizes(click.get_current_context().params, served, sized), plot)
            return
        refuse_options(("sizes", "size_column"), "needs --profiles.")
    if workload.trace is not None:
        _of_trace(click.get_current_context().params, served, workload, json_rows=as_json)
        return
    refuse_options(_OF_TRACES, "is for --trace.")
    served.require()
    if violation_price:
        settings_of(SynthesisSettings)["violation_price"].check(violation_price)
    loads = workload.loads or ()
    cluster = served.cluster()
    chosen = service or cluster.default_service
    times = [worker_type.service_times(chosen, max_batch) for worker_type in cluster.worker_types]
    bounds = _Bounds(cluster, times, max_batch, violation_price, max_violation)
    if cascades:
        _refuse_without_cascades(cluster, max_violation)
    rows = [bounds.row(load_qps) for load_qps in loads]
    if cascades:
        rows = [row | bounds.with_cascades(row) for row in rows]
    _draw(rows, plot)
    optimum = _OPTIMUM_ON_TERMS if violation_price or max_violation is not None else _OPTIMUM
    if as_json:
        print_json(rows)
    elif cluster.simple:
        print_rows((*_BOUND, _POISSON, *(_CASCADES if cascades else ()), *optimum, *_OF_ONE),
                   [{**row, "mix": _mix_words(row["mix"])} for row in rows])
    else:
        print_rows((*_BOUND, *optimum, *_OF_SEVERAL),
                   [{**row, **_shares_in_words(row)} for row in rows])


def _draw(rows: list[dict[str, Any]], plot: Path | None) -> None:
    if plot is not None:
        report.plot_charts(report.bound_charts(rows), plot)


def _of_trace(
    params: Mapping[str, Any], served: Served, workload: WorkloadOptions, *, json_rows: bool
) -> None:
    """Print the fewest worker-seconds with which any scheduler could serve a trace."""
    refuse_options(("workers", "violation_price", "cascades"), "is for --load.")
    if (served.profile_names is None) == (params["rate_per_worker"] is None):
        raise click.UsageError("Give either --profiles or --rate-per-worker.")
    classes = served.slo_ms
    if classes is None:
        raise click.UsageError("Missing option '--slo-ms'.")
    if len(classes) > 1:
        raise click.UsageError("--trace takes a single --slo-ms.")
    times = None
    if served.profile_names is not None:
        if served.profile_names.typed:
            raise click.UsageError("--trace takes workers of a single type.")
        profile = served.profile()
        times = ServiceTimes.of(profile, params["service"] or default_service(profile),
                                params["max_batch"])
    (drawn,) = workload.workloads(None)
    arrival_ms = drawn.arrivals_ms(np.random.default_rng(params["seed"]))
    if not (len(arrival_ms) and arrival_ms[-1] > arrival_ms[0]):
        assert workload.trace is not None
        raise InputFileError("requests do not come at two times or more",
                             where=workload.trace.name, value=f"{len(arrival_ms)} requests",
                             allowed="a trace that takes time")
    targets = {name: params[name] for name in ("max_violation", "min_effective_accuracy")}
    fewest = fewest_worker_seconds(
        arrival_ms, times, WorkerSecondsTerms(
            slo_ms=classes[0].slo_ms, startup_s=params["startup_s"] or 0.0,
            rate_per_worker_qps=params["rate_per_worker"], max_batch=params["max_batch"],
            most=params["max_workers"], **targets))
    row = {"slo_ms": classes[0].slo_ms, "startup_s": params["startup_s"] or 0.0,
           "max_violation_rate": params["max_violation"],
           "min_effective_accuracy": params["min_effective_accuracy"],
           "requests": len(arrival_ms), "worker_s": fewest.worker_s,
           "mean_workers": fewest.mean, "peak_workers": fewest.peak}
    over_time = {**row, "time_s": fewest.time_s.tolist(),
                 "workers_over_time": fewest.workers.tolist()}
    _draw([over_time], params["plot"])
    if json_rows:
        print_json([over_time])
    else:
        print_rows(_TRACE, [row])


def _refuse_without_cascades(cluster: Cluster, max_violation: float | None) -> None:
    """Refuse ``--cascades`` with a cluster or a limit that its bound is not for."""
    if not cluster.simple:
        raise click.UsageError("--cascades takes workers of a single type and a single --slo-ms.")
    if max_violation is not None:
        raise click.UsageError("--cascades takes --violation-price in place of --max-violation.")
    profile = cluster.worker_types[0].profile
    if profile.confidences is None:
        raise InvalidValueError("the profile has no confidences", where="--cascades",
                                value=profile.name, allowed="a profile with confidences, which "
                                "ramsis profile import --confidences adds")


@dataclass(frozen=True, eq=False)
class _Bounds:
    """Bounds on effective accuracy by load, as rows."""

    cluster: Cluster
    times: Sequence[ServiceTimes]
    max_batch: int
    violation_price: float
    max_violation: float | None

    def row(self, load_qps: float) -> dict[str, Any]:
        """Return the bound at a load, with shares by worker type and SLO class if several."""
        bound = self.solved(load_qps)
        row = {**cluster_terms_if_several(self.cluster), "load_qps": load_qps,
               "service": self.times[0].service, "violation_price": self.violation_price,
               "max_violation_rate": self.max_violation, "upper_bound": bound.upper_bound,
               "effective_accuracy": bound.effective_accuracy,
               "violation_rate": bound.violation_rate, "served_fraction": bound.served_fraction}
        return row | (self.of_one(bound, load_qps) if self.cluster.simple
                      else self.of_several(bound))

    def solved(self, load_qps: float, *, gathering: bool = False) -> FluidBound:
        """Solve the fluid linear program at a load."""
        return fluid_bound(self.times, slo_ms=self.cluster.classes, load_qps=load_qps,
                           workers=[worker_type.count or 0
                                    for worker_type in self.cluster.worker_types],
                           max_batch=self.max_batch, violation_price=self.violation_price,
                           max_violation=self.max_violation, gathering=gathering)

    def with_cascades(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of the bound with cascades, for a row of the bound on one model.

        They replace the columns of the bound on one model per request, which the row keeps as
        ``upper_bound_one_model`` and ``poisson_upper_bound_one_model``.
        """
        (worker_type,) = self.cluster.worker_types
        profile = worker_type.profile
        assert profile.confidences is not None
        # All models: one that others beat when each answers alone can still help in a cascade.
        times = ServiceTimes.of_all(profile, self.times[0].service, self.max_batch)
        solve = partial(cascade_bound, times, profile.confidences, slo_ms=self.cluster.slo_ms,
                        workers=worker_type.count or 0, load_qps=row["load_qps"],
                        max_batch=self.max_batch, violation_price=self.violation_price)
        bound = solve()
        return {"upper_bound": max(bound.upper_bound, row["upper_bound"]),
                "upper_bound_one_model": row["upper_bound"],
                "effective_accuracy": bound.effective_accuracy,
                "violation_rate": bound.violation_rate,
                "served_fraction": bound.served_fraction, "second_opinions": bound.second_share,
                "poisson_upper_bound_one_model": row["poisson_upper_bound"],
                "poisson_upper_bound": (None if times.distributed
                                        else solve(gathering=True).upper_bound),
                "query_price": bound.query_price,
                "worker_price": bound.worker_price, "time_price": bound.time_price,
                "mix": [{"model": part.model, "batch": part.batch, "share": part.share,
                         "second": [dict(zip(("model", "batch", "share"), second, strict=True))
                                    for second in part.second]} for part in bound.mix]}

    def poisson(self, load_qps: float, most: float) -> float | None:
        """Return the tighter bound for Poisson arrivals, capped at ``most``.

        Return None where service times are drawn. Return None and print a note where the
        ``--max-violation`` cannot be met.
        """
        if self.times[0].distributed:
            return None
        try:
            return min(most, self.solved(load_qps, gathering=True).upper_bound)
        except InfeasibleError as error:
            click.echo(f"note: Poisson arrivals: {by_option(str(error), ('--max-violation',))}",
                       err=True)
            return None

    def of_one(self, bound: FluidBound, load_qps: float) -> dict[str, Any]:
        """Return the row of one worker type and one SLO."""
        times, share = self.times[0], bound.batch_share[0][0]
        mix = [{"model": times.models[m], "batch": int(b) + 1, "share": float(share[m, b])}
               for m, b in zip(*share.nonzero(), strict=True)]
        return {"poisson_upper_bound": self.poisson(load_qps, bound.upper_bound),
                "query_price": bound.query_price, "capacity_qps": bound.capacity_qps,
                "worker_price": float(bound.worker_price[0]), "mix": mix}

    def of_several(self, bound: FluidBound) -> dict[str, Any]:
        """Return the row of several worker types or SLO classes."""
        types, classes = self.cluster.worker_types, self.cluster.classes
        return {
            "types": [{"type": worker_type.name, "share": float(taken),
                       "worker_price": float(price)}
                      for worker_type, taken, price in zip(types, bound.type_share.sum(axis=1),
                                                           bound.worker_price, strict=True)],
            "classes": [{"slo_ms": slo_class.slo_ms, "effective_accuracy": float(accuracy),
                         "served_fraction": float(served)}
                        for slo_class, accuracy, served in zip(classes, bound.class_accuracy,
                                                               bound.class_served, strict=True)],
        }


def _shares_in_words(row: dict[str, Any]) -> dict[str, str]:
    return {
        "types": ", ".join(f"{part['type']} {part['share']:.1%} ({part['worker_price']:+.5f})"
                           for part in row["types"]),
        "classes": ", ".join(f"{slo_class['slo_ms']:g} ms {slo_class['effective_accuracy']:.4f}"
                             for slo_class in row["classes"]),
    }


def _mix_words(mix: list[dict[str, Any]]) -> str:
    def words(parts: list[dict[str, Any]]) -> list[str]:
        return [f"{part['model']} b={part['batch']} ({part['share']:.0%})"
                + "".join(f" then {second}" for second in words(part.get("second", [])))
                for part in sorted(parts, key=lambda part: -part["share"])]

    return ", ".join(words(mix))


def bound_of_sizes(
    params: Mapping[str, Any], served: Served, workload: WorkloadOptions
) -> list[dict[str, Any]]:
    """Print and return bounds on effective accuracy and share in time, by load or trace."""
    served.require()
    refuse_options(_NOT_OF_SIZES, "is not for requests with a size.")
    terms = SizedInputs.of(served, workload)
    source = click.get_current_context().get_parameter_source("max_batch")
    typed = source is not None and source.name == "COMMANDLINE"
    problem = SizedProblem.of(
        terms.profile, terms.sizes, slo_ms=terms.slo_ms, workers=terms.workers,
        statistic=params["service"] or default_statistic(terms.profile),
        max_batch=params["max_batch"] if typed else MAX_BATCH_BY_DEFAULT)
    rows = []
    with progress("loads", len(terms.workloads)) as advance:
        for load in terms.workloads:
            check_sized_load(problem, load)
            if isinstance(load, ConstantLoad):
                bound = upper_bound(problem, load.process, seed=params["seed"])
            else:
                arrival_ms, sizes = drawn(problem, load, params["seed"])
                if not len(sizes):
                    raise InvalidValueError("the trace has no requests", where="trace", value=0,
                                            allowed="one or more")
                bound = path_bound(problem, arrival_ms, sizes)
            rows.append({
                "slo_ms": problem.slo_ms, "workers": problem.workers, "load_qps": load.load_qps,
                "service": problem.statistic, "unit": problem.unit,
                "upper_bound": bound.upper_bound, "upper_bound_half_width": bound.half_width,
                "in_time": bound.in_time, "in_time_half_width": bound.in_time_half_width,
                "upper_bound_without_padding": bound.without_padding,
                "requests": bound.requests})
            advance()
    if params["as_json"]:
        print_json(rows)
    else:
        print_rows(_COLUMNS, rows)
        say(_LOOSENESS)
    return rows
