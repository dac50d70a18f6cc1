"""A line: its settings, what is measured at each of them, and when it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from acceptance.setting import Effort, Setting

__all__ = ["Line", "Row", "Verdict", "judged", "named", "spread"]

Row = dict[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Verdict:
    """What results come to.

    Attributes
    ----------
    holds : bool
    misses : list of Row
        Settings that break the line, as they are printed.
    summary : list of Row
        Figures over all settings, what is allowed, and whether they are within that.
    about, shown : str and list of Row
        A table of its own with its title.
    """

    holds: bool
    misses: list[Row]
    summary: list[Row]
    about: str = ""
    shown: Sequence[Row] = ()


@dataclass(frozen=True)
class Line:
    """What promises have to hold.

    Attributes
    ----------
    title : str
    settings : callable
        Makes the settings by a seed.
    row : callable
        Measures one of them; its results as plain JSON values.
    verdict : callable
        Judges the results of all settings. Those that failed have an ``error``.
    """

    title: str
    settings: Callable[[int], list[Setting]]
    row: Callable[[Setting, Effort], Row]
    verdict: Callable[[Sequence[Row]], Verdict]


def spread(items: Sequence[_T], count: int) -> list[_T]:
    """So many of some items, as evenly spread as can be.

    >>> spread("abcdefg", 3)
    ['a', 'd', 'g']
    """
    if count >= len(items):
        return list(items)
    return [items[round(i * (len(items) - 1) / max(count - 1, 1))] for i in range(count)]


def named(row: Row, **more: Any) -> Row:
    """The setting of a row as it is printed, and more columns."""
    options = ", ".join(f"{name}={value}" for name, value in row["options"].items())
    return {"profile": row["profile"].rpartition("/")[2], "SLO (ms)": f"{row['slo_ms']:g}",
            "workers": row["workers"], "load (QPS)": f"{row['load_qps']:g}",
            "of capacity": f"{row['share']:.0%}", "dispatch": row["dispatch"],
            "options": options or "–", **more}


def judged(*figures: tuple[str, float, float | None, str]) -> tuple[bool, list[Row]]:
    """Whether figures are at most what is allowed, and a row for each.

    Parameters
    ----------
    *figures : tuple
        What it is, its value, the most that is allowed or None, and how both are written.
    """
    rows = [{"figure": what, "value": format(value, form),
             "allowed": "–" if most is None else f"<= {format(most, form)}",
             "holds": "–" if most is None else ("yes" if value <= most else "NO")}
            for what, value, most, form in figures]
    return all(row["holds"] != "NO" for row in rows), rows
