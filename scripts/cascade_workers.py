"""Workers that second opinions save on the digits: rows, a table and a figure.

python scripts/cascade_workers.py --run
python scripts/cascade_workers.py [--figure docs/pictures/cascade-workers.png]

``--run`` writes docs/results/cascade-workers.csv. Its targets are the effective accuracies that
policies with one model per request promise on some numbers of workers, rounded down. For each,
`ramsis capacity --cascades` finds the fewest workers without and with second opinions, beside the
bounds of both. The rows are then printed as a table, and drawn with ``--figure``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from study import ROOT, answer_of, markdown, parser_of, write_rows

from ramsis import load_profile
from ramsis.synthesis import SynthesisSettings, generate_policy

ROWS = ROOT / "docs/results/cascade-workers.csv"
PROFILE, LOAD_QPS, SLO_MS, SERVICE = "digits-cpu", 40_000.0, 60.0, "p95"
WORKERS = range(8, 25, 2)  # whose accuracies with one model per request are targets


def command(target: float) -> list[str]:
    """Return the search for a target."""
    return ["capacity", "--profiles", PROFILE, "--slo-ms", f"{SLO_MS:g}", "--load",
            f"{LOAD_QPS:g}", "--service", SERVICE, "--min-effective-accuracy", f"{target:g}",
            "--dispatch", "central-queue", "--cascades"]


def rows() -> Iterator[dict[str, float]]:
    """Search the fewest workers for each target."""
    profile = load_profile(PROFILE)
    for workers in WORKERS:
        policy = generate_policy(profile, LOAD_QPS, SynthesisSettings(
            slo_ms=SLO_MS, workers=workers, service=SERVICE, dispatch="central-queue"))
        target = math.floor(1e4 * policy.rates.effective_accuracy) / 1e4
        one_model, cascades = answer_of(*command(target))["rows"]
        yield {"min_effective_accuracy": target,
               **{f"{name}_one_model": one_model[name]
                  for name in ("workers", "workers_bound", "effective_accuracy", "clear")},
               **{name: cascades[name]
                  for name in ("workers", "workers_bound", "effective_accuracy", "clear",
                               "second_opinions", "gain", "gain_error")}}


def table_of(found: pd.DataFrame) -> str:
    """Return a Markdown table of workers with and without second opinions."""
    return markdown(
        ["effective accuracy", "one model", "its bound", "with second opinions",
         "bound with cascades", "fewer workers", "second opinions"],
        [[f"{row['min_effective_accuracy']:.4f}", int(row["workers_one_model"]),
          int(row["workers_bound_one_model"]), int(row["workers"]), int(row["workers_bound"]),
          f"{1.0 - row['workers'] / row['workers_one_model']:.0%}",
          f"{row['second_opinions']:.0%}"] for _, row in found.iterrows()])


def draw(found: pd.DataFrame, path: Path) -> None:
    """Draw the workers needed against the target."""
    import matplotlib.pyplot as plt

    looks = {"workers_one_model": ("one model", "#222222", "-"),
             "workers_bound_one_model": ("bound of one model", "#bbbbbb", "--"),
             "workers": ("with second opinions", "#0072b2", "-"),
             "workers_bound": ("bound with cascades", "#888888", "--")}
    figure, axis = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
    for name, (label, colour, line) in looks.items():
        axis.plot(found["min_effective_accuracy"], found[name], line, color=colour, label=label,
                  marker="o" if line == "-" else None, markersize=4)
    axis.set_xlabel("effective accuracy to reach")
    axis.set_ylabel("workers")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.run:
        write_rows(ROWS, rows())
    found = pd.read_csv(ROWS)
    print(table_of(found))
    if chosen.figure is not None:
        draw(found, chosen.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
