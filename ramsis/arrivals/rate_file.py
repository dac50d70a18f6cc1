"""Reading rate traces, and the traces that come with the package.

Three layouts, each as text, ``.gz`` or ``.zst``:

- lines of a time and a load in queries per second, as ``12 2431`` (the layout of the Twitter
  traces): the load holds from that time to the next; ``#`` begins a comment;
- a table with a header, of a column of times and one of counts or rates, as ``minute,requests`` or
  ``time,rps``, as monitoring writes it; counts hold until the next time;
- the minute bins of the Azure Functions data: a CSV whose header names the minutes ``1``, ``2``, …
  after any other columns; invocations are added up over the rows.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

import ramsis
from ramsis.arrivals.timestamps import UNITS, stem, unit_of
from ramsis.arrivals.trace import RateTrace
from ramsis.arrivals.trace_formats.columns import (
    COUNT_NAMES,
    RATE_NAMES,
    TIME_NAMES,
    fields_of,
    lines_of,
)
from ramsis.arrivals.trace_formats.files import blocks
from ramsis.arrivals.trace_formats.instants import Instants, epoch_unit
from ramsis.arrivals.trace_formats.rates import minute_columns, read_minute_bins
from ramsis.checks import check_arguments
from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.numerals import number_or_nan

__all__ = ["find_trace", "is_rate_trace", "read_rates", "shipped_traces"]

_UNITS_IN_NAMES = {"second": "s", "seconds": "s", "minute": "min", "minutes": "min", "hour": "h",
                   "hours": "h"}
_MINUTE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_PACKAGE = Path(ramsis.__file__).resolve().parent
_SHIPPED = (_PACKAGE / "profiles" / "shipped" / "traces", _PACKAGE.parent / "profiles" / "traces")
"""Where shipped traces lie: in a wheel, and in the repository of an editable installation."""


def shipped_traces() -> dict[str, Path]:
    """The traces that come with the package, by name."""
    folder = next((folder for folder in _SHIPPED if folder.is_dir()), None)
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob("*.txt"))}


def find_trace(path_or_name: str | os.PathLike[str]) -> Path:
    """The path itself, if there is such a file, or that of the shipped trace of the name."""
    path = Path(path_or_name)
    return path if path.exists() else shipped_traces().get(os.fspath(path_or_name), path)


def is_rate_trace(path_or_name: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a rate trace does; another may hold recorded arrivals."""
    first = next(_lines(find_trace(path_or_name)), None)
    if first is None:
        return False
    fields = _parts(first[1])
    return (bool(minute_columns(fields_of(first[1], ","))) or _columns(first[1]) is not None
            or (len(fields) == 2 and all(map(_looks_numeric, fields))))


def read_rates(
    path_or_name: str | os.PathLike[str], *, unit: str | None = None
) -> RateTrace:
    """The rate trace in a file, or the shipped one of that name.

    Parameters
    ----------
    path_or_name : str or path-like
    unit : str, optional
        One of :data:`~ramsis.arrivals.timestamps.UNITS`: of the times in lines of time and load,
        seconds by default; in a table by default that of the heading (``minute``, ``time_s``).
    """
    if unit is not None:
        check_known("unknown unit of time", unit, UNITS, "unit")
    path = find_trace(path_or_name)
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise InputFileError("empty trace", where=str(path),
                             allowed="a time and a load in each line")
    try:
        if minute_columns(fields_of(first[1], ",")):
            rate_qps, _ = read_minute_bins(path)
            return RateTrace(60_000.0 * np.arange(len(rate_qps)), rate_qps)
        if (table := _columns(first[1])) is not None:
            return _table(lines, table, unit, str(path))
        return _steps(chain([first], lines), str(path), UNITS[unit or "s"])
    except InvalidValueError as error:
        raise InputFileError(f"{path}: {error}") from None


def _parts(text: str) -> list[str]:
    """The fields of a line of time and load."""
    return re.split(r"[\s,;]+", text)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbers and texts of the lines that hold something."""
    if not path.exists():
        known = ", ".join(shipped_traces())
        raise InputFileError("cannot read trace (No such file or directory)", where=str(path),
                             allowed=f"a path, or one of: {known}")
    for first, text in blocks(path):
        yield from lines_of(text, first, comments=True)


def _steps(lines: Iterable[tuple[int, str]], where: str, factor: float) -> RateTrace:
    """Lines of time and load."""
    start_ms, rate_qps = array("d"), array("d")
    for number, text in lines:
        place = f"{where}: line {number}"
        values = [number_or_nan(part) for part in _parts(text)]
        if len(values) != 2 or math.isnan(values[0]):
            raise InputFileError("not a time and a load", where=place, value=text,
                                 allowed="two numbers, such as 12 2431")
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


class _Columns(NamedTuple):
    """Where a table of loads has its times and its loads."""

    time: int
    load: int
    unit: str | None
    counts: bool


def _columns(header: str) -> _Columns | None:
    """The columns of a header, one of times and one of rates or counts; None where it has none."""
    names = [stem(name) for name in fields_of(header)]
    loads = [i for i, name in enumerate(names) if name in RATE_NAMES] or [
        i for i, name in enumerate(names) if name in COUNT_NAMES]
    times = [i for i, name in enumerate(names) if name in TIME_NAMES or name in _UNITS_IN_NAMES]
    if len(loads) != 1 or len(times) != 1:
        return None
    heading = fields_of(header)[times[0]]
    return _Columns(times[0], loads[0], unit_of(heading) or _UNITS_IN_NAMES.get(names[times[0]]),
                    names[loads[0]] not in RATE_NAMES)


def _table(
    lines: Iterable[tuple[int, str]], columns: _Columns, unit: str | None, where: str
) -> RateTrace:
    """Rows of a time and a rate, or of a time and the count until the next."""
    start_ms, loads = array("d"), array("d")
    instants: Instants | None = None
    for number, text in lines:
        place = f"{where}: line {number}"
        cells = [cell.strip() for cell in fields_of(text)]
        if max(columns.time, columns.load) >= len(cells):
            raise InputFileError("not a time and a load", where=place, value=text,
                                          allowed="as many cells as the header has")
        when = cells[columns.time] + (":00" if _MINUTE.fullmatch(cells[columns.time]) else "")
        if instants is None:
            instants = Instants(when, unit or columns.unit or epoch_unit(when) or "s", place)
        time_ms, load = instants.one(when), number_or_nan(cells[columns.load])
        if not math.isfinite(time_ms) or (start_ms and not time_ms > start_ms[-1]):
            raise InputFileError("not a time after that of the line before", where=place,
                                          value=cells[columns.time], allowed="times that rise, "
                                          "all of one kind")
        if not (math.isfinite(load) and load >= 0):
            raise InputFileError("not a load", where=place, value=cells[columns.load],
                                          allowed="a finite number >= 0")
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


def _looks_numeric(text: str) -> bool:
    """Whether it is meant as a number, NaN among them."""
    return text.lower() == "nan" or not math.isnan(number_or_nan(text))


check_arguments(globals(), __all__)
