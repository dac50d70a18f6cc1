"""Fast block-wise reader of a timestamp column in a text or CSV file.

Memory is that of one block and of the result, 8 bytes a line. A block that pandas does not read as
expected (a blank line, another number of fields, a bad value) is read line by line, so that errors
name their line.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.sizes import MAX_SIZE, are_sizes
from ramsis.arrivals.trace_formats.instants import Clock, Instants, clock_of, floats, number
from ramsis.errors import InputFileError
from ramsis.logs.dates import may_be_winter_time
from ramsis.logs.sizes import size_names

TIME_NAMES = {"timestamp", "time", "arrival", "arrival_time", "arrived", "arrived_at", "t", "ts",
              "datetime", "date", "created_at", "start_time", "time_iso8601", "time_local",
              "msec"}
"""Names of columns and keys of times, without their unit."""
# Names of times that count only if there is no other time column.
_BESIDE = {"arrived", "arrived_at", "start_time", "time_iso8601", "time_local", "msec"}
COUNT_NAMES = {"count", "counts", "requests", "invocations", "hits"}
"""Names of columns of numbers of requests."""
RATE_NAMES = {"qps", "rps", "rate", "load", "req/s", "reqs/s", "requests/s", "queries/s",
              "requests/sec", "req/sec", "requests_per_second", "queries_per_second", "rate_qps",
              "load_qps", "arrival_rate"}
"""Names of columns of loads."""


_LEAST_GAPS = 3
_SHORTEST_MS = 1000.0  # shortest interval of monitoring systems
_EVEN = 0.8  # least share of equal gaps; missing rows cause the others
_Stamps = tuple[NDArray[np.float64], NDArray[np.float64] | None, NDArray[np.float64] | None]
"""Instants, durations and sizes."""


def called_times(names: Sequence[str]) -> list[int]:
    """Return the indices of names that denote times.

    Names such as ``start_time`` count only without a clearer one, such as ``timestamp``.

    >>> called_times(["id", "@timestamp_per_minute"])
    [1]
    """
    plain = [re.sub(r"_per_.*$", "", name.lstrip("@_")) for name in names]
    return ([i for i, name in enumerate(plain) if name in TIME_NAMES - _BESIDE]
            or [i for i, name in enumerate(plain) if name in _BESIDE])


def even_step_ms(times_ms: NDArray[np.float64]) -> float | None:
    """Return the time between monitoring rows if most are equal and at least 1 s; else None."""
    gaps = np.diff(times_ms)
    if len(gaps) < _LEAST_GAPS or not (np.isfinite(gaps) & (gaps > 0)).all():
        return None
    step = float(np.median(gaps))
    same = np.abs(gaps / step - 1.0) < 1e-3
    return step if step >= _SHORTEST_MS * (1 - 1e-9) and same.mean() >= _EVEN else None


def size_column(names: Sequence[str], wanted: str, where: str) -> str:
    """Return the column or key of request sizes: ``wanted``, or if empty the usual name.

    No such column, and not exactly one with a usual name of sizes, are an InputFileError.
    """
    if wanted:
        if wanted not in names:
            raise InputFileError("no such column", where=where, value=wanted,
                                 allowed=", ".join(names))
        return wanted
    likely = size_names(names)
    if len(likely) != 1:
        raise InputFileError(
            "several columns may hold the size" if likely else "no column of sizes", where=where,
            value=", ".join(likely or names),
            allowed="a column size, or --size-column with one of these")
    return likely[0]


def size_of(fields: Sequence[str], index: int, place: str) -> float:
    """Parse a field as a request size; refuse other values."""
    text = fields[index].strip() if index < len(fields) else ""
    value = number(text)
    if not are_sizes(np.array(value)):
        more = "; count in a larger unit" if value > MAX_SIZE else ""
        raise InputFileError("not a size", where=place, value=text,
                             allowed=f"a whole number from 1 to {MAX_SIZE}{more}")
    return value


@dataclass(frozen=True)
class InstantColumn:
    """Fields of a line that hold its timestamp, duration and size."""

    index: int = 0  # field of the timestamp, from 0
    unit: str | None = None  # unit of numeric timestamps
    # field of a duration in the same unit, which is subtracted if timestamps are ends
    minus: int | None = None
    # separator of fields; None: the first of tab, semicolon and comma in a line
    delimiter: str | None = None
    in_any_order: bool = False  # whether timestamps may be unsorted; then they are sorted
    size: int | None = None  # field of the request size
    fields: int | None = None  # most fields of a line that are not empty, if there is a header


def lines_of(text: str, first: int, *, comments: bool = False) -> Iterator[tuple[int, str]]:
    """Yield number and text of each non-blank line; ``comments`` strips ``#`` comments."""
    if text.isspace():
        return
    for line, content in enumerate(io.StringIO(text, newline=""), start=first):
        stripped = content.partition("#")[0].strip() if comments else content.rstrip("\r\n")
        if stripped.strip():
            yield line, stripped


def fields_of(content: str, delimiter: str | None = None) -> list[str]:
    """Split a line at ``delimiter``, by default at the first of tab, ``;`` and ``,`` in it."""
    mark = delimiter or next((m for m in "\t;," if m in content), ",")
    return next(csv.reader([content], delimiter=mark))


@dataclass(frozen=True, eq=False)
class Arrived:
    """Arrival times in ms since the first, non-decreasing, with clock and sizes."""

    times_ms: NDArray[np.float64]  # as recorded, shape (n,)
    clock: Clock | None  # clock of the timestamps, if coarser than 1 µs
    # shape (n,): if requests share clock ticks, they are spread over their tick
    spread_ms: NDArray[np.float64]
    sizes: NDArray[np.float64] | None = None  # request sizes, in the order of ``spread_ms``


def arrived(
    stamps: NDArray[np.float64], lasted: NDArray[np.float64] | None = None,
    sizes: NDArray[np.float64] | None = None,
) -> Arrived:
    """Convert timestamps to arrivals, with their sizes in the order of the arrivals.

    If the timestamps are ends of requests, ``lasted`` has the duration of each request in ms,
    which is subtracted. Without durations the timestamps must be sorted; they are changed in
    place.
    """
    clock = clock_of(stamps)
    times = stamps if lasted is None else np.sort(stamps - lasted)
    spread = times
    if clock is not None and clock.matters:
        spread = clock.spread(stamps)
        by_row = spread
        spread = spread if lasted is None else np.sort(spread - lasted)
        spread -= times[0]  # the same origin as ``times``, so that requests stay in their tick
    else:
        by_row = stamps
    if sizes is not None and lasted is not None:
        # Sort sizes by arrival; timestamps and durations are in the order of the rows.
        sizes = sizes[np.argsort(by_row - lasted, kind="stable")]
    origin = times[:1].copy()
    times -= origin
    return Arrived(times, clock, spread, sizes)


def joined(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Concatenate arrays, and free each as soon as it is copied, to halve peak memory."""
    end = sum(map(len, parts))
    values = np.empty(end)
    while parts:
        part = parts.pop()
        end -= len(part)
        values[end:end + len(part)] = part
    return values


class TimeColumn:
    """Incremental reader of a file's timestamps, block by block."""

    def __init__(self, column: InstantColumn, where: str) -> None:
        self.column = column
        self.where = where
        self.went_back = 0
        self._instants: Instants | None = None
        self._stamps: list[NDArray[np.float64]] = []
        self._lasted: list[NDArray[np.float64]] = []
        self._sizes: list[NDArray[np.float64]] = []
        self._last = -math.inf

    def add(self, first: int, text: str) -> None:
        """Read a block whose first line has the number ``first``."""
        while self._instants is None and text:
            # Line by line until a timestamp has been read, which decides their kind.
            head, mark, text = text.partition("\n")
            self._take(first, head + mark)
            first += 1
        self._take(first, text)

    def _take(self, first: int, text: str) -> None:
        """Read lines, at once if they are regular, and keep their contents."""
        read = None if self._instants is None else self._fast(text)
        if read is None:
            read = self._by_line(first, text)
        stamps, lasted, sizes = read
        if not len(stamps):
            return
        times = stamps if lasted is None else stamps - lasted
        if self.column.in_any_order:
            self.went_back += int((np.diff(times, prepend=self._last) < 0).sum())
        self._last = float(times[-1])
        self._stamps.append(stamps)
        if lasted is not None:
            self._lasted.append(lasted)
        if sizes is not None:
            self._sizes.append(sizes)

    def arrivals(self) -> Arrived:
        """Return all arrivals that were read, sorted, in ms since the earliest, and the clock."""
        stamps = joined(self._stamps)
        sizes = None if self.column.size is None else joined(self._sizes)
        if self.column.minus is None:
            if self.column.in_any_order:
                if sizes is not None:
                    sizes = sizes[np.argsort(stamps, kind="stable")]
                stamps.sort()
            return arrived(stamps, None, sizes)
        return arrived(stamps, joined(self._lasted), sizes)

    def _fast(self, text: str) -> _Stamps | None:
        """Read timestamps, durations and sizes of a regular block; None if it is irregular."""
        import pandas as pd

        column, instants = self.column, self._instants
        assert instants is not None
        # pandas would also end a line at a lone carriage return.
        if text.count("\r") != text.count("\r\n"):
            return None
        indices = {column.index}
        if column.minus is not None:
            indices.add(column.minus)
        if column.size is not None:
            indices.add(column.size)
        mark = column.delimiter or next((m for m in "\t;," if m in text[:4096]), ",")
        lines = text.count("\n") + (not text.endswith("\n"))
        # pandas drops the cells beyond those that are used; they may be the decimals of a time.
        if column.fields is not None and '"' not in text and (
                text.count(mark) > lines * (column.fields - 1)):
            return None
        try:
            table = pd.read_csv(
                io.StringIO(text), header=None, sep=mark, usecols=sorted(indices), engine="c",
                dtype=object, skip_blank_lines=False, low_memory=False)
        except (ValueError, OverflowError):
            return None
        if len(table) != lines:
            return None
        if table.isna().to_numpy().any():
            return None
        times = instants.column(table[column.index])
        sizes = None if column.size is None else floats(table[column.size])
        if times is None or (column.size is not None and sizes is None) or (
                sizes is not None and not are_sizes(sizes).all()):
            return None
        if column.minus is not None:
            lasted = floats(table[column.minus])
            if lasted is None or not (np.isfinite(lasted) & (lasted >= 0)).all():
                return None
            return times, lasted * instants.factor, sizes
        back = len(times) and (times[0] < self._last or (np.diff(times) < 0).any())
        return None if back and not column.in_any_order else (times, None, sizes)

    def _by_line(self, first: int, text: str) -> _Stamps:
        """Read a block line by line; refuse a line that is wrong, by its number."""
        times: list[float] = []
        lasted: list[float] = []
        sizes: list[float] = []
        last = self._last
        for line, content in lines_of(text, first):
            place = f"{self.where}: line {line}"
            fields = fields_of(content, self.column.delimiter)
            time_ms, duration_ms = self._one(fields, content, place)
            lasted.append(duration_ms)
            if self.column.size is not None:
                sizes.append(size_of(fields, self.column.size, place))
            if time_ms < last and not self.column.in_any_order:
                raise InputFileError("timestamp goes back in time", where=place,
                                     value=fields[self.column.index].strip(),
                                     allowed="a time not before that of the line above: "
                                     + self._remedy(last - time_ms))
            last = time_ms
            times.append(time_ms)
        return (np.array(times), None if self.column.minus is None else np.array(lasted),
                None if self.column.size is None else np.array(sizes))

    def _remedy(self, back_ms: float) -> str:
        """Return what to do about a timestamp that goes back by a time."""
        if self._instants is not None and self._instants.is_local and may_be_winter_time(
                back_ms / 1000.0):
            return "write the time zone, as the clock may have gone from summer to winter time"
        return "sort the lines by time"

    def _one(self, fields: list[str], content: str, place: str) -> tuple[float, float]:
        """Return the timestamp and the duration of a line in ms; 0 without durations."""
        column = self.column
        if max(column.index, column.minus or 0) >= len(fields):
            raise InputFileError("line has no time column", where=place, value=content)
        if column.fields is not None and any(fields[column.fields:]):
            raise InputFileError("more cells than the header has", where=place, value=content,
                                 allowed=f"{column.fields}, and decimals after a point")
        text = fields[column.index].strip()
        if self._instants is None:
            self._instants = Instants(text, column.unit, place)
        time_ms = self._instants.one(text)
        if not math.isfinite(time_ms):
            raise InputFileError(
                "not a timestamp of the same kind as the first", where=place, value=text,
                allowed="ISO 8601 throughout, or finite numbers of one unit throughout")
        if column.minus is None:
            return time_ms, 0.0
        lasted = number(fields[column.minus].strip())
        if not lasted >= 0:
            raise InputFileError("not a duration", where=place, value=fields[column.minus].strip(),
                                 allowed="a finite number >= 0")
        return time_ms, lasted * self._instants.factor
