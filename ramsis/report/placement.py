"""Figures of a placement: workers by family, and accuracy and share of families."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from placement_milp import Placement
from ramsis.report.figure import COLOURS, saved_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_GPUS = 40  # rows of layouts; more GPUs are counted below
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")


def plot_placement(placement: Placement, path: str | os.PathLike[str]) -> None:
    """Draw the workers of each type by family, and each family's accuracy and share.

    A bar is split in height where variants share workers. Layouts of GPUs that are cut into
    instances have a row for each GPU, by memory slices.
    """
    cut = {gpu.worker_type for gpu in placement.gpus}
    types = list(dict.fromkeys(group.worker_type for group in placement.groups
                               if group.worker_type.rpartition("/")[0] not in cut))
    rows = min(len(placement.gpus), _MOST_GPUS)
    heights = [*([0.34 * rows + 0.4] if rows else []),
               *([0.55 * len(types) + 0.4] if types else []),
               0.3 * len(placement.families) + 0.4]
    with saved_figure(path, figsize=(8.0, 0.8 + sum(heights))) as figure:
        axes = list(figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])
        if rows:
            _draw_layouts(axes.pop(0), placement)
        if types:
            _draw_workers(axes.pop(0), placement, types)
        _draw_families(axes.pop(0), placement)
        figure.suptitle(f"{placement.name}: {placement.status}, objective "
                        f"{placement.objective:.4g}", x=0.01, ha="left", fontsize=10)


def _style(placement: Placement, family: str) -> dict[str, Any]:
    """Return colour and hatch of a family; more families than colours differ in the hatch."""
    index = [item.name for item in placement.families].index(family)
    return {"facecolor": COLOURS[index % len(COLOURS)], "edgecolor": "white",
            "hatch": _HATCHES[index // len(COLOURS) % len(_HATCHES)]}


def _draw_layouts(axes: Axes, placement: Placement) -> None:
    """Draw a row for each GPU and a box for each instance; idle instances are empty."""
    tables = {item.name: item.partitions for item in placement.problem.worker_types}
    uses = {worker: group.uses for group in placement.groups for worker in group.workers}
    shown = placement.gpus[:_MOST_GPUS]
    for row, gpu in enumerate(shown):
        table = tables[gpu.worker_type]
        assert table is not None
        for instance in gpu.instances:
            name, _, start = instance.rpartition("@")
            width = table.instance(name).memory_slices
            axes.barh(row, width, 0.8, left=int(start), facecolor="white", edgecolor="#888888",
                      linewidth=0.8)
            uses_here = uses.get(f"{gpu.gpu}/{instance}", ())
            part = 0.8 / max(len(uses_here), 1)
            for i, use in enumerate(uses_here):
                middle = row - 0.4 + part * (i + 0.5)
                axes.barh(middle, width, part, left=int(start), linewidth=0.8,
                          **_style(placement, use.family))
                model = use.variants[0].rpartition("/")[2]
                text = model if len(model) <= 11 * width else model[: 11 * width - 1] + "…"
                axes.text(int(start) + width / 2, middle, text, fontsize=6, ha="center",
                          va="center", clip_on=True,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})
    axes.set_yticks(range(len(shown)), [gpu.gpu for gpu in shown], fontsize=7)
    axes.invert_yaxis()
    more = len(placement.gpus) - len(shown)
    axes.set_xlabel("memory slice" + (f" ({more} more GPUs are not drawn)" if more else ""))
    axes.locator_params(axis="x", integer=True)


def _draw_workers(axes: Axes, placement: Placement, types: list[str]) -> None:
    """Draw a bar for each type, as long as its workers in use; sharing splits its height."""
    left = dict.fromkeys(types, 0)
    for group in (group for group in placement.groups if group.worker_type in types):
        row, count = types.index(group.worker_type), len(group.workers)
        part = 0.8 / len(group.uses)
        for i, use in enumerate(group.uses):
            axes.barh(row - 0.4 + part * (i + 0.5), count, part, left=left[group.worker_type],
                      linewidth=0.8, **_style(placement, use.family))
        left[group.worker_type] += count
    axes.set_yticks(range(len(types)), types)
    axes.invert_yaxis()
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("workers in use")


def _draw_families(axes: Axes, placement: Placement) -> None:
    names = [family.name for family in placement.families]
    for row, family in enumerate(placement.families):
        axes.barh(row, family.served_share, 0.7, facecolor="#dddddd")
        axes.barh(row, family.effective_accuracy, 0.7, **_style(placement, family.name))
        axes.text(1.01, row, f"{family.effective_accuracy:.3f}", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.08)
    axes.set_xlabel("effective accuracy (grey: share served in time)")
