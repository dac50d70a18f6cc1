"""Importer of ``stats-csv``: one row per model and batch size, latency statistics in seconds.

Columns: ``model``, ``batch``, ``p95_s``; optional ``task``, ``accuracy`` (in **percent**, or
fractions where none is above 1),
``n``, ``mean_s``, ``std_s``, ``min_s``, ``p50_s``, ``p90_s``, ``p99_s``, ``max_s``. Another column
makes it a table of :mod:`~ramsis.profiles.importers.table`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ramsis.profiles.importers.rows import Measured, read_rows

_STATISTICS = ("mean", "std", "min", "p50", "p90", "p95", "p99", "max")
_COLUMNS = ("task", "model", "accuracy", "batch", "n", *(f"{name}_s" for name in _STATISTICS))
_REQUIRED = ("model", "batch", "p95_s")


def recognises(columns: Collection[str]) -> bool:
    """Whether a header is of this format."""
    return set(_REQUIRED) <= set(columns) <= set(_COLUMNS)


def read(path: Path) -> dict[str, Measured]:
    """The models of a file, in its order."""
    table = read_rows(path)
    table.require(_REQUIRED, _COLUMNS)
    models: dict[str, Measured] = {}
    for row in table.rows:
        values = {f"{name}_ms": row.optional(f"{name}_s", "1000") for name in _STATISTICS}
        values["p95_ms"] = row.number("p95_s", "1000")
        item = models.setdefault(row.text("model"), Measured())
        item.batches.append(row.batch_profile(values))
        item.accuracy = row.same("accuracy", item.accuracy, row.optional("accuracy", "0.01"))
        item.task = row.same("task", item.task, row.cells.get("task") or None)
    _take_fractions(models)
    return models


def _take_fractions(models: dict[str, Measured]) -> None:
    """Take accuracies of at most 1, all of them, as fractions."""
    known = [item.accuracy for item in models.values() if item.accuracy is not None]
    if known and max(known) <= 0.01:
        for item in models.values():
            if item.accuracy is not None:
                item.accuracy = round(100.0 * item.accuracy, 12)
            item.notes.append("no accuracy is above 1: taken as fractions")
