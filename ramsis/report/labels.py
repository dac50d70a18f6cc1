"""Labels beside the points of a figure that do not touch each other.

Greedy: each name in turn takes the first free place of a list that goes outward around its point,
and a thin line leads back from a far place. A place is free when it lies inside the axes and meets
no earlier name and no point. Where none is free, the name is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
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
    ``radii`` the sizes of the points' markers, in points.

    Returns
    -------
    list of str
        Names that found no place.
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
