"""``ramsis profile plot``: a profile set as a figure."""

from __future__ import annotations

from pathlib import Path

import click

from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import FIGURE, complete_profiles
from ramsis.profiles import STATISTICS, Statistic, load


@click.command("plot", cls=Command)
@click.argument("source", metavar="FILE|NAME", shell_complete=complete_profiles)
@click.option("--out", type=FIGURE, required=True, metavar="FIG",
              help="Figure to write: .png, .pdf or .svg; needs the extra 'plot'.")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True,
              help="Batch size at which models are compared.")
@click.option("--statistic", type=click.Choice(STATISTICS), default=STATISTICS[0],
              show_default=True, help="Latency statistic.")
@click.option("--step", type=click.FloatRange(min=0, max=1, min_open=True),
              help="Also show models made up along the front, this far apart in accuracy; "
                   "0.005 is half a percent.")
def plot_command(source: str, out: Path, batch: int, statistic: Statistic,
                 step: float | None) -> None:
    """Draw accuracy against latency with the Pareto front, and latency by batch size.

    FILE|NAME is a profile file or a shipped profile set. Models that another one beats at this
    batch size are grey.

    \b
    Examples:
      $ ramsis profile plot digits-cpu --out models.png
      $ ramsis profile plot digits-cpu --out models.svg --batch 8 --step 0.005
    """
    from ramsis.report.profile import plot_profile

    profile = load(source)
    front = plot_profile(profile, out, batch, statistic, step)
    click.echo(f"{out}: written; models: {len(profile.models)}, on the front: {len(front)}")
