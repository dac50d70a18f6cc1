"""Readers of rate traces (load over time), and the shipped traces by name.

Three layouts, each as text, ``.gz`` or ``.zst``:

- lines of a time and a load in requests per second, as ``12 2431`` (the layout of the Twitter
  traces): the load holds from that time to the next; ``#`` begins a comment;
- a table with a header, of a column of times and one of counts or rates, as monitoring writes it
  (:mod:`ramsis.arrivals.load_table`);
- the minute bins of the Azure Functions data: a CSV whose header names the minutes ``1``, ``2``, …
  after any other columns; invocations are added up over the rows.
"""

from __future__ import annotations

import csv
import math
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

import ramsis
from ramsis.arrivals.load_table import HEAD_LINES, load_columns_of, read_load_table
from ramsis.arrivals.timestamps import UNITS
from ramsis.arrivals.trace import RateTrace
from ramsis.arrivals.trace_formats.columns import fields_of, lines_of
from ramsis.arrivals.trace_formats.files import blocks
from ramsis.arrivals.trace_formats.instants import epoch_unit
from ramsis.arrivals.trace_formats.rates import minute_columns, read_minute_bins
from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.numerals import number_or_nan

__all__ = ["find_trace", "is_rate_trace", "read_rates", "shipped_traces"]

_SEPARATOR = re.compile(r"sep=[,;\t]", re.IGNORECASE)
"""What a table for Excel may begin with."""
_PACKAGE = Path(ramsis.__file__).resolve().parent
_SHIPPED = (_PACKAGE / "profiles" / "shipped" / "traces", _PACKAGE.parent / "profiles" / "traces")
"""Folders of shipped traces: in a wheel, and in the repository of an editable installation."""


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
        raise InputFileError(f"cannot read ({error})", where=str(path)) from error


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
        raise InputFileError(f"{path}: {error}") from None


def _head(path: Path) -> list[tuple[int, str]]:
    """Return the first lines, which identify the file's format."""
    return list(islice(_lines(path), HEAD_LINES))


def _parts(text: str) -> list[str]:
    """Split a line into time and load."""
    return re.split(r"[\s,;]+", text)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not empty."""
    if not path.exists():
        shipped = ", ".join(shipped_traces())
        raise InputFileError("cannot read (No such file or directory)", where=str(path),
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
