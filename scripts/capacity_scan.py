"""The fewest workers by search and by trying every number: the figure of docs/capacity.md.

python scripts/capacity_scan.py --out FILE
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ramsis import Cluster, load_profile
from ramsis.report.chart import Series
from ramsis.report.figure import Panel, PanelRow, plot_panels
from ramsis.sim import ConstantLoad
from ramsis.synthesis.capacity import Targets, Trial, fewest_workers, try_workers

PROFILE, SLO_MS = "image-cpu", 350.0
LOAD = ConstantLoad(load_qps=3300.0, duration_ms=30_000.0)
TARGETS = Targets(max_violation=0.001, min_accuracy=0.775)
SCHEMES = {"central-queue": "central-queue", "round-robin": "round-robin",
           "jellyfish-plus": "jellyfish-plus",
           "model-switching": "model-switching:share=0.999,profile_s=10",
           "greedy": "greedy:late=drop"}


def scan(scheduler: str) -> dict[str, Any]:
    """The answer of the search, and every number of workers around it."""
    terms: dict[str, Any] = {"scheduler": scheduler, "service": "p95"}
    profile = load_profile(PROFILE)
    found = fewest_workers(profile, LOAD, TARGETS, slo_ms=SLO_MS, **terms)
    low, high = found.workers_bound - 4, max(found.workers_bound + 14, found.workers + 4)
    trials: list[Trial] = [
        try_workers(Cluster.of(profile, workers=k, slo_ms=SLO_MS), LOAD, TARGETS, **terms)
        for k in range(low, high)]
    return {
        "answer": found.workers, "scan": next(one.workers for one in trials if one.met),
        "bound": found.bound_workers, "tried": [one.workers for one in found.trials],
        "points": [(one.workers, one.accuracy, one.violation_rate, one.met)
                   for one in trials if one.rates],
    }


def draw(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Accuracy and violations over the number of workers, a panel for each scheduler."""
    accuracy, late = [], []
    for name, one in found.items():
        workers = [point[0] for point in one["points"]]
        ends = [workers[0], workers[-1]]
        title = f"{name}: {one['answer']}, by scan {one['scan']}"
        curve = [Series("every number of workers", workers, [p[1] for p in one["points"]]),
                 Series("the search's answer", [one["answer"]],
                      [next(p[1] for p in one["points"] if p[0] == one["answer"])]),
                 Series("target", ends, [TARGETS.min_accuracy] * 2, ref=True)]
        accuracy.append(Panel(title, curve))
        rates = [100.0 * p[2] for p in one["points"]]
        late.append(Panel("", [
            Series("every number of workers", workers, rates),
            Series("the search's answer", [one["answer"]], [rates[workers.index(one["answer"])]]),
            Series("target", ends, [100.0 * TARGETS.max_violation] * 2, ref=True)]))
    plot_panels([PanelRow("accuracy in time", accuracy, 1.3),
                 PanelRow("violations (%)", late, 0.9, log_like=True)], path, "workers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The fewest workers by search and by scan")
    parser.add_argument("--out", type=Path, default=Path("capacity-scan.png"), metavar="FILE")
    given = parser.parse_args()
    results = {}
    for label, text in SCHEMES.items():
        results[label] = scan(text)
        print(label, {k: v for k, v in results[label].items() if k != "points"}, file=sys.stderr)
    draw(results, given.out)
    print(given.out)
