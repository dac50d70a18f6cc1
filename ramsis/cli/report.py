"""``ramsis report``: one self-contained HTML page of results."""

from __future__ import annotations

from pathlib import Path

import click

from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import OUT_FILE, complete_profiles


@click.command("report", cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="DIR|FILE...",
                shell_complete=complete_profiles)
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE",
              help="Page to write: self-contained HTML.")
@click.option("--title", metavar="TEXT", help="Heading of the page.")
def report(sources: tuple[str, ...], out: Path, title: str | None) -> None:
    """Write one page about profiles, policies, simulations, sweeps, capacity or placements.

    DIR|FILE is a profile file or the name of a shipped set, a policy file, the folder of a policy
    set or of a sweep, a placement file, or the --json output of `simulate`, `capacity`, `scale` or
    `audit`; or a folder with several of these. The page has the inputs, tables, interactive
    figures, policies as heat maps by load, and the commands that reproduce it.

    \b
    Examples:
      $ ramsis report policies_out/example --out report.html
      $ ramsis report digits-cpu policies_out/example --out report.html \\
          --title "Digits on four workers"
    """
    from ramsis.report.page import write_report

    count = write_report(sources, out, title=title)
    size_kb = out.stat().st_size / 1000
    click.echo(f"{out}: {count} section{'s' if count > 1 else ''}, {size_kb:.0f} kB")
