"""Readers of arrivals in request logs of other programs, and of loads in load test statistics."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals.trace_formats.columns import Arrived, arrived, size_column, size_of
from ramsis.arrivals.trace_formats.files import blocks
from ramsis.errors import InputFileError
from ramsis.files import read_text
from ramsis.logs.frames import frame_of
from ramsis.logs.kinds import HEAD_CHARACTERS, LogKind, Summary, kind_of
from ramsis.logs.table import LogTable, floats, refusal

_MOST_BYTES = 512 * 1024 * 1024
_ALL = ("Aggregated", "Total")
"""What locust calls the row of all requests, now and before its release 1.0."""


def log_kind(path: Path) -> LogKind | Summary | None:
    """Detect the layout of a request log or of a load test's result; None for other files."""
    return kind_of(next((text[:HEAD_CHARACTERS] for _, text in blocks(path)), ""))


def log_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a log of at most half a gigabyte; ``.gz``, ``.zst`` are decompressed."""
    if Path(path).suffix not in (".gz", ".zst"):
        return read_text(path, limit=_MOST_BYTES, encoding="utf-8-sig")
    parts: list[str] = []
    budget = _MOST_BYTES
    for _, text in blocks(Path(path)):
        budget -= len(text)
        if budget < 0:
            raise InputFileError("file is too large when decompressed", where=str(path),
                                 allowed=f"at most {_MOST_BYTES >> 20} MB")
        parts.append(text)
    return "".join(parts)


def read_log_arrivals(
    path: Path, unit: str | None, size: str | None = None
) -> tuple[Arrived, str | None, tuple[str, ...]]:
    """Read the arrivals of a request log, the name of its size column, and notes for the user.

    ``size`` is that column, detected by its name if empty; if None, no sizes are read.
    """
    table = LogTable.of(log_text(path), str(path), unit=unit)
    if table.kind is not None and not table.kind.has_arrivals:
        raise InputFileError(f"{table.kind.title} does not say when requests came",
                             where=str(path), allowed=table.kind.lacks.format(path))
    stamp_s, took_s = table.stamps()
    sizes = None
    if size is not None:
        size = size_column([str(name) for name in table.frame.columns], size, str(path))
        sizes = np.array([size_of([text], 0, f"{path}: line {line}, {size}")
                          for line, text in table.frame[size].items()])
        sizes = sizes[np.argsort(stamp_s, kind="stable")] if took_s is None else sizes
    arrivals = (arrived(np.sort(1000.0 * stamp_s), None, sizes) if took_s is None else
                arrived(1000.0 * stamp_s, 1000.0 * took_s, sizes))
    return arrivals, size, table.said()


def read_locust_load(path: Path, summary: Summary) -> tuple[FloatArray, str]:
    """Read requests per second by second from locust's statistics; return a note for the user."""
    if not summary.is_load:
        raise refusal(summary, str(path))
    rows, _ = frame_of(log_text(path), None, str(path))
    if not {"Timestamp", "Requests/s", "Name"} <= set(rows.columns):
        raise InputFileError("no such columns", where=str(path),
                             allowed="Timestamp, Name and Requests/s, as locust writes them")
    rows = rows[rows["Name"].isin(_ALL)]
    times, rates = floats(rows["Timestamp"]), floats(rows["Requests/s"])
    good = np.isfinite(times) & np.isfinite(rates) & (rates >= 0)
    good[1:] &= np.diff(times) >= 0
    if not good.all() or not len(good) or not rates.any() or times[-1] - times[0] > 1e8:
        line = rows.index.tolist()[int(np.argmin(good))] if len(good) else 1
        raise InputFileError("not a time and a load", where=f"{path}: line {line}",
                             allowed="times in seconds that rise, and rates >= 0, not all 0")
    seconds = np.arange(int(times[-1] - times[0]) + 1)
    held = np.searchsorted(times - times[0], seconds, side="right") - 1
    return rates[held], (
        f"read as locust's statistics over time, {len(rates)} rows with Name = Aggregated, each "
        "an interval of 1 s with a rate in Requests/s, which locust smooths over 10 s")
