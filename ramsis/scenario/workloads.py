"""Workloads of streams: arrival times of requests, and the copy of a model that each is for.

A workload is one object of the scenario file; its kind is given by one of these keys:

``load_qps``
    a constant load of any process of the arrivals registry (``arrivals``);
``minutes``
    requests in each minute, ``within`` it at uniform times or as a Poisson process;
``functions``
    a file of counts by minute of many functions (Azure Functions 2019), assigned to the copies;
``times_ms``
    given times;
``file``
    a recorded trace, of any format that ``ramsis simulate --trace`` reads;
``users``
    a closed loop: users who each wait for an answer, think, and ask again.

Each has a start ``start_ms`` and, except for closed loops, a duration ``duration_s``, by default
until the scenario's end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals.process import check_amount
from ramsis.arrivals.reading import read_any_trace
from ramsis.arrivals.registry import arrivals_of
from ramsis.arrivals.timestamps import UNITS
from ramsis.arrivals.trace import RateTrace, Recorded
from ramsis.arrivals.trace_formats import TRACE_FORMATS
from ramsis.arrivals.trace_formats.rates import read_function_minutes
from ramsis.errors import InvalidValueError
from ramsis.fields import Fields
from ramsis.records import (
    Count,
    NonNegative,
    Positive,
    Record,
    Schema,
    record_of,
)
from ramsis.reprs import dataclass

_MINUTE_MS = 60_000.0
_WITHIN = ("uniform", "poisson")
_MOST_USERS = 10_000_000


@dataclass(frozen=True, eq=False)
class Drawn:
    """Arrival times of a workload's requests, and the copy of the model that each is for."""

    times_ms: FloatArray  # non-decreasing, from the stream's time 0, shape (n,)
    # shape (n,): the copy of the model that each is for; without it the stream decides
    copy: IntArray | None = None


class WorkloadOf(Record):
    """Base class of the kinds of workload that a stream of a scenario may have."""

    __slots__ = ()

    key: ClassVar[str]

    @property
    def loop(self) -> ClosedLoopOf | None:
        """The workload as a closed loop; ``None`` if arrivals do not depend on answers."""
        return None

    def draw(self, duration_ms: float, copies: int, rng: np.random.Generator) -> Drawn:
        """Draw the requests in [0, duration_ms) of a stream of a model with some copies."""
        raise NotImplementedError

    def read(self) -> WorkloadOf:
        """Return the workload with the content of its file, so that the file is not read again.

        By default the workload itself, as it names no file.
        """
        return self

    def content(self) -> tuple[FloatArray, ...]:
        """Return the content of the workload's file; nothing if it names no file."""
        return ()


@dataclass(frozen=True, slots=True)
class _Spell(WorkloadOf):
    """Base of workloads with a start and a duration."""

    start_ms: Annotated[NonNegative, "Start of the stream, from time 0 of the trace."] = field(
        default=0.0, kw_only=True)
    duration_s: Annotated[
        Positive | None, "For how long; to the scenario's end if absent."] = field(
        default=None, kw_only=True)

    def length_ms(self, duration_ms: float) -> float:
        """Return the duration in which requests arrive, in ms."""
        rest_ms = max(duration_ms - self.start_ms, 0.0)
        return rest_ms if self.duration_s is None else min(rest_ms, 1000.0 * self.duration_s)

    def cut(self, times_ms: FloatArray, duration_ms: float) -> FloatArray:
        """Keep the times within the workload's length; return them from the stream's time 0."""
        return self.start_ms + times_ms[times_ms < self.length_ms(duration_ms)]


@dataclass(frozen=True, slots=True)
class LoadOf(_Spell):
    """A constant load in requests per second of an arrival process, named as by ``--arrivals``."""

    key: ClassVar[str] = "load_qps"

    load_qps: Annotated[Positive, "A constant load."]
    arrivals: Annotated[
        str, "Arrival process, as ramsis simulate --arrivals names it."] = "poisson"

    def check(self, item: Fields) -> None:
        """Refuse an arrival process that does not exist, or not with this load."""
        try:
            arrivals_of(self.arrivals).drawn(self.load_qps)
        except InvalidValueError as error:
            raise item.refusal("arrivals", str(error)) from error

    def draw(self, duration_ms: float, copies: int, rng: np.random.Generator) -> Drawn:
        """Draw the arrivals of the stream from its arrival process."""
        length_ms = self.length_ms(duration_ms)
        if length_ms <= 0:
            return Drawn(np.empty(0))
        process = arrivals_of(self.arrivals).drawn(self.load_qps)
        check_amount(process.rate_per_ms * length_ms)
        return Drawn(self.start_ms + process.sample(length_ms, rng))


@dataclass(frozen=True, slots=True)
class MinuteBins(_Spell):
    """Numbers of requests in each minute, means of Poisson counts with ``poisson``."""

    key: ClassVar[str] = "minutes"

    minutes: Annotated[tuple[NonNegative, ...], "Requests in each minute."]
    within: Annotated[
        str, _WITHIN,
        "Each minute has this many requests at random times, or a Poisson number of this mean.",
    ] = "uniform"

    def draw(self, duration_ms: float, copies: int, rng: np.random.Generator) -> Drawn:
        """Draw each request at a random time of its minute."""
        times = _in_minutes(np.array(self.minutes), self.within, rng)
        return Drawn(self.cut(times, duration_ms))


@dataclass(frozen=True, slots=True)
class _InFile(_Spell):
    """Base of workloads in a file, whose path is relative to the scenario's folder."""

    folder: str = field(default="", kw_only=True, compare=False)

    @classmethod
    def from_fields(cls, item: Fields) -> Self:
        """Read the workload; paths in it are relative to the file's folder."""
        return record_of(cls, item, folder=str(Path(item.file).parent))


def _in_minutes(counts: FloatArray, within: str, rng: np.random.Generator) -> FloatArray:
    check_amount(float(counts.sum()))
    numbers = rng.poisson(counts) if within == "poisson" else np.rint(counts).astype(np.int64)
    minute = np.repeat(np.arange(len(counts)), numbers)
    return np.sort(_MINUTE_MS * (minute + rng.random(len(minute))))


@dataclass(frozen=True, slots=True)
class FunctionTrace(_InFile):
    """Counts by minute of many functions, each assigned to a copy of the model in turn.

    Minutes ``first_minute`` up to, not including, ``last_minute`` are used, counted from 0;
    ``scale`` multiplies all counts. Only every ``every``-th function from ``first_function`` on is
    used, so that streams of several models can divide the functions of a file.
    """

    key: ClassVar[str] = "functions"

    functions: Annotated[
        str,
        "A file of invocations of functions by minute (Azure Functions 2019); each function in "
        "turn is assigned to a copy of the model.",
    ]
    first_minute: int = 0
    last_minute: Annotated[int | None, "First minute that is left out."] = None
    scale: Positive = 1.0
    within: Annotated[
        str, _WITHIN,
        "Each minute has this many requests at random times, or a Poisson number of this mean.",
    ] = "uniform"
    first_function: Annotated[int, "First function that is read, counted from 0."] = 0
    every: Annotated[
        Count,
        "Steps between the functions that are taken from there on; so several streams share a "
        "file.",
    ] = 1
    held: FloatArray | None = field(default=None, kw_only=True, compare=False, repr=False)

    def check(self, item: Fields) -> None:
        """Refuse minutes that end before they begin."""
        if self.last_minute is not None and self.last_minute <= self.first_minute:
            raise item.refusal("last_minute", "not a valid number", value=self.last_minute,
                               allowed=f"a whole number >= {self.first_minute + 1}")

    def read(self) -> FunctionTrace:
        """Return the workload with the counts of its file."""
        return replace(self, held=self.content()[0])

    def content(self) -> tuple[FloatArray, ...]:
        """Return the counts of the file, a row for each function."""
        if self.held is not None:
            return (self.held,)
        return (np.asarray(read_function_minutes(Path(self.folder) / self.functions),
                           dtype=np.float64),)

    def draw(self, duration_ms: float, copies: int, rng: np.random.Generator) -> Drawn:
        """Draw each request at a random time of its minute, for the copy of its function."""
        counts, = self.content()
        counts = counts[self.first_function::self.every]
        counts = self.scale * counts[:, self.first_minute:self.last_minute]
        check_amount(float(counts.sum()))
        times_ms = [_in_minutes(row, self.within, rng) for row in counts]
        copy = np.repeat(np.arange(len(times_ms)) % copies, [len(times) for times in times_ms])
        times = np.concatenate([np.empty(0), *times_ms])
        order = np.argsort(times, kind="stable")
        kept = order[times[order] < self.length_ms(duration_ms)]
        return Drawn(self.start_ms + times[kept], copy[kept])


@dataclass(frozen=True, slots=True)
class TimesOf(_Spell):
    """Workload of a stream that lists its arrival times in ms."""

    key: ClassVar[str] = "times_ms"

    times_ms: Annotated[
        tuple[NonNegative, ...], "Arrival times, in rising order; equal times are allowed."]

    def check(self, item: Fields) -> None:
        """Refuse decreasing times."""
        if sorted(self.times_ms) != list(self.times_ms):
            raise item.refusal("times_ms", "times go back", value=list(self.times_ms),
                               allowed="rising or equal numbers")

    def draw(self, duration_ms: float, copies: int, rng: np.random.Generator) -> Drawn:
        """Return the stated times within the workload's length."""
        return Drawn(self.cut(np.array(self.times_ms, dtype=float), duration_ms))


@dataclass(frozen=True, slots=True)
class RecordedFile(_InFile):
    """A trace in a file: recorded times, or a stepwise load from which arrivals are sampled."""

    key: ClassVar[str] = "file"

    file: Annotated[str, "A trace, as ramsis simulate --trace reads it."]
    format: Annotated[str, TRACE_FORMATS] | None = None
    unit: Annotated[str, tuple(UNITS)] | None = None
    time_column: str | None = None
    scale: Annotated[
        Positive, "Multiplies loads; recorded times are played that much faster."] = 1.0
    held: RateTrace | Recorded | None = field(default=None, kw_only=True, compare=False,
                                              repr=False)

    def read(self) -> RecordedFile:
        """Return the workload with the recorded times, or loads, of its file."""
        return replace(self, held=self._workload())

    def content(self) -> tuple[FloatArray, ...]:
        """Return the recorded times, or the loads and their times."""
        return self._workload().content()

    def draw(self, duration_ms: float, copies: int, rng: np.random.Generator) -> Drawn:
        """Return the recorded times, or draw arrivals of the recorded load."""
        return Drawn(self.cut(self._workload().scaled(self.scale).arrivals_ms(rng), duration_ms))

    def _workload(self) -> RateTrace | Recorded:
        if self.held is not None:
            return self.held
        return read_any_trace(Path(self.folder) / self.file, trace_format=self.format,
                              unit=self.unit, time_column=self.time_column).workload


@dataclass(frozen=True, slots=True)
class ClosedLoopOf(WorkloadOf):
    """Users who each wait for an answer, think, and ask again.

    ``requests`` is their total number of requests; without it they go on until the scenario's end.
    """

    key: ClassVar[str] = "users"

    users: Annotated[
        Count, "A closed loop: users who each wait for an answer, think, and ask again."]
    think_ms: NonNegative = 0.0
    requests: Annotated[
        Count | None, "Of all users together; until the scenario's end if absent."] = None
    start_ms: NonNegative = 0.0

    @property
    def loop(self) -> ClosedLoopOf:
        """The workload itself, a closed loop."""
        return self

    def check(self, item: Fields) -> None:
        """Refuse more users than can be simulated."""
        if self.users > _MOST_USERS:
            raise item.refusal("users", "too many users", value=self.users,
                               allowed=f"at most {_MOST_USERS}")

    def draw(self, duration_ms: float, copies: int, rng: np.random.Generator) -> Drawn:
        """Return no requests: a user sends a request after the answer to the last one."""
        return Drawn(np.empty(0))


_RECORDS = (LoadOf, MinuteBins, FunctionTrace, TimesOf, RecordedFile, ClosedLoopOf)
_KINDS: Mapping[str, Callable[[Fields], WorkloadOf]] = {
    kind.key: kind.from_fields for kind in _RECORDS}


def workload_from_fields(item: Fields) -> WorkloadOf:
    """Read the workload in ``streams[i].workload``, whose kind is given by its key."""
    keys = [key for key in _KINDS if key in item]
    if len(keys) != 1:
        raise item.refusal(keys[1] if keys else "load_qps", "no workload, or several",
                           value=", ".join(keys), allowed=f"one of {', '.join(_KINDS)}")
    return _KINDS[keys[0]](item)


def workload_schema() -> Schema:
    """Return the JSON schema of ``streams[i].workload``."""
    return {"oneOf": [kind.schema() for kind in _RECORDS]}
