"""Figure of a profile: accuracy against latency, and latency against batch size.

The left half is Figure 3 of Mendoza et al., EuroSys '24, for any profile: each model by its
latency at one batch size, with the Pareto front; with ``step``, also the models that
:func:`ramsis.profiles.interpolate_front` puts between those of the front, as in the paper's
comparison of few models with many (Figure 9). The right half has the latency of the models of
the front by batch size, as policies see it.

Names are placed greedily: each name in turn takes the first free place of a list of places around
its point, from near to far; a thin line joins a far place with its point. A place is free if it
lies inside the axes and overlaps no earlier name and no point. A name without a free place is left
out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ramsis.profiles import (
    LatencyTable,
    Origin,
    ProfileSet,
    Statistic,
    interpolate_front,
    pareto_front,
)
from ramsis.report.figure import COLOURS, plain_numbers, saved_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Bbox

_NEAR = 5.0  # distance in points between a point and a name that needs no line
# Offsets of a name from its point, in points, in the order in which they are tried.
_PLACES = tuple(
    (distance * x, distance * y)
    for distance in (_NEAR, 12.0, 20.0, 30.0, 42.0, 56.0, 72.0)
    for x, y in ((1, -0.6), (-1, 0.6), (1, 0.6), (-1, -0.6), (0.2, -1.4), (-0.2, 1.4),
                 (1.6, -1.4), (-1.6, 1.4))
)
# Half the side of the square that names keep off, around a point and around an obstacle, in
# points.
_CLEARANCE, _SMALL_CLEARANCE = 4.0, 1.0

_GREY = "#8c8c8c"
_DARK = "#222222"
_MARKERS = "osD^vPX<>p*h"
_MOST_NAMES = 80  # of more models than this, only those on the front are named
# Distance in points on paper up to which markers touch, and by which a ring is larger than the
# marker within it.
_TOUCHING, _RING = 6.0, 4.0
_PIECES = 40  # points on each level and each rise of the front's line, which labels keep off


def plot_profile(
    profile: ProfileSet,
    path: str | os.PathLike[str],
    batch: int = 1,
    statistic: Statistic = "p95",
    step: float | None = None,
) -> tuple[str, ...]:
    """Draw a profile set to a .png, .pdf or .svg; return the models on the front, fastest first.

    Models are compared at a ``batch`` size >= 1, which need not be measured. With ``step``, a
    fraction, models are interpolated along the front at these steps of accuracy.
    """
    largest = max(item.batch for model in profile.models for item in model.batches)
    table = profile.latency_table(statistic, max(largest, batch))
    front = pareto_front(table, batch)
    between = None if step is None else interpolate_front(
        profile, step, statistic, batch).latency_table(statistic, batch)
    with saved_figure(path, figsize=(10.0, 4.6)) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        looks = _looks(front)
        left.set_title(profile.name, fontsize=10, loc="left")
        by_batch = _by_batch(right, profile, table.select(front), looks)
        _trade_off(figure, left, table, batch, looks, between, by_batch)
    return front


def _looks(front: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return colour and marker by model: darker for faster, so that grey print works."""
    from matplotlib import colormaps

    shades = colormaps["viridis"]
    return {
        name: {"color": shades(0.84 * i / max(1, len(front) - 1)),
               "marker": _MARKERS[i % len(_MARKERS)]}
        for i, name in enumerate(front)
    }


def _trade_off(
    figure: Figure, axes: Axes, table: LatencyTable, batch: int,
    looks: dict[str, dict[str, Any]], between: LatencyTable | None, by_batch: dict[str, Line2D],
) -> None:
    """Draw the models at a batch size.

    A marker that would hide another one becomes a ring, and so does its marker in ``by_batch``.
    """
    latency = dict(zip(table.models, table.latency_ms[:, batch - 1].tolist(), strict=True))
    accuracy = dict(zip(table.models, table.accuracy.tolist(), strict=True))
    behind = [name for name in table.models if name not in looks]
    stairs = _stairs([(latency[name], accuracy[name]) for name in looks])
    axes.plot(*zip(*stairs, strict=True), color=_DARK, linewidth=1, zorder=1,
              label="Pareto front")
    marks: dict[str, Line2D] = {}
    for name in behind:
        (marks[name],) = axes.plot(latency[name], accuracy[name], "x", color=_GREY, markersize=4,
                                   zorder=2, label="" if marks else "dominated")
    extra = [] if between is None else list(zip(between.latency_ms[:, batch - 1].tolist(),
                                                between.accuracy.tolist(), strict=True))
    if extra:
        axes.plot(*zip(*extra, strict=True), ".", color=COLOURS[1], markersize=3.5, zorder=2,
                  label=f"interpolated: {len(extra)} models in all")
    for name, look in looks.items():
        (marks[name],) = axes.plot(latency[name], accuracy[name], linestyle="none", markersize=6,
                                   markeredgecolor="white", markeredgewidth=0.5, zorder=3, **look)
    axes.set_xscale("log")
    axes.set_xlabel(f"{table.statistic} latency at batch {batch} (ms)")
    axes.set_ylabel("accuracy")
    axes.margins(x=0.2, y=0.1)
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    _finish(axes)
    names = [*looks, *behind]
    rings = dict(zip(names, _rings(figure, axes, [marks[name] for name in names]), strict=True))
    for name, ring in rings.items():
        for mark in (marks[name], by_batch.get(name)):
            if ring and mark is not None:
                mark.set(markersize=mark.get_markersize() + _RING * ring, markerfacecolor="none",
                         markeredgecolor=mark.get_color(), markeredgewidth=1.2)
    names = names if len(table.models) <= _MOST_NAMES else [*looks]
    colours = [_DARK if name in looks else _GREY for name in names]
    label_points(figure, axes, [(latency[name], accuracy[name]) for name in names], names,
                 colours, [*stairs, *extra],
                 radii=[marks[name].get_markersize() / 2 for name in names])


def _rings(figure: Figure, axes: Axes, marks: list[Line2D]) -> list[int]:
    """Count for each marker the earlier ones that it would lie on."""
    figure.draw_without_rendering()  # so that places on paper are known
    places = axes.transData.transform(np.concatenate([mark.get_xydata() for mark in marks]))
    return [int((np.hypot(*(places[:i] - place).T) * 72 / figure.dpi < _TOUCHING).sum())
            for i, place in enumerate(places)]


def _stairs(front: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return close points on the line that is level from each model to the next, then up."""
    line = [(float(x), low) for (left, low), (right, _) in pairwise(front)
            for x in np.geomspace(left, right, _PIECES)]
    corners = [(right, float(y)) for (_, low), (right, high) in pairwise(front)
               for y in np.linspace(low, high, _PIECES)]
    return sorted([*line, *corners, front[-1]])


def _by_batch(
    axes: Axes, profile: ProfileSet, table: LatencyTable, looks: dict[str, dict[str, Any]]
) -> dict[str, Line2D]:
    """Draw the latency of each model over the batch size; return the marks, by model."""
    marks: dict[str, Line2D] = {}
    sizes = {model.name: [item.batch for item in model.batches] for model in profile.models}
    for name, row, origin in zip(table.models, table.latency_ms, table.origin, strict=True):
        measured = [b for b in sizes[name] if origin[b - 1] == Origin.MEASURED]
        last = sizes[name][-1]
        axes.plot(range(1, last + 1), row[:last], color=looks[name]["color"], linewidth=1)
        (marks[name],) = axes.plot(measured, row[[b - 1 for b in measured]], linestyle="none",
                                   markersize=4, markeredgecolor="white", markeredgewidth=0.4,
                                   **looks[name])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("batch size")
    axes.set_ylabel(f"{table.statistic} latency of a batch (ms)")
    axes.set_title("models on the front, marked as on the left", fontsize=9, loc="left")
    _finish(axes)
    return marks


def _finish(axes: Axes) -> None:
    from matplotlib.ticker import NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log" and not axis.get_label_text().startswith("batch"):
            plain_numbers(axis)
    if axes.get_xlabel().startswith("batch"):
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="both", labelsize=8)
    axes.grid(alpha=0.3, linewidth=0.5)


def label_points(
    figure: Figure,
    axes: Axes,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    colours: Sequence[str],
    obstacles: Sequence[tuple[float, float]] = (),
    radii: Sequence[float] = (),
) -> list[str]:
    """Write each name beside its point (data coordinates); the first have the first choice.

    ``obstacles`` are further, smaller points that names keep off, such as those of a line;
    ``radii`` the sizes of the points' markers, in points. Return the names that found no place.
    """
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    # The layout is settled: a later one would move the points under the names.
    figure.set_layout_engine("none")
    scale = figure.dpi / 72
    clearances = [*(max(_CLEARANCE, radius) for radius in radii or [_CLEARANCE] * len(points)),
                  *[_SMALL_CLEARANCE] * len(obstacles)]
    taken = [Bbox.from_bounds(x, y, 0, 0).padded(clearance * scale)
             for clearance, (x, y) in zip(
                 clearances, axes.transData.transform([*points, *obstacles]), strict=True)]
    legend = axes.get_legend()
    if legend is not None:
        taken.append(legend.get_window_extent())
    return [name for point, name, colour in zip(points, names, colours, strict=True)
            if not _placed(axes, point, name, colour, taken)]


def _placed(
    axes: Axes, point: tuple[float, float], name: str, colour: str, taken: list[Bbox]
) -> bool:
    """Write a name beside a point where it overlaps nothing; return whether there was a place."""
    from matplotlib.transforms import Bbox

    text = axes.annotate(name, point, (0, 0), textcoords="offset points", fontsize=7,
                         color=colour, ha="left", va="bottom")
    scale = axes.figure.dpi / 72
    size, frame = text.get_window_extent(), axes.bbox.padded(-_NEAR * scale)
    x, y = axes.transData.transform(point)
    for dx, dy in _PLACES:
        box = Bbox.from_bounds(x + dx * scale - (size.width if dx < 0 else 0),
                               y + dy * scale - (size.height if dy < 0 else 0),
                               size.width, size.height)
        inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and (
            frame.y0 <= box.y0 and box.y1 <= frame.y1)
        if inside and not any(box.overlaps(other) for other in taken):
            taken.append(box)
            text.set(position=((box.x0 - x) / scale, (box.y0 - y) / scale))
            if max(abs(dx), abs(dy)) > 1.6 * _NEAR:
                _line(axes, point, (dx, dy), colour)
            return True
    text.remove()
    return False


def _line(
    axes: Axes, point: tuple[float, float], offset: tuple[float, float], colour: str
) -> None:
    """Draw a thin line from a point to the corner of its name."""
    axes.annotate("", point, offset, textcoords="offset points",
                  arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4,
                              "alpha": 0.7, "shrinkA": 0, "shrinkB": 3})
