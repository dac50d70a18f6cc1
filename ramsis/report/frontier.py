"""Figure of accuracy against violations: the frontier of the model, and simulated corners."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ramsis.errors import InvalidValueError
from ramsis.report.figure import saved_figure
from ramsis.report.looks import line_look

_FLOOR = 1e-5  # violation rates below this are drawn here, as the axis is logarithmic
_BETWEEN = 60  # points between two corners: a line of chance is curved on a logarithmic axis


def plot_frontier(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw effective accuracy over the violation rate, a curve for each load.

    Parameters
    ----------
    rows : sequence of mappings
        Corners as ``ramsis frontier`` gives them: ``load_qps``, ``expected_violation_rate``,
        ``expected_effective_accuracy``, and, where they were simulated, ``violation_rate``,
        ``violation_half_width`` and ``effective_accuracy``. Between two corners a policy that
        mixes them at random is on a straight line, which the logarithmic axis bends.
    path : path
        Ends in .png, .pdf or .svg.
    """
    if not rows:
        raise InvalidValueError("nothing to draw", where="plot", value="no corners")
    first = rows[0]
    loads = sorted({float(row["load_qps"]) for row in rows})
    with saved_figure(path, figsize=(6.4, 4.4)) as figure:
        from matplotlib.ticker import NullFormatter

        axes = figure.subplots()
        for k, load_qps in enumerate(loads):
            corners = [row for row in rows if row["load_qps"] == load_qps]
            look = line_look(k)
            _draw(axes, corners, look["color"], look["linestyle"], f"{load_qps:.6g} queries/s")
        axes.set_xscale("log")
        axes.tick_params(which="both", labelsize=8)
        axes.xaxis.set_major_formatter(lambda x, _: f"{100.0 * x:.6g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("violations (%)")
        axes.set_ylabel("effective accuracy")
        axes.set_title(f"{first['scheduler']} policies, {first['workers']} workers, "
                       f"SLO {first['slo_ms']:g} ms", loc="left", fontsize=10)
        axes.legend(frameon=False, loc="best")
        axes.grid(alpha=0.3, linewidth=0.5)


def _draw(
    axes: Any, rows: Sequence[Mapping[str, Any]], colour: str, dashes: str, name: str
) -> None:
    rate = np.array([row["expected_violation_rate"] for row in rows], dtype=float)
    effective = np.array([row["expected_effective_accuracy"] for row in rows], dtype=float)
    order = np.argsort(rate)
    rate, effective = rate[order], effective[order]
    dense = np.unique(np.concatenate([
        np.geomspace(max(low, _FLOOR), max(high, _FLOOR), _BETWEEN)
        for low, high in zip(rate, [*rate[1:], rate[-1]], strict=True)
    ]))
    axes.plot(dense, np.interp(dense, rate, effective), linestyle=dashes, color=colour,
              linewidth=1.2, label=f"{name}, model")
    axes.plot(np.maximum(rate, _FLOOR), effective, "o", color=colour, markersize=3.5)
    simulated = [row for row in rows if row.get("violation_rate") is not None]
    if simulated:
        axes.errorbar(
            [max(row["violation_rate"], _FLOOR) for row in simulated],
            [row["effective_accuracy"] for row in simulated],
            xerr=[[min(row["violation_half_width"], max(row["violation_rate"] - _FLOOR, 0.0))
                   for row in simulated], [row["violation_half_width"] for row in simulated]],
            fmt="s", markersize=4, markerfacecolor="none", color=colour, elinewidth=0.8,
            label=f"{name}, simulated",
        )
