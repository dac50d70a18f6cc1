"""What studies share: their command line, calls of ramsis, and rows that are kept in CSV files."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from ramsis.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # scripts also import from tests

Row = dict[str, Any]
_T = TypeVar("_T")


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a script, whose help is the docstring of its module."""
    return argparse.ArgumentParser(description=description,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)


def say(text: object) -> None:
    """Print progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def answer_of(*words: object) -> Any:
    """Run a command of ramsis; return what it prints with ``--json``."""
    done = subprocess.run([sys.executable, "-m", "ramsis", *map(str, words), "--json"], text=True,
                          capture_output=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"error: ramsis {' '.join(map(str, words))}: {done.stderr[-1000:]}")
    return json.loads(done.stdout)


def family_of(process: int) -> list[int]:
    """Return a process and its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = [process]
    for one in found:  # which grows
        found += children.get(one, [])
    return found


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file as texts."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def records(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table, with None for what they lack."""
    return [{str(name): value for name, value in row.items()}
            for row in table.astype(object).where(table.notna(), None).to_dict("records")]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Write rows to a CSV file, each as soon as it is made; return them as they are read again."""
    made: list[Mapping[str, Any]] = []
    for row in rows:
        _write(path, made, [row])
    return pd.read_csv(path)


def complete(
    path: Path, cases: Iterable[Mapping[str, Any]],
    rows_of: Callable[..., Iterable[Mapping[str, Any]]],
) -> pd.DataFrame:
    """Add the rows of cases that a CSV file lacks, those of a case when it has ended.

    A case is what its rows have in common, by column; ``rows_of`` takes it as keywords. Returns
    the rows of all cases.
    """
    kept: list[Mapping[str, Any]] = [*read_rows(path)] if path.exists() else []
    for case in cases:
        if not any(_texts(case).items() <= row.items() for row in kept):
            _write(path, kept, rows_of(**case))
    return pd.read_csv(path)


def keep_rows(
    description: str | None, name: str, cases: Iterable[Mapping[str, Any]],
    rows_of: Callable[..., Iterable[Mapping[str, Any]]],
    text_of: Callable[[pd.DataFrame], str] | None = None,
) -> None:
    """Run the command line of a study: complete its kept rows, and print what a page says of them.

    The rows are those of docs/results, unless ``--rows`` names another file.
    """
    parser = parser_of(description)
    parser.add_argument("--rows", type=Path, default=ROOT / "docs" / "results" / f"{name}.csv")
    rows = complete(parser.parse_args().rows, cases, rows_of)
    if text_of is not None:
        print(text_of(rows))


def _write(path: Path, kept: list[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> None:
    before = len(kept)
    kept += map(_texts, new)
    write_atomic(path, pd.DataFrame(kept).to_csv(index=False))
    for row in kept[before:]:
        say(", ".join(f"{name} {value}" for name, value in row.items()))


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """Return values as they are in the file: with at most six decimals, and nothing for None."""
    return {name: "" if value is None else
            str(round(float(value), 6) if isinstance(value, float) else value)
            for name, value in row.items()}


class Results:
    """A file of JSON lines with results by key, to which new ones are appended.

    A last line that was cut off by an interruption is removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and not text.endswith("\n"):  # a run was cut off in this line
            text = text[:text.rfind("\n") + 1]
            write_atomic(path, text)
        self._known = dict(_known(text))

    def row(self, key: Row, make: Callable[[], Row]) -> Row:
        """Return the result of a key; it is made and appended where the file lacks it."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._known:
            self._known[name] = made = make()
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"key": key, **made}) + "\n")
        return self._known[name]


def _known(text: str) -> Iterator[tuple[str, Row]]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            yield json.dumps(row.pop("key"), sort_keys=True), row


class Figure(NamedTuple):
    """A figure over all cases of a check, and the most that it may be."""

    what: str
    value: float
    most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it is allowed."""
        return self.most is None or self.value <= self.most


Verdict = tuple[list[Figure], Mapping[str, "pd.Series[bool]"]]
"""Figures over all cases, and by reason which cases miss what they have to hold."""


def spread(items: Sequence[_T], count: int) -> list[_T]:
    """Return so many of some items, as evenly spread as can be.

    >>> spread("abcdefg", 3)
    ['a', 'd', 'g']
    """
    if count >= len(items):
        return list(items)
    return [items[round(i * (len(items) - 1) / max(count - 1, 1))] for i in range(count)]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(map(str, row))} |".replace("|  |", "| |").replace("|  |", "| |")
             for row in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def with_part(page: str, text: str, name: str) -> str:
    """Return a page with another text between its marks ``NAME:begin`` and ``NAME:end``."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise SystemExit(f"error: the page lacks {begin} or {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def write_part(path: Path, name: str, text: str) -> None:
    """Write a text between its marks on a page."""
    write_atomic(path, with_part(path.read_text("utf-8"), text, name))
