"""The value table: promises of policies (``"format": "ramsis.value-table/1"``).

Each row states the promise of the best policy for a load and an SLO, for a number of workers of
one type with the same models. The schema of the format is in :mod:`placement_milp`, which reads
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ramsis.files import canonical_json, write_atomic
from ramsis.sweep.spec import Cell

VALUE_TABLE_FORMAT = "ramsis.value-table/1"
VALUE_TABLE_NAME = "value-table.json"  # in the folder of a sweep


def value_rows(done: Iterable[tuple[Cell, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of the value table: policies at constant loads.

    Cells of several worker types or SLO classes have no row. The worker type is the profile set's
    name in the specification. Of several policies for the same models, workers, load and SLO the
    policy with the highest expected effective accuracy is used.
    """
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell, document in done:
        value = document["promise"]["effective_accuracy"]
        if value is None or cell.worker_types or cell.slo_classes:
            continue
        key = (Path(cell.profile).stem, tuple(document["models"]), cell.workers, cell.load_qps,
               cell.slo_ms)
        if key not in best or value > best[key]["expected_effective_accuracy"]:
            best[key] = {
                "worker_type": key[0], "model_set": list(key[1]), "workers": cell.workers,
                "load_qps": cell.load_qps, "slo_ms": cell.slo_ms,
                "expected_effective_accuracy": value,
                "expected_violation_rate": document["promise"]["violation_rate"],
            }
    return [best[key] for key in sorted(best)]


def write_value_table(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Write a value table atomically.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    write_atomic(path, canonical_json({"format": VALUE_TABLE_FORMAT, "rows": list(rows)}))
