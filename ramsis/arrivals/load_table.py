"""Readers of loads over time, and the shipped traces by name.

Three layouts are read, each as text, ``.gz`` or ``.zst``:

- lines of a time and a load in requests per second, as ``12 2431`` (the layout of the Twitter
  traces): the load holds from that time to the next; ``#`` begins a comment;
- a table with a header, of a column of times and one of counts or rates, as monitoring writes it;
- the minute bins of the Azure Functions data: a CSV whose header names the minutes ``1``, ``2``, …
  after any other columns; invocations are added up over the rows.

A table of monitoring has one row per interval. It is recognised by its header, such as
``minute,requests`` or ``time,rps``, or by its rows: times evenly spaced by a second or more,
beside numbers. In the second case its header holds the names or the queries of series of a
monitoring system. Cells may have a unit (``18.9 req/s``) and commas between thousands. A unit or
the header says whether the cells are rates or counts; numbers with fractions are rates. An
ambiguous table is refused, and the message states the loads by either reading.
"""

from __future__ import annotations

import csv
import math
import os
import re
import shlex
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

import ramsis
from ramsis.arrivals.timestamps import UNITS, column_unit, stem
from ramsis.arrivals.trace import RateTrace
from ramsis.arrivals.trace_formats.columns import (
    COUNT_NAMES,
    RATE_NAMES,
    called_times,
    even_step_ms,
    fields_of,
    lines_of,
)
from ramsis.arrivals.trace_formats.files import blocks
from ramsis.arrivals.trace_formats.instants import Instants, epoch_unit
from ramsis.arrivals.trace_formats.rates import minute_columns, read_minute_bins
from ramsis.errors import InputFileError, InvalidValueError, RamsisError, check_known
from ramsis.logs.dates import is_iso
from ramsis.numerals import number_or_nan

_SEPARATOR = re.compile(r"sep=[,;\t]", re.IGNORECASE)
"""What a table for Excel may begin with."""
_PACKAGE = Path(ramsis.__file__).resolve().parent
_SHIPPED = (_PACKAGE / "profiles" / "shipped" / "traces", _PACKAGE.parent / "profiles" / "traces")
"""Folders of shipped traces: in a wheel, and in the repository of an editable installation."""

HEAD_LINES = 1000
"""Leading lines by which the columns of a table are recognised."""
_UNITS_IN_NAMES = {"second": "s", "seconds": "s", "minute": "min", "minutes": "min", "hour": "h",
                   "hours": "h"}
# Units of loads, each with the requests per second of one unit.
_PER_S = {
    **dict.fromkeys(("req/s", "reqs/s", "request/s", "requests/s", "reqps", "rps", "qps", "ops",
                     "ops/s", "op/s", "hits/s", "c/s", "cps", "/s", "queries/s"), 1.0),
    **dict.fromkeys(("req/min", "req/m", "reqpm", "rpm", "requests/min", "ops/m", "opm", "cpm",
                     "c/m", "/min"), 1.0 / 60.0),
}
_COUNTED = {"req", "reqs", "request", "requests", "hits", "records", "invocations", "queries"}
_THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6}
_CELL = re.compile(r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:e[+-]?\d{1,3})?|\.\d+) ?([km]?) ?"
                   r"([a-z/]*)", re.ASCII | re.IGNORECASE)
_EMPTY = {"", "null", "-"}
_QUANTITY = re.compile(r"[+-]?[\d.,]+(?:e[+-]?\d+)?(?: ?[^\d\s]{1,12}){0,2}")
_DECIMAL_COMMA = re.compile(r"\d+,\d+")
_POINT_GROUPS = re.compile(r"\d{1,3}(?:\.\d{3})+")
# Headers of quantities that are no loads, of rates in requests per second or per minute, and of
# counts per interval.
_NO_LOADS = re.compile(r"latenc|duration|token|bytes|size|\bp\d\d|percentile|quantile|\bms\b|_ms|"
                       r"seconds|elapsed|status|code|cpu|memory|util|length|error|images")
_RATES = re.compile(r"rate\(|/s\b|/sec|per[ _]sec|\b(?:rps|qps|reqps|rate)\b")
_PER_MINUTE = re.compile(r"/min\b|per[ _]min|\brpm\b")
_COUNTS = re.compile(r"\bincrease\(|count_over_time\(|as_count\(|"
                     r"\b(?:count|requests|hits|invocations)\b")


class LoadColumns(NamedTuple):
    """Columns of a load table: its times, its loads, and the meaning of the loads."""

    time: int
    loads: tuple[int, ...]
    unit: str | None
    counts: bool
    factor: float = 1.0  # of numbers without a unit, to loads per second


def load_columns_of(
    head: Sequence[tuple[int, str]], unit: str | None, wanted: Sequence[str], path: Path
) -> LoadColumns | None:
    """Detect the columns of a load table by its first lines; None if it is no such table.

    ``head`` are at most :data:`HEAD_LINES` lines with their numbers, ``unit`` is that of numeric
    times, and ``wanted`` are the names of load columns that the user selected; empty to detect
    them.
    """
    header = [name.strip() for name in fields_of(head[0][1])]
    names = [stem(name) for name in header]
    if any(map(is_iso, header)) or all(_number(name) is not None for name in header):
        return None
    times = called_times(names) or [i for i, name in enumerate(names) if name in _UNITS_IN_NAMES]
    for name in wanted:
        check_known("no such column", name, header, str(path), InputFileError)
    loads = [header.index(name) for name in wanted] or [
        i for i, name in enumerate(names) if name in RATE_NAMES] or [
        i for i, name in enumerate(names) if name in COUNT_NAMES]
    rows = [[cell.strip() for cell in fields_of(text)] for _, text in head[1:]]
    rows = [row for row in rows if len(row) == len(header)]
    if len(times) != 1 and rows:
        times = [i for i in range(len(header)) if all(is_iso(row[i]) for row in rows)]
    if len(times) != 1 or len(header) < 2:
        return None
    time = times[0]
    unit = column_unit(header[time], unit) or _UNITS_IN_NAMES.get(names[time])
    _refuse_marks(head[0], rows, header, loads, named=bool(wanted), path=path)
    # A usual name of rates or counts decides at once.
    if len(loads) == 1 and names[loads[0]] in RATE_NAMES | COUNT_NAMES:
        return LoadColumns(time, tuple(loads), unit, names[loads[0]] in COUNT_NAMES)
    step_ms = _step_ms([row[time] for row in rows], unit)
    # Otherwise rows must be evenly spaced, and hold nothing but numbers besides the time.
    if not wanted:
        loads = [] if step_ms is None else _varying(rows, time)
        if step_ms is None or not loads:
            return None
        _refuse_marks(head[0], rows, header, loads, named=False, path=path)
        others = [i for i in loads if _NO_LOADS.search(header[i].lower())
                  or any(_number(row[i]) is None for row in rows if row[i] not in _EMPTY)]
        if others or (len(loads) > 1 and not _same_query([header[i] for i in loads])):
            raise InputFileError(
                f"rows {length_words(step_ms)} apart: intervals with a load, or requests",
                where=str(path), value=", ".join(header[i] for i in loads),
                allowed="--load-column with the one that is the load, or several times, which "
                        f"adds them up; or --time-column '{header[time]}' where each row is one "
                        "request")
    return _meaning(head[0], rows, time, loads, unit, step_ms, path)


def _refuse_marks(
    begin: tuple[int, str], rows: list[list[str]], header: list[str], loads: list[int], *,
    named: bool, path: Path,
) -> None:
    """Refuse commas and points of unclear meaning, as in loads of a table with semicolons.

    ``begin`` is the line of the header with its number; ``named`` says that the user named the
    columns, whose points then begin decimals.
    """
    first = begin[1]
    cells = [row[i] for row in rows for i in loads]
    comma = next((cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)), None)
    if ";" in first and comma is not None:
        raise InputFileError(
            "a comma in a number: of decimals, or between thousands", where=str(path),
            value=comma, allowed="decimals after a point, as by "
                                 + _replaced(",", ".", begin, rows, loads, path))
    # Where commas stand between the cells, three decimals are usual, but not of counts, nor of
    # some numbers only: those without a point may be below a thousand.
    names, pointed = {stem(header[i]) for i in loads}, [cell for cell in cells if "." in cell]
    clear = named or (names & RATE_NAMES if ";" in first else not (
        names & COUNT_NAMES or {*cells} - {*pointed, *_EMPTY, "0"}))
    if pointed and not clear and all(map(_POINT_GROUPS.fullmatch, pointed)):
        raise InputFileError(
            "a point in a number: of decimals, or between thousands", where=str(path),
            value=pointed[0],
            allowed=f"--load-column {shlex.quote(header[loads[0]])} for decimals; for thousands "
                    f"no point, as by {_replaced('[.]', '', begin, rows, loads, path)}")


def _replaced(
    old: str, new: str, begin: tuple[int, str], rows: list[list[str]], loads: list[int], path: Path
) -> str:
    """Return a command that replaces a mark in the columns of loads, and keeps it in dates."""
    mark = _mark(begin[1])
    # awk also splits at the marks in quoted cells, such as the comma of a date.
    fields = [1 + i + sum(cell.count(mark) for cell in rows[0][:i]) for i in loads]
    changes = "; ".join(f'gsub(/{old}/, "{new}", ${field})' for field in fields)
    mark = mark.replace("\t", "\\t")
    return (f"awk -F'{mark}' -v OFS='{mark}' 'NR > {begin[0]} {{{changes}}} 1' "
            f"{shlex.quote(str(path))} > load.csv")


def _mark(header: str) -> str:
    """Return the mark between the cells of a table of several columns."""
    return next(mark for mark in "\t;," if mark in header)


def _meaning(
    begin: tuple[int, str], rows: list[list[str]], time: int, loads: list[int], unit: str | None,
    step_ms: float | None, path: Path,
) -> LoadColumns:
    """Decide whether loads are rates or counts, by their units, the header and their fractions.

    ``begin`` is the line of the header with its number.

    If these leave it open, raise :class:`InputFileError` with the loads by either reading.
    """
    line, first = begin
    header = [name.strip() for name in fields_of(first)]
    cells = [cell for row in rows for i in loads if (cell := _number(row[i])) is not None]
    title = " ".join(header[i] for i in loads).lower()
    if any(unit in _PER_S for _, unit in cells) or _RATES.search(title):
        return LoadColumns(time, tuple(loads), unit, False)
    if _PER_MINUTE.search(title):
        return LoadColumns(time, tuple(loads), unit, False, 1.0 / 60.0)
    if any(unit in _COUNTED for _, unit in cells) or _COUNTS.search(title):
        return LoadColumns(time, tuple(loads), unit, True)
    if any(value % 1.0 for value, _ in cells):
        return LoadColumns(time, tuple(loads), unit, False)
    values = [value for value, _ in cells]
    if len(loads) == 1 and title.endswith("_total") and values == sorted(values):
        raise InputFileError(
            "a counter, which only rises, not a load", where=str(path), value=title,
            allowed="its rate, as by PromQL's rate(), or the differences of its rows: "
            f"awk -F'{_mark(first)}' 'NR == {line} {{print \"time,requests\"}} "
            f"NR > {line + 1} {{print t \",\" ${loads[0] + 1} - v}} "
            f"{{t = ${time + 1}; v = ${loads[0] + 1}}}' {shlex.quote(str(path))} > load.csv")
    mean = sum(values) / max(1, len(rows))
    step_s = (step_ms or 1000.0) / 1000.0
    named = ",".join("time" if i == time else "requests" if i in loads else f"column{i + 1}"
                     for i in range(len(header)))
    raise InputFileError(
        "rates or counts: the header does not say which", where=str(path),
        value=", ".join(header[i] for i in loads),
        allowed=f"a header that does. Counts until the next row, {mean / step_s:.4g} requests/s "
        f"on the mean: sed '{line}s/.*/{named}/' {shlex.quote(str(path))} > load.csv. Rates, "
        f"{mean:.4g} requests/s: qps in the place of requests")


def _varying(rows: list[list[str]], time: int) -> list[int]:
    """Return the columns of quantities that are not constant, or else the only quantity.

    None at all if a column besides the time has texts that are no quantities and differ.
    """
    cells = {i: {row[i] for row in rows} - _EMPTY for i in range(len(rows[0])) if i != time}
    quantities = [i for i, texts in cells.items()
                  if texts and all(map(_QUANTITY.fullmatch, texts))]
    varying = [i for i, texts in cells.items() if len(texts) > 1]
    return (varying or quantities[:1]) if set(varying) <= set(quantities) else []


def _step_ms(texts: list[str], unit: str | None) -> float | None:
    """Return the time in ms between most rows, at least a second; None if they are uneven.

    Return None as well if the texts are no times.
    """
    if not texts:
        return None
    try:
        instants = Instants(texts[0], unit, "")
    except RamsisError:
        return None
    return even_step_ms(np.array([instants.one(text) for text in texts]))


def _same_query(titles: list[str]) -> bool:
    """Return whether all titles are one metric with labels, and differ in the labels only."""
    return all("{" in title for title in titles) and len(
        {re.sub(r"\{.*?\}", "", title) for title in titles}) == 1


def _number(text: str) -> tuple[float, str] | None:
    """Read a number of requests or a rate with its unit; None for other texts."""
    match = _CELL.fullmatch(text.strip())
    if match is None:
        return None
    number, thousands, unit = match.groups()
    unit = unit.lower()
    if unit and unit not in _PER_S and unit not in _COUNTED:
        return None
    return float(number.replace(",", "")) * _THOUSANDS[thousands.lower()], unit


def read_load_table(
    lines: Iterable[tuple[int, str]], columns: LoadColumns, where: str
) -> RateTrace:
    """Read the rows of a load table, by the lines below its header with their numbers.

    Each load holds until the next row.
    """
    start_ms, loads = array("d"), array("d")
    instants: Instants | None = None
    for number, text in lines:
        place = f"{where}: line {number}"
        cells = [cell.strip() for cell in fields_of(text)]
        if max(columns.time, *columns.loads) >= len(cells):
            raise InputFileError("not a time and a load", where=place, value=text,
                                 allowed="as many cells as the header has")
        when = cells[columns.time]
        if instants is None:
            instants = Instants(when, columns.unit or epoch_unit(when) or "s", place)
        time_ms = instants.one(when)
        if not math.isfinite(time_ms) or (start_ms and not time_ms > start_ms[-1]):
            raise InputFileError("not a time after that of the line before", where=place,
                                 value=when, allowed="times that rise, all of one kind")
        filled = [cells[i] for i in columns.loads if cells[i] not in _EMPTY]
        if not filled and not columns.counts:
            continue  # the load before holds
        load = 0.0
        for text in filled:
            cell = _number(text)
            if cell is None:
                raise InputFileError("not a load", where=place, value=text,
                                     allowed="a finite number >= 0, as 1234.5 or 1,234.5")
            load += cell[0] * _PER_S.get(cell[1], columns.factor)
        start_ms.append(time_ms)
        loads.append(load)
    if columns.counts and len(start_ms) < 2:
        raise InputFileError("one count does not say for how long it is", where=where,
                             allowed="two rows or more")
    if not columns.counts:
        return RateTrace(start_ms, loads)
    steps = [after - before for before, after in pairwise(start_ms)]
    return RateTrace(start_ms, [1000.0 * count / step for count, step
                                in zip(loads, [*steps, steps[-1]], strict=True)])


def length_words(length_ms: float) -> str:
    """Return a length of time in the largest unit in which it is a whole number.

    >>> length_words(60_000.0), length_words(90_000.0), length_words(0.5)
    ('1 min', '90 s', '0.5 ms')
    """
    for name, unit in (("h", 3.6e6), ("min", 6e4), ("s", 1e3)):
        if length_ms and round(length_ms, 6) % unit == 0:
            return f"{length_ms / unit:g} {name}"
    return f"{length_ms:g} ms"


def shipped_traces() -> dict[str, Path]:
    """Return the paths of the shipped traces by name."""
    folder = next((folder for folder in _SHIPPED if folder.is_dir()), None)
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob("*.txt"))}


def find_trace(path_or_name: str | os.PathLike[str]) -> Path:
    """Return the path if the file exists, else the shipped trace with that name.

    If neither exists, return the path, so that opening it raises an error with this name.
    """
    path = Path(path_or_name)
    return path if path.exists() else shipped_traces().get(os.fspath(path_or_name), path)


def is_rate_trace(
    path_or_name: str | os.PathLike[str], *, unit: str | None = None,
    load_columns: Sequence[str] = (),
) -> bool:
    """Return whether a file is a rate trace by its first lines; others may hold arrivals.

    For the parameters see :func:`read_rates`.
    """
    path = find_trace(path_or_name)
    head = _head(path)
    if not head:
        return False
    fields = _parts(head[0][1])
    try:
        return (bool(minute_columns(fields_of(head[0][1], ",")))
                or (len(fields) == 2 and all(map(_looks_numeric, fields)))
                or load_columns_of(head, unit, load_columns, path) is not None)
    except csv.Error as error:
        raise InputFileError(f"cannot read trace ({error})", where=str(path)) from error


def read_rates(
    path_or_name: str | os.PathLike[str], *, unit: str | None = None,
    load_columns: Sequence[str] = (),
) -> RateTrace:
    """Read the rate trace in a file, or a shipped one by name.

    Parameters
    ----------
    unit : str, optional
        Unit of the times, one of :data:`~ramsis.arrivals.timestamps.UNITS`. The default is
        seconds in lines of time and load, and the unit of the heading in a table (``minute``,
        ``time_s``). Recent times since 1970 need none.
    load_columns : sequence of str, optional
        Columns of a table whose rates or counts are added up; by default the only one.
    """
    if unit is not None:
        check_known("unknown unit of time", unit, UNITS, "unit")
    path = find_trace(path_or_name)
    head = _head(path)
    if not head:
        raise InputFileError("empty trace", where=str(path),
                             allowed="a time and a load in each line")
    try:
        if minute_columns(fields_of(head[0][1], ",")):
            rate_qps, _ = read_minute_bins(path)
            step_ms = UNITS[unit or "min"]
            return RateTrace(step_ms * np.arange(len(rate_qps)), rate_qps * 60_000.0 / step_ms)
        columns = load_columns_of(head, unit, load_columns, path)
        lines = _lines(path)
        if columns is None:
            return _steps(lines, str(path), unit)
        next(lines)
        return read_load_table(lines, columns, str(path))
    except InvalidValueError as error:
        # Some messages name the line of the file, others an option.
        message = str(error).removeprefix(f"{path}: ")
        raise InputFileError(f"{path}: {message}") from None


def _head(path: Path) -> list[tuple[int, str]]:
    """Return the first lines, which identify the file's format."""
    return list(islice(_lines(path), HEAD_LINES))


def _parts(text: str) -> list[str]:
    """Split a line of a trace into its time and its load."""
    return re.split(r"[\s,;]+", text)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not empty."""
    if not path.exists():
        shipped = ", ".join(shipped_traces())
        raise InputFileError("cannot read trace (No such file or directory)", where=str(path),
                             allowed=f"a path, or one of: {shipped}")
    for first, text in blocks(path):
        for number, content in lines_of(text, first, comments=True):
            if not _SEPARATOR.fullmatch(content):
                yield number, content


def _steps(lines: Iterable[tuple[int, str]], where: str, unit: str | None) -> RateTrace:
    """Parse lines of time and load."""
    start_ms, rate_qps = array("d"), array("d")
    factor = 0.0
    for number, text in lines:
        place = f"{where}: line {number}"
        values = [number_or_nan(part) for part in _parts(text)]
        if len(values) != 2 or math.isnan(values[0]):
            raise InputFileError("not a time and a load", where=place, value=text,
                                 allowed="two numbers, such as 12 2431")
        factor = factor or UNITS[unit or epoch_unit(_parts(text)[0]) or "s"]
        time_ms, rate = values[0] * factor, values[1]
        if not (math.isfinite(rate) and rate >= 0):
            raise InputFileError("rate is not a load", where=place, value=text,
                                 allowed="a finite number >= 0")
        if start_ms and not time_ms > start_ms[-1]:
            raise InputFileError("time goes back", where=place, value=text,
                                 allowed="a time after that of the line before")
        start_ms.append(time_ms)
        rate_qps.append(rate)
    return RateTrace(start_ms, rate_qps)


def _looks_numeric(text: str) -> bool:
    """Return whether a text parses as a number, including NaN."""
    return text.lower() == "nan" or not math.isnan(number_or_nan(text))
