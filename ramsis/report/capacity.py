"""The fewest workers of schedulers, over the load."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ramsis.report.panels import Line, Panel, PanelRow, plot_panels


def plot_capacity(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Workers over loads, and how many more than the bound, a line for each scheduler.

    Parameters
    ----------
    rows : sequence of Mapping
        ``scheduler``, ``load_qps``, ``workers``, ``workers_bound``, ``slo_ms``; as of
        :meth:`ramsis.synthesis.capacity.Capacity.row`.
    path : path
        As of :func:`~ramsis.report.figure.saved_figure`, and so are errors.
    """
    bound = {row["load_qps"]: row["workers_bound"] for row in rows}
    needed, more = [], []
    for scheduler in dict.fromkeys(row["scheduler"] for row in rows):
        own = [row for row in rows if row["scheduler"] == scheduler]
        loads = [row["load_qps"] for row in own]
        needed.append(Line(scheduler, loads, [row["workers"] for row in own]))
        more.append(Line(scheduler, loads,
                         [100.0 * row["workers"] / row["workers_bound"] - 100.0 for row in own]))
    needed.append(Line("bound of any scheduler", sorted(bound), [bound[x] for x in sorted(bound)],
                       reference=True))
    plot_panels([
        PanelRow("workers", [Panel(_title(rows[0]), needed)], 1.4, whole=True),
        PanelRow("more than the bound (%)", [Panel("", more)], 1.0),
    ], path, "load (queries/s)")


def _title(row: Mapping[str, Any]) -> str:
    wanted = [f"{words} ≥ {row[name]:g}" for name, words in (
        ("min_accuracy", "accuracy"), ("min_effective_accuracy", "effective accuracy"))
        if row[name] is not None]
    return ", ".join([f"SLO {row['slo_ms']:g} ms", *wanted,
                      f"violations ≤ {100.0 * row['max_violation']:g} %"])
