"""Table of the share of requests in time by size class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ramsis.cli.output.rows import Column, print_rows

LOAD = Column("load_qps", "load (QPS)", ".6g")


def print_classes(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], unit: str) -> None:
    """Print rows of which each has the share in time of every class in ``by_class``."""
    ranges = [tuple(entry["sizes"]) for entry in rows[0]["by_class"]]
    click.echo("\nin time by size:")
    print_rows([*columns, *(Column(str(i), f"{low}–{high} {unit}", ".2%")
                            for i, (low, high) in enumerate(ranges))], [
        {**row, **{str(i): entry["in_time_rate"] for i, entry in enumerate(row["by_class"])}}
        for row in rows])
