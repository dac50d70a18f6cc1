"""Readers of formats with counts or rates in place of arrivals, and of other programs' logs."""

from __future__ import annotations

import io
import math
import os
import shlex
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.arrivals.trace_formats.columns import (
    Arrived,
    arrived,
    fields_of,
    lines_of,
    size_column,
    size_of,
)
from ramsis.arrivals.trace_formats.files import blocks
from ramsis.arrivals.trace_formats.instants import number
from ramsis.errors import InputFileError, check_known
from ramsis.files import read_text
from ramsis.logs.frames import frame_of
from ramsis.logs.kinds import HEAD_CHARACTERS, LogKind, Summary, kind_of
from ramsis.logs.table import LogTable, floats, refusal

_MOST_BYTES = 512 * 1024 * 1024
_ALL = ("Aggregated", "Total")
"""What locust calls the row of all requests, now and before its release 1.0."""

# Characters of a block that holds nothing but numbers.
_PLAIN = frozenset("0123456789.+-eE\r\n")


def minute_columns(names: list[str]) -> list[int]:
    """Return the columns of a header named 1, 2, … for minutes; empty if fewer than three."""
    clean = [name.strip().strip('"') for name in names]
    columns = [i for i, name in enumerate(clean) if name.isdecimal()]
    numbered = [clean[i] for i in columns] == [str(n) for n in range(1, len(columns) + 1)]
    return columns if numbered and len(columns) >= 3 else []


def read_minute_bins(path: Path) -> tuple[NDArray[np.float64], int]:
    """Read requests per second by minute, summed over functions, and the number of functions."""
    totals, functions = np.zeros(1), 0
    for counts in _minutes(path):
        totals, functions = totals + counts.sum(axis=0), functions + len(counts)
    if not totals.any():
        raise InputFileError("empty trace", where=str(path), allowed="a function with invocations")
    return totals / 60.0, functions


def read_function_minutes(path: Path) -> NDArray[np.float64]:
    """Read the invocations of each function in each minute, shape (functions, minutes)."""
    parts = list(_minutes(path))
    if not sum(map(len, parts)):
        raise InputFileError("empty trace", where=str(path), allowed="a function with invocations")
    return np.concatenate(parts)


def _minutes(path: Path) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of the invocations by function and minute."""
    columns: list[int] = []
    for first, text in blocks(path):
        body, line = text, first
        if not columns:
            line, header = next(lines_of(text, first, comments=True), (first, ""))
            columns = minute_columns(fields_of(header.strip(), ","))
            if not columns:
                raise InputFileError("no columns of minutes", where=f"{path}: line {line}",
                                     value=header.strip(), allowed="HashOwner,…,1,2,3,…")
            line += 1
            body = "".join(text.split("\n", line - first)[line - first:])
        yield _counts(body, line, columns, path)


def _counts(text: str, first: int, columns: list[int], path: Path) -> NDArray[np.float64]:
    """Read the counts in a block, by row and minute."""
    import pandas as pd

    try:
        table = pd.read_csv(io.StringIO(text), header=None, usecols=columns, dtype=float,
                            engine="c", low_memory=False, comment="#")
        counts = table.to_numpy(dtype=float)
        if np.isfinite(counts).all() and (counts >= 0).all():
            return counts
    except (ValueError, OverflowError):
        pass
    # Read line by line, so that an error names its line.
    rows = []
    for line, content in lines_of(text, first, comments=True):
        cells = fields_of(content, ",")
        rows.append([number(cells[i]) if i < len(cells) else math.nan for i in columns])
        for minute, (column, count) in enumerate(zip(columns, rows[-1], strict=True), start=1):
            if not count >= 0:
                raise InputFileError("not a count", where=f"{path}: line {line}, minute {minute}",
                                     value=cells[column] if column < len(cells) else None,
                                     allowed="a finite number >= 0")
    return np.array(rows).reshape(-1, len(columns))


def read_second_rates(path: Path, column: str | None) -> NDArray[np.float64]:
    """Read a rate for each second: one per line, or a column of a CSV file."""
    rates = array("d")
    index: int | None = None
    for first, text in blocks(path):
        plain = _plain_rates(text) if column is None and index == 0 else None
        if plain is not None:
            rates.frombytes(plain.tobytes())
            continue
        for line, content in lines_of(text, first):
            fields = [field.strip() for field in fields_of(content)]
            if index is None:
                index = _rate_column(fields, column, f"{path}: line {line}")
                if math.isnan(number(fields[index])):
                    continue
            rate = number(fields[index]) if index < len(fields) else math.nan
            if not rate >= 0:
                raise InputFileError("not a rate", where=f"{path}: line {line}", value=content,
                                     allowed="a finite number >= 0 of requests per second")
            rates.append(rate)
    values = np.array(rates)
    if not values.any():
        raise InputFileError("empty trace", where=str(path), allowed="a rate > 0")
    return values


def _plain_rates(text: str) -> NDArray[np.float64] | None:
    """Read a block of one plain number >= 0 per line; None if it needs reading line by line."""
    if not set(text) <= _PLAIN:
        return None
    try:
        rates = np.array(text.split(), dtype=float)
    except ValueError:
        return None
    one_a_line = len(rates) == text.count("\n") + (not text.endswith("\n"))
    return rates if one_a_line and np.isfinite(rates).all() and (rates >= 0).all() else None


def _rate_column(fields: list[str], wanted: str | None, where: str) -> int:
    """Return the index of the column of rates: that of the name ``wanted``, or the only one."""
    if wanted is not None:
        check_known("no such column", wanted, fields, where, InputFileError)
        return fields.index(wanted)
    if len(fields) > 1:
        raise InputFileError("several columns", where=where, value=", ".join(fields),
                             allowed="one, or --time-column with that of the rates")
    return 0


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
                             where=str(path),
                             allowed=table.kind.lacks.format(shlex.quote(str(path))))
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
