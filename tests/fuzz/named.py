"""Every field of every file that a command reads, with the name of code in the place of its text.

A module of that name lies in the folder where the command runs; it must never be imported.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case
from tests.fuzz.commands import READERS

_NAMES = ("evil:f", "evil.py:f")
_SCHEDULERS = ("round-robin:arrivals=evil:f,service=p95,max_queue=4", "evil:f:alpha=1")
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])")
_TEXT = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")


def named_cases(kit: Path) -> Iterator[Case]:
    """A case for each such field, in turn with each name and command of its kind."""
    number = 0
    for kind in (READERS[name] for name in sorted(READERS)):
        content = (kit / kind.file).read_bytes()
        for text in changed(content, kind.syntax):
            names = (*_NAMES, *_SCHEDULERS)
            command = kind.commands[number % len(kind.commands)]
            yield Case(tuple(command), kind.file,
                       text.replace(b"%NAMED%", names[number % len(names)].encode()))
            number += 1


def changed(content: bytes, syntax: str, *, numbers: bool = False) -> Iterator[bytes]:
    """A content for each of its texts, or numbers, with ``%NAMED%`` in its place."""
    if syntax == "json":
        document = json.loads(content)
        kinds = (int, float) if numbers else (str,)
        for place in dict.fromkeys(_places(document, (), kinds)):
            copy = json.loads(content)
            _put(copy, place, kinds)
            mark = json.dumps("%NAMED%")
            yield json.dumps(copy).replace(mark, "%NAMED%" if numbers else mark).encode()
    elif syntax == "toml":
        text = content.decode()
        for found in (_NUMBER if numbers else _TEXT).finditer(text):
            for _ in range(1 if numbers else len(_NAMES) + len(_SCHEDULERS)):
                mark = "%NAMED%" if numbers else '"%NAMED%"'
                yield f"{text[:found.start()]}{mark}{text[found.end():]}".encode()
    elif syntax == "csv":
        rows = list(csv.reader(io.StringIO(content.decode())))
        for row in range(min(2, len(rows))):
            for column in range(len(rows[row])):
                if numbers and not _NUMBER.fullmatch(rows[row][column].strip()):
                    continue
                copy = [list(cells) for cells in rows]
                copy[row][column] = "%NAMED%"
                stream = io.StringIO()
                csv.writer(stream, lineterminator="\n").writerows(copy)
                yield stream.getvalue().encode()
    elif numbers and syntax == "lines":
        lines = content.decode().split("\n")
        for i in {0, 1, len(lines) // 2, len(lines) - 2} & set(range(len(lines))):
            for found in _NUMBER.finditer(lines[i]):
                line = f"{lines[i][:found.start()]}%NAMED%{lines[i][found.end():]}"
                yield "\n".join((*lines[:i], line, *lines[i + 1:])).encode()


def _places(
    value: Any, place: tuple[str, ...], kinds: tuple[type, ...]
) -> Iterator[tuple[str, ...]]:
    """Places of values of these kinds, all entries of a list alike."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*place, key), kinds)
    elif isinstance(value, list):
        for inner in value[:3]:
            yield from _places(inner, (*place, "[]"), kinds)
    elif type(value) in kinds:
        yield place


def _put(document: Any, place: tuple[str, ...], kinds: tuple[type, ...]) -> bool:
    """Put the mark at the first such place."""
    key = place[0]
    inner = document if key == "[]" else [document] if key in document else []
    for i, _ in enumerate(inner):
        at: Any = i if key == "[]" else key
        if len(place) == 1:
            if type(document[at]) in kinds:
                document[at] = "%NAMED%"
                return True
        elif isinstance(document[at], dict | list) and _put(document[at], place[1:], kinds):
            return True
    return False
