"""Results of long runs: JSON lines, of which those that are there are not made again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["Results"]

Row = dict[str, Any]


class Results:
    """A file of results by key, to which new ones are appended.

    A last line that was cut off by an interruption is passed over.

    Parameters
    ----------
    path : Path
        The file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and not text.endswith("\n"):
            with path.open("a", encoding="utf-8") as stream:
                stream.write("\n")
        self._known = dict(_known(text))

    def row(self, key: dict[str, Any], make: Callable[[], Row]) -> Row:
        """The result of a setting; made and appended where the file lacks it."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._known:
            self._known[name] = made = make()
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"key": key, **made}) + "\n")
        return self._known[name]


def _known(text: str) -> Iterator[tuple[str, Row]]:
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        yield json.dumps(row.pop("key"), sort_keys=True), row
