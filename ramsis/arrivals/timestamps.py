"""Reading a trace: the timestamps of a file, in ms since the first.

A file holds one timestamp a line, or is a CSV with a time column; a name that ends in ``.gz`` is
read as gzip. Timestamps are ISO 8601 (date and time), or numbers of a stated unit: the ``unit``
argument, or the end of the column's name (``arrival_ms``). Nothing is guessed.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError, describe

__all__ = ["UNITS", "read_timestamps"]

UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6}
"""Milliseconds in each unit that numbers may have."""

_TIME_NAMES = {"timestamp", "time", "arrival", "arrival_time", "arrived", "t", "ts"}
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_timestamps(
    path: str | os.PathLike[str], *, unit: str | None = None, time_column: str | None = None
) -> NDArray[np.float64]:
    """The arrival times of a trace.

    Parameters
    ----------
    path : path
        Text, CSV with a comma, semicolon or tab between the fields, or either as ``.gz``.
    unit : str, optional
        One of :data:`UNITS`; needed for numbers, unless the column's name ends in one
        (``arrival_ms``). ISO timestamps have none.
    time_column : str, optional
        Name of the time column; needed where the header does not leave one choice.

    Returns
    -------
    ndarray, shape (requests,)
        Milliseconds since the first timestamp, rising or equal.

    Raises
    ------
    InputFileError
        The file cannot be read, is empty, has no such column, or a line is no timestamp, goes
        back in time or mixes kinds of timestamps; the message names the line.
    InvalidValueError
        An unknown unit, or numbers without one.
    """
    where = str(path)
    if unit is not None and unit not in UNITS:
        raise InvalidValueError(
            describe("unknown unit of time", where="unit", value=unit, allowed=", ".join(UNITS))
        )
    try:
        with _opened(Path(path)) as file:
            times = _times(file, where, unit, time_column)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(describe(f"cannot read trace ({reason})", where=where)) from error
    if not times:
        raise InputFileError(
            describe("no timestamps", where=where, allowed="one a line, or a CSV column of them")
        )
    return np.array(times)


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _times(
    file: TextIO, where: str, unit: str | None, time_column: str | None
) -> list[float]:
    rows = _rows(file)
    first = next(rows, None)
    if first is None:
        return []
    line, fields = first
    column = 0
    pending: list[tuple[int, list[str]]] = [first]
    if time_column is not None or not any(_looks_like_time(field) for field in fields):
        column = _time_column(fields, time_column, f"{where}: line {line}")
        unit = unit or _unit_of(fields[column])
        pending = []
    elif len(fields) > 1:
        raise InputFileError(
            describe("several columns and no header to tell the time's", value=",".join(fields),
                     where=f"{where}: line {line}", allowed="one column, or a header line")
        )
    parse: Callable[[str], float] | None = None
    start = last = 0.0
    times: list[float] = []
    for line, fields in (*pending, *rows):
        place = f"{where}: line {line}"
        if column >= len(fields):
            raise InputFileError(describe("line has no time column", where=place,
                                          value=",".join(fields)))
        text = fields[column].strip()
        if parse is None:
            parse = _parser(text, unit, place)
        now = parse(text)
        if not math.isfinite(now):
            raise InputFileError(
                describe("not a timestamp of the same kind as the first", where=place, value=text,
                         allowed="ISO 8601 throughout, or finite numbers of one unit throughout")
            )
        if times and now < last:
            raise InputFileError(
                describe("timestamp goes back in time", where=place, value=text,
                         allowed="a time not before that of the line above")
            )
        start, last = (start if times else now), now
        times.append(now - start)
    return times


def _rows(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and fields of the lines that are not blank."""
    for line, text in enumerate(file, start=1):
        if text.strip():
            mark = next((m for m in "\t;," if m in text), ",")
            yield line, next(csv.reader([text.rstrip("\r\n")], delimiter=mark))


def _looks_like_time(field: str) -> bool:
    """Whether a field is a value, even a bad one such as NaN, rather than a column's name."""
    try:
        float(field)
    except ValueError:
        return bool(field.strip()) and (field.strip()[0].isdigit() or field.strip()[0] in "+-.")
    return True


def _time_column(names: list[str], wanted: str | None, where: str) -> int:
    clean = [name.strip() for name in names]
    if wanted is not None:
        if wanted in clean:
            return clean.index(wanted)
        raise InputFileError(describe("no such column", where=where, value=wanted,
                                      allowed=", ".join(clean)))
    if len(clean) == 1:
        return 0
    likely = [i for i, name in enumerate(clean) if _stem(name) in _TIME_NAMES]
    if len(likely) == 1:
        return likely[0]
    raise InputFileError(
        describe("cannot tell which column holds the time", where=where, value=", ".join(clean),
                 allowed="--time-column with one of these")
    )


def _stem(name: str) -> str:
    unit = _unit_of(name)
    return name.lower().removesuffix(f"_{unit}") if unit else name.lower()


def _unit_of(name: str) -> str | None:
    ending = name.strip().lower().rpartition("_")[2]
    return ending if ending in UNITS and "_" in name else None


def _parser(first: str, unit: str | None, where: str) -> Callable[[str], float]:
    """What turns texts such as the first into ms; NaN for those that are not such."""
    if _ISO.fullmatch(first):
        return _iso_parser(first)
    if math.isnan(_number(first)):
        raise InputFileError(
            describe("not a timestamp", where=where, value=first,
                     allowed="ISO 8601 as 2024-05-01T12:00:00.5, or a finite number")
        )
    if unit is None:
        raise InvalidValueError(
            describe("numbers need a unit", where=where, value=first,
                     allowed="--unit with one of " + ", ".join(UNITS)
                     + ", or a header that ends in it, as arrival_ms")
        )
    factor, zero = UNITS[unit], _number(first)
    return lambda text: (_number(text) - zero) * factor


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _iso_parser(first: str) -> Callable[[str], float]:
    zoned = _zoned(first)
    try:
        origin = _iso(first, zoned)
    except ValueError:
        return lambda _: math.nan

    def parse(text: str) -> float:
        if not _ISO.fullmatch(text) or _zoned(text) != zoned:
            return math.nan
        try:
            return (_iso(text, zoned) - origin) / 1e6
        except ValueError:
            return math.nan

    return parse


def _zoned(text: str) -> bool:
    matched = _ISO.fullmatch(text)
    return bool(matched and matched[3])


def _iso(text: str, zoned: bool) -> int:
    """Nanoseconds since 1970 of an ISO 8601 text; without a zone as if of UTC."""
    matched = _ISO.fullmatch(text)
    assert matched
    whole, fraction, zone = matched.groups()
    instant = datetime.fromisoformat(whole + (zone if zoned else "+00:00"))
    since = instant - _EPOCH
    nanoseconds = int(((fraction or "") + "0" * 9)[:9])
    return (since.days * 86_400 + since.seconds) * 10**9 + nanoseconds
