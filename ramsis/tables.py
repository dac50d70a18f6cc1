"""Tables of results: columns, the text of a cell, and a table as HTML with every text escaped.

Standard library only, so that what is served and what is shown in notebooks can use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["Column", "html_table", "with_values"]

_SHOWN = 60
_WIDE = 40  # letters of a text that is broken into lines


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    key : str
        Key of the row.
    title : str
    form : str
        Format specification; an absent value is shown as a dash.
    """

    key: str
    title: str
    form: str = ""

    def text(self, row: Mapping[str, Any]) -> str:
        """The row's entry as it is shown."""
        value = row.get(self.key)
        return "–" if value is None else format(value, self.form)


def with_values(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]
) -> list[Column]:
    """The columns of which some row has a value."""
    return [one for one in columns if any(row.get(one.key) is not None for row in rows)]


def html_table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, caption: str = "",
    most: int = _SHOWN,
) -> str:
    """The rows as an HTML table; of more than ``most`` the first, and a line that says so.

    >>> html_table([Column("name", "model"), Column("share", "share", ".1%")],
    ...            [{"name": "<b>", "share": 0.25}]).count("&lt;b&gt;")
    1
    """
    if len(rows) > most:
        rest = f"the first {most} of {len(rows)} rows"
        caption = f"{caption}: {rest}" if caption else rest
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col"{_class(column)}>{escape(column.title)}</th>'
                   for column in columns)
    body = "\n".join(
        "<tr>" + "".join(_cell(column, column.text(row)) for column in columns) + "</tr>"
        for row in rows[:most])
    return f"<table>{title}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _cell(column: Column, text: str) -> str:
    kind = ' class="wide"' if len(text) > _WIDE else _class(column)
    return f"<td{kind}>{escape(text)}</td>"


def _class(column: Column) -> str:
    return ' class="number"' if column.form else ""
