"""The tables of a sweep: CSV files with one observation in each row.

Rows stand in the order of the specification, whatever order they were computed in, and numbers are
written so that they read back as they were; the same cells give the same bytes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ramsis.files import write_atomic
from ramsis.sim import Metrics
from ramsis.sweep.spec import Cell
from ramsis.sweep.value_table import VALUE_TABLE_NAME, write_value_table

__all__ = ["cell_row", "write_tables"]

Done = tuple[Cell, Mapping[str, Any]]
"""A cell, and the document of its results."""

_AXES = tuple(item.name for item in fields(Cell))
_METRICS = tuple(item.name for item in fields(Metrics) if item.name != "model_share")
_HALF_WIDTHS = ("accuracy_half_width", "violation_rate_half_width",
                "effective_accuracy_half_width")
_PROMISES = ("accuracy", "violation_rate", "effective_accuracy")


def cell_row(cell: Cell, document: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``results.csv``: the cell, means over its seeds (counts: sums), and the promise.

    Without a simulation its figures are ``None``.
    """
    result: Mapping[str, Any] = document["result"] or {}
    promise = document["promise"]
    bound = document["upper_bound"]
    return {
        **asdict(cell),
        **{name: result.get(name) for name in (*_METRICS, *_HALF_WIDTHS)},
        **{f"expected_{name}": promise[name] for name in _PROMISES},
        "upper_bound": promise["upper_bound"] if bound is None else bound,
    }


def write_tables(
    folder: Path, done: Sequence[Done], failures: Sequence[tuple[Cell, str]],
    values: Sequence[Mapping[str, Any]],
) -> tuple[Path, ...]:
    """Write all tables, and return their paths."""
    tables: dict[str, tuple[Sequence[str], Iterable[Mapping[str, Any]]]] = {
        "results.csv": (tuple(_columns()), (cell_row(*one) for one in done)),
        "seeds.csv": ((*(name for name in _AXES if name not in ("seed", "seeds")),
                       "seed", *_METRICS), _seed_rows(done)),
        "models.csv": ((*_AXES, "model", "share"), _model_rows(done)),
        "failures.csv": ((*_AXES, "error"),
                         ({**asdict(cell), "error": error} for cell, error in failures)),
    }
    for name, (columns, rows) in tables.items():
        write_atomic(folder / name, _csv(columns, rows))
    values_file = folder / VALUE_TABLE_NAME
    if values:
        write_value_table(values, values_file)
    else:
        values_file.unlink(missing_ok=True)
    return tuple(folder / name for name in tables) + ((values_file,) if values else ())


def _columns() -> Iterable[str]:
    yield from (*_AXES, *_METRICS, *_HALF_WIDTHS)
    yield from (*(f"expected_{name}" for name in _PROMISES), "upper_bound")


def _seed_rows(done: Sequence[Done]) -> Iterable[dict[str, Any]]:
    for cell, document in done:
        for i, metrics in enumerate(document["seeds"]):
            yield {**asdict(cell), **metrics, "seed": cell.seed + i}


def _model_rows(done: Sequence[Done]) -> Iterable[dict[str, Any]]:
    for cell, document in done:
        shares: Mapping[str, float] = (document["result"] or {}).get("model_share", {})
        for model, share in sorted(shares.items(), key=lambda item: (-item[1], item[0])):
            yield {**asdict(cell), "model": model, "share": share}


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
