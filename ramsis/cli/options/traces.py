"""Traces of known formats, as the command line names them."""

from __future__ import annotations

from pathlib import Path

import click

from ramsis.arrivals.trace_formats import Trace, detect_trace, read_trace


def named_trace(
    path: Path, trace_format: str, unit: str | None, time_column: str | None
) -> Trace | None:
    """The trace in a file of a known format, with its notes on stderr; None for another."""
    if trace_format == "auto":
        found = detect_trace(path) if path.is_file() else None
        if found is None or (time_column is not None and found not in ("jsonl", "mooncake")):
            return None
        trace_format = "jsonl" if time_column is not None else found
    read = read_trace(path, trace_format, unit=unit, time_column=time_column)
    for note in read.notes:
        click.echo(f"note: {path} ({read.format}): {note}", err=True)
    return read
