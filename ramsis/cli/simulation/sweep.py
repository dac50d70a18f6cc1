"""``ramsis sweep``: grids of simulations and policies, with stored results."""

from __future__ import annotations

from pathlib import Path

import click

from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import OUT_PLACE
from ramsis.cli.options.shared import engine_options
from ramsis.cli.output.rows import (
    json_option,
    overloaded,
    print_json,
    progress,
    strict_option,
    tell_overload,
)
from ramsis.sweep import Engine, Failure, Sweep, SweepSpec

_SHOWN = 10


@click.command("sweep", cls=Command)
@click.argument("spec", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--out", required=True, metavar="DIR|URL", type=OUT_PLACE,
              help="Folder for results and tables, or a URL that fsspec opens; existing results "
                   "are reused.")
@engine_options()
@click.option("--arrivals", metavar="MODULE:NAME", expose_value=False,
              help="Your own arrival process in SPEC that may be imported.")
@click.option("--scheduler", multiple=True, metavar="FILE.py:CLASS", expose_value=False,
              help="Your own scheduler in SPEC (or MODULE:CLASS) that may be imported; repeat for "
                   "several.")
@json_option
@strict_option
def sweep_command(
    spec: Path, out: Path | str, engine: Engine, as_json: bool,
) -> int:
    """Simulate every combination of profiles, workers, SLOs, loads and schedulers that SPEC names.

    SPEC is a TOML file; its cells can also be scenarios and schedulers of `ramsis simulate`. Each
    cell's result is kept in DIR under the fingerprint of its inputs: an interrupted run resumes
    where it stopped, and a changed SPEC computes only what changed. Policies are generated once
    for all cells that use them. Writes results.csv, seeds.csv, models.csv and failures.csv, and
    value-table.json with the promises of the policies; for scenarios scenarios.csv and
    scenario-seeds.csv. A failed cell does not stop the others; the exit code is then that of the
    first failure.

    With --engine ray the cells run on a Ray cluster, or on processes that Ray starts here; cells
    of lost processes and nodes are repeated. See docs/scaling.md.

    \b
    Examples:
      $ ramsis sweep sweep.toml --out sweep_out --processes 1
      $ ramsis sweep sweep.toml --out sweep_out --processes 1 --json
    """
    sweep = Sweep(SweepSpec.load(spec), out)
    with progress("sweep", sweep.todo) as advance:
        result = sweep.run(engine, advance)
    counts = {"computed": result.computed, "reused": result.reused,
              "failed": len(result.failures)}
    if as_json:
        print_json(result.rows, **counts)
    else:
        click.echo(", ".join(f"{name} {count}" for name, count in counts.items()))
        for path in result.files:
            click.echo(f"  {path}")
    _tell(result.failures)
    tell_overload(overloaded(result.rows, "scenario", "scheduler"))
    return result.failures[0].exit_code if result.failures else 0


def _tell(failures: tuple[Failure, ...]) -> None:
    """Print the errors of the first cells that failed, one per line."""
    for failure in failures[:_SHOWN]:
        click.echo(f"failed: {failure.cell.label}: {failure.error}", err=True)
    if len(failures) > _SHOWN:
        click.echo(f"failed: {len(failures) - _SHOWN} more; failures.csv has all", err=True)

