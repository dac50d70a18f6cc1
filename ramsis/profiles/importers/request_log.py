"""Importer of ``request-log``: what a server wrote down of its requests, as ``ramsis serve`` does.

Columns: ``model``, ``batch``, ``start_s``, ``finish_s``; optional ``run_as``, ``worker``,
``outcome``, ``correct`` and those that say nothing of service times. Requests of one batch have
its start on its worker in common, and are one sample: the time from start to finish, in seconds,
of a batch of the size that it ran as. Requests that failed or were dropped are left out. A model's
accuracy is the share of right answers, where all of its requests say whether they were.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from ramsis.errors import InputFileError
from ramsis.logs.kinds import kind_of
from ramsis.logs.table import LogTable
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.importers.rows import (
    QUANTILES,
    CsvRow,
    Measured,
    check_number,
    read_rows,
)
from ramsis.profiles.importers.runs import (
    Given,
    MeasuredRun,
    NotAProfileError,
    Source,
    overlap_refused,
)
from ramsis.profiles.values import placed
from ramsis.tables import text_of

_REQUIRED = ("model", "batch", "start_s", "finish_s")
_OTHERS = ("arrival_s", "deadline_ms", "outcome", "run_as", "worker", "correct")
_FAR_S = 1e12
_ANSWERED = ("", "served", "late")


def recognises(columns: Collection[str]) -> bool:
    """Whether a header is of this format."""
    return set(_REQUIRED) <= set(columns)


def read(path: Path) -> dict[str, Measured]:
    """The models of a file, by name."""
    table = read_rows(path)
    table.require(_REQUIRED, (*_REQUIRED, *_OTHERS))
    samples: dict[str, dict[int, dict[tuple[str, str], CsvRow]]] = {}
    right: dict[str, list[str]] = {}
    left_out = 0
    for row in table.rows:
        if row.cells.get("outcome", "") not in _ANSWERED or not row.cells.get("start_s"):
            left_out += 1
            continue
        model = text_of(row.text("model"))
        size = row.count("run_as" if row.cells.get("run_as") else "batch")
        batch = (row.cells.get("worker", ""), row.cells["start_s"])
        samples.setdefault(model, {}).setdefault(size, {})[batch] = row
        right.setdefault(model, []).append(row.cells.get("correct", ""))
    if not samples:
        raise InputFileError("no request was answered", where=str(path))
    check_number(samples, path)
    return {model: Measured(
        [_profile(size, list(rows.values())) for size, rows in sorted(sizes.items())],
        accuracy=_share(right[model]),
        notes=[f"requests that failed or were dropped, left out: {left_out}"] if left_out else [],
        more="requests of which one runs alone, or `ramsis serve --calibrate`")
        for model, sizes in sorted(samples.items())}


def _profile(batch: int, rows: list[CsvRow]) -> BatchProfile:
    took_ms = [1000.0 * (row.number("finish_s") - row.number("start_s")) for row in rows]
    with placed(lambda field: rows[0].at("finish_s")):
        return BatchProfile.from_samples(batch, took_ms, QUANTILES)


def _share(right: list[str]) -> float | None:
    """The share of right answers; None where it is not known of all."""
    known = [one in ("1", "true", "True") for one in right if one]
    return sum(known) / len(known) if len(known) == len(right) else None


class _ServerLog:
    """Importer of ``server-log``: response times in logs of model servers and load tests.

    Those of one request at a time are service times; others hold waiting, and are refused.
    """

    def recognises(self, source: Source) -> bool:
        """Whether a file is a log that is known, or the result of a load test."""
        return kind_of(source.text) is not None

    def read(self, source: Source, given: Given) -> Sequence[MeasuredRun]:
        """A run for each model."""
        table = LogTable.of(source.text, source.where)
        if table.kind is not None and table.kind.lacks:
            raise NotAProfileError(f"{table.kind.title} has no times of answers",
                                   where=source.where)
        arrival_s, _, finish_s = table.all_times(lambda times_s: times_s)
        stamp_s = finish_s if table.column("arrival") is None else arrival_s
        if (stamp_s % 1.0 == 0.0).all():
            raise NotAProfileError(
                "timestamps have whole seconds, so requests that waited for others cannot be "
                "told from those that were alone", where=source.where,
                allowed="a log with milliseconds, of one request at a time")
        known = np.isfinite(finish_s)
        answered = (table.results() == "") & known
        if not answered.any():
            raise InputFileError("no request was answered", where=source.where)
        overlap_refused(source.where, *(
            (1e6 * np.clip(times_s[known], -_FAR_S, _FAR_S)).round().astype(np.int64)
            for times_s in (arrival_s, finish_s)))
        took_ms = 1000.0 * (finish_s - arrival_s)[answered]
        models, of_model = np.unique(table.models()[answered], return_inverse=True)
        check_number(models.tolist(), source.where)
        by_model = np.argsort(of_model, kind="stable")
        ends = np.cumsum(np.bincount(of_model))[:-1]
        return [MeasuredRun(samples_ms=took_ms[rows], model=model or None, notes=table.said())
                for model, rows in zip(models.tolist(), np.split(by_model, ends), strict=True)]


SERVER_LOG = _ServerLog()
