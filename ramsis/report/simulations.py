"""What simulated schemes did, against the load or over time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ramsis.report.figure import COLOURS, saved_figure
from ramsis.sim import TimeSeries

__all__ = ["plot_loads", "plot_over_time"]

_MARKERS = "osv^Dx"
_DASHES = ("-", "--", "-.", ":")


def plot_loads(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Effective accuracy with its upper bound, and violations, over the load.

    Parameters
    ----------
    rows : sequence of Mapping
        ``label``, ``load_qps``, ``effective_accuracy``, ``violation_rate``, ``upper_bound`` (or
        ``None``), ``workers``, ``slo_ms``.
    path : path
        Ends in .png, .pdf or .svg.

    Raises
    ------
    InvalidValueError
        A file name of another kind.
    OutputError
        The file cannot be written.
    """
    labels = list(dict.fromkeys(row["label"] for row in rows))
    with saved_figure(path, figsize=(6.4, 5.2)) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        bounds = {row["load_qps"]: row["upper_bound"] for row in rows
                  if row["upper_bound"] is not None}
        if bounds:
            top.plot(sorted(bounds), [bounds[load] for load in sorted(bounds)], color="0.35",
                     linewidth=1.0, linestyle=(0, (1, 1)), label="upper bound of any scheme")
        for i, label in enumerate(labels):
            own = sorted((r for r in rows if r["label"] == label), key=lambda r: r["load_qps"])
            load = [row["load_qps"] for row in own]
            _line(top, i, load, [row["effective_accuracy"] for row in own], label, marked=True)
            _line(bottom, i, load, [100.0 * row["violation_rate"] for row in own], None,
                  marked=True)
        top.set_ylabel("effective accuracy")
        top.set_title(f"{rows[0]['workers']} workers, SLO {rows[0]['slo_ms']:g} ms", loc="left",
                      fontsize=10)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
        bottom.set_ylabel("violations (%)")
        bottom.set_xlabel("load (queries/s)")
        _finish(top, bottom)


def plot_over_time(series: Mapping[str, TimeSeries], path: str | os.PathLike[str]) -> None:
    """Load, accuracy of the queries in time, and violations of each scheme, over time.

    Raises
    ------
    InvalidValueError
        A file name of another kind.
    OutputError
        The file cannot be written.
    """
    with saved_figure(path, figsize=(7.2, 6.0)) as figure:
        load, accuracy, late = figure.subplots(3, 1, sharex=True, height_ratios=[1, 2, 1])
        for i, (label, one) in enumerate(series.items()):
            seconds = one.start_ms / 1000.0
            if i == 0:
                load.plot(seconds, one.load_qps, color="0.35", linewidth=1.0)
            _line(accuracy, i, seconds, one.accuracy, label)
            _line(late, i, seconds, 100.0 * one.violation_rate, None)
        load.set_ylabel("load (queries/s)")
        accuracy.set_ylabel("accuracy in time")
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
        late.set_ylabel("violations (%)")
        late.set_xlabel("time (s)")
        _finish(load, accuracy, late)


def _line(
    axes: Any, i: int, x: ArrayLike, y: ArrayLike, label: str | None, *, marked: bool = False
) -> None:
    """A scheme's line, told apart by colour, dashes and, for few points, markers."""
    axes.plot(np.asarray(x), np.asarray(y), color=COLOURS[i % len(COLOURS)], label=label,
              linewidth=1.2, linestyle=_DASHES[i % len(_DASHES)], markersize=4,
              marker=_MARKERS[i % len(_MARKERS)] if marked else None)


def _finish(*panels: Any) -> None:
    for axes in panels:
        axes.margins(x=0.02)
        axes.grid(alpha=0.3, linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_ylim(bottom=0.0)
