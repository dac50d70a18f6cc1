"""``ramsis frontier``: accuracy against violations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from ramsis import report
from ramsis.cli.options.clusters import Served
from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import OUT_FILE
from ramsis.cli.options.policies import policy_options
from ramsis.cli.options.shared import cluster_options, gathered, load_option, plot_option
from ramsis.cli.output.rows import (
    policy_row,
    print_json,
    print_rows,
    progress,
    table_options,
)
from ramsis.errors import InvalidValueError
from ramsis.files import write_atomic
from ramsis.report.columns import CORNERS
from ramsis.synthesis import SynthesisSettings
from ramsis.tables import csv_text

T = TypeVar("T")

_RUNS, _SEED = 8, 0
_MOST = 4_000_000  # queries of one of the runs, which take memory for each
_FEWEST = 1000  # queries of a simulation


_MORE = (
    "--late", "--overhead-ms", "--max-queue", "--paper")
"""Options that only --help-all shows."""


@click.command("frontier", cls=Command, more=_MORE)
@cluster_options
@load_option()
@policy_options("late", "service", "overhead_ms", "max_queue")
@click.option("--points", type=click.IntRange(2), default=20, show_default=True,
              help="Most vertices of a frontier.")
@click.option("--queries", type=click.IntRange(0), default=1_000_000, show_default=True,
              help="Requests to simulate for each vertex: 0, or from 1000.")
@click.option("--out", type=OUT_FILE, metavar="FILE",
              help="Write the rows as CSV.")
@plot_option("the frontiers")
@table_options
@gathered(served=Served)
def frontier_command(
    served: Served,
    loads: tuple[float, ...],
    settings: dict[str, Any],
    points: int,
    queries: int,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Trace accuracy against violations, from the fewest violations to the unconstrained policy.

    Each row is a policy that is optimal at a violation price: a vertex of the upper concave hull
    of what policies of this model reach.

    Points between two vertices need a randomised policy. The model's figures come first, those of a simulation beside them: the model overestimates
    violations, most of all if they are few.

    \b
    Examples:
      $ ramsis frontier --profiles digits-cpu --slo-ms 25 --workers 2 --load 9000 --queries 100000
      $ ramsis frontier --profiles digits-cpu --slo-ms 25 --workers 2 --load 9000 --queries 0 --json
    """  # noqa: E501 - an example is one line
    from ramsis.synthesis.frontier import trace_frontier

    if 0 < queries < _FEWEST:
        raise InvalidValueError("too few to simulate with", where="--queries", value=queries,
                                allowed=f"0, or from {_FEWEST}")
    assert served.workers is not None
    chosen = SynthesisSettings(
        slo_ms=_only("--slo-ms", [slo_class.slo_ms for slo_class in served.slo_ms]),
        workers=_only("--workers", list(served.workers.values.values())), **settings)
    profile = _only("--profiles", list(served.profiles().values()))
    rows: list[dict[str, Any]] = []
    with progress("frontiers", len(loads)) as advance:
        for load_qps in loads:
            corners = trace_frontier(profile, load_qps, chosen, points=points).corners
            rows += [{**policy_row(corner.policy), "violation_price": corner.price,
                      **_simulated(corner.policy, queries)} for corner in corners]
            advance()
    if as_json:
        print_json(rows)
    else:
        print_rows(CORNERS, rows)
    if out is not None:
        write_atomic(out, csv_text(rows))
        click.echo(f"rows in {out}", err=True)
    if plot is not None:
        report.plot_frontier(rows, plot)
        click.echo(f"figure in {plot}", err=True)


def _only(option: str, values: Sequence[T]) -> T:
    """Return the only value; refuse several worker types or SLOs."""
    if len(values) > 1:
        raise InvalidValueError(
            "a frontier is of one station: how several divide the load changes with the price",
            where=option, value=len(values), allowed="one worker type and one SLO; trace each by "
            "itself")
    return values[0]


def _simulated(policy: Any, queries: int) -> dict[str, Any]:
    if not queries:
        return {}
    from ramsis.synthesis.simulated import simulated

    runs = max(_RUNS, -(-queries // _MOST))
    estimate = asdict(simulated(policy, queries=queries, runs=runs, seed=_SEED))
    return {key: value for key, value in estimate.items() if key not in ("runs", "seed")}
