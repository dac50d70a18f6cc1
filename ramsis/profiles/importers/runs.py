"""Assembly of models from files of tools that write one file for each run.

A module for such a tool reads one file into :class:`MeasuredRun` s. If a file lacks the batch size
or the model, the user states it for all files, or by a pattern of their names (:class:`Given`).
Duplicates are refused, and nothing is guessed: without a batch size a file is refused. Only the
name of a model defaults to the file's name.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import FINITE, InputFileError, InvalidValueError, check_known
from ramsis.files import parsed
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.importers.rows import QUANTILES, MeasuredModel, read_text
from ramsis.profiles.sized import Law
from ramsis.profiles.values import placed

_UNITS = ("ns", "us", "ms", "s")
_ACCURACY_UNITS = ("percent", "fraction")
_IN_FLIGHT = 1.05
"""Largest mean number of requests in flight that counts as one at a time."""
_LEAST_BUSY = 0.7
"""Least share of the time that a run with one request at a time is busy."""
_IN_NAME = re.compile(r"(?:^|(?<=[^a-z0-9]))(?:b|bs|bsz|batch)[-_]?(?:size)?[-_=]?"
                      r"([1-9][0-9]{0,4})(?![a-z0-9])", re.IGNORECASE)
"""A batch size in the name of a file."""
_OVERLAPPING = 0.01
"""Largest share of requests that may begin before the one before has ended."""
_PLAIN_NAMES = {"profile_export", "profile_export_aiperf", "profile_export_genai_perf",
                "mlperf_log_summary", "model", "metrics"}
"""Names that tools give to every file, so that the folder's name says more."""


class NotAProfileError(InputFileError):
    """Error for a tool's file without service times; it is skipped if there are others."""


@dataclass(frozen=True)
class Given:
    """What the user states because the files of runs lack it, such as the batch size."""

    # batch size by pattern of the file's path inside the source, as ``b4/*``; ``*``: all
    batch: Mapping[str, int] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)  # name of the model, likewise
    metric: str | None = None  # which histogram of a file of several is meant
    # column of a table by what it holds: one of
    # :data:`ramsis.profiles.importers.table.headings.FIELDS`
    columns: Mapping[str, str] = field(default_factory=dict)
    # of the times of a table, where nothing in it states one: ``ns``, ``us``, ``ms`` or ``s``
    unit: str | None = None
    # ``percent`` or ``fraction``: that of the accuracies of a table
    accuracy_unit: str | None = None
    # ``padded`` or ``packed``: what the times of a table by size depend on
    law: Law | None = None
    # which kind of instance of a GPU is meant, where a file has several
    instance: str | None = None
    processes: int | None = None  # how many processes run on it side by side; 1 by default

    def __post_init__(self) -> None:
        for where, value, allowed in (("unit", self.unit, _UNITS),
                                      ("accuracy_unit", self.accuracy_unit, _ACCURACY_UNITS)):
            if value is not None:
                check_known("unknown unit", value, allowed, where)

    def __bool__(self) -> bool:
        return any(vars(self).values())


class Node:
    """Value of a JSON document with its place, for messages."""

    __slots__ = ("value", "where")

    def __init__(self, value: Any, where: str) -> None:
        self.value = value
        self.where = where

    def get(self, *keys: str) -> Node | None:
        """Return the value at nested keys; None where one is absent or null."""
        node = self
        for key in keys:
            value = node.value.get(key) if isinstance(node.value, dict) else None
            if value is None:
                return None
            node = Node(value, f"{node.where}.{key}" if ": " in node.where
                        else f"{node.where}: {key}")
        return node

    def item(self, *keys: str) -> Node:
        """Return the value at nested keys; refuse its absence."""
        node = self.get(*keys)
        if node is None:
            raise InputFileError("missing", where=f"{self.where}: {'.'.join(keys)}")
        return node

    def entries(self) -> Iterator[Node]:
        """Yield the entries of a list; refuse another value."""
        if not isinstance(self.value, list):
            raise InputFileError("not a list", where=self.where, value=type(self.value).__name__)
        for i, value in enumerate(self.value):
            yield Node(value, f"{self.where}[{i}]")

    def number(self) -> float:
        """Return a finite number from the document; refuse another value."""
        return FINITE.required(self.where, self.value, "not a number", InputFileError)

    def positive(self) -> float:
        """Return a finite number > 0; refuse another value."""
        value = self.number()
        if value <= 0:
            raise InputFileError("not positive", where=self.where, value=self.value,
                                 allowed="a number > 0")
        return value

    def whole(self) -> int:
        """Return a whole number from the document; refuse another value."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise InputFileError("not a whole number", where=self.where, value=self.value)
        self.number()
        return self.value

    def text(self) -> str:
        """Return a text that is not empty; refuse another value."""
        if not isinstance(self.value, str) or not self.value.strip():
            raise InputFileError("not a text", where=self.where, value=self.value)
        return self.value


class Source:
    """File with its text, and its JSON value if it is JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)  # for messages
        self.text = read_text(path)

    def document(self) -> Any:
        """Return the JSON value; None when the text is not JSON."""
        return self._document

    @cached_property
    def _document(self) -> Any:
        if self.text.lstrip()[:1] in ("{", "["):
            with suppress(InputFileError):
                return parsed(self.text, self.where)
        return None

    def first_record(self) -> Any:
        """Return the JSON value of the first line of JSON lines; None when it is not JSON."""
        line = self.text.lstrip().partition("\n")[0]
        if line.startswith("{"):
            with suppress(InputFileError):
                return parsed(line, self.where)
        return None

    def node(self) -> Node:
        """Return the JSON value with its place; refuse a text that is not JSON."""
        document = self.document()
        return Node(parsed(self.text, self.where) if document is None else document, self.where)


@dataclass(frozen=True)
class MeasuredRun:
    """Measurements of one model at one batch size, from one file."""

    # arguments of :class:`BatchProfile` besides the batch size; empty where there are samples
    statistics: Mapping[str, Any] = field(default_factory=dict)
    samples_ms: NDArray[np.float64] | None = None  # latencies in ms
    # batch, model: as the file states them; None: it does not
    batch: int | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()
    load_ms: float | None = None
    memory_mb: float | None = None
    # throughput in inputs per second, by which a batch size is confirmed
    items_per_s: float | None = None
    tool: str = ""  # its name, where the format has several
    # whether the model takes batches of this size alone, so that smaller ones are padded
    one_size: bool = False


def gather(
    files: Sequence[tuple[str, Path]], read: Callable[[Source, Given], Sequence[MeasuredRun]],
    given: Given, tool: str,
) -> dict[str, MeasuredModel]:
    """Gather the models of some files of one tool.

    ``read`` returns the runs in a file; ``tool`` is the name of the tool, for messages.
    """
    _refuse_unused(given, [name for name, _ in files])
    models: dict[str, MeasuredModel] = {}
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
        _pad(item)
        item.notes += [f"left out: {str(error).replace(str(paths[name]), name)}"
                       for name, error in left_out]
    return models


def _add(
    models: dict[str, MeasuredModel], origin: dict[tuple[str, int], str], run: MeasuredRun,
    file: tuple[str, Path], given: Given, tool: str,
) -> None:
    """Enter a run under its model and batch size; refuse a second run of the same."""
    name, path = file
    batch = _batch(run, name, path, given)
    model = _given(given.model, name) or run.model or _fallback(path)
    if (model, batch) in origin:
        raise InputFileError(
            f"batch size {batch} of {model} appears twice", where=str(path),
            allowed=f"once (the first is in {origin[model, batch]}; --model-name tells "
            "models apart)")
    origin[model, batch] = name
    item = models.setdefault(
        model, MeasuredModel(more=f"also a run of {run.tool or tool} at batch size 1, in the same "
                             "folder"))
    with placed(lambda field: f"{path}: {field}"):
        item.batches.append(BatchProfile(batch, **run.statistics) if run.samples_ms is None else
                            BatchProfile.from_samples(batch, run.samples_ms, QUANTILES))
    if run.one_size:
        item.padded = min(batch, item.padded or batch)
    item.load_ms = run.load_ms if item.load_ms is None else item.load_ms
    item.memory_mb = run.memory_mb if item.memory_mb is None else item.memory_mb
    item.notes += [note for note in run.notes if note not in item.notes]


def _pad(item: MeasuredModel) -> None:
    """Add batch size 1, padded to the smallest measured batch, for a model of fixed batch size."""
    least = min(item.batches, key=lambda batch: batch.batch)
    if least.batch > 1 and item.padded == least.batch:
        item.batches.insert(0, replace(least, batch=1))
        item.notes.append(f"batch size 1 takes as long as {least.batch}, to which a model of "
                          "that size pads it: it was not measured")


def _batch(run: MeasuredRun, name: str, path: Path, given: Given) -> int:
    """Return the batch size of a run: stated, or confirmed by the inputs in flight."""
    by_user = _given(given.batch, name)
    if run.batch is not None and by_user is not None and run.batch != by_user:
        raise InvalidValueError(f"differs from the batch size in {path}, {run.batch}",
                                where="--batch", value=by_user,
                                allowed="what the file says, or nothing")
    batch = run.batch if by_user is None else by_user
    # The mean number of inputs in flight by Little's law, where the run tells it.
    latency_ms = run.statistics.get("mean_ms", run.statistics.get("p50_ms"))
    in_flight = (None if run.items_per_s is None or latency_ms is None
                 else float(run.items_per_s * latency_ms / 1000.0))
    if batch is None and in_flight is not None and (named := _IN_NAME.search(path.stem)):
        # The name alone would be a guess.
        batch = int(named[1]) if _fits(in_flight, int(named[1])) else None
    if batch is None:
        likely = (f"; throughput x latency is {in_flight:.4g}" if in_flight is not None else "")
        size = max(1, round(in_flight)) if in_flight is not None else "N"
        raise InputFileError(f"the batch size is not in this file{likely}", where=str(path),
                             allowed=f"--batch {size}, or --batch '{name}={size}' where files "
                             "differ")
    if in_flight is not None and batch > 0 and not _fits(in_flight, batch):
        raise InputFileError(
            "throughput x latency is not the batch size, so that several requests are in flight "
            "or the batch size is another", where=str(path), value=f"{in_flight:.4g}",
            allowed=f"about {batch} (batch size {batch}, one request at a time)")
    return batch


def _fits(in_flight: float, batch: int) -> bool:
    return _LEAST_BUSY * batch <= in_flight <= _IN_FLIGHT * batch


def _given(patterns: Mapping[str, Any], name: str) -> Any:
    """Return the user's value for a file; ``*`` counts where no other pattern fits."""
    for pattern, value in patterns.items():
        if pattern != "*" and fnmatch.fnmatchcase(name, pattern):
            return value
    return patterns.get("*")


def _fallback(path: Path) -> str:
    """Return a file's name without its batch size, or its folder's name if nothing is left."""
    plain = _IN_NAME.sub("", path.stem).strip("-_. ")
    usual = path.name.partition(".")[0] in _PLAIN_NAMES
    return path.resolve().parent.name if usual or not plain else plain


def _refuse_unused(given: Given, names: Sequence[str]) -> None:
    for option, patterns in (("--batch", given.batch), ("--model-name", given.model)):
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                raise InvalidValueError("fits no file of the source", where=option, value=pattern,
                                        allowed=", ".join(names[:5]))


def percentiles_left_out(names: Iterable[str]) -> tuple[str, ...]:
    """Return a note on the percentiles of a file that a profile does not hold."""
    shown = ", ".join(names)
    return (f"percentiles that a profile does not hold, left out: {shown}",) if shown else ()


def in_flight_refused(where: str, rate_per_s: float, latency_ms: float) -> None:
    """Refuse a run with more than one request in flight on average (Little's law)."""
    flying = rate_per_s * latency_ms / 1000.0
    if flying > _IN_FLIGHT:
        raise InputFileError(
            "more than one request in flight on average (throughput x latency), so that "
            "waiting is in the latencies", where=where, value=round(flying, 3),
            allowed="a run with one request at a time (concurrency 1)")


def overlap_refused(where: str, start: NDArray[np.int64], end: NDArray[np.int64]) -> None:
    """Refuse requests that overlap, by when each began and ended, in one unit."""
    order = np.argsort(start, kind="stable")
    ends = np.maximum.accumulate(end[order])
    share = float(np.mean(start[order][1:] < ends[:-1])) if len(start) > 1 else 0.0
    if share > _OVERLAPPING:
        raise InputFileError("requests overlap, so that waiting is in their latencies",
                             where=where,
                             value=f"{100 * share:.0f} % begin before an earlier one has ended",
                             allowed="a run with one request at a time (concurrency 1)")
