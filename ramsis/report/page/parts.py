"""Parts of a page section: tables, figures, notes, and rows of results from files.

Figures are plain JSON values. Their kinds are those of the page's script: ``curves`` (an axis of
numbers), ``rows`` (bars or points by name), ``map`` (the table of a policy) and ``explore`` (the
cells of a sweep).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ramsis.errors import InputFileError
from ramsis.report.chart import Axis, Charts, Curves, Series
from ramsis.tables import Column

_MOST_NAMES = 12
_UNITS = {"--slo-ms": ("SLO", " ms"), "--load": ("load", " queries/s"),
          "--duration-s": ("simulated for", " s"), "--startup-s": ("start-up", " s")}
_WRITTEN = ("--out", "--plot", "--csv")
_OF_CLASS = ("share", "in_time_rate", "in_time_rate_half_width", "expected_in_time_rate",
             "accuracy")


@dataclass(frozen=True)
class PageTable:
    """Table of results; only the first ``most`` rows are shown."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    most: int = 200


@dataclass(frozen=True)
class Note:
    """Paragraph of text in a section."""

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
    """Section of a report page about one input, such as a simulation."""

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


PLAN = "Plan"  # kind of the section whose verdict is the page's


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
    same colour everywhere. Names without a value in any row are left out. Instead of points of a
    single row, or of zeros only, a sentence is returned.
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


def shown(charts: Charts) -> list[Part]:
    """Return the parts of a report page that draw some charts."""
    return [curves(*chart) if isinstance(chart, Curves) else dots(*chart) for chart in charts]


def checked_rows(
    document: Mapping[str, Any], where: str, *, numbers: Sequence[str] = (),
    columns: Sequence[Column] = (), optional: Sequence[str] = (), texts: Sequence[str] = (),
    mappings: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the rows of a document, with the values that a section needs checked.

    Messages call the file ``where``. ``numbers`` and ``texts`` are keys that each row must have;
    ``columns`` and ``optional`` have those of numbers that may be missing or null, which are then
    None; and ``mappings`` those of mappings of names to numbers, which are then empty. Size
    classes (``by_class``) are checked where there are some.
    """
    optional = [*(column.key for column in columns if column.form and column.key not in numbers),
                *optional]
    rows = document.get("rows")
    if not isinstance(rows, list) or not rows:
        raise InputFileError("no rows", where=f"{where}: rows", value=rows,
                             allowed="a list of one or more objects")
    for i, row in enumerate(rows):
        place = f"{where}: rows[{i}]"
        if not isinstance(row, Mapping):
            raise InputFileError("not an object", where=place, value=row)
        for key in (*numbers, *optional):
            value = row.get(key)
            if not (_is_number(value) or (value is None and key in optional)):
                raise InputFileError("not a number", where=f"{place}.{key}", value=value)
        for key in texts:
            if not isinstance(row.get(key), str):
                raise InputFileError("not a text", where=f"{place}.{key}", value=row.get(key))
        for key in mappings:
            value = row.get(key, {})
            if not isinstance(value, Mapping) or not all(map(_is_number, value.values())):
                raise InputFileError("not numbers by name", where=f"{place}.{key}", value=value)
    absent = dict.fromkeys(optional) | {key: {} for key in mappings}
    return [{**absent, **row, **({} if "by_class" not in row else {
        "by_class": _checked_classes(row["by_class"], f"{where}: rows[{i}].by_class")})}
        for i, row in enumerate(rows)]


def _checked_classes(value: object, where: str) -> list[dict[str, Any]]:
    classes = checked_rows({"rows": value}, where, optional=_OF_CLASS)
    for i, size_class in enumerate(classes):
        sizes = size_class.get("sizes")
        if not isinstance(sizes, list) or len(sizes) != 2 or not all(map(_is_number, sizes)):
            raise InputFileError("not a range of sizes", where=f"{where}[{i}].sizes", value=sizes,
                                 allowed="the smallest and the largest")
    return classes


def option_values(words: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the options of a command that have a value, each with its unit."""
    pairs = []
    for name, value in pairwise(map(str, words)):
        if name.startswith("--") and not value.startswith("--") and name not in _WRITTEN:
            title, unit = _UNITS.get(name, (name[2:].replace("-", " "), ""))
            pairs.append((title, f"{value}{unit}"))
    return pairs


def option_values_in(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the options of the command that a document states, if it states one."""
    try:
        return option_values(shlex.split(str(document.get("command", ""))))
    except ValueError:  # quotes that do not end: not one of ours
        return []


def _is_number(value: object) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool)
            and math.isfinite(value))


def number(value: float | None) -> float:
    """Return a number to sort by: an absent one comes last."""
    return math.inf if value is None else value


def text(rows: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return the different values of a key, in their order."""
    values = list(dict.fromkeys(str(row[key]) for row in rows if row.get(key) is not None))
    more = f" and {len(values) - _MOST_NAMES} more" if len(values) > _MOST_NAMES else ""
    return ", ".join(values[:_MOST_NAMES]) + more


def span(rows: Sequence[Mapping[str, Any]], key: str, unit: str) -> str:
    """Return the values of a key with their unit: one, a few, or from the least to the largest."""
    values = sorted({row[key] for row in rows if row.get(key) is not None})
    if not values:
        return ""
    if len(values) > 4:
        return f"{len(values)} values from {values[0]:g} to {values[-1]:g} {unit}"
    return ", ".join(f"{value:g}" for value in values) + f" {unit}"
