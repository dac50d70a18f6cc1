"""Parts of a page section: tables, figures, notes. Figures are plain JSON values.

The kinds of figures are those of the page's script: ``curves`` (an axis of numbers), ``rows``
(bars or points by name), ``map`` (the table of a policy) and ``explore`` (the cells of a sweep).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ramsis.tables import Column


@dataclass(frozen=True)
class PageTable:
    """Rows of results; of more than ``most`` the first are shown."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    most: int = 200


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Figure:
    """A figure: its title, its description, and the data that the script draws."""

    title: str
    label: str
    spec: Mapping[str, Any]


Part = PageTable | Note | Figure


@dataclass(frozen=True)
class Section:
    """All about one input."""

    kind: str
    title: str
    asked: Sequence[tuple[str, str]]  # terms and what they are: what was asked for
    parts: Sequence[Part]  # tables and figures
    commands: Sequence[str] = ()  # that make it again
    origin: Sequence[tuple[str, str]] = ()  # versions, fingerprints and files
    heading: str = "What was asked"  # over ``asked``
    # what came out, and what to do: sentences that the page begins with
    verdict: Sequence[str] = ()
    # figures to compare with those of another section of this kind, each with its format
    measures: Mapping[str, tuple[float | None, str]] = field(default_factory=dict)
    # models and their accuracies, where they are known
    models: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """An axis of a figure."""

    label: str
    # log, percent, whole, zero: logarithmic; in percent; of whole numbers; begins at zero
    log: bool = False
    percent: bool = False
    whole: bool = False
    zero: bool = False
    most: float | None = None  # no value is above
    # the axis goes up to here at least, so that a budget or what is far below one shows as such
    reach: float | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """As the script takes it."""
        found: dict[str, Any] = {"label": self.label, "log": self.log, "percent": self.percent,
                                 "whole": self.whole, "zero": self.zero}
        return found | {key: value for key, value in (("max", self.most), ("reach", self.reach))
                        if value is not None}


PLAN = "Plan"
"""The kind of the section whose verdict stands for the page's."""
LEAST_BUDGET = 0.001
"""Share of violations up to which an axis goes where no budget is known."""


def violations(label: str = "violations", budget: float | None = None) -> Axis:
    """The axis of shares of violations, up to the budget at least."""
    return Axis(label, percent=True, zero=True, most=1.0, reach=budget or LEAST_BUDGET)


@dataclass(frozen=True)
class Series:
    """Points of one name."""

    name: str
    # x, y: A ``y`` of ``None`` leaves a gap
    x: Sequence[float]
    y: Sequence[float | None]
    half: Sequence[float | None] | None = None  # half-widths of intervals around ``y``
    draw: str = "both"  # ``both``, ``points`` or ``line``
    ref: bool = False  # A dotted grey line, such as a bound
    text: Sequence[str] | None = None  # names of the points
    look: int | None = None  # which colour and mark; by default the next
    steps: bool = False  # level from each point to the next, then up or down
    named: bool = False  # whether the names of the points stand beside them

    @property
    def spec(self) -> dict[str, Any]:
        """As the script takes it."""
        found: dict[str, Any] = {"name": self.name, "x": list(self.x), "y": list(self.y),
                                 "draw": self.draw, "ref": self.ref, "steps": self.steps,
                                 "named": self.named}
        for key, value in (("half", self.half), ("text", self.text)):
            if value is not None:
                found[key] = list(value)
        return found if self.look is None else {**found, "look": self.look}


def curves(
    title: str, x: Axis, y: Axis, frames: Sequence[Series] | Mapping[str, Sequence[Series]],
    slider: str = "", *, models: bool = False,
) -> Figure:
    """Lines over an axis of numbers; several frames are chosen by a slider.

    ``models`` says that the lines are of models, which have the same colour everywhere.
    """
    by_name = frames if isinstance(frames, Mapping) else {"": frames}
    names = dict.fromkeys(one.name for frame in by_name.values() for one in frame)
    label = f"{title}: {y.label} over {x.label}, of {', '.join(names)}"
    return Figure(title, label, {
        "kind": "curves", "label": label, "of_models": models, "x": x.spec,
        "y": y.spec, "slider": slider,
        "frames": [{"label": name, "series": [one.spec for one in frame]}
                   for name, frame in by_name.items()]})


Entry = tuple[str, float | None, Any]
"""A part of a row: its name, its value, and a half-width (of points) or a text (of bars)."""


def rows_figure(
    title: str, x: Axis, rows: Sequence[tuple[str, Sequence[Entry]]], *, dots: bool = False,
    names: Sequence[str] = (), models: bool = False,
) -> Figure:
    """Return a figure with a stacked bar, or points on a line, for each name.

    ``names`` gives the order of the parts' names; ``models`` says that they are models, which
    have the same colour everywhere.
    What has no value in any row is left out.
    """
    names_used = {name for _, parts in rows for name, value, _ in parts if value is not None}
    rows = [(name, [part for part in parts if part[0] in names_used]) for name, parts in rows]
    series = list(dict.fromkeys([*names, *(part[0] for _, parts in rows for part in parts)]))
    place = {name: i for i, name in enumerate(series)}
    label = f"{title}: {x.label}, of {', '.join(name for name, _ in rows)}"
    return Figure(title, label, {
        "kind": "rows", "label": label, "x": x.spec, "slider": "", "dots": dots,
        "series": series, "of_models": models,
        "frames": [{"label": "", "rows": [
            {"name": name, "parts": [[place[part], value, more] for part, value, more in parts]}
            for name, parts in rows]}]})


def dots(
    title: str, x: Axis, rows: Iterable[tuple[str, Mapping[str, Any]]], values: Mapping[str, str]
) -> Figure:
    """Points on a line for each name: values of its row with their half-widths, by their words."""
    return rows_figure(title, x, [
        (name, [(words, row.get(key), row.get(f"{key}_half_width"))
                for words, key in values.items()]) for name, row in rows], dots=True)
