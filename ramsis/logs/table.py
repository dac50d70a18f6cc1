"""A log as a table: times, outcomes and models of its requests, and notes on how it was read.

The unit of a column's numbers is the first that is known of these: the user's (``--unit``), the
layout's, the suffix of the column's name (``arrival_ms``), seconds for nginx's variables, and, for
times since 1970, the unit in which the values are dates of this century. The user's unit does not
apply to a column whose values are times since 1970 in another unit. Cells may state units
(``726ms``, ``1m2.3s``).
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.errors import InputFileError, printable
from ramsis.logs.dates import is_iso, iso_text, may_be_winter_time
from ramsis.logs.frames import frame_of
from ramsis.logs.kinds import (
    FIELDS,
    UNITS_OF_NAMES,
    LogKind,
    Summary,
    aliases,
    kind_of,
)
from ramsis.numerals import duration_ms, heading_unit, time_remedy
from ramsis.tables import text_of

if TYPE_CHECKING:
    import pandas as pd

TextArray = NDArray[np.object_]
# Spreads equal times, in seconds, over the tick of a coarse clock.
Spread = Callable[[FloatArray], FloatArray]

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
# Least number that is a time since 1970 (after 2001) in each unit.
EPOCHS = ((1e9, "s"), (1e12, "ms"), (1e15, "us"), (1e18, "ns"))
# Columns of our logs, in the order of the fields.
COLUMNS = ("arrival_s", "start_s", "finish_s", "deadline_ms", "outcome", "model", "batch",
           "run_as", "worker", "correct", "size")
_TRUE, _FALSE = {"1", "true", "yes"}, {"0", "false", "no"}
# Forms that pandas reads faster than iso_text.
_DATES = ("ISO8601", "%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y:%H:%M:%S.%f", "%a %b %d %H:%M:%S %Y")
_DATE = re.compile(r"\d{4}[-/]\d\d?[-/]\d\d?|\d\d?/\w{1,3}/\d{4}|[A-Z][a-z]{2} [A-Z][a-z]{2} ")
_MOST_NAMES = 8  # of columns in a note
_ZONE = re.compile(r"(?:Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)$")
_MINUTE_S = 60.0
_LONGEST_S = 1e8  # three years
_SHORTEST_S = 1e-4  # smallest plausible median response time over a network
_MODEL = re.compile(r"/(?:models|predictions)/([^/:?\s]+)")
_DROPPED = ("408", "429", "460", "499", "503", "504")
_ANSWERED = ("ok", "success", "succeeded", "completed", "finished")
_NO_ERROR = ("", "0", "false", "null", "none", "nan", "-")
_MEANINGS = {"start": "when the model began", "arrival": "its start", "finish": "its end",
           "duration": "the time it took"}


@dataclass
class LogTable:
    """Rows of a log as text, with the column of each field."""

    where: str  # its path, for messages
    frame: pd.DataFrame  # texts, indexed by line
    columns: Mapping[str, str]  # column of each field, besides our names
    unit: str | None = None  # of times that are numbers, as the user states it
    kind: LogKind | None = None  # the layout that was recognised
    notes: list[str] = field(default_factory=list)  # how it was read, and what was left out
    dated: bool = False
    _stated: dict[str, str] = field(default_factory=dict)  # unit by column
    _by_usual_names: bool = False  # whether columns were recognised by common names or a layout
    _perhaps_start: bool = False  # whether the name of the end's column could mean the start
    _needless: tuple[str, str] | None = None  # a column that has another unit than the user's
    _origin_s: int | None = None  # of all times; 0 where they count from the log's start

    @classmethod
    def of(
        cls, text: str, where: str, columns: Mapping[str, str] | None = None,
        unit: str | None = None,
    ) -> LogTable:
        """Read the table of a file, of which ``text`` is the content and ``where`` the path.

        ``columns`` are those of fields, as the user names them; ``unit`` is that of times that are
        numbers.
        """
        named = dict(columns or {})
        kind = kind_of(text)
        if isinstance(kind, Summary):
            raise refusal(kind, where)
        frame, skipped = frame_of(text, kind, where)
        if frame.empty:
            raise InputFileError("no requests", where=where,
                                 allowed="a header and a line for each")
        names = [str(column) for column in frame.columns]
        assigned = {name: column for name in FIELDS
                    if (column := own_column(name, names)) is not None}
        assigned.update(named)
        usual = aliases(names, assigned) if kind is None else {
            name: column for name, column in kind.columns.items()
            if name not in named and column in names and column not in named.values()}
        table = cls(where, frame, {**usual, **named}, unit, kind)
        table._requests_only(skipped)
        table._by_usual_names = bool(table.columns)
        # A time with a neutral name beside a duration; without one it would be the arrival.
        table._perhaps_start = kind is None and "finish" in usual and "arrival" in aliases(
            [usual["finish"]], {})
        return table

    def _requests_only(self, skipped: int) -> None:
        """Keep the rows that are inference requests; note the numbers of others."""
        kind, frame = self.kind, self.frame
        if skipped:
            self.notes.append(f"lines of other kinds, left out: {skipped}")
        for column, values in ({} if kind is None else kind.rows).items():
            texts = frame.get(column)
            requests = frame if texts is None else frame[texts.isin(values)]
            if requests.empty:
                values_there = [] if texts is None else sorted(set(texts.head(100_000)) - {""})
                raise InputFileError("no rows of requests", where=f"{self.where}: {column}",
                                     value=", ".join(values_there[:12]),
                                     allowed=" or ".join(values))
            frame = requests
        # Rows of other kinds by the layout, then requests that are not POST if some are.
        for column, begin in ({} if kind is None else kind.without).items():
            if column in frame:
                frame = frame[~frame[column].str.startswith(begin)]
        column_of_method = self.columns.get("method", self.columns.get("request"))
        if column_of_method in frame:
            posts = frame[column_of_method].str.strip().str.upper().str.startswith("POST")
            if posts.any() and not posts.all():
                self.notes.append(f"lines that are no POST, left out: {int((~posts).sum())}")
                frame = frame[posts]
        self.frame = frame
        refused = self.results() == "refused"
        if refused.any():
            self.notes.append("requests that were refused (status 4xx), left out: "
                              f"{int(refused.sum())}")
            self.frame = frame = frame[~refused]
        if frame.empty:
            raise InputFileError("no requests", where=self.where,
                                 allowed="requests that were not refused")

    def said(self) -> tuple[str, ...]:
        """Return notes on how the log was read; complete once its times were read."""
        return ((self._as_read(),) if self._by_usual_names else ()) + tuple(self.notes)

    def _as_read(self) -> str:
        """Describe which columns were read as which fields, with counts of the outcomes."""
        kind = self.kind
        rows = "" if kind is None else "".join(
            f" with {column} = {' or '.join(values)}" for column, values in kind.rows.items())
        title = {name: printable(column) + (f" ({self._stated[column]})"
                                            if column in self._stated else "")
                 for name, column in self.columns.items()}
        times = [f"{title[name]} is {meaning}" for name, meaning in _MEANINGS.items()
                 if name in title]
        if self._perhaps_start:
            times.append(f"--column arrival={printable(self.columns['finish'])} where that is the "
                         "start")
        others = [f"{name} = {title[name]}" for name in ("model", "worker", "batch", "deadline")
                  if name in title]
        results = self.results()
        answered = next((f"answered where {title[name]} is {what}" for name, what in (
            ("success", "true"), ("status", "below 400 or OK"), ("error", "empty"))
            if name in title), "")
        counts = ", ".join(f"{name} {int((results == name).sum())}"
                           for name in ("failed", "dropped"))
        used = {*self.columns.values(), *(own_column(name, self._names) for name in FIELDS)}
        unused = [] if kind is not None else [
            printable(name) for name in self._names if name not in used]
        return "; ".join(part for part in (
            f"read as {'a table' if kind is None else kind.title}, a request in each row{rows}: "
            f"{len(self.frame)}", ", ".join(times), ", ".join(others),
            f"{answered} ({counts})" if answered else "",
            f"not used: {', '.join(unused[:_MOST_NAMES])}"
            f"{', …' if len(unused) > _MOST_NAMES else ''}" if unused else "") if part)

    @property
    def _names(self) -> list[str]:
        return [str(column) for column in self.frame.columns]

    def column(self, name: str, *, required: bool = False) -> tuple[str, Any] | None:
        """Return a field's column and its name; None where the log has none."""
        named = self.columns.get(name)
        columns = self._names
        title = named if named in columns else None if named else own_column(name, columns)
        if title is not None:
            return title, self.frame[title].str.strip()
        if required or named is not None:
            near = difflib.get_close_matches(named or name, columns, n=1, cutoff=0.5)
            allowed = (f"--column {name}={near[0] if near else 'NAME'} with one of "
                       + ", ".join(columns))
            if named is None:
                raise InputFileError(f"no column says the {name} of requests", where=self.where,
                                     allowed=allowed)
            raise InputFileError("no such column", where=self.where, value=named, allowed=allowed)
        return None

    def stamps(self) -> tuple[FloatArray, FloatArray | None]:
        """Return arrivals in seconds; or finish times with durations, to subtract."""
        durations = None
        if self.column("arrival") is not None or "duration" not in self.columns:
            stamps = self.times("arrival", required=True)
        else:
            stamps, durations = self.times("finish", required=True), self.durations()
            finish = self.columns.get("finish") or own_column("finish", self._names)
            self.refuse(np.isnan(durations), "duration", "not a duration", "a number >= 0; "
                        f"where it is unknown, --column arrival={finish} if that is the start")
        if self._needless and self.unit not in self._stated.values():
            title, since = self._needless
            raise InputFileError(
                f"times of 1970 in {self.unit}, and of our days in {since}",
                where=f"{self.where}: {title}", value=self.frame[title].iloc[0],
                allowed=f"--unit {since}, or none")
        return stamps, durations

    def all_times(self, within_ticks: Spread) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return arrival, start and finish in seconds, computed from durations where needed.

        ``within_ticks`` spreads equal times of a coarse clock.
        """
        start, finish = self.times("start"), self.times("finish")
        lasted = self.durations() if "duration" in self.columns else None
        stamps, taken_off = self.stamps()
        if taken_off is not None:
            finish = within_ticks(stamps)
            return finish - taken_off, start, finish
        # Other known times have the same clock, and must not be spread apart from it.
        if np.isnan(start).all() and np.isnan(finish).all():
            stamps = within_ticks(stamps)
        if lasted is not None:
            finish = np.where(np.isnan(finish), stamps + lasted, finish)
        return stamps, start, finish

    def durations(self) -> FloatArray:
        """Return response times in seconds; NaN where there are none."""
        lasted = self.times("duration")
        self.refuse((lasted < 0) | (lasted > _LONGEST_S), "duration", "not a duration",
                    f"a number >= 0, of at most {_LONGEST_S:g} s")
        finite = lasted[np.isfinite(lasted)]
        if self.kind is not None and not self.unit and len(finite) and (
                0 < np.median(finite) < _SHORTEST_S):
            title = self.columns["duration"]
            raise InputFileError(
                "shorter than any answer over a network", where=f"{self.where}: {title}",
                value=f"{1e6 * np.median(finite):.3g} µs on the median, read as "
                      f"{self._stated.get(title, 'stated')}",
                allowed="--unit with the unit that it has, as ms or s")
        return lasted

    def times(self, name: str, *, required: bool = False) -> FloatArray:
        """Return times in seconds; NaN where there are none."""
        column = self.column(name, required=required)
        if column is None:
            return np.full(len(self.frame), np.nan)
        title, texts = column
        lasted = name == "duration"
        seconds = (self._dates(texts) if not lasted and _is_date(texts)
                   else self._numbers(name, title, texts, lasted))
        bad = np.isnan(seconds) & ((texts != "").to_numpy() | required) | np.isinf(seconds)
        bad &= ~texts.isin(["-"]).to_numpy() | required
        remedy = time_remedy(texts.iloc[int(np.argmax(bad))])
        self.refuse(bad, name, "not a time", remedy or "a number or a date")
        return seconds

    @property
    def absolute(self) -> bool:
        """Whether times count from 1970 or another date, not from the log's start."""
        return self.dated or bool(self._origin_s)

    def _dates(self, texts: Any) -> FloatArray:
        """Convert a column of dates and times to seconds, from the log's common origin."""
        import pandas as pd

        self.dated = True
        first = texts[texts != ""].iloc[0]
        form = next((form for form in _DATES if not pd.isna(
            pd.to_datetime(first.replace(",", ".") if form == "ISO8601" else first,
                           errors="coerce", utc=True, format=form))), None)
        if form is None:
            first, form = iso_text(first), "ISO8601"
            texts = texts.map({text: iso_text(text) for text in texts.unique()})
        if form == "ISO8601" and "," in first:
            texts = texts.str.replace(",", ".", regex=False)
        stamps = pd.to_datetime(texts, errors="coerce", utc=True, format=form)
        base = stamps.min()
        if pd.isna(base):
            return np.full(len(texts), np.nan)
        base = base.floor("s")
        since = np.asarray((stamps - base) / pd.Timedelta(seconds=1), dtype=float)
        if not _ZONE.search(first):
            self._note_winter_time(since)
        return since + self._after(int(base.timestamp()))

    def _note_winter_time(self, local_s: FloatArray) -> None:
        """Note that times without a zone once go back by an hour, as clocks do in autumn."""
        back = np.flatnonzero(np.diff(local_s) < -_MINUTE_S)
        if len(back) == 1 and may_be_winter_time(local_s[back[0]] - local_s[back[0] + 1]):
            self.notes.append(
                f"line {self.frame.index[back[0] + 1]} is an hour earlier than the one before: if "
                "the clock went to winter time, write the zone, or the load is too low")

    def _after(self, base_s: int) -> int:
        """Return the seconds from the origin of all times to ``base_s``, that of a column."""
        if self._origin_s is None:
            self._origin_s = base_s
        return base_s - self._origin_s

    def _numbers(self, name: str, title: str, texts: Any, lasted: bool) -> FloatArray:
        """Convert a column of times or durations to seconds, by the unit of its name or cells."""
        import pandas as pd

        numbers = pd.to_numeric(texts, errors="coerce").to_numpy()
        if numbers.dtype.kind not in "if":
            numbers = numbers.astype(float)
        finite = np.isfinite(numbers)
        written = ~finite & texts.str.contains(r"\d").to_numpy()  # cells that state a unit
        unit = self._unit(name, title, numbers, lasted)
        if not unit and finite.any():
            self._refuse_odd(name, numbers, finite)
            raise InputFileError(
                "some times state a unit, others none" if written.any() else
                "times of no stated unit", where=self.where, value=title,
                allowed="--unit, or a column's name that ends in _s, _ms, …")
        factor = SECONDS.get(unit, 1.0)
        base_s = 0
        if not lasted and finite.any() and numbers[finite].min() * factor > 1e6:
            base_s = int(numbers[finite].min() * factor) - 1
        if base_s and numbers.dtype.kind == "i" and factor <= 1.0:
            # Exact for whole numbers since 1970, whose seconds as floats have steps of 0.2 µs.
            seconds = (numbers - base_s * round(1.0 / factor)) * factor
        else:
            seconds = numbers * factor - base_s
        if written.any():
            seconds[written] = [_seconds(text, unit) for text in texts[written]]
        return np.asarray(seconds if lasted else seconds + self._after(base_s), dtype=float)

    def _refuse_odd(self, name: str, numbers: FloatArray, finite: BoolArray) -> None:
        """Refuse the first number that is no time since 1970, where most others are."""
        for least, unit in EPOCHS:
            odd = finite & ~((numbers >= least) & (numbers < 4 * least))
            if odd.sum() < 0.1 * finite.sum():
                self.refuse(odd, name, "not a time as the others",
                            f"{unit} since 1970 in all rows, or --unit")

    def _unit(self, name: str, title: str, numbers: Any, lasted: bool) -> str:
        """Return the unit of a column's numbers; empty where it is unknown."""
        since = "" if lasted else _since_1970(numbers)
        kinds = "" if self.kind is None else self.kind.units.get(
            name if self.kind.columns.get(name) == title else "", "")
        named = heading_unit(title)[1]
        unit = self.unit or kinds or named or UNITS_OF_NAMES.get(title, "")
        if self.unit and since and since != self.unit and not named:
            self._needless = title, since
            unit = since
        unit = unit or since
        if unit and np.isfinite(numbers).any():
            self._stated[title] = unit
        return unit

    def results(self) -> TextArray:
        """Return the outcome of each request, by the columns status, success and error.

        Columns that the file lacks are left out. A stated success or failure overrides the
        status, but a drop stays a drop. An outcome is empty for an answer, ``refused`` for status
        4xx, ``dropped`` for a timeout or overload, and ``failed`` for any other error.
        """
        results = np.full(len(self.frame), "", dtype=object)
        if (column := self.column("status")) is not None:
            results = outcome_of_status(column[1])
        if (column := self.column("success")) is not None:
            texts = column[1].str.lower()
            right = texts.isin([*_TRUE, *_ANSWERED])
            wrong = ~right & (texts != "")
            results = np.where(right, "", np.where(
                wrong & (results != "dropped"), "failed", results)).astype(object)
        if (column := self.column("error")) is not None:
            texts = column[1].str.lower()
            results[(~texts.isin(_NO_ERROR)).to_numpy() & (results == "")] = "failed"
        return results

    def outcomes(self) -> TextArray:
        """Return the stated outcome of each request; empty where its times decide."""
        return self.results() if self.column("outcome") is None else self.text("outcome")

    def models(self) -> TextArray:
        """Return the model of each request, from its path where no column states it."""
        if self.column("model") is None and "request" in self.columns:
            requests = self.frame[self.columns["request"]]
            return np.asarray(requests.str.extract(_MODEL, expand=False).fillna(""), dtype=object)
        return self.text("model")

    def workers(self) -> IntArray:
        """Return the number of each worker; names that are not numbers are numbered from 0."""
        column = self.column("worker")
        if column is None:
            return np.full(len(self.frame), -1)
        is_stated = ~column[1].isin(["", "-"])
        if not np.isnan(floats(column[1][is_stated])).any():
            return self.counts("worker", -1)
        names = sorted(set(column[1][is_stated].tolist()))
        shown = ", ".join(map(printable, names[:8]))
        self.notes.append(f"workers by name: {len(names)} ({shown}"
                          f"{', …' if len(names) > 8 else ''})")
        number = {name: i for i, name in enumerate(names)}
        return np.array([number.get(name, -1) for name in column[1].tolist()], dtype=np.int64)

    def text(self, name: str) -> TextArray:
        """Return a column of texts; empty where the log has none."""
        column = self.column(name)
        if column is None:
            return np.full(len(self.frame), "", dtype=object)
        texts = column[1].unique()
        odd = column[1].map({text: not text.isprintable() for text in texts}).to_numpy(dtype=bool)
        self.refuse(odd, name, "not a text", "a text without control characters")
        return np.asarray(column[1].map({text: text_of(text) for text in texts}).to_numpy(object))

    def counts(self, name: str, absent: int) -> IntArray:
        """Return whole numbers >= 0, or >= 1 for batches."""
        column = self.column(name)
        if column is None:
            return np.full(len(self.frame), absent)
        values, least = floats(column[1]), 0 if name == "worker" else 1
        is_stated = (column[1] != "").to_numpy()
        self.refuse(is_stated & ~((values >= least) & (values < 2**31) & (values % 1 == 0)), name,
                    "not a whole number in range", f"a whole number from {least}")
        return np.where(is_stated, values, absent).astype(np.int64)

    def sizes(self) -> IntArray:
        """Return the sizes of requests; 0 where a cell is not a size, as in columns of bytes."""
        column = self.column("size")
        if column is None:
            return np.zeros(len(self.frame), dtype=np.int64)
        values = floats(column[1])
        return np.where((values >= 1) & (values < 2**31) & (values % 1 == 0), values,
                        0).astype(np.int64)

    def truths(self, name: str) -> FloatArray:
        """Return a column of 1 and 0; NaN for other values."""
        column = self.column(name)
        if column is None:
            return np.full(len(self.frame), np.nan)
        texts = column[1].str.lower()
        values = np.where(texts.isin(_TRUE), 1.0, np.where(texts.isin(_FALSE), 0.0, np.nan))
        self.refuse(np.isnan(values) & (texts != "").to_numpy(), name, "neither right nor wrong",
                    "1, 0 or empty")
        return values

    def refuse(
        self, bad: BoolArray, name: str, what: str, allowed: str | None = None
    ) -> None:
        """Raise an error that names the first bad line, if there is one."""
        if not bad.any():
            return
        line = int(np.argmax(bad))
        column = self.column(name)
        value = "" if column is None else column[1].iloc[line]
        place = f"{self.where}: line {self.frame.index[line]}: {name}"
        raise InputFileError(what, where=place, value=value, allowed=allowed)


def own_column(name: str, columns: list[str]) -> str | None:
    """Return the column of a field by its name in our logs."""
    if name not in FIELDS:
        return None
    names = (COLUMNS[FIELDS.index(name)], name, f"{name}_ms")
    return next((column for column in names if column in columns), None)


def outcome_of_status(status: Any) -> TextArray:
    """Return the outcome for an HTTP or gRPC status: empty for an answer, ``refused`` for 4xx."""
    codes = status.str.strip().str.lower()
    number = codes.str.extract(r"^(\d{3})(?:\.0)?(?:\D|$)", expand=False).fillna("")
    dropped = number.isin(_DROPPED)
    answered = number.str.match("[123]") | codes.isin(_ANSWERED)
    refused = number.str.match("4") & ~dropped
    return np.asarray(np.where(dropped, "dropped", np.where(answered, "", np.where(
        refused, "refused", "failed"))), dtype=object)


def floats(texts: Any) -> FloatArray:
    """Convert texts to numbers; NaN where one is not a number."""
    import pandas as pd

    return np.asarray(pd.to_numeric(texts, errors="coerce").to_numpy(dtype=float))


def refusal(summary: Summary, where: str) -> InputFileError:
    """Return the error for a log in which no requests were found."""
    return InputFileError(f"is {summary.title}", where=where, allowed=summary.advice.format(
        shlex.quote(where)))


def _seconds(text: str, unit: str) -> float:
    try:
        return duration_ms(text, unit) / 1000.0
    except (ValueError, ArithmeticError):
        return np.nan


def _since_1970(numbers: Any) -> str:
    """Return the unit in which all numbers are times of this century; empty for none."""
    finite = numbers[np.isfinite(numbers)]
    return next((unit for least, unit in EPOCHS if len(finite) and (finite >= least).all()
                 and (finite < 4 * least).all()), "")


def _is_date(texts: Any) -> bool:
    """Return whether the first entry that is not empty looks like a date."""
    filled = texts[texts != ""]
    return bool(len(filled)) and (
        _DATE.match(filled.iloc[0]) is not None or is_iso(filled.iloc[0]))
