"""Request logs: what became of every request, as lines of CSV.

A log has a line for each request, in any order, under the names of :data:`COLUMNS`. Times are in
seconds from the log's start, ``deadline_ms`` counts from the arrival. What is not known is empty.

=============  ====================================================================================
arrival_s      when the request came, or was to be sent
start_s        when its batch started; empty where it never ran
finish_s       when the answer was there; of a dropped request when it was given up
deadline_ms    time allowed for the answer, after the arrival
outcome        ``served`` in time, ``late``, ``dropped``, or ``failed``: an error was the answer
model          that answered
batch          requests in its batch
run_as         size at which the batch ran; more than ``batch`` where it was padded
worker         that ran it, counted from 0
correct        1 or 0: whether the answer was right
=============  ====================================================================================

CSV and JSON lines of other programs are read by the names that are usual
(:mod:`ramsis.audit.access_log`, which has access logs, too), or by naming their columns
(:class:`LogFormat`). Where the end of a request and its duration are known, the arrival is their
difference. Whether an answer was in time is decided by the times where they are known.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.arrivals.trace_formats.clock import clock_of
from ramsis.audit.access_log import (
    EPOCHS,
    access_frame,
    aliases,
    json_frame,
    models_of_paths,
    outcome_of_status,
    requests_only,
    unit_of,
)
from ramsis.checks import check_arguments
from ramsis.cluster.slo_class import LONGEST_SLO_MS
from ramsis.errors import InputFileError, InvalidValueError, OutputError, check_known
from ramsis.files import read_text, written_whole
from ramsis.tables import cell, text_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "FIELDS", "OUTCOMES", "LogFormat", "Request", "RequestLog",
           "RequestLogWriter", "read_request_log", "write_request_log"]

TextArray = NDArray[np.object_]

COLUMNS = ("arrival_s", "start_s", "finish_s", "deadline_ms", "outcome", "model", "batch",
           "run_as", "worker", "correct")
FIELDS = ("arrival", "start", "finish", "deadline", "outcome", "model", "batch", "run_as",
          "worker", "correct")
"""What the columns hold; so are columns of other programs named."""
DERIVED = ("duration", "status", "request", "method")
"""Further columns of other programs, from which arrival, finish, outcome and model are told."""
_TELLING = ("finish", "duration", "outcome", "status")
OUTCOMES = ("served", "late", "dropped", "failed")

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_ROUNDING_S = 1e-7
_MOST_BYTES = 512 * 1024 * 1024
_TRUE, _FALSE = {"1", "true", "yes"}, {"0", "false", "no"}


class Request(NamedTuple):
    """A line of a log; times as of the module, None where a value is not known."""

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


@dataclass(frozen=True, eq=False)
class RequestLog:
    """Requests by rising arrival; arrays of shape (n,).

    Attributes
    ----------
    arrival_s : ndarray
        Rising or equal.
    start_s, finish_s, deadline_ms, correct : ndarray
        NaN where not known; ``correct`` is 1 or 0.
    outcome : ndarray of str
        One of :data:`OUTCOMES`.
    model : ndarray of str
        Empty where not known.
    batch, run_as : ndarray of int
        0 where not known.
    worker : ndarray of int
        -1 where not known; names that are no numbers are counted from 0.
    notes : tuple of str
        What was recognised and left out in a log of another program.
    """

    arrival_s: FloatArray
    start_s: FloatArray
    finish_s: FloatArray
    deadline_ms: FloatArray
    outcome: TextArray
    model: TextArray
    batch: IntArray
    run_as: IntArray
    worker: IntArray
    correct: FloatArray
    notes: tuple[str, ...] = ()

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
        """Some of the requests."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in COLUMNS})


class RequestLogWriter:
    """Writes a log line by line, as requests end.

    Only whole lines come into the file, so that the log of a process that was killed, or whose
    disk was full, can be read.

    Parameters
    ----------
    path : path
        Its folder is made when missing. A log that is there is kept, under the first free name
        of ``NAME.1.csv``, ``NAME.2.csv`` and so on.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._size, self._held = 0, io.StringIO()
        self._writer = csv.writer(self._held, lineterminator="\n")
        self._writer.writerow(COLUMNS)
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
        self._writer.writerow(_texts(request))

    def flush(self) -> None:
        """Bring all lines into the file."""
        text = self._held.getvalue().encode()
        self._held.seek(0)
        self._held.truncate()
        with self._failing():
            try:
                left = memoryview(text)
                while left:
                    left = left[self._stream.write(left):]
            except OSError:
                with suppress(OSError):  # what is no regular file has no size
                    self._stream.truncate(self._size)
                    self._stream.seek(self._size)
                raise
        self._size += len(text)

    def close(self) -> None:
        """Bring all lines into the file, and let go of it."""
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
    """Give a log of before another name."""
    if not path.is_file() or not path.stat().st_size:
        return
    for number in count(1):
        other = path.with_name(f"{path.stem}.{number}{path.suffix}")
        if not other.exists():
            path.rename(other)
            return


def _texts(request: Request) -> list[str]:
    arrival, start, finish, deadline, *middle, correct = request
    times = ["" if x is None or math.isnan(x) else f"{x:.9f}" for x in (arrival, start, finish)]
    return [*times, "" if deadline is None else f"{deadline:.9g}",
            *("" if x is None else str(cell(x)) for x in middle),
            "" if correct is None else str(int(correct))]


def write_request_log(path: str | os.PathLike[str], requests: Iterable[Request]) -> None:
    """Write a whole log; a reader sees none or all of it."""
    with written_whole(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(map(_texts, requests))


@dataclass(frozen=True)
class LogFormat:
    """How a log of another program is read.

    Attributes
    ----------
    columns : mapping of str to str
        Name of the column that holds a field of :data:`FIELDS` or :data:`DERIVED`; where it is
        left out ours, or a usual one.
    unit : str, optional
        Of arrival, start and finish where they are numbers: ``s``, ``ms``, ``us``, ``ns``, ``min``
        or ``h``. By default the end of the column's name (``arrival_ms``). Dates have none.
    slo_ms : float, optional
        Deadline of each request where the log has no such column, or an empty field.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None
    slo_ms: float | None = None

    def __post_init__(self) -> None:
        for name in self.columns:
            check_known("no such field of a request log", name, (*FIELDS, *DERIVED), "column")
        if self.unit is not None:
            check_known("unknown unit of time", self.unit, _SECONDS, "unit")
        if self.slo_ms is not None and not 0 < self.slo_ms <= LONGEST_SLO_MS:
            raise InvalidValueError("not positive", where="slo_ms", value=self.slo_ms,
                                    allowed=f"a number > 0, up to {LONGEST_SLO_MS:g}")


def read_request_log(
    path: str | os.PathLike[str], form: LogFormat | None = None
) -> RequestLog:
    """The requests of a log, by rising arrival.

    The first arrival becomes time 0 where times are dates, or more than an hour from 0.

    Parameters
    ----------
    form : LogFormat, optional
        By default our own names.
    """
    table = _Table.read(path, form or LogFormat())
    arrival, start, finish = table.all_times()
    table.refuse(start < arrival - _ROUNDING_S, "start", "starts before it arrives")
    table.refuse(finish < np.fmax(start, arrival) - _ROUNDING_S, "finish",
                 "ends before it starts or arrives")
    first = float(arrival.min())
    if table.dated or abs(first) > 3600.0:
        arrival, start, finish = arrival - first, start - first, finish - first
    deadline = table.deadlines_ms()
    log = RequestLog(arrival, start, finish, deadline, table.outcomes(),
                     table.models(), table.counts("batch", 0), table.counts("run_as", 0),
                     table.workers(), table.truths("correct"), tuple(table.notes))
    table.refuse(~np.isin(log.outcome, ["", *OUTCOMES]), "outcome", "unknown outcome",
                 ", ".join(OUTCOMES))
    if all(table.column(name) is None for name in _TELLING):
        raise InputFileError(
            "no column says what became of a request", where=table.where,
            value=", ".join(map(str, table.frame.columns)),
            allowed=f"one of {', '.join(_TELLING)}: by its name, or --column FIELD=NAME")
    log = replace(log, outcome=_outcomes(log))
    if table.column("model") is not None:
        table.refuse(log.answered & (log.model == ""), "model", "answered by no model", "a name")
    return log.only(np.argsort(arrival, kind="stable"))


def _outcomes(log: RequestLog) -> TextArray:
    """The outcome of each request, by the times where they tell it."""
    named = (log.model != "") | ~(log.model != "").any()
    outcome = np.where((log.outcome == "") & np.isfinite(log.finish_s) & named,
                       "served", log.outcome)
    outcome = np.where(outcome == "", "dropped", outcome)
    timed = np.isin(outcome, ["served", "late"]) & np.isfinite(log.finish_s)
    late = log.finish_s - log.arrival_s > log.deadline_ms / 1000.0 + _ROUNDING_S
    found: TextArray = np.where(timed, np.where(late, "late", "served"), outcome).astype(object)
    return found


@dataclass
class _Table:
    """A CSV file as text, and what its fields are."""

    where: str
    frame: pd.DataFrame
    form: LogFormat
    dated: bool = False
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: str | os.PathLike[str], form: LogFormat) -> _Table:
        where = str(path)
        text = read_text(path, limit=_MOST_BYTES, encoding="utf-8-sig")
        # CSV comes last, as any text could be some.
        frame = access_frame(text, where)
        if frame is None:
            frame = json_frame(text, where)
        if frame is None:
            frame = _csv_frame(text, where)
        if frame.empty:
            raise InputFileError("no requests", where=where,
                                 allowed="a header and a line for each")
        columns = [str(column) for column in frame.columns]
        own = {name: column for name in FIELDS if (column := _own(name, columns)) is not None}
        own.update(form.columns)
        usual = aliases(columns, own)
        frame, notes = requests_only(frame, {**usual, **own})
        if frame.empty:
            raise InputFileError("no requests", where=where,
                                 allowed="requests that were not refused")
        if usual:
            notes.insert(0, "columns taken: " + ", ".join(
                f"{name} = {column}" for name, column in usual.items()))
        return cls(where, frame, replace(form, columns={**usual, **form.columns}), notes=notes)

    def all_times(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Arrival, start and finish in seconds; from end and duration where that is known."""
        start, finish = self.times("start"), self.times("finish")
        if "duration" not in self.form.columns:
            return self.times("arrival", required=True), start, finish
        lasted = self.times("duration")
        self.refuse(lasted < 0, "duration", "not a duration", "a number >= 0")
        if self.column("arrival") is not None:
            arrival = self.times("arrival", required=True)
            if np.isnan(start).all() and np.isnan(finish).all():
                arrival = self.within_ticks(arrival)
            return arrival, start, np.where(np.isnan(finish), arrival + lasted, finish)
        finish = self.within_ticks(self.times("finish", required=True))
        self.refuse(np.isnan(lasted), "duration", "not a duration", "a number >= 0")
        return finish - lasted, start, finish

    def within_ticks(self, times_s: FloatArray) -> FloatArray:
        """Times in seconds, spread within the ticks of a clock that several requests share."""
        clock = clock_of(1000.0 * times_s) if np.isfinite(times_s).all() else None
        if clock is None or not clock.matters:
            return times_s
        self.notes.append(clock.words())
        return clock.spread(1000.0 * times_s) / 1000.0

    def column(self, name: str, *, required: bool = False) -> tuple[str, Any] | None:
        """A field's column and its name; None where the log has none."""
        wanted = self.form.columns.get(name)
        columns = [str(column) for column in self.frame.columns]
        found = wanted if wanted in columns else None if wanted else _own(name, columns)
        if found is not None:
            return found, self.frame[found].str.strip()
        if required or wanted is not None:
            near = difflib.get_close_matches(wanted or name, columns, n=1, cutoff=0.5)
            raise InputFileError(
                "no such column", where=self.where, value=wanted or COLUMNS[FIELDS.index(name)],
                allowed=f"--column {name}={near[0] if near else 'NAME'} with one of "
                        + ", ".join(columns))
        return None

    def times(self, name: str, *, required: bool = False) -> FloatArray:
        """Times in seconds; NaN where there are none."""
        found = self.column(name, required=required)
        if found is None:
            return np.full(len(self.frame), np.nan)
        title, texts = found
        seconds = self._dates(texts) if _is_date(texts) else self._numbers(title, texts)
        bad = np.isnan(seconds) & ((texts != "").to_numpy() | required) | np.isinf(seconds)
        self.refuse(bad, name, "not a time", "a number or a date")
        return seconds

    def _dates(self, texts: Any) -> FloatArray:
        import pandas as pd

        self.dated = True
        stamps = pd.to_datetime(texts, errors="coerce", utc=True, format="ISO8601")
        since = (stamps - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
        return np.asarray(since, dtype=float)

    def _numbers(self, title: str, texts: Any) -> FloatArray:
        numbers = _floats(texts)
        stated = title.rpartition("_")[2]
        unit = (self.form.unit or unit_of(title, [str(one) for one in self.frame.columns])
                or (stated if "_" in title else ""))
        since_1970 = _since_1970(numbers)
        if self.form.unit and since_1970 not in ("", self.form.unit):
            if "duration" not in self.form.columns:
                raise InputFileError(
                    f"times of 1970 in {self.form.unit}, and of our days in {since_1970}",
                    where=f"{self.where}: {title}", value=texts.iloc[0],
                    allowed=f"--unit {since_1970}, or none")
            self.notes.append(f"{title}: taken as {since_1970} since 1970, by the values; --unit "
                              f"{self.form.unit} is that of the durations")
            unit = since_1970
        elif unit not in _SECONDS:
            unit = since_1970
            if unit:
                self.notes.append(f"{title}: taken as {unit} since 1970, by the values")
        if unit not in _SECONDS:
            raise InputFileError("times of no stated unit", where=self.where, value=title,
                                 allowed="--unit, or a column's name that "
                                 "ends in _s, _ms, …")
        return numbers * _SECONDS[unit]

    def outcomes(self) -> TextArray:
        """The outcome of each request, by its status of HTTP where no column says it."""
        if self.column("outcome") is None and "status" in self.form.columns:
            return outcome_of_status(self.frame[self.form.columns["status"]])
        return self.text("outcome")

    def models(self) -> TextArray:
        """The model of each request, by its path where no column says it."""
        if self.column("model") is None and "request" in self.form.columns:
            return np.asarray(models_of_paths(self.frame[self.form.columns["request"]]),
                              dtype=object)
        return self.text("model")

    def workers(self) -> IntArray:
        """The number of each worker; names that are no numbers are counted from 0."""
        found = self.column("worker")
        if found is None:
            return np.full(len(self.frame), -1)
        given = found[1] != ""
        if not np.isnan(_floats(found[1][given])).any():
            return self.counts("worker", -1)
        names = sorted(set(found[1][given].tolist()))
        self.notes.append(f"workers by name: {len(names)} ({', '.join(names[:8])}"
                          f"{', …' if len(names) > 8 else ''})")
        number = {name: i for i, name in enumerate(names)}
        return np.array([number.get(name, -1) for name in found[1].tolist()], dtype=np.int64)

    def deadlines_ms(self) -> FloatArray:
        """Time allowed for each answer; that of the form where the log has none."""
        found = self.column("deadline")
        deadline = (np.full(len(self.frame), np.nan) if found is None else _floats(found[1]))
        if found is not None:
            self.refuse((found[1] != "").to_numpy() & ~(
                            (deadline > 0) & (deadline <= LONGEST_SLO_MS)),
                        "deadline", "not a time allowed",
                        f"a number > 0, up to {LONGEST_SLO_MS:g} ms")
        if self.form.slo_ms is not None:
            deadline = np.where(np.isnan(deadline), self.form.slo_ms, deadline)
        self.refuse(np.isnan(deadline), "deadline", "no deadline",
                    "a column of deadlines, or --slo-ms")
        return deadline

    def text(self, name: str) -> TextArray:
        found = self.column(name)
        if found is None:
            return np.full(len(self.frame), "", dtype=object)
        texts = found[1].unique()
        odd = found[1].map({one: not one.isprintable() for one in texts}).to_numpy(dtype=bool)
        self.refuse(odd, name, "not a text", "a text without control characters")
        return np.asarray(found[1].map({one: text_of(one) for one in texts}).to_numpy(object))

    def counts(self, name: str, absent: int) -> IntArray:
        """Whole numbers from 0, of batches from 1."""
        found = self.column(name)
        if found is None:
            return np.full(len(self.frame), absent)
        values, least = _floats(found[1]), 0 if name == "worker" else 1
        given = (found[1] != "").to_numpy()
        self.refuse(given & ~((values >= least) & (values < 2**31) & (values % 1 == 0)), name,
                    "not a whole number in range", f"a whole number from {least}")
        return np.where(given, values, absent).astype(np.int64)

    def truths(self, name: str) -> FloatArray:
        found = self.column(name)
        if found is None:
            return np.full(len(self.frame), np.nan)
        texts = found[1].str.lower()
        values = np.where(texts.isin(_TRUE), 1.0, np.where(texts.isin(_FALSE), 0.0, np.nan))
        self.refuse(np.isnan(values) & (texts != "").to_numpy(), name, "neither right nor wrong",
                    "1, 0 or empty")
        return values

    def refuse(
        self, bad: BoolArray, name: str, what: str, allowed: str | None = None
    ) -> None:
        """Refuse the first bad line."""
        if not bad.any():
            return
        line = int(np.argmax(bad))
        found = self.column(name)
        value = "" if found is None else found[1].iloc[line]
        place = f"{self.where}: line {self.frame.index[line]}: {name}"
        raise InputFileError(what, where=place, value=value, allowed=allowed)


def _own(name: str, columns: list[str]) -> str | None:
    """The column of a field under our own names."""
    if name not in FIELDS:
        return None
    own = (COLUMNS[FIELDS.index(name)], name, f"{name}_ms")
    return next((one for one in own if one in columns), None)


def _csv_frame(text: str, where: str) -> pd.DataFrame:
    """A CSV file as columns of texts, by line."""
    import pandas as pd

    header = next((line for line in text.splitlines() if line.strip()), "")
    mark = max(",;\t", key=header.count)
    try:
        frame = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, sep=mark,
                            skipinitialspace=True, skip_blank_lines=False)
    except (ValueError, pd.errors.ParserError) as error:
        raise InputFileError(f"not a CSV ({error})", where=where) from error
    if not isinstance(frame.index, pd.RangeIndex):  # what pandas makes of further fields
        raise InputFileError("not a CSV (a line has more fields than the header)", where=where)
    return frame.fillna("").set_index(np.arange(2, len(frame) + 2))


def _since_1970(numbers: FloatArray) -> str:
    """The unit in which all numbers are times of this century; empty where none is."""
    known = numbers[np.isfinite(numbers)]
    for least, unit in EPOCHS:
        if len(known) and (known >= least).all() and (known < 4 * least).all():
            return unit
    return ""


def _floats(texts: Any) -> FloatArray:
    import pandas as pd

    return np.asarray(pd.to_numeric(texts, errors="coerce").to_numpy(dtype=float))


def _is_date(texts: Any) -> bool:
    """Whether the first entry that there is looks like a date."""
    given = texts[texts != ""]
    return bool(len(given)) and "-" in given.iloc[0][1:] and "e-" not in given.iloc[0].lower()


check_arguments(globals(), ["LogFormat", "RequestLogWriter", "read_request_log",
                            "write_request_log"], methods=False)
