"""Importer of ``quantiles-csv``: per model and batch size, latency quantiles in ms.

Columns: ``model``, ``batch``, ``q0_ms`` … ``q<q-1>_ms``, the quantiles at the levels
(i + 1/2)/q; optional ``n``. There is no accuracy: it comes from a separate file.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from ramsis.profiles.importers.rows import Measured, read_rows

_QUANTILE = re.compile(r"q\d+_ms")


def recognises(columns: Collection[str]) -> bool:
    """Whether a header is of this format (unknown columns aside)."""
    return {"model", "batch", "q0_ms"} <= set(columns)


def read(path: Path) -> dict[str, Measured]:
    """The models of a file, in its order; mean and percentiles are derived."""
    table = read_rows(path)
    size = sum(bool(_QUANTILE.fullmatch(column)) for column in table.columns)
    names = [f"q{i}_ms" for i in range(max(size, 2))]
    table.require(("model", "batch", *names), ("model", "batch", "n", *names))
    models: dict[str, Measured] = {}
    for row in table.rows:
        item = models.setdefault(row.text("model"), Measured())
        quantiles_ms = tuple(row.number(name) for name in names)
        item.batches.append(row.batch_profile({}, quantiles_ms))
    return models
