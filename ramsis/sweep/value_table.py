"""The value table: what policies make of workers at loads (``"format": "ramsis.value-table/1"``).

Each row states, for a number of workers of one type that all hold the same models, what the best
policy for a load and an SLO is expected to deliver. The format is stated by
``value-table-1.schema.json`` beside this module.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError, describe
from ramsis.files import canonical_json, read_json, write_atomic
from ramsis.sweep.spec import Cell

__all__ = ["VALUE_TABLE_FORMAT", "VALUE_TABLE_NAME", "validate_value_table", "value_rows",
           "write_value_table"]

VALUE_TABLE_FORMAT = "ramsis.value-table/1"
"""The ``format`` field."""
VALUE_TABLE_NAME = "value-table.json"
"""The name of a sweep's value table."""

_ROUNDING = 1e-9


def value_rows(done: Iterable[tuple[Cell, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of the value table of cells and their results: those of policies at constant loads.

    The worker type is the profile set's name in the specification. Of several policies for the
    same models, workers, load and SLO the one that expects the highest effective accuracy counts.
    """
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell, document in done:
        value = document["promise"]["effective_accuracy"]
        if value is None:
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
    """Write a value table, whole or not at all.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    write_atomic(path, canonical_json({"format": VALUE_TABLE_FORMAT, "rows": list(rows)}))


def validate_value_table(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a value table, once they are found to be right.

    Raises
    ------
    InputFileError
        The file cannot be read or breaks its format, an effective accuracy is above the share
        answered in time, or a row is there twice.
    """
    from jsonschema import Draft202012Validator

    document = read_json(path)
    schema = json.loads(resources.files(__package__).joinpath(
        "value-table-1.schema.json").read_text("utf-8"))
    errors = Draft202012Validator(schema).iter_errors(document)
    first = min(errors, key=lambda error: error.json_path, default=None)
    if first is not None:
        place = first.json_path.removeprefix("$").removeprefix(".")
        raise InputFileError(
            describe(f"breaks the schema's rule '{first.validator}'", value=first.instance,
                     where=f"{path}: {place}" if place else str(path),
                     allowed=f"{first.validator} {json.dumps(first.validator_value)[:80]}")
        )
    rows: list[dict[str, Any]] = document["rows"]
    seen: set[str] = set()
    for i, row in enumerate(rows):
        in_time = 1.0 - row["expected_violation_rate"]
        if row["expected_effective_accuracy"] > in_time + _ROUNDING:
            raise InputFileError(
                describe("above the share answered in time", value=row[
                    "expected_effective_accuracy"], allowed=f"at most {in_time:g}",
                    where=f"{path}: rows[{i}].expected_effective_accuracy"))
        key = json.dumps([row["worker_type"], sorted(row["model_set"]), row["workers"],
                          row["load_qps"], row["slo_ms"]])
        if key in seen:
            raise InputFileError(describe("a row for the same case twice",
                                          where=f"{path}: rows[{i}]", allowed="each case once"))
        seen.add(key)
    return rows
