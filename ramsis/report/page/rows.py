"""Rows of results from files: checks, and summaries of their values in words."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ramsis.errors import InputFileError

_MOST_NAMES = 12
_UNITS = {"--slo-ms": ("SLO", " ms"), "--load": ("load", " queries/s"),
          "--duration-s": ("simulated for", " s"), "--startup-s": ("start-up", " s")}
_WRITTEN = ("--out", "--plot", "--csv")
_OF_CLASS = ("share", "in_time_rate", "in_time_rate_half_width", "expected_in_time_rate",
             "accuracy")


def checked_rows(
    document: Mapping[str, Any], where: str, *, numbers: Sequence[str] = (),
    optional: Sequence[str] = (), texts: Sequence[str] = (), mappings: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the rows of a document, with the values that a section needs checked.

    Parameters
    ----------
    where : str
        Name of the file, for messages.
    numbers, texts : sequences of str
        Keys that each row must have.
    optional : sequence of str
        Keys of numbers that may be missing or null.
    mappings : sequence of str
        Keys of mappings of names to numbers, which may be missing.

    Returns
    -------
    list of dict
        The rows; optional numbers that are missing are None, and mappings empty. Size classes
        (``by_class``) are checked where there are some.
    """
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
