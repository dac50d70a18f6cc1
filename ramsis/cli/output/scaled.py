"""Rows of fleets that scale, as tables show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ramsis.tables import Column

SCALED_COLUMNS = (
    Column("worker_s", "worker-seconds", ".0f"),
    Column("violation_rate", "violations", ".4%"),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("meets_word", "meets target"), Column("parameter_words", "parameters"),
)
"""What a scheduler costs and delivers."""


def with_words(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with what a table says of their parameters and targets."""
    return [{**row, "tuned_word": "yes" if row["tuned"] else "no",
             "meets_word": "yes" if row["meets_target"] else "no",
             "parameter_words": ", ".join(
                 f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                 for name, value in row["parameters"].items())} for row in rows]
