"""Importer of ``long-csv``: one row per sample, or one per statistic, latency in ms.

Columns: ``model``, ``batch``, ``latency_ms``; optional ``accuracy`` (a **fraction**, or percent
where one is above 1, the same in every row of a model that has it).

- Without ``statistic``, each row is one sample; statistics and a sketch are computed
  (:meth:`~ramsis.profiles.batch.BatchProfile.from_samples`). Such a file may have 200 MB: it is
  read row by row, and only its latencies are kept.
- With ``statistic``, each row is the one of ``mean``, ``std``, ``min``, ``p50``, ``p90``,
  ``p95``, ``p99``, ``max`` that it names, at most one row each per model and batch size, and an
  optional column ``n`` has the number of samples behind it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from pathlib import Path

from ramsis.errors import InputFileError, check_known
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.importers.rows import (
    QUANTILES,
    CsvRow,
    Measured,
    Rows,
    check_number,
    open_rows,
    read_rows,
)
from ramsis.profiles.values import placed

_STATISTICS = ("mean", "std", "min", "p50", "p90", "p95", "p99", "max")
_REQUIRED = ("model", "batch", "latency_ms")
MAX_SAMPLES_BYTES = 200_000_000
"""Largest file of samples."""


def recognises(columns: Collection[str]) -> bool:
    """Whether a header is of this format."""
    return set(_REQUIRED) <= set(columns) <= {*_REQUIRED, "accuracy", "statistic", "n"}


def holds_samples(path: Path) -> bool:
    """Whether a large file is of this format, by its header; a row of it is a sample."""
    columns, rows = open_rows(path, MAX_SAMPLES_BYTES)
    rows.close()
    return recognises(columns) and "statistic" not in columns


def read(path: Path) -> dict[str, Measured]:
    """The models of a file, in its order."""
    columns, rows = open_rows(path, MAX_SAMPLES_BYTES)
    rows.close()
    if "statistic" not in columns:
        return _samples(path)
    table = read_rows(path)
    table.require(_REQUIRED, (*_REQUIRED, "accuracy", "statistic", "n"))
    models: dict[str, Measured] = {}
    for (name, batch), group in _groups(table).items():
        item = models.setdefault(name, Measured())
        for row in group:
            item.accuracy = row.same("accuracy", item.accuracy, row.optional("accuracy"))
        item.batches.append(_from_statistics(batch, group))
    _take_percent(models)
    return models


def _take_percent(models: dict[str, Measured]) -> None:
    """Take accuracies as percent where all of them are above 1."""
    known = [item.accuracy for item in models.values() if item.accuracy is not None]
    if known and min(known) > 1 and max(known) <= 100:
        for item in models.values():
            if item.accuracy is not None:
                item.accuracy = round(item.accuracy / 100.0, 12)
            item.notes.append("accuracies are above 1: taken as percent")


def _samples(path: Path) -> dict[str, Measured]:
    """The models of a file of samples."""
    columns, rows = open_rows(path, MAX_SAMPLES_BYTES)
    Rows(str(path), columns, ()).require(_REQUIRED, (*_REQUIRED, "accuracy"))
    models: dict[str, Measured] = {}
    kept: dict[tuple[str, str], tuple[CsvRow, int, array[float]]] = {}
    for row in rows:
        key = row.text("model"), row.text("batch")
        if key not in kept:
            kept[key] = row, row.count("batch"), array("d")
        kept[key][2].append(row.positive("latency_ms"))
        if row.cells.get("accuracy"):
            item = models.setdefault(key[0], Measured())
            item.accuracy = row.same("accuracy", item.accuracy, row.optional("accuracy"))
    if not kept:
        raise InputFileError("no rows below the header", where=str(path))
    check_number({name for name, _ in kept}, path)
    merged: dict[tuple[str, int], tuple[CsvRow, array[float]]] = {}
    for (name, _), (first, batch, samples) in kept.items():
        if (name, batch) in merged:  # one batch size written in two ways, as 4 and 04
            merged[name, batch][1].extend(samples)
        else:
            merged[name, batch] = first, samples
    found: dict[str, Measured] = {}
    for (name, batch), (first, samples) in merged.items():
        item = found.setdefault(name, models.get(name, Measured()))
        with placed(first.at):
            item.batches.append(BatchProfile.from_samples(batch, samples, QUANTILES))
    _take_percent(found)
    return found


def _groups(table: Rows) -> dict[tuple[str, int], list[CsvRow]]:
    groups: dict[tuple[str, int], list[CsvRow]] = {}
    for row in table.rows:
        groups.setdefault((row.text("model"), row.count("batch")), []).append(row)
    return groups


def _from_statistics(batch: int, rows: list[CsvRow]) -> BatchProfile:
    values: dict[str, float] = {}
    n: float | None = None
    for row in rows:
        statistic = row.text("statistic")
        check_known("unknown statistic", statistic, _STATISTICS, row.at("statistic"),
                    InputFileError)
        if f"{statistic}_ms" in values:
            raise InputFileError(f"statistic appears twice for batch {batch}",
                                 where=row.at("statistic"), value=statistic,
                                 allowed="one row each")
        values[f"{statistic}_ms"] = row.number("latency_ms")
        n = row.same("n", n, row.count("n") if row.cells.get("n") else None)
    with placed(rows[0].at):
        return BatchProfile(batch, None if n is None else int(n), **values)  # type: ignore[arg-type]
