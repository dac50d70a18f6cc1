"""What studies share: their command line, calls of ramsis, and rows that are kept in CSV files."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ramsis.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # scripts also import from tests

Row = Mapping[str, Any]


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


def write_rows(path: Path, rows: Iterable[Row]) -> pd.DataFrame:
    """Write rows to a CSV file, each as soon as it is made; return them as they are read again."""
    made: list[Row] = []
    for row in rows:
        _write(path, made, [row])
    return pd.read_csv(path)


def complete(
    path: Path, cases: Iterable[Row], rows_of: Callable[..., Iterable[Row]]
) -> pd.DataFrame:
    """Add the rows of cases that a CSV file lacks, those of a case when it has ended.

    A case is what its rows have in common, by column; ``rows_of`` takes it as keywords. Returns
    the rows of all cases.
    """
    kept: list[Row] = [*read_rows(path)] if path.exists() else []
    for case in cases:
        if not any(_texts(case).items() <= row.items() for row in kept):
            _write(path, kept, rows_of(**case))
    return pd.read_csv(path)


def _write(path: Path, kept: list[Row], new: Iterable[Row]) -> None:
    before = len(kept)
    kept += map(_texts, new)
    write_atomic(path, pd.DataFrame(kept).to_csv(index=False))
    for row in kept[before:]:
        say(", ".join(f"{name} {value}" for name, value in row.items()))


def _texts(row: Row) -> dict[str, str]:
    """Return values as they are in the file: with at most six decimals, and nothing for None."""
    return {name: "" if value is None else
            str(round(float(value), 6) if isinstance(value, float) else value)
            for name, value in row.items()}
