"""Measure the batching of serving systems beside policies, on the three shipped profiles.

    python scripts/batching_schemes.py [--out docs/results/batching.csv]

BentoML's adaptive batching, deferred batches as in Symphony, and Clipper run one model each. Every
model of the front and every objective of a list is simulated, and the best of them is kept: what
an operator could have reached who knew the load. Beside them are greedy, which chooses models, and
policies for a central queue. All meet the same arrivals, with random service times. The bound is
that for these arrivals, as ``ramsis simulate`` has it. ``scripts/paper.py`` writes the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evaluation.command import csv_text
from results import ROWS, SETTINGS

from ramsis import SynthesisSettings, generate_policy, load_profile
from ramsis.bounds import realised_bound
from ramsis.cluster import Cluster
from ramsis.files import write_atomic
from ramsis.profiles import pareto_front
from ramsis.sim import (
    BentoML,
    Clipper,
    ConstantLoad,
    Fleet,
    FleetScheduler,
    Greedy,
    Policies,
    SimulationSettings,
    Symphony,
    simulate,
)

OBJECTIVES = (1.0, 0.75, 0.5)
KINDS = (BentoML, Symphony, Clipper)
DURATION_MS, SEEDS = 5_000.0, range(2)


def rows_of(name: str, slo_ms: float, workers: int, load_qps: float) -> Iterator[dict[str, Any]]:
    """Yield a row for each scheduler on one setting."""
    profile = load_profile(name)
    fleet = Fleet.of(profile, workers=workers, slo_ms=slo_ms, service="distribution")

    def run(spec: FleetScheduler, **chosen: object) -> dict[str, Any]:
        result = simulate(
            Cluster.of(profile, workers=workers, slo_ms=slo_ms), spec,
            ConstantLoad(load_qps, DURATION_MS),
            SimulationSettings(service="distribution", seeds=SEEDS))
        bound = realised_bound(
            [fleet.service_times], slo_ms=slo_ms, workers=[workers], max_batch=fleet.max_batch,
            duration_ms=result.duration_ms, counts=tuple(one.queries for one in result.metrics))
        return {"profile": name, "slo_ms": slo_ms, "workers": workers, "load_qps": load_qps,
                "scheduler": spec.name, "model": "", "objective": "", **chosen,
                "effective_accuracy": round(result.effective_accuracy, 6),
                "violation_rate": round(result.violation_rate, 6),
                "upper_bound": round(bound or 0.0, 6)}

    front = [model for model in pareto_front(fleet.table, 1)
             if fleet.largest_batch(fleet.models.index(model), slo_ms)]
    for kind in KINDS:
        yield max((run(kind(model, objective=objective), model=model, objective=objective)
                   for model in front for objective in OBJECTIVES),
                  key=lambda row: float(row["effective_accuracy"]))
    yield run(Greedy())
    made = generate_policy(profile, load_qps, SynthesisSettings(
        slo_ms=slo_ms, workers=workers, dispatch="central-queue", service="distribution"))
    yield run(Policies((made,)), scheduler="central-queue")


def main() -> None:
    """Measure the rows and write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROWS / "batching.csv", metavar="FILE")
    out = parser.parse_args().out
    write_atomic(out, csv_text([
        row for name, slo_ms, workers, loads in SETTINGS for load_qps in loads.split(",")
        for row in rows_of(name, slo_ms, workers, float(load_qps))]))


if __name__ == "__main__":
    main()
