"""Importer of ``request-log``: the request log of a server, such as ``ramsis serve``.

Columns: ``model``, ``batch``, ``start_s``, ``finish_s``; optional ``run_as``, ``worker``,
``outcome``, ``correct``, and other columns of request logs, which are ignored. Requests with the
same start and worker are one batch. A batch is one sample: its time from start to finish, in
seconds, at the batch size ``run_as``. Requests that failed or were dropped are left out. A model's
accuracy is its share of correct answers, if ``correct`` is stated for all of its requests.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from ramsis.errors import InputFileError
from ramsis.logs.kinds import kind_of
from ramsis.logs.table import LogTable
from ramsis.profiles.importers.rows import (
    SAMPLE,
    CsvRow,
    MeasuredModel,
    Measurements,
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
from ramsis.tables import text_of

_REQUIRED = ("model", "batch", "start_s", "finish_s")
_OTHERS = ("arrival_s", "deadline_ms", "outcome", "run_as", "worker", "correct")
_FAR_S = 1e12
_ANSWERED = ("", "served", "late")


def recognises(columns: Collection[str]) -> bool:
    """Return whether the header of a table is that of a request log."""
    return set(_REQUIRED) <= set(columns)


def read(path: Path) -> dict[str, MeasuredModel]:
    """Read a request log: service times of batches, for each model by name."""
    table = read_rows(path)
    table.require(_REQUIRED, _OTHERS)
    batches: dict[tuple[str, int, str, str], CsvRow] = {}
    correct: dict[str, list[str]] = {}
    left_out = 0
    for row in table.rows:
        if row.cells.get("outcome", "") not in _ANSWERED or not row.cells.get("start_s"):
            left_out += 1
            continue
        model = text_of(row.text("model"))
        size = row.count("run_as" if row.cells.get("run_as") else "batch")
        batches[model, size, row.cells.get("worker", ""), row.cells["start_s"]] = row
        correct.setdefault(model, []).append(row.cells.get("correct", ""))
    if not batches:
        raise InputFileError("no request was answered", where=str(path))
    measured = Measurements()
    for (model, size, _, _), row in batches.items():
        measured.of(row, model, size).add(
            row, "finish_s", SAMPLE, 1000.0 * (row.number("finish_s") - row.number("start_s")))
    models = measured.models(
        path, "requests of which one runs alone, or `ramsis serve --calibrate`")
    for name, item in models.items():
        right = [text in ("1", "true", "True") for text in correct[name] if text]
        # The share of correct answers is known if that of every answer is.
        item.accuracy = sum(right) / len(right) if len(right) == len(correct[name]) else None
        if left_out:
            item.notes.append(f"requests that failed or were dropped, left out: {left_out}")
    return dict(sorted(models.items()))


class _ServerLog:
    """Importer of ``server-log``: response times in logs of model servers and load tests.

    With one request at a time, response times are service times. Logs of concurrent requests are
    refused, as their times include waiting.
    """

    def recognises(self, source: Source) -> bool:
        """Return whether a file is a log that is known, or the result of a load test."""
        return kind_of(source.text) is not None

    def read(self, source: Source, given: Given) -> Sequence[MeasuredRun]:
        """Read a server's request log: service times by batch size, for each model."""
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
        has_end = np.isfinite(finish_s)
        answered = (table.results() == "") & has_end
        if not answered.any():
            raise InputFileError("no request was answered", where=source.where)
        overlap_refused(source.where, *(
            (1e6 * np.clip(times_s[has_end], -_FAR_S, _FAR_S)).round().astype(np.int64)
            for times_s in (arrival_s, finish_s)))
        took_ms = 1000.0 * (finish_s - arrival_s)[answered]
        models, of_model = np.unique(table.models()[answered], return_inverse=True)
        check_number(models.tolist(), source.where)
        by_model = np.argsort(of_model, kind="stable")
        ends = np.cumsum(np.bincount(of_model))[:-1]
        return [MeasuredRun(samples_ms=took_ms[rows], model=model or None, notes=table.said())
                for model, rows in zip(models.tolist(), np.split(by_model, ends), strict=True)]


SERVER_LOG = _ServerLog()
