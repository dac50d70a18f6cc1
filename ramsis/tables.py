"""Tables of results: columns, the text of a cell, and a table as HTML with every text escaped.

Standard library only, so that what is served and what is shown in notebooks can use it.
"""

from __future__ import annotations

import csv
import html
import io
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ramsis.errors import printable

_SHOWN = 60
_FORMULA = ("=", "+", "-", "@")
_ESCAPED = tuple(f"'{sign}" for sign in _FORMULA)
_WIDE = 40  # letters above which a cell of an HTML table may break into lines


@dataclass(frozen=True)
class Column:
    """Column of a table that commands print and pages show."""

    key: str  # of the row
    title: str
    form: str = ""  # format specification; an absent value is shown as a dash
    wide: bool = False  # whether the command line shows the column with ``--wide`` only

    def text(self, row: Mapping[str, Any]) -> str:
        """Format the entry of a row in this column."""
        value, form = row.get(self.key), self.form
        if value is None:
            return "–"
        if form and not isinstance(value, numbers.Real):  # in a file that someone has edited
            form = ""
        elif form == "d" and not isinstance(value, numbers.Integral):
            form = ".10g"
        return printable(format(value, form))


def load_text(load_qps: float) -> str:
    """Format a load: whole numbers and loads from 1000 on without decimals, others in 4 digits.

    >>> [load_text(load_qps) for load_qps in (12345.0, 51.7381, 0.25, 5173.81)]
    ['12345', '51.74', '0.25', '5174']
    """
    if load_qps >= 1000 or load_qps == int(load_qps):
        return f"{load_qps:.0f}"
    return f"{load_qps:.4g}"


def scheduler_words(scheduler: str) -> str:
    """Return a scheduler's text for a table, with the setting of second opinions in words.

    >>> [scheduler_words(name) for name in ("central-queue:cascades=true", "round-robin:paper")]
    ['central-queue with cascades', 'round-robin:paper']
    """
    return scheduler.replace(":cascades=true", " with cascades")


def escape(text: str, quote: bool = True) -> str:
    """Escape a text for HTML, with control characters spelled out."""
    return html.escape(printable(text), quote)


def csv_text(
    rows: Iterable[Mapping[str, Any]], columns: Iterable[str] | None = None
) -> str:
    """Return rows as CSV; an apostrophe is put before texts that a spreadsheet takes for formulas.

    ``columns`` are the keys to write, by default all in the order of their first appearance.

    >>> csv_text([{"a": "=1+1", "b": -1.0}], ["a", "b"])
    "a,b\\n'=1+1,-1.0\\n"
    """
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row)
                 if columns is None else columns)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell(row.get(name)) for name in names] for row in rows)
    return stream.getvalue()


def cell(value: object) -> object:
    """Return a value as a CSV cell: no formula, and no control characters."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def text_of(cell: str) -> str:
    """Return the text from which :func:`cell` made a cell.

    >>> text_of("'=1+1"), text_of("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if cell.startswith(_ESCAPED) else cell


def with_error(value: float, half_width: float | None) -> str:
    """Format a figure with four decimals, and with its error, rounded up, if it has one.

    >>> with_error(0.83417, 0.00001), with_error(0.83417, 0.0), with_error(0.83417, 0.00021)
    ('0.8342 ± 0.0001', '0.8342', '0.8342 ± 0.0003')
    """
    return f"{value:.4f}" + (f" ± {math.ceil(1e4 * half_width) / 1e4:.4f}" if half_width else "")


def with_values(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]
) -> list[Column]:
    """Return the columns for which at least one row has a value."""
    return [column for column in columns if any(row.get(column.key) is not None for row in rows)]


_ACCURACIES = ("accuracy", "expected_accuracy")
_EFFECTIVE = "effective accuracy"


def effective_words(*accuracies: float | None) -> str:
    """Return the name of effective accuracy; with accuracies of 1 it is the share in time.

    >>> effective_words(0.9999999999999999, None), effective_words(1.0, 0.9)
    ('answered in time', 'effective accuracy')
    """
    stated = [accuracy for accuracy in accuracies if accuracy is not None]
    # A mean of ones differs from 1 by a rounding error on some processors.
    ones = bool(stated) and all(math.isclose(accuracy, 1.0) for accuracy in stated)
    return "answered in time" if ones else _EFFECTIVE


def in_their_terms(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]
) -> Sequence[Column]:
    """If all accuracies are 1, rename effective accuracy, and leave out columns of accuracy."""
    words = effective_words(*(row.get(name) for row in rows for name in _ACCURACIES))
    if words == _EFFECTIVE or not any(_EFFECTIVE in column.title for column in columns):
        return columns
    return [replace(column, title=column.title.replace(_EFFECTIVE, words)) for column in columns
            if column.key not in _ACCURACIES]


def html_table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, caption: str = "",
    most: int = _SHOWN,
) -> str:
    """Render rows as an HTML table; the caption states if only the first ``most`` are shown.

    >>> html_table([Column("name", "model"), Column("share", "share", ".1%")],
    ...            [{"name": "<b>", "share": 0.25}]).count("&lt;b&gt;")
    1
    """
    if len(rows) > most:
        note = f"the first {most} of {len(rows)} rows"
        caption = f"{caption}: {note}" if caption else note
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    columns = in_their_terms(columns, rows)
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
