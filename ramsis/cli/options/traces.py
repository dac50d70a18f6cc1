"""Traces as the command line names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ramsis.arrivals.reading import ReadTrace, read_any_trace
from ramsis.arrivals.trace_formats.files import watched
from ramsis.cli.progress import progress

_MB = 2**20


def read_trace_option(
    path: Path, trace_format: str, unit: str | None, time_column: str | None,
    load_columns: Sequence[str] = (),
) -> ReadTrace:
    """Return the trace in a file, with the progress of reading it."""
    plain = path.is_file() and path.suffix not in (".gz", ".zst")
    size_mb = path.stat().st_size / _MB if plain else None
    with progress(f"{path} (MB)", size_mb) as advance, watched(
            lambda read: advance(read / _MB)):
        return read_any_trace(
            path, trace_format=None if trace_format == "auto" else trace_format, unit=unit,
            time_column=time_column, load_columns=load_columns)


def say_how_read(path: Path, read: ReadTrace) -> None:
    """Print on stderr how the rows of a trace were read."""
    for note in read.notes:
        click.echo(f"note: {path}: {note}", err=True)
