"""Tables of what is implemented of five texts, from the rows kept in docs/results.

They are put into docs/evaluation/coverage.md as the documentation is built. A row of
docs/results/coverage.csv is a mechanism, an experiment, a figure or a table of a text: where it is
in the code, the command that shows it, the printed figure and ours, and its grade. Change a grade
there, with the command and the figure that justify it. The tables leave out places and commands.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from study import markdown

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "docs" / "results" / "coverage.csv"
TEXTS = {
    "sigmaos": "σOS",
    "clockwork-rl": "Clockwork with reinforcement learning",
    "warsaw": "A Kubernetes cluster (Warsaw)",
    "gpu-sharing": "GPU sharing (ETH)",
    "ramsis": "RAMSIS",
}
GRADES = ("whole", "partly", "missing")


class Row(NamedTuple):
    """A line of the table."""

    text: str  # a key of TEXTS
    row: str  # number within the text, from 1
    what: str
    where: str  # paths of the tree with a name that is in the file, as PATH:NAME, between blanks
    command: str  # that shows it; "" if there is none
    printed: str  # figure of the text
    ours: str
    grade: str  # one of GRADES
    reason: str  # why it is not whole, or what to know


def read_rows(path: Path = ROWS) -> list[Row]:
    """Read the rows, in the order of the file."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [Row(**row) for row in csv.DictReader(stream)]


def render(rows: Sequence[Row]) -> str:
    """Return the number of rows by text and grade, and a section on each text."""
    counts = []
    for key, title in {**TEXTS, "": "all"}.items():
        grades = Counter(row.grade for row in rows if key in ("", row.text))
        counts.append([title, grades.total(), *(grades[grade] for grade in GRADES)])
    return "\n".join([markdown(["text", "rows", *GRADES], counts), *(
        f"\n## {title}\n\n" + _section([row for row in rows if row.text == key])
        for key, title in TEXTS.items())])


def _section(rows: Sequence[Row]) -> str:
    """Return a table of the rows with a figure or a remark, and a list of all others."""
    alike = [row for row in rows if not (row.reason or row.printed or row.ours)]
    table = markdown(("", "what", "printed", "here", "grade"), (
        [row.row, row.what, row.printed, row.ours,
         f"{row.grade}: {row.reason}" if row.reason else row.grade]
        for row in rows if row not in alike))
    names = "; ".join(row.what for row in alike)
    return f"Whole, without figures: {names}.\n\n{table}"
