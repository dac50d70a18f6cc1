"""Figure of sharing policies: goodput over loads, SLOs or GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ramsis.report.figure import line_look, look_numbers, saved_figure

__all__ = ["plot_sharing"]

_AXES = {"rps": "load of each model (requests per second)", "gpus": "GPUs", "slo_ms": "SLO (ms)"}


def plot_sharing(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw simulated goodput by policy with the upper bound, a panel for each SLO.

    Parameters
    ----------
    rows : sequence of mapping
        With ``policy``, ``rps``, ``slo_ms``, ``gpus``, ``simulated_goodput_rps``, ``bound_rps``.
    path : path
        ``.png``, ``.pdf`` or ``.svg``.
    """
    several = {name: len({row[name] for row in rows}) for name in _AXES}
    axis = max(("rps", "gpus"), key=several.__getitem__)
    panels = sorted({row["slo_ms"] for row in rows})
    looks = look_numbers(row["policy"] for row in rows)
    with saved_figure(path, framed=True, figsize=(2.2 + 3.6 * len(panels), 3.4)) as figure:
        for number, slo_ms in enumerate(panels):
            part = figure.add_subplot(1, len(panels), number + 1)
            panel_rows = [row for row in rows if row["slo_ms"] == slo_ms]
            bounds = sorted({(row[axis], row["bound_rps"]) for row in panel_rows})
            part.plot(*zip(*bounds, strict=True), color="black", linestyle=":", label="bound")
            for policy, look in looks.items():
                points = sorted((row[axis], row["simulated_goodput_rps"]) for row in panel_rows
                                if row["policy"] == policy)
                part.plot(*zip(*points, strict=True), label=policy, **line_look(look))
            part.set_xlabel(_AXES[axis])
            part.set_title(f"SLO {slo_ms:g} ms")
            part.set_ylim(bottom=0)
        figure.axes[0].set_ylabel("goodput (requests per second)")
        figure.axes[-1].legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.02, 1.0),
                               borderaxespad=0.0, frameon=False)
