"""``ramsis scenario``: commands for scenario files."""

from __future__ import annotations

from pathlib import Path

import click

from ramsis.cli.options.command import CommandGroup
from ramsis.cli.options.param_types import OUT_FILE, complete_files
from ramsis.files import canonical_json, write_atomic


@click.group("scenario", cls=CommandGroup)
def scenario_group() -> None:
    """Scenarios of clusters on which models come and go."""


@scenario_group.command("placement", short_help="Write the placement problem of a scenario.")
@click.argument("scenario_file", metavar="SCENARIO", shell_complete=complete_files)
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE",
              help="Placement problem to write.")
@click.option("--window-s", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Length of a window, whose largest load is the demand.  [default: the mean of "
                   "the scenario]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of the arrivals.")
def placement_command(
    scenario_file: str, out: Path, window_s: float | None, seed: int
) -> None:
    """Write the placement problem of a scenario, which `ramsis place` solves.

    Each model that gets requests is a variant, each family of models a family, with the load of
    its streams and the tightest of their SLOs.

    \b
    Examples:
      $ ramsis scenario placement scenario.json --window-s 1 --out problem.json
    """
    from ramsis.planning.planned import placement_problem  # here: it takes long to load
    from ramsis.scenario import read_scenario

    problem = placement_problem(read_scenario(scenario_file), window_s=window_s, seed=seed)
    write_atomic(out, canonical_json(problem.to_document()))
    workers = sum(worker_type.count for worker_type in problem.worker_types)
    click.echo(f"{out}: {len(problem.variants)} models for {len(problem.families)} families, "
               f"{sum(family.demand_qps for family in problem.families):.1f} QPS, "
               f"{workers} workers")
