"""Figures of one or several panels, without a display, and the looks of their lines.

A look is a number. Colours, dashes and markers repeat after 8, 7 and 7 numbers, so that the first
56 looks differ. A line has the same look in every panel; in grey print and for every eye dashes
and markers tell lines apart.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramsis.errors import InvalidValueError, install
from ramsis.files import written_whole
from ramsis.report.chart import Charts, Curves, Dots, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_LINEAR = 0.1  # up to here a ``log_like`` axis is linear

# At least 3:1 against white; page.css has the same, and lighter ones for dark screens.
COLOURS = ("#0072b2", "#c44f00", "#007f5f", "#a8447f", "#8a6100", "#3b97d3", "#6a4fb3", "#5b6b2f")
_DASHES = ("-", "--", "-.", (0, (4, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (6, 2)), (0, (8, 2, 2, 2)))
_MARKERS = "osv^DxP"
# Names in one entry are of one scheduler. Neighbours often stand in one figure.
_SCHEDULERS = (
    "central-queue", "per-worker round-robin", "jellyfish jellyfish-plus",
    "modelswitching model-switching", "greedy", "shortest-queue", "symphony", "clipper",
    "bentoml", "delay", "fixed", "infaas", "duty-cycle", "clockwork", "lru", "planned", "random",
    "queue-aware", "usher", "igniter", "ao-milp", "wsm-milp", "wao-usher",
    "scaling", "hpa", "keda", "knative", "rule", "ramsis", "triton", "ray",
    "slackfit", "cascade-serve", "fixed-threshold",
)
_PLACE = {name: place for place, names in enumerate(_SCHEDULERS) for name in names.split()}

_SUFFIXES = (".png", ".pdf", ".svg")
# Without a date the same figure is the same file, byte by byte.
_NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def check_figure(path: str | os.PathLike[str], where: str = "plot") -> None:
    """Refuse a file that no figure can be saved to, before the figure is computed.

    Messages call the option or argument ``where``.
    """
    if Path(path).suffix not in _SUFFIXES:
        raise InvalidValueError("unknown kind of figure", where=where, value=Path(path).name,
                                allowed="a file name that ends in " + ", ".join(_SUFFIXES))
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidValueError("figures need matplotlib", where=where, allowed=install("plot"))


_CAPTURED: ContextVar[list[Figure] | None] = ContextVar("captured", default=None)


@contextmanager
def captured() -> Iterator[list[Figure]]:
    """Collect the figures that are drawn within the block, which are not saved."""
    figures: list[Figure] = []
    token = _CAPTURED.set(figures)
    try:
        yield figures
    finally:
        _CAPTURED.reset(token)


@cache
def _shown_figure() -> type[Figure]:
    """Return a class of figures that show themselves in notebooks."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """Figure with an image of itself."""

        def _repr_png_(self) -> bytes:
            with io.BytesIO() as stream:
                self.savefig(stream, format="png", dpi=110)
                return stream.getvalue()

    return ShownFigure


@contextmanager
def saved_figure(
    path: str | os.PathLike[str], *, framed: bool = False, **settings: Any
) -> Iterator[Figure]:
    """Yield a figure to draw on, saved to ``path`` when the block ends without an error.

    Its axes have no line above and at the right, unless it is ``framed``.
    """
    target = Path(path)
    check_figure(target)
    from matplotlib import matplotlib_fname, rc_context, rcdefaults, rcParams
    from matplotlib.figure import Figure

    kept = _CAPTURED.get()
    with rc_context():
        if not os.path.isabs(matplotlib_fname()):  # a settings file in the current folder
            rcdefaults()
        rcParams["text.parse_math"] = False  # dollar signs in names are not formulas
        if not framed:
            rcParams["axes.spines.top"] = rcParams["axes.spines.right"] = False
        figure = (Figure if kept is None else _shown_figure())(layout="constrained", **settings)
        yield figure
        if kept is not None:
            kept.append(figure)
            return
        form = target.suffix.lower().lstrip(".")
        with (written_whole(target, binary=True) as stream,
              rc_context({"svg.hashsalt": "ramsis"})):
            figure.savefig(stream, dpi=150, format=form, metadata=_NO_DATE.get(form))


def plain_numbers(axis: Axis) -> None:
    """Write the numbers of a logarithmic axis without powers of ten, which would be formulas."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        """Formatter of tick labels as plain numbers, where LogFormatter labels a tick."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return plain(x) if super().__call__(x, pos) else ""

    def plain(x: float, _: float | None = None) -> str:
        return f"{x:.10f}".rstrip("0").rstrip(".")

    axis.set_major_formatter(plain)
    axis.set_minor_formatter(Plain(minor_thresholds=(2, 0.5)))


def look_numbers(names: Iterable[str]) -> dict[str, int]:
    """Return a different index of colour, dashes and marker for each name.

    A name that begins with the name of a scheduler, such as ``round-robin:paper``, has the
    scheduler's colour. Other names get the first unused looks, in their order.
    """
    looks: dict[str, int] = {}
    ordered, others = dict.fromkeys(names), []
    for name in ordered:
        word = re.match(r"[a-z]+(-[a-z]+)*", name.lower())
        place = _PLACE.get(word[0]) if word else None
        if place is None:
            others.append(name)
            continue
        while place in looks.values():
            place += len(COLOURS)
        looks[name] = place
    taken = set(looks.values())
    unused = (place for place in count() if place not in taken)
    looks |= dict(zip(others, unused, strict=False))
    return {name: looks[name] for name in ordered}


def line_look(number: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a look as Matplotlib takes them."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": _DASHES[number % len(_DASHES)],
            "marker": _MARKERS[number % len(_MARKERS)]}


@dataclass(frozen=True)
class Panel:
    """Lines that are drawn in one pair of axes."""

    title: str
    lines: Sequence[Series]
    # label of the horizontal axis, where columns have different ones
    x_label: str | None = None
    log_x: bool = False  # whether that axis is logarithmic


@dataclass(frozen=True)
class PanelRow:
    """Panels with a common vertical axis."""

    quantity: str
    panels: Sequence[Panel]
    height: float = 1.0  # in proportion to the other rows
    # whether the axis, of values >= 0, is linear up to 0.1 and logarithmic from there
    log_like: bool = False
    whole: bool = False  # whether the axis is of counts: only whole numbers are marked
    # whether the axis begins at 0; panels whose values are all 0 state that in words
    from_zero: bool = False
    # an axis that begins at 0 goes up to here at least: values far below a budget look small
    reach: float = 0.0


_END_LETTER = 9.0  # height of a name at the end of a line, in points
_BESIDE = 0.1  # distance between the dots of a name, of that between two names
_MOST_MARKED = 60  # points of a line with markers, at most
_BELOW = 0.06  # share of an axis from 0 that lies below 0, so that markers at 0 are whole
_LEGEND_MARK, _LEGEND_LETTER = 0.7, 0.06  # inches that an entry of the legend takes


def plot_charts(charts: Charts, path: str | os.PathLike[str], title: str = "") -> None:
    """Draw charts above one another; the title is by default that of the first.

    All have the same horizontal axis, or the same names. For the path and errors see
    :func:`saved_figure`.
    """
    first = charts[0]
    rows = []
    for i, chart in enumerate(charts):
        y = chart.y
        factor = 100.0 if y.percent else 1.0
        rows.append(PanelRow(
            y.label + (" (%)" if y.percent else ""),
            [Panel("" if i else title or chart.title, _scaled(chart, factor))],
            0.7 if y.zero and not y.whole else 1.3, whole=y.whole, from_zero=y.zero,
            reach=factor * (y.reach or 0.0)))
    if isinstance(first, Dots):
        plot_panels(rows, path, cases=[name for name, _ in first.rows])
    else:
        plot_panels(rows, path, first.x.label, log_x=first.x.log)


def _scaled(chart: Curves | Dots, factor: float) -> list[Series]:
    """Return the lines of a chart with their values multiplied.

    Dots of one kind are a line of points, a little beside those of the other kinds.
    """
    def times(values: Iterable[float | None]) -> list[float | None]:
        return [None if value is None else factor * value for value in values]

    if isinstance(chart, Curves):
        return [replace(line, y=times(line.y), half=line.half and times(line.half))
                for line in chart.series]
    rows = [row for _, row in chart.rows]
    used = [(name, key) for name, key in chart.values.items()
            if any(row.get(key) is not None for row in rows)]
    return [Series(name, [i + _BESIDE * (k - (len(used) - 1) / 2) for i in range(len(rows))],
                   times(row.get(key) for row in rows),
                   times(row.get(f"{key}_half_width") for row in rows))
            for k, (name, key) in enumerate(used)]


def plot_panels(
    rows: Sequence[PanelRow], path: str | os.PathLike[str], x_label: str = "", *,
    log_x: bool = False, cases: Sequence[str] = (),
) -> None:
    """Draw rows of panels side by side, each of the same number, to a .png, .pdf or .svg.

    ``x_label`` is the label of the horizontal axis of all panels, which is logarithmic with
    ``log_x``. ``cases`` are names of x = 0, 1, … at the axis; points are then not joined by lines.
    """
    columns = len(rows[0].panels)
    looks = _looks(rows)
    size = (max(6.0, 2.6 * columns + 0.9, columns * (0.4 * len(cases) + 0.6)),
            0.9 + 2.3 * sum(row.height for row in rows) + (0.8 if cases else 0.0))
    with saved_figure(path, figsize=size) as figure:
        grid = figure.subplots(len(rows), columns, sharex="col", sharey="row", squeeze=False,
                               height_ratios=[row.height for row in rows])
        for row, axes_row in zip(rows, grid, strict=True):
            axes_row[0].set_ylabel(row.quantity)
            for axes, panel in zip(axes_row, row.panels, strict=True):
                for line in panel.lines:
                    joined = {} if line.ref or not cases else {"linestyle": "none"}
                    _draw(axes, line, looks[line.name] | joined)
                _finish(axes, log_x or panel.log_x)
                if cases:
                    axes.set_xticks(range(len(cases)), cases, rotation=40, ha="right",
                                    rotation_mode="anchor")
                elif axes.get_xscale() == "linear" and all(
                        float(x).is_integer() for line in panel.lines for x in line.x):
                    axes.locator_params(axis="x", integer=True)
            if row.log_like:  # once all is drawn: the panels share the axis
                _log_like(axes_row[0])
            if (row.log_like or row.from_zero) and not _any_above_zero(row):
                _flat(axes_row)
            if row.from_zero:  # just below, so that markers at 0 stand on the axis whole
                top = max(axes_row[0].get_ylim()[1], row.reach)
                axes_row[0].set_ylim(-_BELOW * top, top)
            if row.whole:
                axes_row[0].yaxis.get_major_locator().set_params(integer=True)
        for axes, panel in zip(grid[0], rows[0].panels, strict=True):
            axes.set_title(panel.title, loc="left", fontsize=9)
        for axes, panel in zip(grid[-1], rows[-1].panels, strict=True):
            axes.set_xlabel(panel.x_label or "")
        if x_label:
            figure.supxlabel(x_label, fontsize=10)
        handles = {label: handle for axes in grid.flat
                   for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.draw_without_rendering()  # so that places on paper are known
        if columns == 1 and not cases and _named_at_ends(grid.flat, rows, looks):
            return
        wide = _LEGEND_MARK + _LEGEND_LETTER * max((len(label) for label in handles), default=0)
        lines = -(-len(handles) // max(1, min(4, int(size[0] / wide))))
        figure.legend(handles.values(), handles.keys(), loc="outside upper center",
                      ncols=-(-len(handles) // lines), frameon=False, fontsize=8)


def _named_at_ends(
    axes_column: Iterable[Axes], rows: Sequence[PanelRow], looks: Mapping[str, dict[str, Any]]
) -> bool:
    """Write the names at the ends of the lines in the first panel with all lines, if they fit.

    Return whether they fit; otherwise a legend is needed.
    """
    for axes, row in zip(axes_column, rows, strict=True):
        ends = [(line.name, line.x[-1], line.y[-1]) for line in row.panels[0].lines
                if len(line.x) and line.y[-1] is not None]
        if not {label for label, *_ in ends} >= looks.keys():
            continue
        places = axes.transData.transform([(x, y) for _, x, y in ends])
        apart = _END_LETTER * axes.figure.dpi / 72
        heights = sorted(y for _, y in places)
        right = max(x for x, _ in places)
        if all(high - low >= apart for low, high in pairwise(heights)) and all(
                right - x < apart for x, _ in places):
            for label, x, y in ends:
                axes.annotate(label, (x, y), (8, 0), textcoords="offset points", va="center",
                              fontsize=8, color=looks[label]["color"], annotation_clip=False)
            return True
    return False


def _looks(rows: Sequence[PanelRow]) -> dict[str, dict[str, Any]]:
    """Return how the line of each label is drawn."""
    lines = [line for row in rows for panel in row.panels for line in panel.lines]
    numbers = look_numbers(line.name for line in lines if not line.ref)
    looks: dict[str, dict[str, Any]] = {
        label: line_look(number) | {
            "linewidth": 1.2, "markersize": 4 + 0.7 * min(i, 6), "clip_on": False,
            "markerfacecolor": None if i == 0 else "none"}  # so that equal points show
        for i, (label, number) in enumerate(numbers.items())
    }
    plain = {"color": "0.35", "linestyle": (0, (1, 1)), "linewidth": 1.0}
    return {**{line.name: plain for line in lines if line.ref}, **looks}


def _draw(axes: Axes, line: Series, look: dict[str, Any]) -> None:
    if not len(line.x):
        return  # without points, error bars would be drawn at the figure's corner
    if len(line.x) > _MOST_MARKED or line.draw == "line":
        look = look | {"marker": ""}
    if line.draw == "points":
        look = look | {"linestyle": "none"}
    if line.steps:
        look = look | {"drawstyle": "steps-post"}
    y = [float("nan") if value is None else value for value in line.y]
    half = [value or 0.0 for value in line.half or ()]
    if any(half):
        _, caps, bars = axes.errorbar(line.x, y, yerr=half, label=line.name, capsize=2,
                                      elinewidth=0.8, **look)
        for bar in (*caps, *bars):  # unlike markers, they may be longer than the axis
            bar.set_clip_on(True)
    else:
        axes.plot(line.x, y, label=line.name, **look)


def _any_above_zero(row: PanelRow) -> bool:
    """Return whether a value is above 0, or there is no value."""
    values = [value for panel in row.panels for line in panel.lines for value in line.y
              if value is not None and value == value]
    return not values or max(values) > 0.0


def _flat(axes_row: Sequence[Axes]) -> None:
    """Write in each panel that all values are 0: an axis with a scale would show nothing."""
    axes_row[0].set_ylim(top=1.0)
    axes_row[0].set_yticks([0.0])
    for axes in axes_row:
        axes.text(0.5, 0.5, "all 0", transform=axes.transAxes, ha="center", va="center",
                  fontsize=8, color="0.35")


def _finish(axes: Axes, log_x: bool) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="both", labelsize=8)
    axes.grid(alpha=0.3, linewidth=0.5)


def _log_like(axes: Axes) -> None:
    """Set a scale that has 0, and on which 0.1 stands apart from 10."""
    axes.set_yscale("symlog", linthresh=_LINEAR, linscale=0.5)
    axes.set_ylim(0.0, max(axes.get_ylim()[1], 10 * _LINEAR))
    axes.yaxis.set_major_formatter("{x:g}")
