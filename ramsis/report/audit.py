"""Figure of an audit: a request log against the best possible, and causes of violations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ramsis.report.figure import saved_figure
from ramsis.report.looks import COLOURS


def plot_audit(row: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw effective accuracy and workers as three bars each, and violations by cause.

    Parameters
    ----------
    row : Mapping
        Returned by :meth:`ramsis.audit.audit.Audit.row`.
    path : path
        See :func:`~ramsis.report.figure.saved_figure`, for errors, too.
    """
    best = row["best_policy"]
    reached = {"achieved": row["effective_accuracy"],
               "best policy": None if best is None else best["effective_accuracy"],
               "bound (one model per request)": row["upper_bound"]}
    workers = {"there were": row["workers"], "best policy": row["fewest_workers"],
               "bound (one model per request)": row["workers_bound"]}
    causes = {name: 100.0 * count / row["requests"]
              for name, count in row["violations_by_cause"].items() if count}
    with saved_figure(path, figsize=(9.0, 3.2)) as figure:
        left, middle, right = figure.subplots(1, 3)
        _bars(left, reached, COLOURS[0], "effective accuracy", "{:.4f}")
        _bars(middle, workers, COLOURS[2], "workers", "{:d}")
        _bars(right, causes or {"none": 0.0}, COLOURS[1], "violations (% of requests)", "{:.3g}")


def _bars(
    axes: Any, values: Mapping[str, float | None], colour: str, title: str, form: str
) -> None:
    """Draw a bar for each value that is not None, with the value above it."""
    shown = {name: value for name, value in values.items() if value is not None}
    drawn = axes.bar(list(shown), list(shown.values()), color=colour, width=0.6)
    axes.bar_label(drawn, [form.format(value) for value in shown.values()], fontsize=8)
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(axis="x", labelsize=8, rotation=20)
    axes.margins(y=0.15)
