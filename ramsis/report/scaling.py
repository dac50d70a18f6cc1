"""Fleets that scale: what they did over time, and what they cost against what they missed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ramsis.report.panels import LEAST_BUDGET_PERCENT, Line, Panel, PanelRow, plot_panels


def plot_scaling(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Load, workers that are paid for, accuracy and violations over time.

    Parameters
    ----------
    rows : sequence of Mapping
        ``label`` or ``scheduler``, and ``over_time`` as of
        :meth:`ramsis.scaling.fleet.ScaledRun.over_time`.
    path : path
        As of :func:`~ramsis.report.figure.saved_figure`, and so are errors.
    """
    first = rows[0]["over_time"]
    workers, accuracy, late = [], [], []
    for row in rows:
        name, series = str(row.get("label", row["scheduler"])), row["over_time"]
        time_s = series["time_s"]
        workers.append(_steps(name, [*time_s, 2 * time_s[-1] - time_s[-2:][0]],
                              series["workers"]))
        accuracy.append(Line(name, time_s, series["accuracy"]))
        late.append(Line(name, time_s, [None if one is None else 100.0 * one
                                        for one in series["violation_rate"]]))
    load = Line("load", first["time_s"], first["load_qps"], reference=True)
    plot_panels([PanelRow("load (queries/s)", [Panel("", [load])], 0.6, from_zero=True),
                 PanelRow("workers paid for", [Panel("", workers)], whole=True, from_zero=True),
                 PanelRow("accuracy in time", [Panel("", accuracy)], 0.7),
                 PanelRow("violations (%)", [Panel("", late)], 0.6, from_zero=True,
                          reach=LEAST_BUDGET_PERCENT)],
                path, "time (s)")


def _steps(label: str, edges_s: Sequence[float], values: Sequence[float | None]) -> Line:
    """Values between edges."""
    return Line(label, [one for pair in pairwise(edges_s) for one in pair],
                [value for value in values for _ in range(2)])
