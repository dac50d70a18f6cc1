"""Request logs: the outcome of every request, as lines of CSV.

A log has a line for each request, in any order, under the names of :data:`COLUMNS`. Times are in
seconds from the log's start, ``deadline_ms`` counts from the arrival. Unknown values are empty.

=============  ====================================================================================
arrival_s      when the request arrived, or was scheduled to be sent
start_s        when its batch started; empty where it never ran
finish_s       when the answer was complete; of a dropped request when it was dropped
deadline_ms    time allowed for the answer, after the arrival
outcome        ``served`` in time, ``late``, ``dropped``, or ``failed``: the answer was an error
model          model that answered
batch          requests in its batch
run_as         size at which the batch ran; more than ``batch`` where it was padded
worker         worker that ran it, counted from 0
correct        1 or 0: whether the answer was correct
size           size of the request; a column only where requests have sizes
=============  ====================================================================================

CSV and JSON lines of other programs are read by usual names (:mod:`ramsis.logs`, which has the
layouts of access logs and load tests, too), or by the names of their columns (:class:`LogFormat`).
Where the end of a request and its duration are known, the arrival is their difference. Known times
decide whether an answer was in time.
"""

from __future__ import annotations

import csv
import io
import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.arrivals.trace_formats.instants import clock_of
from ramsis.arrivals.trace_formats.rates import log_text
from ramsis.cluster.cluster import LONGEST_SLO_MS
from ramsis.errors import InputFileError, InvalidValueError, OutputError, check_known
from ramsis.files import written_whole
from ramsis.logs.kinds import DERIVED, FIELDS
from ramsis.logs.table import COLUMNS, SECONDS, LogTable, TextArray, floats
from ramsis.numerals import heading_unit
from ramsis.reprs import dataclass
from ramsis.tables import cell

__all__ = ["COLUMNS", "FIELDS", "OUTCOMES", "LogFormat", "Request", "RequestLog",
           "RequestLogWriter", "read_request_log", "write_request_log"]

_TELLING = ("finish", "duration", "outcome", "status", "success", "error")
OUTCOMES = ("served", "late", "dropped", "failed")
_ROUNDING_S = 1e-7  # of times in seconds since 1970, whose floats have steps of 0.2 µs


class Request(NamedTuple):
    """A request of a log; times in s from the log's start, None where a value is unknown."""

    arrival_s: float
    start_s: float | None = None
    finish_s: float | None = None
    deadline_ms: float | None = None
    outcome: str = ""
    model: str = ""
    batch: int | None = None
    run_as: int | None = None
    worker: int | None = None
    correct: bool | None = None
    size: int | None = None


@dataclass(frozen=True, eq=False)
class RequestLog:
    """Requests of a log in the order of their arrivals; arrays of shape (n,)."""

    arrival_s: FloatArray  # non-decreasing
    # start_s, finish_s, deadline_ms, correct: NaN where unknown; ``correct`` is 1 or 0
    start_s: FloatArray
    finish_s: FloatArray
    deadline_ms: FloatArray
    outcome: TextArray  # one of :data:`OUTCOMES`
    model: TextArray  # empty where unknown
    # batch, run_as: 0 where unknown
    batch: IntArray
    run_as: IntArray
    worker: IntArray  # -1 where unknown; names that are no numbers are counted from 0
    correct: FloatArray
    size: IntArray  # 0 where unknown
    notes: tuple[str, ...] = ()  # how a log of another program was read

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def in_time(self) -> BoolArray:
        """Whether each request was answered by its deadline, shape (n,)."""
        return np.asarray(self.outcome == "served")

    @property
    def answered(self) -> BoolArray:
        """Whether each was answered, in time or late, shape (n,)."""
        return np.asarray(self.in_time | (self.outcome == "late"))

    def only(self, chosen: BoolArray | IntArray) -> RequestLog:
        """Return the log of the requests that ``chosen`` (a mask or indices) selects."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in COLUMNS})


class RequestLogWriter:
    """Writer of a log, line by line as requests end.

    Only whole lines are written, so that the log of a process that was killed, or whose disk was
    full, can be read.

    Parameters
    ----------
    path : path
        A missing folder is created. An existing log is kept, under the first free name of
        ``NAME.1.csv``, ``NAME.2.csv`` and so on.
    sized
        Whether requests have a size, which then has a column.
    """

    def __init__(self, path: str | os.PathLike[str], *, sized: bool = False) -> None:
        self.path, self._sized = Path(path), sized
        self._size, self._held = 0, io.StringIO()
        self._writer = csv.writer(self._held, lineterminator="\n")
        self._writer.writerow(_columns(COLUMNS, sized))
        with self._failing():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _put_aside(Path(os.path.realpath(self.path)))
            self._stream = self.path.open("wb", buffering=0)
        try:
            self.flush()
        except OutputError:
            self._stream.close()
            raise

    def write(self, request: Request) -> None:
        """Add a line; it is in the file at the latest after :meth:`flush`."""
        self._writer.writerow(_columns(_texts(request), self._sized))

    def flush(self) -> None:
        """Write all lines to the file."""
        self.put(self.take())

    @property
    def held(self) -> int:
        """Characters of the lines that are not in the file."""
        return self._held.tell()

    def take(self) -> bytes:
        """Return and forget the lines that are not in the file, for :meth:`put`."""
        text = self._held.getvalue().encode()
        self._held.seek(0)
        self._held.truncate()
        return text

    def put(self, text: bytes) -> None:
        """Write lines to the file; another thread may call :meth:`write` meanwhile."""
        with self._failing():
            try:
                unwritten = memoryview(text)
                while unwritten:
                    unwritten = unwritten[self._stream.write(unwritten):]
            except OSError:
                with suppress(OSError):  # only a regular file has a size
                    self._stream.truncate(self._size)
                    self._stream.seek(self._size)
                raise
        self._size += len(text)

    def close(self) -> None:
        """Write all lines to the file, and close it."""
        try:
            self.flush()
        finally:
            self._stream.close()

    def __enter__(self) -> RequestLogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"cannot write file ({error.strerror})",
                              where=str(self.path)) from error


def _put_aside(path: Path) -> None:
    """Rename an existing log, so that it is not overwritten."""
    if not path.is_file() or not path.stat().st_size:
        return
    for number in count(1):
        other = path.with_name(f"{path.stem}.{number}{path.suffix}")
        if not other.exists():
            path.rename(other)
            return


def _columns(texts: Sequence[str], sized: bool) -> Sequence[str]:
    """Return the columns of a line; without ``sized``, leave out the last one, the size."""
    return texts if sized else texts[:-1]


def _texts(request: Request) -> list[str]:
    arrival, start, finish, deadline, *middle, correct, size = request
    times = ["" if x is None or math.isnan(x) else f"{x:.9f}" for x in (arrival, start, finish)]
    return [*times, "" if deadline is None else f"{deadline:.9g}",
            *("" if x is None else str(cell(x)) for x in middle),
            "" if correct is None else str(int(correct)), "" if size is None else str(size)]


def write_request_log(
    path: str | os.PathLike[str], requests: Iterable[Request], *, sized: bool = False
) -> None:
    """Write a log atomically, with sizes where requests have them."""
    with written_whole(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_columns(COLUMNS, sized))
        writer.writerows(_columns(_texts(request), sized) for request in requests)


@dataclass(frozen=True)
class LogFormat:
    """Columns and units of a log that another program wrote."""

    # column of each field of :data:`FIELDS` or :data:`DERIVED`; by default our names and usual
    # ones
    columns: Mapping[str, str] = field(default_factory=dict)
    # unit of arrival, start and finish where they are numbers: ``s``, ``ms``, ``us``, ``ns``,
    # ``min`` or ``h``; by default the end of the column's name (``arrival_ms``)
    unit: str | None = None
    # deadline of requests for which the log has none
    slo_ms: float | None = None

    def __post_init__(self) -> None:
        for name in self.columns:
            check_known("no such field of a request log", name, (*FIELDS, *DERIVED), "column")
        if self.unit is not None:
            check_known("unknown unit of time", self.unit, SECONDS, "unit")
        if self.slo_ms is not None and not 0 < self.slo_ms <= LONGEST_SLO_MS:
            raise InvalidValueError("not positive", where="slo_ms", value=self.slo_ms,
                                    allowed=f"a number > 0, up to {LONGEST_SLO_MS:g}")


def read_request_log(
    path: str | os.PathLike[str], form: LogFormat | None = None
) -> RequestLog:
    """Read the requests of a log, by rising arrival.

    The first arrival becomes time 0 where times are dates, or more than an hour from 0.

    Parameters
    ----------
    form : LogFormat, optional
        Format of the log; by default our names and usual ones.
    """
    form = form or LogFormat()
    table = LogTable.of(log_text(path), str(path), form.columns, form.unit)
    if table.kind is not None and table.kind.lacks:
        raise InputFileError(f"{table.kind.title} lacks what an audit needs", where=table.where,
                             allowed=table.kind.lacks.format(
                                 shlex.quote(table.where)))

    def within_ticks(times_s: FloatArray) -> FloatArray:
        clock = clock_of(1000.0 * times_s) if np.isfinite(times_s).all() else None
        if clock is None or not clock.matters:
            return times_s
        table.notes.append(clock.words())
        return clock.spread(1000.0 * times_s) / 1000.0

    arrival, start, finish = table.all_times(within_ticks)
    table.refuse(start < arrival - _ROUNDING_S, "start", "starts before it arrives")
    table.refuse(finish < np.fmax(start, arrival) - _ROUNDING_S, "finish",
                 "ends before it starts or arrives")
    first = float(arrival.min())
    if table.absolute or abs(first) > 3600.0:
        arrival, start, finish = arrival - first, start - first, finish - first
    deadline = _deadlines_ms(table, form.slo_ms)
    log = RequestLog(arrival, start, finish, deadline, table.outcomes(),
                     table.models(), table.counts("batch", 0), table.counts("run_as", 0),
                     table.workers(), table.truths("correct"), table.sizes(), table.said())
    table.refuse(~np.isin(log.outcome, ["", *OUTCOMES]), "outcome", "unknown outcome",
                 ", ".join(OUTCOMES))
    if all(table.column(name) is None for name in _TELLING):
        raise InputFileError(
            "no column says what became of a request", where=table.where,
            value=", ".join(map(str, table.frame.columns)),
            allowed=f"one of {', '.join(_TELLING)}: by its name, or --column FIELD=NAME")
    if table.column("outcome") is None and np.isnan(log.finish_s).all() and (
            table.results() == "").any():
        raise InputFileError(
            "no column says how long the answers took", where=table.where,
            value=", ".join(map(str, table.frame.columns)),
            allowed="finish or duration: by its name, or --column FIELD=NAME")
    log = replace(log, outcome=_outcomes(log))
    if table.column("model") is not None:
        table.refuse(log.answered & (log.model == ""), "model", "answered by no model", "a name")
    return log.only(np.argsort(arrival, kind="stable"))


def _deadlines_ms(table: LogTable, slo_ms: float | None) -> FloatArray:
    """Return the time allowed for each answer; ``slo_ms`` where the log has none."""
    column = table.column("deadline")
    deadline = np.full(len(table.frame), np.nan) if column is None else floats(column[1]) * (
        1000.0 * SECONDS[heading_unit(column[0])[1] or "ms"])
    if column is not None:
        table.refuse((column[1] != "").to_numpy() & ~(
                        (deadline > 0) & (deadline <= LONGEST_SLO_MS)),
                     "deadline", "not a time allowed",
                     f"a number > 0, up to {LONGEST_SLO_MS:g} ms")
    if slo_ms is not None:
        deadline = np.where(np.isnan(deadline), slo_ms, deadline)
    table.refuse(np.isnan(deadline), "deadline", "no deadline",
                 "a column of deadlines, or --slo-ms")
    return deadline


def _outcomes(log: RequestLog) -> TextArray:
    """Return the outcome of each request, derived from its times if these are known."""
    named = (log.model != "") | ~(log.model != "").any()
    outcome = np.where((log.outcome == "") & np.isfinite(log.finish_s) & named,
                       "served", log.outcome)
    outcome = np.where(outcome == "", "dropped", outcome)
    timed = np.isin(outcome, ["served", "late"]) & np.isfinite(log.finish_s)
    late = log.finish_s - log.arrival_s > log.deadline_ms / 1000.0 + _ROUNDING_S
    outcomes: TextArray = np.where(timed, np.where(late, "late", "served"), outcome).astype(object)
    return outcomes
