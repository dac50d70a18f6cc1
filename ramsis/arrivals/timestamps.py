"""Reader of arrival timestamps in text or CSV files, in ms since the first.

A file holds one timestamp a line, or is a CSV with a time column; a name that ends in ``.gz`` or
``.zst`` is decompressed. Timestamps are ISO 8601 (date and time), or numbers with a unit from the
``unit`` argument or the end of the column's name (``arrival_ms``). Recent times since 1970 need no
unit. Named formats are in :mod:`ramsis.arrivals.trace_formats`.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.trace_formats.columns import (
    COUNT_NAMES,
    RATE_NAMES,
    Arrived,
    InstantColumn,
    TimeColumn,
    arrived,
    called_times,
    fields_of,
    lines_of,
    size_column,
)
from ramsis.arrivals.trace_formats.files import blocks
from ramsis.arrivals.trace_formats.instants import UNITS, epoch_unit
from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.logs.dates import is_iso, leading_time
from ramsis.logs.kinds import preamble_of
from ramsis.numerals import heading_unit

__all__ = ["UNITS", "read_timestamps", "stem", "unit_of"]

_METRICS = ("metric", "metric_name")
_GAPS = {"gap", "gaps", "iat", "interarrival", "inter_arrival", "interarrival_time",
         "inter_arrival_time", "delta", "delta_t"}
"""Names of columns of the times between requests."""


def read_timestamps(
    path: str | os.PathLike[str], *, unit: str | None = None, time_column: str | None = None
) -> NDArray[np.float64]:
    """Read the arrival times of a trace.

    Parameters
    ----------
    path : path
        Text, CSV with a comma, semicolon or tab between the fields, or either as ``.gz``.
    unit : str, optional
        One of :data:`UNITS`; required for numbers, unless the column's name ends in one
        (``arrival_ms``) or they are recent times since 1970. ISO timestamps have none.
    time_column : str, optional
        Name of the time column; required if several columns may hold the time.

    Returns
    -------
    ndarray, shape (requests,)
        Milliseconds since the first timestamp, non-decreasing.

    Raises
    ------
    InputFileError
        The file cannot be read, is empty, has no such column, or a line is no timestamp, goes
        back in time or mixes kinds of timestamps; the message names the line.
    InvalidValueError
        An unknown unit, or numbers without one.
    """
    return read_arrivals(path, unit=unit, time_column=time_column).times_ms


def read_arrivals(
    path: str | os.PathLike[str], *, unit: str | None = None, time_column: str | None = None,
    size: str | None = None,
) -> Arrived:
    """Read arrivals with the clock of their timestamps, and sizes from the column ``size``.

    The other parameters are those of :func:`read_timestamps`.
    """
    where = str(path)
    if unit is not None:
        check_known("unknown unit of time", unit, UNITS, "unit")
    try:
        arrivals = _arrivals(blocks(Path(path)), where, unit, time_column, size)
    except csv.Error as error:
        raise InputFileError(f"cannot read trace ({error})", where=where) from error
    if not len(arrivals.times_ms):
        raise InputFileError("no timestamps", where=where,
                             allowed="one a line, or a CSV column of them")
    return arrivals


def _arrivals(
    pieces: Iterator[tuple[int, str]], where: str, unit: str | None, time_column: str | None,
    size: str | None,
) -> Arrived:
    """Read the timestamps in pieces of a text file, which may have a header, and the sizes."""
    reader: TimeColumn | None = None
    for first, text in pieces:
        if reader is None:
            preamble = preamble_of(text)
            text, first = text.removeprefix(preamble), first + preamble.count("\n")
            lines = lines_of(text, first)
            begin = next(lines, None)
            if begin is None:
                continue
            below = next(lines, (0, ""))[1]
            column, has_header = _column(begin, below, where, unit, time_column)
            if size is not None:
                names = [name.strip() for name in fields_of(begin[1])] if has_header else []
                column = replace(column, size=names.index(size_column(names, size, where)))
            reader = TimeColumn(column, where)
            if has_header:
                content = begin[1]
                place = text.index(content) + len(content)
                text = text[place:].removeprefix("\r").removeprefix("\n")
                first = begin[0] + 1
        reader.add(first, text)
    return arrived(np.empty(0)) if reader is None else reader.arrivals()


def _column(
    begin: tuple[int, str], below: str, where: str, unit: str | None, time_column: str | None
) -> tuple[InstantColumn, bool]:
    """Find the time column, and whether the first line is a header.

    ``below`` is the second line: of several columns, the only one with a date is the time.
    """
    place = f"{where}: line {begin[0]}"
    fields = fields_of(begin[1])
    if time_column is None and is_iso(begin[1].strip()):  # its comma may be a decimal mark
        return InstantColumn(0, unit, delimiter="\t"), False
    timed = time_column is None and not any(_looks_like_time(field) for field in fields)
    words = begin[1].split()
    if timed and (among := [i for i, word in enumerate(words) if is_iso(word)]):
        raise InputFileError(
            "a log, not the times of requests", value=begin[1], where=place, allowed="the times "
            f"alone, as by `awk '{{print ${among[0] + 1}}}' {shlex.quote(where)} > times.txt`")
    if time_column is not None or timed:
        if time_column is None:
            _refuse_metrics(fields, below, where)
        index = _time_column(fields, fields_of(below) if below else [], time_column, place)
        # In the only column a comma is a decimal mark.
        return InstantColumn(index, column_unit(fields[index], unit), fields=len(fields),
                             delimiter="\t" if len(fields) == 1 else None), True
    if len(fields) > 1 or (" " in begin[1].strip() and leading_time(begin[1])):
        raise InputFileError("several columns and no header to tell the time's", value=begin[1],
                             where=place, allowed=_times_alone(begin[1], fields, where))
    return InstantColumn(0, unit), False


def _times_alone(line: str, fields: list[str], where: str) -> str:
    """Return the advice of an error message on a log, or a table without a header.

    It has a shell command that extracts the times, if the line shows which field they are.
    """
    name, times = shlex.quote(where), leading_time(line)
    if times and len(fields[0]) != len(times):
        return ("the times of the requests alone, one a line: "
                f"`cut -c1-{len(times)} {name} > times.txt`")
    column = next((i for i, field in enumerate(fields)
                   if is_iso(field.strip()) or epoch_unit(field.strip())), None)
    if column is None:
        return "one column, or a header line"
    mark = next(mark for mark in "\t;," if mark in line).replace("\t", "\\t")
    return ("a header line, or the times of the requests alone, one a line: "
            f"`awk -F'{mark}' '{{print ${column + 1}}}' {name} > times.txt`")


def _refuse_metrics(names: list[str], below: str, where: str) -> None:
    """Refuse a table with one metric per row, where one request may have several rows."""
    clean = [stem(name) for name in names]
    metric = next((i for i, name in enumerate(clean) if name in _METRICS), None)
    values = fields_of(below) if below else []
    if metric is None or "value" not in clean or metric >= len(values):
        return
    mark = next((mark for mark in "\t;," if mark in below), ",").replace("\t", "\\t")
    raise InputFileError(
        "a row is a metric, not a request", where=where, value=names[metric],
        allowed="the rows of one metric that is noted once for each request, as by "
        f"`awk -F'{mark}' 'NR == 1 {{${metric + 1} = \"name\"}} NR == 1 || "
        f"${metric + 1} == \"{values[metric]}\"' OFS='{mark}' {shlex.quote(where)} > "
        "requests.csv`")


def _looks_like_time(field: str) -> bool:
    """Return whether a field is a value, even a bad one such as NaN, and not a column's name."""
    try:
        float(field)
    except ValueError:
        text = field.strip()
        return bool(text) and (text[0].isdigit() or text[0] in "+-." or is_iso(text))
    return True


def _time_column(
    names: list[str], below: list[str], wanted: str | None, where: str
) -> int:
    """Return the index of the column of arrival times; refuse tables of counts."""
    clean = [name.strip() for name in names]
    if wanted is not None:
        if wanted in clean:
            return clean.index(wanted)
        raise InputFileError("no such column", where=where, value=wanted, allowed=", ".join(clean))
    if len(clean) == 1:
        if stem(clean[0]) in _GAPS:
            path, _, header = where.rpartition(": line ")
            raise InputFileError(
                "times between requests, not of requests", where=where, value=clean[0],
                allowed=f"their sums: awk 'NR > {header} {{t += $1; printf \"%.6f\\n\", t}}' "
                        f"{shlex.quote(path)} > times.txt, and --unit")
        return 0
    counts = next((name for name in clean if stem(name) in COUNT_NAMES | RATE_NAMES), None)
    if counts is not None:
        raise InputFileError(
            "a table of counts whose times are not recognised", where=where, value=counts,
            allowed="a column time, with dates such as 2024-05-01T12:00:00 or seconds; or "
                    "--time-column where each line is one request")
    likely = called_times([stem(name) for name in clean])
    dated = [i for i, text in enumerate(below[:len(clean)]) if is_iso(text.strip())]
    for candidates in (likely, dated):
        if len(candidates) == 1:
            return candidates[0]
    raise InputFileError("cannot tell which column holds the time", where=where,
                         value=", ".join(clean), allowed="--time-column with one of these")


def stem(name: str) -> str:
    """Return a column's name in lower case, without its unit.

    >>> stem("Arrival Time (ms)")
    'arrival_time'
    """
    return re.sub(r"[\s-]+", "_", heading_unit(name)[0])


def column_unit(name: str, unit: str | None) -> str | None:
    """Return the unit of a column's numbers: the user's ``unit``, or that in its name.

    Two different units are an InvalidValueError.
    """
    stated = unit_of(name)
    if unit and stated and unit != stated:
        raise InvalidValueError(f"the column {name.strip()} states another unit, {stated}",
                                where="--unit", value=unit, allowed=f"{stated}, or no --unit")
    return unit or stated


def unit_of(name: str) -> str | None:
    """Return the unit at the end of a column's name; None if there is none.

    >>> unit_of("arrival_ms"), unit_of("Time [s]"), unit_of("ms")
    ('ms', 's', None)
    """
    return heading_unit(name)[1] or None
