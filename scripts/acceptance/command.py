"""The command line: which line, how much of it, and what came out."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.command import show  # sets the threads before anything is loaded

from acceptance import (
    few_workers,
    figures,
    headroom,
    intervals,
    near_capacity,
    random_settings,
)
from acceptance.line import Line, Row, spread
from acceptance.results import Results
from acceptance.setting import Effort, Setting
from ramsis.errors import RamsisError

__all__ = ["LINES", "main"]

LINES: Mapping[str, Line] = {
    "headroom": headroom.LINE,
    "random": random_settings.LINE,
    "few-workers": few_workers.LINE,
    "near-capacity": near_capacity.LINE,
    "figures": figures.LINE,
    "intervals": intervals.LINE,
}


def main(arguments: Sequence[str], description: str | None) -> int:
    """Run a line; the exit code."""
    given = _parser(description).parse_args(arguments)
    line, effort = LINES[given.line], Effort(given.quick, given.engine)
    settings = line.settings(given.seed)
    if given.reference is not None:
        settings += near_capacity.of_reference(given.reference)
    settings = [one for one in settings if given.match in str(one)]
    if given.only is not None:
        settings = spread(settings, given.only)
    out = given.out or Path("promises_out") / f"{given.line}.jsonl"
    rows = _rows(line, settings, effort, out)
    verdict = line.verdict(rows)
    if verdict.shown:
        show(verdict.about, verdict.shown)
    if verdict.misses:
        show("\nMisses", verdict.misses)
    show(f"\n{line.title}: {len(rows)} settings", verdict.summary)
    print(f"\n{'holds' if verdict.holds else 'DOES NOT HOLD'}")
    return 0 if verdict.holds else 1


def _parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("line", choices=LINES, help="what has to hold")
    made.add_argument("--out", type=Path, metavar="FILE",
                      help="results as JSON lines (default: promises_out/LINE.jsonl)")
    made.add_argument("--match", default="", metavar="TEXT",
                      help="settings whose words have this in them, as progress shows them")
    made.add_argument("--only", type=int, metavar="N",
                      help="so many of the settings, spread over all of them")
    made.add_argument("--seed", type=int, default=1, metavar="S",
                      help="of the settings drawn at random (default: 1)")
    made.add_argument("--quick", action="store_true", help="a tenth of the simulated queries")
    made.add_argument("--engine", choices=("auto", "plain"), default="auto",
                      help="plain simulates every lookup in the plain engine, which takes long")
    made.add_argument("--reference", type=Path, metavar="DIR",
                      help="folder of the public artifact's profiles, for near-capacity")
    return made


def _rows(
    line: Line, settings: Sequence[Setting], effort: Effort, out: Path
) -> list[Row]:
    """The results of all settings; what the file lacks is computed and appended to it."""
    results, rows = Results(out), list[Row]()
    for done, setting in enumerate(settings, start=1):
        def compute(number: int = done, of: Setting = setting) -> Row:
            print(f"{number}/{len(settings)}  {of}", file=sys.stderr, flush=True)
            return _computed(line, of, effort)

        rows.append(results.row({**setting.as_dict(), **effort.as_dict()}, compute))
    return rows


def _computed(line: Line, setting: Setting, effort: Effort) -> Row:
    """The results of a setting, or why there are none, and the time that it took."""
    start_s = time.process_time()
    found: dict[str, Any]
    try:
        found = line.row(setting, effort)
    except RamsisError as error:
        found = {"error": str(error)}
    return {**setting.as_dict(), **found, "seconds": round(time.process_time() - start_s, 2)}
