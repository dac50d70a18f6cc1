"""Importer of ``long-csv``: one row per sample, or one per statistic, latency in ms.

Columns: ``model``, ``batch``, ``latency_ms``; optional ``accuracy`` (a **fraction**, the same in
every row of a model that has it).

- Without ``statistic``, each row is one sample; statistics and a sketch of 128 quantiles are
  computed.
- With ``statistic``, each row is the one of ``mean``, ``std``, ``min``, ``p50``, ``p90``,
  ``p95``, ``p99``, ``max`` that it names, at most one row each per model and batch size, and an
  optional column ``n`` has the number of samples behind it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ramsis.errors import InputFileError, describe
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.importers.rows import Measured, Row, Rows, read_rows
from ramsis.profiles.values import ProfileError

__all__ = ["read", "recognises"]

_STATISTICS = ("mean", "std", "min", "p50", "p90", "p95", "p99", "max")
_REQUIRED = ("model", "batch", "latency_ms")
_QUANTILES = 128


def recognises(columns: Collection[str]) -> bool:
    """Whether a header is of this format (the unit of the latency aside)."""
    return {"model", "batch"} <= set(columns) and any(
        column.startswith("latency") for column in columns
    )


def read(path: Path) -> dict[str, Measured]:
    """The models of a file, in its order."""
    table = read_rows(path)
    by_statistic = "statistic" in table.columns
    table.require(_REQUIRED, (*_REQUIRED, "accuracy", "statistic",
                              *(("n",) if by_statistic else ())))
    models: dict[str, Measured] = {}
    for (name, batch), rows in _groups(table).items():
        item = models.setdefault(name, Measured())
        for row in rows:
            item.accuracy = row.same("accuracy", item.accuracy, row.optional("accuracy"))
        item.batches.append((_from_statistics if by_statistic else _from_samples)(batch, rows))
    return models


def _groups(table: Rows) -> dict[tuple[str, int], list[Row]]:
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in table.rows:
        groups.setdefault((row.text("model"), row.count("batch")), []).append(row)
    return groups


def _from_samples(batch: int, rows: list[Row]) -> BatchProfile:
    samples_ms = [row.positive("latency_ms") for row in rows]
    try:
        return BatchProfile.from_samples(batch, samples_ms, _QUANTILES)
    except ProfileError as error:
        raise InputFileError(error.at(rows[0].at(error.field))) from error


def _from_statistics(batch: int, rows: list[Row]) -> BatchProfile:
    values: dict[str, float] = {}
    n: float | None = None
    for row in rows:
        statistic = row.text("statistic")
        if statistic not in _STATISTICS:
            raise InputFileError(
                describe("unknown statistic", where=row.at("statistic"), value=statistic,
                         allowed=", ".join(_STATISTICS))
            )
        if f"{statistic}_ms" in values:
            raise InputFileError(
                describe(f"statistic appears twice for batch {batch}", where=row.at("statistic"),
                         value=statistic, allowed="one row each")
            )
        values[f"{statistic}_ms"] = row.number("latency_ms")
        n = row.same("n", n, row.count("n") if row.cells.get("n") else None)
    try:
        return BatchProfile(batch, None if n is None else int(n), **values)  # type: ignore[arg-type]
    except ProfileError as error:
        raise InputFileError(error.at(rows[0].at(error.field))) from error
