"""``ramsis bound`` for requests with a size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ramsis.cli.options.command import refuse_options
from ramsis.cli.options.sizes import SizedInputs, default_statistic
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.cli.output.rows import Column, print_json, print_rows, progress, say
from ramsis.errors import InvalidValueError
from ramsis.sim import ConstantLoad
from ramsis.sized import SizedProblem, path_bound, upper_bound
from ramsis.sized.problem import MAX_BATCH_BY_DEFAULT
from ramsis.sized.simulate import check_sized_load, drawn

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
_LEFT = ("The bound holds for every scheduler, even one that knows all arrivals. It leaves that a "
         "worker may answer a request again at its price, and steps and grid of its search.")


def bound_of_sizes(params: Mapping[str, Any], workload: WorkloadOptions) -> list[dict[str, Any]]:
    """Print and return a bound for each load, or for the trace."""
    for option, name in (("--profiles", "profile_names"), ("--slo-ms", "slo_ms"),
                         ("--workers", "workers")):
        if params[name] is None:
            raise click.UsageError(f"Missing option '{option}'.")
    refuse_options(_NOT_OF_SIZES, "is not for requests with a size.")
    terms = SizedInputs.of(params["profile_names"], params["models"], params["overhead_ms"],
                           params["slo_ms"], params["workers"], params["sizes"],
                           params["size_column"], workload)
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
        say(_LEFT)
    return rows
