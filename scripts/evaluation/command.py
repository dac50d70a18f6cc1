"""The command line that the scripts share."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The matrices are small: threads of the linear algebra would cost more than they bring.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from evaluation.case import Case  # noqa: E402 - the threads are set first
from ramsis.errors import RamsisError  # noqa: E402
from ramsis.files import write_atomic  # noqa: E402

__all__ = ["DEFAULT_PROFILES", "case_of", "csv_text", "parser", "run", "show"]

DEFAULT_PROFILES = "digits-cpu"


def parser(description: str) -> argparse.ArgumentParser:
    """The options of every script."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--profiles", default=DEFAULT_PROFILES, metavar="FILE|NAME",
                      help="profile set (default: %(default)s)")
    made.add_argument("--out", type=Path, metavar="DIR", default=Path("evaluation_out"),
                      help="folder for results; those that are there are reused "
                      "(default: %(default)s)")
    made.add_argument("--quick", action="store_true", help="fewer points, shorter runs")
    made.add_argument("--processes", type=int, default=1, metavar="N",
                      help="processes to compute in (default: 1)")
    made.add_argument("--slo-ms", metavar="A,B,C", type=_numbers, default=(),
                      help="SLOs in the place of those by the rule")
    made.add_argument("--loads", metavar="QPS", type=_loads, default=(),
                      help="constant loads for 60 workers in the place of those by the rule: "
                      "400:4000:400")
    made.add_argument("--trace-scale", type=float, metavar="X",
                      help="factor on the trace's loads in the place of that by the rule")
    return made


def case_of(given: argparse.Namespace) -> Case:
    """What is to be evaluated."""
    return Case(given.profiles, given.quick, given.slo_ms, given.loads, given.trace_scale)


def run(name: str) -> None:
    """Run the experiment of this name: a sweep, its CSV file and its figure."""
    from evaluation.experiments import EXPERIMENTS
    from ramsis.sweep import Sweep, SweepSpec

    experiment = EXPERIMENTS[name]
    given = parser(experiment.title).parse_args()
    try:
        case = case_of(given)
        folder = given.out / case.label
        sweep = Sweep(SweepSpec.of(experiment.spec(case), name), folder / "sweep")
        print(f"{name}: {case.label}, SLOs {', '.join(f'{s:g}' for s in case.slos_ms)} ms, "
              f"{sweep.todo} steps to compute", file=sys.stderr)
        result = sweep.run(given.processes, _Dots(sweep.todo))
        for failure in result.failures:
            print(f"failed: {failure.cell.scheme}, {failure.cell.workers} workers, SLO "
                  f"{failure.cell.slo_ms:g} ms: {failure.error}", file=sys.stderr)
        if not result.rows:
            sys.exit(f"error: {name}: nothing to show, every cell failed")
        target = folder / f"{name}-quick" if case.quick else folder / name
        write_atomic(target.with_suffix(".csv"), csv_text(experiment.table(result.rows)))
        for suffix in (".png", ".svg"):
            experiment.draw(result.rows, target.with_suffix(suffix), case)
    except RamsisError as error:
        sys.exit(f"error: {error}")
    show(experiment.title, experiment.shown(result.rows))
    print(f"\n{target}.csv, .png, .svg")


def show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a Markdown table."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    print(f"{title}\n\n| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for row in rows:
        print(f"| {' | '.join(str(row.get(name, '')) for name in names)} |")


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, the columns those of all rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


class _Dots:
    """A count of the steps on stderr, on a terminal only."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def __call__(self) -> None:
        self.done += 1
        if sys.stderr.isatty():
            end = "\n" if self.done == self.total else ""
            print(f"\r{self.done}/{self.total}", end=end, file=sys.stderr, flush=True)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _loads(text: str) -> tuple[float, ...]:
    from ramsis.synthesis import parse_loads

    return parse_loads(text)
