"""Reader of load tables from monitoring systems: one row per interval, with a rate or a count.

A table is recognised by its header, such as ``minute,requests`` or ``time,rps``, or by its rows:
times evenly spaced by a second or more, beside numbers. Its header is then the name of a series,
or a request. Cells may have a unit (``18.9 req/s``) and commas between thousands. A unit or the
header says whether they are rates or counts; fractions are rates. An ambiguous table is refused,
with all readings.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ramsis.arrivals.timestamps import stem, unit_of
from ramsis.arrivals.trace import RateTrace
from ramsis.arrivals.trace_formats.columns import (
    COUNT_NAMES,
    RATE_NAMES,
    called_times,
    even_step_ms,
    fields_of,
)
from ramsis.arrivals.trace_formats.instants import Instants, epoch_unit, is_iso
from ramsis.errors import InputFileError, RamsisError, check_known

HEAD_LINES = 1000
"""Leading lines by which the columns of a table are recognised."""
_UNITS_IN_NAMES = {"second": "s", "seconds": "s", "minute": "min", "minutes": "min", "hour": "h",
                   "hours": "h"}
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

    Parameters
    ----------
    head : sequence of (int, str)
        The first lines, at most :data:`HEAD_LINES`, with their numbers.
    unit : str, optional
        Unit of numeric times.
    wanted : sequence of str
        Names of load columns that the user selected; empty to detect them.
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
    unit = unit or unit_of(header[time]) or _UNITS_IN_NAMES.get(names[time])
    if len(loads) == 1 and names[loads[0]] in RATE_NAMES | COUNT_NAMES:
        return LoadColumns(time, tuple(loads), unit, names[loads[0]] in COUNT_NAMES)
    step_ms = _step_ms([row[time] for row in rows], unit)
    if not wanted:
        if step_ms is None or not _numbers_only(rows, time):
            return None
        loads = _varying(rows, time)
        if not loads:
            return None
        if ";" in head[0][1] and any(_DECIMAL_COMMA.fullmatch(row[i]) for row in rows
                                     for i in loads):
            raise InputFileError(
                "a comma in a number: of decimals, or between thousands", where=str(path),
                value=next(row[i] for row in rows for i in loads if "," in row[i]),
                allowed=f"decimals after a point, as by sed 's/,/./g' {path.name} > load.csv")
        others = [i for i in loads if _NO_LOADS.search(header[i].lower())
                  or any(_number(row[i]) is None for row in rows if row[i] not in _EMPTY)]
        if others or (len(loads) > 1 and not _same_query([header[i] for i in loads])):
            raise InputFileError(
                f"rows {length_words(step_ms)} apart: intervals with a load, or requests",
                where=str(path), value=", ".join(header[i] for i in loads),
                allowed="--load-column with the one that is the load, or several times, which "
                        f"adds them up; or --time-column '{header[time]}' where each row is one "
                        "request")
    return _meaning(header, rows, time, loads, unit, step_ms, path)


def _meaning(
    header: list[str], rows: list[list[str]], time: int, loads: list[int], unit: str | None,
    step_ms: float | None, path: Path,
) -> LoadColumns:
    """Decide whether loads are rates or counts, by their units, the header and their fractions.

    If these leave it open, raise :class:`InputFileError` with the loads by either reading.
    """
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
    mean = sum(value for value, _ in cells) / max(1, len(rows))
    step_s = (step_ms or 1000.0) / 1000.0
    named = ",".join("time" if i == time else "requests" if i in loads else f"column{i + 1}"
                     for i in range(len(header)))
    raise InputFileError(
        "rates or counts: the header does not say which", where=str(path),
        value=", ".join(header[i] for i in loads),
        allowed=f"a header that does. Counts until the next row, {mean / step_s:.4g} requests/s "
        f"on the mean: sed '1s/.*/{named}/' {path.name} > load.csv. Rates, {mean:.4g} requests/s: "
        "qps in the place of requests")


def _numbers_only(rows: list[list[str]], time: int) -> bool:
    """Return whether all columns but the time hold quantities or one constant text."""
    for i in range(len(rows[0])):
        cells = {row[i] for row in rows} - _EMPTY
        if i != time and len(cells) > 1 and not all(map(_QUANTITY.fullmatch, cells)):
            return False
    return True


def _varying(rows: list[list[str]], time: int) -> list[int]:
    """Return the columns of quantities that are not constant, or else the only quantity."""
    cells = {i: {row[i] for row in rows} - _EMPTY for i in range(len(rows[0])) if i != time}
    quantities = [i for i, texts in cells.items()
                  if texts and all(map(_QUANTITY.fullmatch, texts))]
    return [i for i in quantities if len(cells[i]) > 1] or quantities[:1]


def _step_ms(texts: list[str], unit: str | None) -> float | None:
    """Return the ms between rows if equal for most and at least a second; else None.

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
    """Return whether series have the same metric, and differ only in their labels."""
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
    """Read the rows of a load table; each load holds until the next row.

    Parameters
    ----------
    lines : iterable of (int, str)
        Lines below the header, with their numbers.
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
