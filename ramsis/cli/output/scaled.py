"""Table rows of autoscaled fleets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ramsis.tables import Column

SCALED_COLUMNS = (
    Column("worker_s", "worker-seconds", ".0f"),
    Column("cost_worker_s", "cost in worker-seconds", ".0f"),
    Column("violation_rate", "violations", ".4%"),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("changes", "changes", "d", wide=True), Column("starts", "starts", "d", wide=True),
    Column("meets_word", "meets target"), Column("parameter_words", "parameters"),
)
"""Cost and figures of a scheduler; columns without a value are left out."""


def with_words(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with parameters and targets in words."""
    return [{**row, "tuned_word": "yes" if row["tuned"] else "no",
             "meets_word": {True: "yes", False: "no", None: None}[row["meets_target"]],
             "parameter_words": ", ".join(
                 f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                 for name, value in row["parameters"].items())} for row in rows]


def cheapest(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the row of least cost, or worker time without prices, that misses no target."""
    return min((row for row in rows if row["meets_target"] is not False),
               key=lambda row: row.get("cost_worker_s", row["worker_s"]), default=None)
