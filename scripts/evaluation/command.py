"""The command line that the scripts share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.experiments import Experiment

# The matrices are small: threads of the linear algebra would cost more than they bring.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import pandas as pd  # noqa: E402 - the threads are set first
from study import parser_of, records  # noqa: E402

from evaluation.case import TRACE, Case  # noqa: E402
from ramsis.errors import RamsisError  # noqa: E402
from ramsis.files import write_atomic  # noqa: E402

__all__ = ["DEFAULT_PROFILES", "cases_of", "csv_text", "main", "parser"]

DEFAULT_PROFILES = "digits-cpu"
# Columns of the rows that figures are drawn from.
_DRAWN = ("model_set", "workers", "slo_ms", "service", "cv", "load_qps", "trace", "trace_scale",
          "scheduler", "monitor", "monitor_ms", "told", "effective_accuracy", "violation_rate",
          "upper_bound", "effective_accuracy_half_width", "expected_effective_accuracy")


def parser(description: str) -> argparse.ArgumentParser:
    """The options of every script."""
    made = parser_of(description)
    made.add_argument("--profiles", default=[DEFAULT_PROFILES], nargs="+", metavar="FILE|NAME",
                      help=f"profile sets (default: {DEFAULT_PROFILES})")
    made.add_argument("--out", type=Path, metavar="DIR", default=Path("evaluation_out"),
                      help="folder for results; those that are there are reused "
                      "(default: %(default)s)")
    made.add_argument("--quick", action="store_true", help="fewer points, shorter runs")
    made.add_argument("--processes", type=int, default=1, metavar="N",
                      help="processes to compute in (default: 1)")
    made.add_argument("--slo-ms", metavar="A,B,C", type=_numbers, default=(),
                      help="SLOs in the place of those by the rule")
    made.add_argument("--loads", metavar="QPS", type=_checked(_loads), default=(),
                      help="constant loads for 60 workers in the place of those by the rule: "
                      "400:4000:400")
    made.add_argument("--trace", metavar="FILE|NAME", default=TRACE,
                      help="rate trace: a file of rates, or a shipped one (default: %(default)s)")
    made.add_argument("--trace-scale", type=float, metavar="X",
                      help="factor on the trace's loads in the place of that by the rule")
    made.add_argument("--workers", metavar="A,B|FROM:TO:STEP", type=_checked(_workers), default=(),
                      help="numbers of workers in the place of those by the rule; constant loads "
                      "are as many for each worker as with 60")
    made.add_argument("--schedulers", nargs="+", metavar="NAME", type=_checked(_scheduler),
                      default=(),
                      help="what is compared, as `ramsis simulate --scheduler` names it: "
                      "round-robin:paper jellyfish-plus:headroom=1.05")
    made.add_argument("--grid", metavar="A,B,C", type=_checked(_grids), default=(),
                      help="slack grids: those that are compared (Fig. 10, Table 2), elsewhere "
                      "that of per-worker policies: fixed:100, model")
    made.add_argument("--three", metavar="A,B,C", type=_names, default=(),
                      help="models of Fig. 12 in the place of those by the rule")
    return made


def cases_of(given: argparse.Namespace) -> list[Case]:
    """The cases to evaluate."""
    return [Case(name, given.quick, given.slo_ms, given.loads, given.trace_scale, given.workers,
                 given.trace, tuple(given.schedulers), given.grid, given.three)
            for name in given.profiles]


def main() -> None:
    """Run the named experiments: sweeps, their CSV files and figures."""
    from evaluation.experiments import EXPERIMENTS

    command = parser("Make figures and tables of the evaluation:\n\n" + "\n".join(
        f"  {name:16}{experiment.title}" for name, experiment in EXPERIMENTS.items()))
    command.add_argument("names", nargs="+", metavar="NAME", choices=EXPERIMENTS,
                         help="one of those above; several are made one after another")
    command.add_argument("--docs", type=Path, metavar="DIR",
                         help="also put the figures there as pages show them, smaller and with "
                         "fewer colours: DIR/PROFILES-NAME.png, and the rows that they are drawn "
                         "from: PROFILES-NAME.csv")
    command.add_argument("--kept", action="store_true",
                         help="simulate nothing; draw the figures of --docs again from its rows")
    options = command.parse_args()
    try:
        for case in cases_of(options):
            for name in options.names:
                if options.kept:
                    _draw_kept(EXPERIMENTS[name], case, options.docs / f"{case.label}-{name}.csv")
                    continue
                _run_one(name, EXPERIMENTS[name], case, options)
    except RamsisError as error:
        sys.exit(f"error: {error}")


def _run_one(name: str, experiment: Experiment, case: Case, given: argparse.Namespace) -> None:
    """One experiment on one profile set."""
    from ramsis.sweep import Sweep, SweepSpec

    folder = given.out / case.label
    spec = SweepSpec.of(experiment.spec(case), name)
    sweep = Sweep(spec, folder / "sweep")
    slos_ms = sorted({cell.slo_ms for cell in spec.cells})
    print(f"{name}: {case.label}, SLOs {', '.join(f'{slo_ms:g}' for slo_ms in slos_ms)} ms, "
          f"{sweep.todo} steps to compute", file=sys.stderr)
    result = sweep.run(given.processes)
    for failure in result.failures:
        print(f"failed: {failure.cell.scheduler}, {failure.cell.workers} workers, SLO "
              f"{failure.cell.slo_ms:g} ms: {failure.error}", file=sys.stderr)
    if not result.rows:
        sys.exit(f"error: {name}: nothing to show, every cell failed")
    target = folder / f"{name}-quick" if case.quick else folder / name
    write_atomic(target.with_suffix(".csv"), csv_text(experiment.table(result.rows)))
    for suffix in (".png", ".svg"):
        experiment.draw(result.rows, target.with_suffix(suffix), case)
    if given.docs:
        kept = given.docs / f"{case.label}-{name}.csv"
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(kept, csv_text([
            {key: f"{value:.7g}" if isinstance(value := row.get(key), float) else value
             for key in _DRAWN} for row in result.rows]))
        _draw_kept(experiment, case, kept)
    print(f"{experiment.title}\n\n{experiment.shown(result.rows)}\n\n{target}.csv, .png, .svg\n")


def _draw_kept(experiment: Experiment, case: Case, rows: Path) -> None:
    """Draw a page's figure from the rows that are kept beside it."""
    cells = records(pd.read_csv(rows))
    with TemporaryDirectory() as folder:
        figure = Path(folder) / "figure.png"
        experiment.draw(cells, figure, case)
        _for_pages(figure, rows.with_suffix(".png"))


def _for_pages(figure: Path, target: Path) -> None:
    """Two thirds of the size, and at most 256 colours."""
    from PIL import Image

    with Image.open(figure) as full:
        small = full.convert("RGB").resize(
            (2 * full.width // 3, 2 * full.height // 3), Image.Resampling.LANCZOS)
    target.parent.mkdir(parents=True, exist_ok=True)
    small.quantize(256).save(target, optimize=True)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, the columns those of all rows."""
    return pd.DataFrame(rows, dtype=object).to_csv(index=False)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser of an option whose refusals are lines of argparse."""
    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except RamsisError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return parsed


def _loads(text: str) -> tuple[float, ...]:
    from ramsis.arrivals.loads import parse_loads

    return parse_loads(text)


def _workers(text: str) -> tuple[int, ...]:
    """Whole numbers >= 1."""
    numbers = _loads(text)
    if any(number != int(number) for number in numbers):
        raise argparse.ArgumentTypeError(f"not numbers of workers: got {text!r}; allowed: whole "
                                         "numbers >= 1, as 20,60,100 or 20:100:10")
    return tuple(map(int, numbers))


def _scheduler(text: str) -> str:
    """A scheduler, as it was written."""
    from ramsis.synthesis.schedulers import fleet_scheduler

    fleet_scheduler(text)
    return text


def _grids(text: str) -> tuple[str, ...]:
    """Slack grids, as they were written."""
    from ramsis.worker.problem.queue import parse_grid

    grids = _names(text)
    for grid in grids:
        parse_grid(grid)
    return grids
