"""Measurements that come as one file for each run of a tool: files become models.

A module for such a tool reads one file into :class:`MeasuredRun` s. What a file does not say, the
batch size or the model, the user says for all files or by a pattern of their names
(:class:`Given`). Nothing is taken twice, and nothing is guessed: without a batch size a file is
refused. Only the name of a model falls back to that of the file.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.files import parsed
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.documents import Node
from ramsis.profiles.importers.rows import QUANTILES, Measured, read_text
from ramsis.profiles.values import placed

_UNITS = ("ns", "us", "ms", "s")
_ACCURACY_UNITS = ("percent", "fraction")
_IN_FLIGHT = 1.05
"""Largest mean number of requests in flight that counts as one at a time."""
_OVERLAPPING = 0.01
"""Largest share of requests that may begin before the one before has ended."""
_PLAIN_NAMES = {"profile_export", "profile_export_aiperf", "profile_export_genai_perf",
                "mlperf_log_summary", "model", "metrics"}
"""Names that tools give to every file, so that the folder's name says more."""


class NotAProfileError(InputFileError):
    """A file of a known tool that holds no service times; beside others it is left out."""


@dataclass(frozen=True)
class Given:
    """What the user says about files that do not say it.

    Parameters
    ----------
    batch : mapping of str to int
        Batch size by pattern of the file's path inside the source, as ``b4/*``; ``*``: all.
    model : mapping of str to str
        Name of the model, likewise.
    metric : str, optional
        Which histogram of a file of several is meant.
    columns : mapping of str to str
        Column of a table by what it holds: one of
        :data:`ramsis.profiles.importers.table.headings.FIELDS`.
    unit : str, optional
        Of the times of a table, where nothing in it states one: ``ns``, ``us``, ``ms`` or ``s``.
    accuracy_unit : str, optional
        ``percent`` or ``fraction``: that of the accuracies of a table.
    instance : str, optional
        Which kind of instance of a GPU is meant, where a file has several.
    processes : int, optional
        How many processes run on it side by side; 1 by default.
    """

    batch: Mapping[str, int] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)
    metric: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None
    accuracy_unit: str | None = None
    instance: str | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        for where, value, allowed in (("unit", self.unit, _UNITS),
                                      ("accuracy_unit", self.accuracy_unit, _ACCURACY_UNITS)):
            if value is not None:
                check_known("unknown unit", value, allowed, where)

    def __bool__(self) -> bool:
        return bool(self.batch or self.model or self.metric or self.of_a_table
                    or self.instance or self.processes)

    @property
    def of_a_table(self) -> bool:
        """Whether something is said that only a table can need."""
        return bool(self.columns or self.unit or self.accuracy_unit)


class Source:
    """A file with its text, and its JSON value where it is JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = read_text(path)
        self._document: Any = None
        self._read = False

    @property
    def where(self) -> str:
        """The path, for messages."""
        return str(self.path)

    def document(self) -> Any:
        """The JSON value; None when the text is not JSON."""
        if not self._read:
            self._read = True
            if self.text.lstrip()[:1] in ("{", "["):
                try:
                    self._document = parsed(self.text, self.where)
                except InputFileError:
                    self._document = None
        return self._document

    def first_record(self) -> Any:
        """The JSON value of the first line of a file of JSON lines; None when it is not JSON."""
        line = self.text.lstrip().partition("\n")[0]
        if not line.startswith("{"):
            return None
        try:
            return parsed(line, self.where)
        except InputFileError:
            return None

    def node(self) -> Node:
        """The JSON value, which must be one."""
        if self.document() is None:
            return Node(parsed(self.text, self.where), self.where)
        return Node(self._document, self.where)


@dataclass(frozen=True)
class MeasuredRun:
    """What a file holds of one model at one batch size.

    Parameters
    ----------
    statistics : mapping
        Arguments of :class:`BatchProfile` besides the batch size; empty where there are samples.
    samples_ms : ndarray, optional
        Latencies in ms.
    batch, model
        As the file states them; None: it does not.
    """

    statistics: Mapping[str, Any] = field(default_factory=dict)
    samples_ms: NDArray[np.float64] | None = None
    batch: int | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()
    load_ms: float | None = None
    memory_mb: float | None = None


def gather(
    files: Sequence[tuple[str, Path]], read: Callable[[Source, Given], Sequence[MeasuredRun]],
    given: Given, tool: str,
) -> dict[str, Measured]:
    """The models of some files of one tool.

    Parameters
    ----------
    files : sequence of (name inside the source, path)
    read : callable
        The runs in a file.
    tool : str
        Its name, for messages.
    """
    _refuse_unused(given, [name for name, _ in files])
    models: dict[str, Measured] = {}
    origin: dict[tuple[str, int], str] = {}
    left_out: list[tuple[str, NotAProfileError]] = []
    for name, path in files:
        try:
            runs = read(Source(path), given)
        except NotAProfileError as error:
            left_out.append((name, error))
            continue
        for run in runs:
            _add(models, origin, run, (name, path), given, tool)
    if not models and left_out:
        raise left_out[0][1]
    paths = dict(files)
    for item in models.values():
        item.notes += [f"left out: {str(error).replace(str(paths[name]), name)}"
                       for name, error in left_out]
    return models


def _add(
    models: dict[str, Measured], origin: dict[tuple[str, int], str], run: MeasuredRun,
    file: tuple[str, Path], given: Given, tool: str,
) -> None:
    name, path = file
    model = _given(given.model, name) or run.model or _fallback(path)
    batch = _batch(run, name, path, given)
    if (model, batch) in origin:
        raise InputFileError(
            f"batch size {batch} of {model} appears twice", where=str(path),
            allowed=f"once (the first is in {origin[model, batch]}; --model-name tells "
            "models apart)")
    origin[model, batch] = name
    item = models.setdefault(
        model, Measured(more=f"also a run of {tool} at batch size 1, in the same folder")
    )
    with placed(lambda field: f"{path}: {field}"):
        item.batches.append(BatchProfile(batch, **run.statistics) if run.samples_ms is None else
                            BatchProfile.from_samples(batch, run.samples_ms, QUANTILES))
    item.load_ms = run.load_ms if item.load_ms is None else item.load_ms
    item.memory_mb = run.memory_mb if item.memory_mb is None else item.memory_mb
    item.notes += [note for note in run.notes if note not in item.notes]


def _batch(run: MeasuredRun, name: str, path: Path, given: Given) -> int:
    said = _given(given.batch, name)
    if run.batch is None and said is None:
        raise InputFileError("the batch size is not in this file", where=str(path),
                             allowed=f"--batch N, or --batch '{name}=N' where files differ")
    if run.batch is not None and said is not None and run.batch != said:
        raise InvalidValueError(f"differs from the batch size in {path}, {run.batch}",
                                where="--batch", value=said,
                                allowed="what the file says, or nothing")
    return said if run.batch is None and said is not None else int(run.batch or 0)


def _given(patterns: Mapping[str, Any], name: str) -> Any:
    """What is said of a file; a pattern that is not ``*`` goes first."""
    for pattern, value in patterns.items():
        if pattern != "*" and fnmatch.fnmatchcase(name, pattern):
            return value
    return patterns.get("*")


def _fallback(path: Path) -> str:
    plain = path.name.partition(".")[0]
    return path.resolve().parent.name if plain in _PLAIN_NAMES else path.stem


def _refuse_unused(given: Given, names: Sequence[str]) -> None:
    for option, patterns in (("--batch", given.batch), ("--model-name", given.model)):
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                raise InvalidValueError("fits no file of the source", where=option, value=pattern,
                                        allowed=", ".join(names[:5]))


def percentiles_left_out(names: Iterable[str]) -> tuple[str, ...]:
    """A note on the percentiles that a file states and a profile does not hold."""
    found = ", ".join(names)
    return (f"percentiles that a profile does not hold, left out: {found}",) if found else ()


def in_flight_refused(where: str, rate_per_s: float, latency_ms: float) -> None:
    """Refuse a run with more than one request in flight on average (Little's law)."""
    flying = rate_per_s * latency_ms / 1000.0
    if flying > _IN_FLIGHT:
        raise InputFileError(
            "more than one request in flight on average (throughput x latency), so that "
            "waiting is in the latencies", where=where, value=round(flying, 3),
            allowed="a run with one request at a time (concurrency 1)")


def overlap_refused(where: str, start: NDArray[np.int64], end: NDArray[np.int64]) -> None:
    """Refuse requests that overlap.

    Parameters
    ----------
    start, end : ndarray, shape (n,)
        When each request began and ended, in one unit.
    """
    order = np.argsort(start, kind="stable")
    ends = np.maximum.accumulate(end[order])
    share = float(np.mean(start[order][1:] < ends[:-1])) if len(start) > 1 else 0.0
    if share > _OVERLAPPING:
        raise InputFileError("requests overlap, so that waiting is in their latencies",
                             where=where,
                             value=f"{100 * share:.0f} % begin before an earlier one has ended",
                             allowed="a run with one request at a time (concurrency 1)")
