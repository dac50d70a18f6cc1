"""``ramsis generate`` for requests with a size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ramsis.arrivals import Arrivals, read_sizes
from ramsis.cli.options.clusters import Served
from ramsis.cli.options.command import allow_options
from ramsis.cli.options.sizes import check_single, default_statistic, with_own_sizes
from ramsis.cli.output.rows import (
    Column,
    command_line,
    print_classes,
    print_json,
    print_rows,
    progress,
    say,
    tell_overload,
)
from ramsis.report.columns import LOAD, PROMISED
from ramsis.runtime.routing import DISPATCHES
from ramsis.sized import SizedProblem
from ramsis.synthesis import SynthesisSettings

_ALLOWED = ("profile_names", "slo_ms", "workers", "loads", "models", "out", "dispatch", "arrivals",
            "service", "overhead_ms", "overwrite", "sizes", "size_column", "min_in_time_by_class",
            "as_json")
_COLUMNS = (
    *(column for column in PROMISED if column.key != "slowness"),
    Column("decides", "decides by"),
    Column("response_p99_ms", "p99 response (ms)", ".1f"),
    Column("padding", "padding", ".1%"),
    Column("utilisation", "utilisation", ".1%"),
    Column("state", "state"),
)


def generate_with_sizes(
    served: Served, loads: tuple[float, ...], out: Path, settings: dict[str, Any], sizes: Path,
    size_column: str | None, min_in_time_by_class: tuple[float, ...] | None, *, overwrite: bool,
    as_json: bool,
) -> None:
    """Make a policy for requests with a size for each load; print its promise by size class."""
    allow_options(_ALLOWED, "is not for requests with a size.")
    count, slo_ms = check_single(served), served.slo_ms[0].slo_ms
    chosen = SynthesisSettings(slo_ms=slo_ms, workers=count, **settings)
    by_default = click.get_current_context().get_parameter_source("dispatch") in (
        None, ParameterSource.DEFAULT)
    if DISPATCHES[chosen.dispatch].own_queues and (count > 1 or not by_default):
        raise click.UsageError(f"--dispatch {chosen.dispatch}: requests with a size wait in one "
                               "queue for all workers: --dispatch central-queue.")
    from ramsis.sized import policy as sized  # here, as it takes long to load

    sized.check_free(out, overwrite=overwrite)
    profile = replace(served, overhead_ms=settings.get("overhead_ms", 0.0)).profile()
    read = read_sizes(sizes, column=size_column or "")
    click.echo(f"note: {sizes}: {read.note}", err=True)
    problem = SizedProblem.of(
        profile, read.distribution, slo_ms=slo_ms, workers=count,
        statistic=settings.get("service") or default_statistic(profile))
    arrivals = with_own_sizes(Arrivals.parse(settings.get("arrivals", "poisson")), sizes,
                              size_column)
    steps = sized.generation_steps(weighted=min_in_time_by_class is not None)
    policies = []
    with progress("simulations", steps * len(loads)) as advance:
        for load_qps in loads:
            policies.append(sized.generate_sized(
                problem, profile, load_qps, arrivals=arrivals,
                min_in_time_by_class=min_in_time_by_class, on_progress=advance))
    sized.write_sized(policies, out, command_line())
    rows = [{**policy.row(), "file": str(out / sized.policy_file(policy.load_qps)),
             "state": "OVERLOAD" if policy.expectations["overloaded"] else "ok"}
            for policy in policies]
    if as_json:
        print_json(rows)
    else:
        print_rows(_COLUMNS, rows)
        print_classes((LOAD,), rows, problem.unit)
        say(f"policies: {out}")
    for policy in policies:
        for entry in sized.missed_classes(policy):
            low, high = entry["sizes"]
            click.echo(f"warning: at {policy.load_qps:g} QPS only {entry['in_time_rate']:.4f} of "
                       f"{low}–{high} {problem.unit} will be in time, less than "
                       "--min-in-time-by-class", err=True)
        if policy.tables.plan is not None:
            click.echo(f"note: at {policy.load_qps:g} QPS no rule was better than replanned-dp, "
                       "which decides", err=True)
    tell_overload(f"{row['load_qps']:g} QPS" for row in rows if row["overloaded"])
