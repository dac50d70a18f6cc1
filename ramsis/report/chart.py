"""Charts of results, which are declared once: pages draw them by script, files by Matplotlib.

:mod:`ramsis.report.simulations` declares the charts of each kind of rows,
:func:`ramsis.report.page.parts.curves` and :func:`ramsis.report.page.parts.dots` convert one for a
page, and :func:`ramsis.report.figure.plot_charts` draws several into a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ramsis.reprs import brief, dataclass
from ramsis.tables import load_text


@dataclass(frozen=True)
class Axis:
    """Axis of a figure in a report: its label, its scale and its range."""

    label: str
    # whether it is logarithmic, in percent, of whole numbers, begins at zero
    log: bool = False
    percent: bool = False
    whole: bool = False
    zero: bool = False
    most: float | None = None  # no value is above
    # the axis goes up to here at least, so that values far below a budget look small
    reach: float | None = None

    def text(self, value: float) -> str:
        """Format a value of this axis, as a percentage if the axis has percentages."""
        if self.percent:
            return f"{100.0 * value:.4g} %"
        return load_text(value) if abs(value) >= 1.0 or not value else f"{value:.4f}"

    @property
    def spec(self) -> dict[str, Any]:
        """Return the axis as JSON values for the page's drawing script."""
        spec: dict[str, Any] = {"label": self.label, "log": self.log, "percent": self.percent,
                                "whole": self.whole, "zero": self.zero}
        return spec | {key: value for key, value in (("max", self.most), ("reach", self.reach))
                       if value is not None}


LEAST_BUDGET = 0.001  # share of violations up to which an axis goes where no budget is known


def violations(label: str = "violations", budget: float | None = None) -> Axis:
    """Return the axis of shares of violations, up to the budget at least."""
    return Axis(label, percent=True, zero=True, most=1.0, reach=budget or LEAST_BUDGET)


@dataclass(frozen=True)
class Series:
    """Line or points of a figure, with a name in the legend."""

    name: str
    # x, y: a ``y`` of ``None`` leaves a gap
    x: Sequence[float]
    y: Sequence[float | None]
    half: Sequence[float | None] | None = None  # half-widths of intervals around ``y``
    draw: str = "both"  # ``both``, ``points`` or ``line``
    ref: bool = False  # a dotted grey line, such as a bound
    text: Sequence[str] | None = None  # names of the points
    steps: bool = False  # level from each point to the next, then up or down
    named: bool = False  # whether the names of the points stand beside them

    @property
    def spec(self) -> dict[str, Any]:
        """Return the series as JSON values for the page's drawing script."""
        spec: dict[str, Any] = {"name": self.name, "x": list(self.x), "y": list(self.y),
                                "draw": self.draw, "ref": self.ref, "steps": self.steps,
                                "named": self.named}
        for key, value in (("half", self.half), ("text", self.text)):
            if value is not None:
                spec[key] = list(value)
        return spec


class Curves(NamedTuple):
    """Chart of lines over an axis of numbers."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]

    def __repr__(self) -> str:
        return brief(self)


class Dots(NamedTuple):
    """Chart of dots: the names of rows stand along x, above each its few values, side by side."""

    title: str
    y: Axis
    rows: Sequence[tuple[str, Mapping[str, Any]]]  # each with its name
    # key of a value, whose half-width has the key KEY_half_width, by the value's name
    values: Mapping[str, str]

    def __repr__(self) -> str:
        return brief(self)


Charts = Sequence[Curves | Dots]
