"""The rows of a table in a file: CSV with any separator, Markdown, or JSON.

Separators are commas, semicolons, tabs, bars (also in Markdown) or runs of spaces. Comments and
titles above the header are skipped, and so is a column of row numbers without a heading. JSON may
be JSON lines, a list of objects, or an object of objects whose keys are models or batch sizes.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError
from ramsis.files import parsed
from ramsis.numerals import MS
from ramsis.profiles.importers.rows import CsvRow, read_text
from ramsis.profiles.importers.table.headings import read_heading

_MARKS = "\t;|,"
_EMPHASIS = re.compile(r"\*\*|`")  # of Markdown, around the best value or a name
_NAMED = {"\t": "tab", " ": "spaces", ";": "';'", ",": "','", "|": "'|'", "{": "JSON"}
_LEADING = 30
"""Leading lines in which the header is searched."""
_RULE = re.compile(r"[\s|:+=-]*-[\s|:+=-]*|[^|,;\t]*-{5,}\s*")
_COMMENT = re.compile(r"\s*(#|//|Times are in )")
_STATED_UNIT = re.compile(r"\b(?:in|units?\s*[:=]?)\s+\(?(\w+)\)?", re.IGNORECASE)
_DEEPEST = 8
_MOST_CELLS = 10_000_000  # objects times fields: some gigabytes


@dataclass(frozen=True)
class Grid:
    """Table of measurements as text: names of columns, and rows of cells."""

    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]
    separator: str  # between cells; ``{`` of JSON
    unit: str = ""  # of times, where a comment states it
    notes: tuple[str, ...] = ()  # parts of the file that were not read

    @property
    def separated_by(self) -> str:
        """Name of the separator of cells, for messages."""
        return _NAMED[self.separator]


def read_grid(path: Path, known: Callable[[str], bool]) -> Grid:
    """Read the table in a file, delimited text or JSON.

    ``known`` says whether a text names a column, by which the header is found.
    """
    text = read_text(path)
    if looks_like_json(text):
        return _of_json(text, path, known)
    return _of_text(text, path, known)


def looks_like_json(text: str) -> bool:
    """Return whether a text begins as JSON does, not with a title in brackets.

    >>> looks_like_json('[{"model": "small"}]'), looks_like_json("[----- inference -----]")
    (True, False)
    """
    return re.match(r"\s*(\{|\[\s*([\[{\"\]0-9tfn]|-[0-9]))", text) is not None


def _of_text(text: str, path: Path, known: Callable[[str], bool]) -> Grid:
    """Read a table of delimited text, without comments and rules between rows."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1)
             if line.strip()]
    comments = [line for _, line in lines if _COMMENT.match(line)]
    kept = [(number, line) for number, line in lines
            if not _COMMENT.match(line) and not _RULE.fullmatch(line)]
    if kept and re.fullmatch(r"sep=.", kept[0][1].strip()):
        kept = kept[1:]
    if not kept:
        raise InputFileError("no rows", where=str(path),
                             allowed="a header line, as model,batch,p95_ms,accuracy")
    mark, start = _header(kept, known)
    header = _cells(kept[start][1], mark, path, kept[start][0])
    body = [(number, _cells(line, mark, path, number)) for number, line in _joined(kept[start:])]
    body = body[1:]
    if not body:
        raise InputFileError("no rows below the header", where=str(path))
    units = {unit.lower() for line in comments for unit in _STATED_UNIT.findall(line)
             if unit.lower() in MS}
    notes = [f"lines above the header, passed over: {start}"] if start else []
    # R writes no heading above the names of its rows.
    if all(len(cells) == len(header) + 1 for _, cells in body) and any(c for _, (c, *_) in body):
        header = ["", *header]
    # A separator at the end of each line makes a column of nothing.
    while len(header) > 1 and not header[-1] and all(
            len(cells) < len(header) or not cells[-1] for _, cells in body):
        header.pop()
        body = [(number, cells[:len(header)]) for number, cells in body]
    rows = []
    for number, cells in body:
        if len(cells) != len(header) and (mark == " " or not any(map(known, header))):
            raise InputFileError(
                "neither a table nor a report of a tool that is known", where=str(path),
                value=lines[0][1], allowed="a header line, as model,batch,p95_ms,accuracy, and a "
                "row for each measurement; `ramsis help profiles` lists the tools")
        if len(cells) != len(header):
            raise InputFileError(
                "wrong number of cells", where=f"{path}: line {number}", value=len(cells),
                allowed=f"{len(header)}, as in the header (numbers with commas in quotes)")
        rows.append(CsvRow(str(path), number, dict(zip(header, cells, strict=True))))
    for column, count in Counter(header).items():
        if column and count > 1:
            raise InputFileError("column appears twice", where=f"{path}: header", value=column,
                                 allowed="each name once, in one line of headings (of a pivot in "
                                 "pandas: .stack())")
    return Grid(tuple(header), tuple(rows), mark,
                units.pop() if len(units) == 1 else "", tuple(notes))


def _joined(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; lines of a quoted cell with line breaks are joined."""
    held: list[str] = []
    begin = size = quotes = 0
    for number, line in lines:
        begin = begin if held else number
        held.append(line)
        size, quotes = size + len(line) + 1, quotes + line.count('"')
        if quotes % 2 == 0 or size > 1 << 20:
            yield begin, "\n".join(held)
            held, size, quotes = [], 0, 0
    if held:
        yield begin, "\n".join(held)


def _header(lines: list[tuple[int, str]], known: Callable[[str], bool]) -> tuple[str, int]:
    """Return the separator, and the index of the header: the first line with most known names."""
    best = (0, 0, ",", 0)
    for place, (_, line) in enumerate(lines[:_LEADING]):
        for mark in (*_MARKS, " "):
            cells = _split(line, mark)
            names = sum(map(known, cells))
            if mark == " " and best[0] and best[3] == place:
                continue  # names may have spaces
            if len(cells) > 1 and (names, len(cells)) > best[:2] and (
                    names > best[0] or place == best[3]):
                best = (names, len(cells), mark, place)
    return best[2], best[3]


def _split(line: str, mark: str) -> list[str]:
    """Split a line into cells; return an empty list if a quote is not closed."""
    try:
        return _plain_cells(line, mark)
    except csv.Error:
        return []


def _cells(line: str, mark: str, path: Path, number: int) -> list[str]:
    try:
        return _plain_cells(line, mark)
    except csv.Error as error:
        raise InputFileError(f"not valid CSV ({error})", where=f"{path}: line {number}",
                             allowed="quotes that end in their line") from error


def _plain_cells(line: str, mark: str) -> list[str]:
    if mark == " ":
        return re.split(r"\s{2,}|\t" if re.search(r"\S\s{2,}\S", line) else r"\s+", line.strip())
    if mark == "|":
        line = _EMPHASIS.sub("", line.strip())
        if line.startswith("|") and line.endswith("|"):
            line = line[1:-1]
    rows = list(csv.reader([line], delimiter=mark, strict=True, skipinitialspace=True))
    return [cell.strip() for cell in rows[0]]


def _of_json(text: str, path: Path, known: Callable[[str], bool]) -> Grid:
    records: list[tuple[int, dict[str, str]]] = []
    by_line = _lines(text)
    parts = [(number, part) for number, part in enumerate(text.splitlines(), start=1)
             if part.strip()] if by_line else [(1, text)]
    for line, part in parts:
        value = parsed(part, f"{path}: line {line}" if len(parts) > 1 else str(path))
        records += [(line if by_line else number, record)
                    for number, record in enumerate(_records(value, {}, known, 0), start=1)]
    columns = tuple(dict.fromkeys(name for _, record in records for name in record))
    if len(records) * len(columns) > _MOST_CELLS:
        raise InputFileError("objects have too many different fields", where=str(path),
                             value=len(columns), allowed=f"at most {_MOST_CELLS} cells in "
                             f"{len(records)} objects")
    if not records or not any(map(known, columns)):
        raise InputFileError(
            "cannot tell the format by what the JSON holds", where=str(path),
            value=", ".join(columns[:8]) or None,
            allowed='objects such as {"model": "small", "batch": 1, "p95_ms": 5.2}')
    return Grid(columns, tuple(CsvRow(str(path), line, {**dict.fromkeys(columns, ""), **record})
                               for line, record in records), "{")


def _lines(text: str) -> bool:
    """Return whether a text has several lines of which the first is a JSON object."""
    first, _, others = text.strip().partition("\n")
    return bool(others.strip()) and first.startswith("{") and first.rstrip().endswith("}")


def _records(
    value: Any, above: dict[str, str], known: Callable[[str], bool], depth: int,
    title: str = "latency",
) -> Iterator[dict[str, str]]:
    """Yield the rows in a JSON value.

    Fields beside a list or an object (``above``) belong to all rows in it. ``title`` is the column
    of a number that is a row by itself.
    """
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _records(item, above, known, depth + 1, title)
    elif isinstance(value, dict):
        if _is_columns(value):
            yield from _transposed(value)
            return
        plain, inner = _flat(value, known)
        row = {**above, **plain}
        if any(read_heading(name).field == "model" for name in row):
            beside = {key for key, item in inner.items()
                      if not key.isdecimal() and _is_plain(item)}
            names = [name for key in beside for name in inner[key]] + list(row)
            if len(set(names)) < len(names):  # two fields of one name: ambiguous
                beside = set()
            row |= {name: _text(part) for key in inner if key in beside
                    for name, part in inner[key].items()}
            inner = {key: item for key, item in inner.items() if key not in beside}
            plain = row if beside else plain
        for key, item in inner.items():
            column = ("batch" if key.isdecimal() else "" if known(key) or isinstance(item, list)
                      else "model")
            named = {} if not column or column in row else {column: key}
            yield from _records(item, {**row, **named}, known, depth + 1,
                                key if known(key) and not key.isdecimal() else title)
        if not inner and plain:
            yield row
    elif isinstance(value, int | float) and not isinstance(value, bool) and "batch" in above:
        yield {**above, title: _text(value)}


def _flat(
    value: dict[str, Any], known: Callable[[str], bool]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Split an object into plain fields and nested rows.

    Known fields of a nested object, such as ``{"latency": {"p95": 5.2}}``, become plain fields.
    """
    plain: dict[str, str] = {}
    inner: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            fields = {f"{key}_{name}": part for name, part in item.items()}
            scalar = all(not isinstance(part, dict | list) for part in item.values())
            if scalar and fields and any(map(known, fields)) and not any(
                    name.isdecimal() for name in item):
                plain.update({name: _text(part) for name, part in fields.items()})
            else:
                inner[key] = item
        elif isinstance(item, list):
            if any(isinstance(part, dict) for part in item):
                inner[key] = item
        elif key.isdecimal():
            inner[key] = item
        else:
            plain[key] = _text(item)
    return plain, inner


def _is_plain(item: Any) -> bool:
    """Return whether an object has fields only, none of which is a batch size."""
    return isinstance(item, dict) and not any(
        isinstance(part, dict | list) or name.isdecimal() for name, part in item.items())


def _is_columns(value: dict[str, Any]) -> bool:
    """Return whether an object holds a table by columns, each a list or an object by row."""
    items = list(value.values())
    if len(items) < 2 or not all(isinstance(item, dict | list) for item in items):
        return False
    if all(isinstance(item, list) for item in items):
        return len({len(item) for item in items}) == 1 and not any(
            isinstance(part, dict | list) for item in items for part in item)
    return all(isinstance(item, dict) and item and set(item) == set(items[0])
               and "0" in item for item in items)


def _transposed(value: dict[str, Any]) -> Iterator[dict[str, str]]:
    columns = {key: list(item.values()) if isinstance(item, dict) else item
               for key, item in value.items()}
    for cells in zip(*columns.values(), strict=True):
        yield {key: _text(cell) for key, cell in zip(columns, cells, strict=True)}


def _text(value: Any) -> str:
    return "" if value is None else value.strip() if isinstance(value, str) else repr(value)
