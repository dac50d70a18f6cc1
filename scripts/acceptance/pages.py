"""Parts of pages that scripts write anew, each between two marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ramsis.files import write_atomic

__all__ = ["markdown", "with_part", "write_part"]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(map(str, row))} |".replace("|  |", "| |").replace("|  |", "| |")
             for row in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def with_part(page: str, text: str, begin: str, end: str) -> str:
    """The page with another text between its marks.

    Raises
    ------
    SystemExit
        It does not have them.
    """
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise SystemExit(f"error: the page lacks {begin} or {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def write_part(path: Path, name: str, text: str) -> None:
    """Write a text between the marks ``NAME:begin`` and ``NAME:end`` of a file."""
    write_atomic(path, with_part(
        path.read_text("utf-8"), text, f"<!-- {name}:begin -->", f"<!-- {name}:end -->"))
