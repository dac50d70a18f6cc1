"""``ramsis verify``: re-derive what policy files claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import complete_files
from ramsis.cli.output.rows import Column, print_json, print_rows, progress, table_options, wide
from ramsis.errors import VerificationError
from ramsis.policy import MANIFEST_NAME
from ramsis.runtime.manifest import read_manifest
from ramsis.sized.policy import is_sized, policy_file, read_sized
from ramsis.verify.checks import Check
from ramsis.verify.policy import TOLERANCE, verify_policy
from ramsis.verify.sets import verify_levels
from ramsis.verify.sized import verify_sized

_COLUMNS = (
    Column("file", "file"),
    Column("claim", "claim"),
    Column("stated", "stated", ".6f"),
    Column("derived", "derived", ".6f"),
    Column("result", "result"),
)


@click.command("verify", cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="DIR|FILE...",
                shell_complete=complete_files)
# Naming it on the command line is what allows its import (:func:`ramsis.plugins.trust`).
@click.option("--arrivals", metavar="MODULE:NAME", expose_value=False,
              help="Your own arrival process in the files that may be imported.")
@click.option("--tolerance", type=click.FloatRange(min=0.0, min_open=True), default=TOLERANCE,
              show_default=True, help="Largest difference between stated and derived figures.")
@click.option("--all", "show_all", is_flag=True, help="Print the claims that hold, too.")
@table_options
def verify(files: tuple[str, ...], tolerance: float, show_all: bool, as_json: bool) -> None:
    """Derive the claims of policy FILEs again from the files alone.

    A DIR stands for the policy files of its manifest, and for the joint promise of several
    stations. The full decision process is solved by value iteration and power iteration, without
    any shortcut of `ramsis generate`; this takes seconds a file, minutes for large tables. The
    tables of a central queue, of shortest-queue dispatch and for requests with a size are replayed
    on simulated arrivals. Prints the certified_gap: the largest relative advantage that any
    scheduler with one model per request can have, at the policy's own violation price. The exit
    code is 6 if a claim fails.

    \b
    Examples:
      $ ramsis verify policies_out/example/round-robin-00400qps.json
      $ ramsis verify policies_out/example/round-robin-00400qps.json --all
    """
    folders = [folder for folder in map(_folder, files) if folder is not None]
    paths = [path for name in files for path in _files(name)]
    rows: list[dict[str, Any]] = []
    with progress("verifying", len(paths)) as advance:
        for path in paths:
            derive = verify_sized if is_sized(path) else verify_policy
            checks = derive(path, tolerance=tolerance)
            rows += [_row(path, check) for check in checks]
            advance()
    if all(row["holds"] for row in rows):  # otherwise the manifest does not fit the files
        rows += [_row(folder / MANIFEST_NAME, check)
                 for folder in folders if not is_sized(folder)
                 for check in verify_levels(folder, tolerance)]
    failed = [row for row in rows if not row["holds"]]
    if as_json:
        print_json(rows)
    elif failed or show_all:
        print_rows(_COLUMNS, [row if wide() else {**row, "file": Path(row["file"]).name}
                              for row in (rows if show_all else failed)])
    if failed:
        raise VerificationError(
            f"{len(failed)} of {len(rows)} claims do not hold: do not serve by these files; "
            "`ramsis generate --overwrite` makes them anew")
    if not as_json:
        for row in rows:
            if row["claim"] == "certified_gap" and row["derived"] is not None:
                click.echo(f"{row['file']}: certified_gap {row['derived']:.4f}")
        click.echo(f"{len(rows)} claims hold in {len(paths)} file(s)")


def _files(name: str) -> list[Path]:
    folder = _folder(name)
    if folder is None:
        return [Path(name)]
    if is_sized(folder):
        return [folder / policy_file(policy.load_qps) for policy in read_sized(folder)]
    return [station.policy.path for level in read_manifest(folder).levels
            for station in level.stations]


def _folder(name: str) -> Path | None:
    """Return the folder of a policy set; None for a single policy file."""
    path = Path(name)
    if path.is_dir():
        return path
    return path.parent if path.name == MANIFEST_NAME else None


def _row(path: Path, check: Check) -> dict[str, Any]:
    return {
        "file": str(path), "claim": check.claim, "stated": check.stated,
        "derived": check.derived, "holds": check.holds,
        "result": "ok" if check.holds else "FAILS",
    }
