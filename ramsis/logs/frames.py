"""Logs as columns of text with a row for each line: CSV, JSON, XML, or lines of a pattern."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from ramsis.errors import InputFileError
from ramsis.files import parsed
from ramsis.logs.kinds import LogKind, flattened, preamble_of
from ramsis.memory import check_memory

if TYPE_CHECKING:
    import pandas as pd

# A date; a first line that begins with one is a log line, not a header.
_NO_NAME = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[ T]")
_LONGEST_LINE = 8 * 1024  # characters of a line that is matched with a pattern
_MEMORY_PER_CHARACTER = 10.0  # bytes; 7 to 12 were measured, by layout


def frame_of(text: str, kind: LogKind | None, where: str) -> tuple[pd.DataFrame, int]:
    """Return the rows of a log as text, indexed by line, and the number of skipped lines."""
    check_memory("characters of a log", where, len(text), _MEMORY_PER_CHARACTER)
    begin = text.lstrip()[:1]
    if kind is not None and kind.line is not None and not kind.header:
        return _matched(text, kind, where)
    if begin in ("{", "["):
        return _json(text, kind, where), 0
    if kind is not None and begin == "<":
        return _xml(text, kind, where), 0
    return _csv(text, kind, where), 0


def _matched(text: str, kind: LogKind, where: str) -> tuple[pd.DataFrame, int]:
    """Return the lines that fit the pattern of a layout, and the number of others."""
    import pandas as pd

    assert kind.line is not None
    rows: list[tuple[str | Any, ...]] = []
    numbers: list[int] = []
    skipped = first_skipped = 0
    for number, line in enumerate(io.StringIO(text), start=1):
        content = line.rstrip("\r\n")
        match = kind.line.fullmatch(content) if len(content) <= _LONGEST_LINE else None
        if match is not None:
            rows.append(match.groups(""))
            numbers.append(number)
        elif content.strip():
            skipped += 1
            first_skipped = first_skipped or number
    if skipped > len(rows) and not kind.mixed:
        line = text.split("\n", first_skipped)[first_skipped - 1]
        raise InputFileError(f"not a line of {kind.title}", where=f"{where}: line {first_skipped}",
                             value=line, allowed="lines of one format, as the first")
    return pd.DataFrame(rows, index=np.array(numbers), columns=list(kind.line.groupindex),
                        dtype=object), skipped


def _json(text: str, kind: LogKind | None, where: str) -> pd.DataFrame:
    """Return the objects of JSON lines, of an array, or under a key of one object."""
    import pandas as pd

    columns = None if kind is None else {
        *kind.columns.values(), *kind.rows, *kind.without}
    rows: list[dict[str, str]] = []
    numbers: list[int] = []
    for number, item in _records(text, kind, where):
        values = {name: _text(value) for name, value in _flat(item, columns)}
        rows.append(values)
        numbers.append(number)
    if kind is None and len(rows) == 1:
        lists = [key for key, value in item.items() if isinstance(value, list)
                 and value and isinstance(value[0], dict)]
        raise InputFileError(
            "one JSON object, not one for each request", where=where,
            value=", ".join(list(item)[:12]), allowed="an object a line" + (
                f": jq -c '.[\"{lists[0]}\"][]' {shlex.quote(where)} > requests.jsonl"
                if len(lists) == 1 else ""))
    return pd.DataFrame(rows, index=np.array(numbers, dtype=int), dtype=object).fillna("")


def _flat(item: Mapping[str, Any], columns: set[str] | None) -> Iterable[tuple[str, Any]]:
    """Return the values of an object by key, limited to the columns."""
    pairs = (item.items() if not any(isinstance(value, dict) for value in item.values())
             else flattened(item))
    return [(name, value) for name, value in pairs if (columns is None or name in columns)
            and not isinstance(value, list | dict)]


def _records(
    text: str, kind: LogKind | None, where: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects that are requests, with their lines, or their numbers in a list."""
    document: Any = None
    if text.lstrip().startswith("[") or (kind is not None and kind.under):
        document = parsed(text, where)
        if kind is not None and isinstance(document, dict):
            document = document.get(kind.under)
        if not isinstance(document, list):
            raise InputFileError("no list of requests", where=where,
                                 allowed="an array with an object for each request")
        for number, item in enumerate(document, start=1):
            if not isinstance(item, dict):
                raise InputFileError("not a JSON object", where=f"{where}: entry {number}",
                                     value=item, allowed="an object for each request")
            yield number, item
        return
    for number, line in enumerate(io.StringIO(text), start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            if not isinstance(item, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            raise InputFileError(f"not a JSON object ({error})", where=f"{where}: line {number}",
                                 value=line,
                                 allowed="JSON lines, an object for each request") from error
        yield number, item


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _xml(text: str, kind: LogKind, where: str) -> pd.DataFrame:
    """Return the attributes of the elements below the root."""
    import pandas as pd

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputFileError("declares entities", where=where,
                             allowed="results as JMeter writes them")
    columns = {*kind.columns.values(), *kind.rows, *kind.without}
    rows: list[dict[str, str]] = []
    depth = 0
    root: Any = None
    try:
        for event, element in ElementTree.iterparse(io.StringIO(text), ("start", "end")):
            if event == "start":
                root = element if root is None else root
                depth += 1
                continue
            depth -= 1
            if depth == 1:
                rows.append({name: value for name, value in element.attrib.items()
                             if name in columns})
                root.clear()
    except ElementTree.ParseError as error:
        raise InputFileError(f"not valid XML, cut off or damaged ({error})",
                             where=where) from error
    return pd.DataFrame(rows, index=np.arange(1, len(rows) + 1), dtype=object).fillna("")


def _csv(text: str, kind: LogKind | None, where: str) -> pd.DataFrame:
    """Return the rows of a CSV file."""
    import pandas as pd

    names = kind.header if kind is not None else ()
    preamble = preamble_of(text)
    text = text.removeprefix(preamble)
    if not text.strip():
        raise InputFileError("no requests", where=where, allowed="a header and a line for each")
    first = next(line for line in text.splitlines() if line.strip())
    mark = max(",;\t", key=first.count)
    count = first.count(mark) + 1
    try:
        frame = pd.read_csv(
            io.StringIO(text), dtype=str, keep_default_na=False, sep=mark, skipinitialspace=True,
            skip_blank_lines=False, header=None if names else 0,
            names=[*names, *map(str, range(len(names), count))] if names else None)
    except (ValueError, pd.errors.ParserError) as error:
        raise InputFileError(f"not a CSV ({str(error).strip()})", where=where) from error
    if not isinstance(frame.index, pd.RangeIndex):  # pandas makes further fields an index
        raise InputFileError("not a CSV (a line has more fields than the header)", where=where)
    frame.columns = [str(name).strip() for name in frame.columns]
    sentence = len(frame.columns) == 1 and " " in frame.columns[0]
    if kind is None and (sentence or any(map(_NO_NAME.match, frame.columns))):
        raise InputFileError(
            "lines of a layout that is not known, and no header", where=f"{where}: line 1",
            value=first, allowed="a CSV with a header, or JSON lines; the times alone, one a "
            "line, are a trace")
    top = preamble.count("\n") + (1 if names else 2)
    return frame.fillna("").set_index(np.arange(top, len(frame) + top))
