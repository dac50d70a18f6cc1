"""Parts of a page section: tables, figures, notes. Figures are plain JSON values.

The kinds of figures are those of the page's script: ``curves`` (an axis of numbers), ``rows``
(bars or points by name), ``map`` (the table of a policy) and ``explore`` (the cells of a sweep).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ramsis.tables import Column, load_text


@dataclass(frozen=True)
class PageTable:
    """Table of results; only the first ``most`` rows are shown."""

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
    """Figure: title, description, and data that the script draws."""

    title: str
    label: str
    spec: Mapping[str, Any]


Part = PageTable | Note | Figure


@dataclass(frozen=True)
class Section:
    """Section about an input."""

    kind: str
    title: str
    asked: Sequence[tuple[str, str]]  # terms of the input and their values
    parts: Sequence[Part]  # tables and figures
    commands: Sequence[str] = ()  # commands that reproduce it
    origin: Sequence[tuple[str, str]] = ()  # versions, fingerprints and files
    heading: str = "What was asked"  # over ``asked``
    # sentences that the page begins with: the outcome, and what to do
    verdict: Sequence[str] = ()
    # figures to compare with those of another section of this kind, each with its format
    measures: Mapping[str, tuple[float | None, str]] = field(default_factory=dict)
    # models and their accuracies, where they are known
    models: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """An axis of a figure."""

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
        """Return a value in words, as the axis shows it."""
        if self.percent:
            return f"{100.0 * value:.4g} %"
        return load_text(value) if abs(value) >= 1.0 or not value else f"{value:.4f}"

    @property
    def spec(self) -> dict[str, Any]:
        """The axis in the script's form."""
        spec: dict[str, Any] = {"label": self.label, "log": self.log, "percent": self.percent,
                                "whole": self.whole, "zero": self.zero}
        return spec | {key: value for key, value in (("max", self.most), ("reach", self.reach))
                       if value is not None}


PLAN = "Plan"  # kind of the section whose verdict is the page's
LEAST_BUDGET = 0.001  # share of violations up to which an axis goes where no budget is known


def violations(label: str = "violations", budget: float | None = None) -> Axis:
    """Return the axis of shares of violations, up to the budget at least."""
    return Axis(label, percent=True, zero=True, most=1.0, reach=budget or LEAST_BUDGET)


@dataclass(frozen=True)
class Series:
    """Points of a line."""

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
        """The series in the script's form."""
        spec: dict[str, Any] = {"name": self.name, "x": list(self.x), "y": list(self.y),
                                "draw": self.draw, "ref": self.ref, "steps": self.steps,
                                "named": self.named}
        for key, value in (("half", self.half), ("text", self.text)):
            if value is not None:
                spec[key] = list(value)
        return spec


def curves(
    title: str, x: Axis, y: Axis, frames: Sequence[Series] | Mapping[str, Sequence[Series]],
    slider: str = "", *, models: bool = False,
) -> Figure | Note:
    """Return a figure of lines over an axis of numbers; a slider chooses among frames.

    With ``models`` the lines are of models, which have the same colour everywhere. Values at a
    single place of the axis, or zero throughout, are a sentence.
    """
    if not isinstance(frames, Mapping):
        points = [(series, x, y) for series in frames
                  for x, y in zip(series.x, series.y, strict=True) if y is not None]
        if y.zero and points and not any(value for _, _, value in points):
            return Note(f"{title}: {y.text(0.0)} throughout.")
        places = {place for series, place, _ in points if not series.ref}
        if len(places) == 1:
            (place,) = places
            name, _, unit = x.label.partition(" (")
            return _sentence(f"{title}, {name} {x.text(place)} {unit.rstrip(')')}".rstrip(), y, [
                (series.name, value, (series.half or [None])[0])
                for series, at, value in points if at == place])
    by_name = frames if isinstance(frames, Mapping) else {"": frames}
    names = dict.fromkeys(series.name for frame in by_name.values() for series in frame)
    label = f"{title}: {y.label} over {x.label}, of {', '.join(names)}"
    return Figure(title, label, {
        "kind": "curves", "label": label, "of_models": models, "x": x.spec,
        "y": y.spec, "slider": slider,
        "frames": [{"label": name, "series": [series.spec for series in frame]}
                   for name, frame in by_name.items()]})


def _sentence(title: str, axis: Axis, entries: Iterable[Entry]) -> Note:
    """Return the values of a figure that has only one place to show them."""
    words = [f"{name} {axis.text(value)}" + (f" ± {axis.text(half)}" if half else "")
             for name, value, half in entries if value is not None]
    return Note(f"{title}: {'; '.join(words)}.")


# A part of a row: name, value, and a half-width (of points) or a text (of bars).
Entry = tuple[str, float | None, Any]


def rows_figure(
    title: str, x: Axis, rows: Sequence[tuple[str, Sequence[Entry]]], *, dots: bool = False,
    names: Sequence[str] = (), models: bool = False,
) -> Figure | Note:
    """Return a figure with a stacked bar, or points on a line, for each name.

    ``names`` is the order of the parts' names; with ``models`` they are models, which have the
    same colour everywhere. Names without a value in any row are left out. Points of a single row,
    or zero throughout, are a sentence.
    """
    if dots and not any(value for _, parts in rows for _, value, _ in parts):
        return Note(f"{title}: {x.text(0.0)} throughout.")
    if dots and len(rows) == 1:
        name, parts = rows[0]
        return _sentence(f"{title}, {name}" if name != x.label else title, x, parts)
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
) -> Figure | Note:
    """Return a figure of points on a line for each row, with their half-widths."""
    return rows_figure(title, x, [
        (name, [(words, row.get(key), row.get(f"{key}_half_width"))
                for words, key in values.items()]) for name, row in rows], dots=True)
