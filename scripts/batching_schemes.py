"""How far the batching of serving systems is from the bound, on the three shipped profiles.

python scripts/batching_schemes.py [--service p95] [--duration-s 5] [--out rows.jsonl] [--json]

BentoML's adaptive batching, deferred batches as in Symphony, and Clipper run one model each. Every
model of the front and every objective of a list is simulated, and the best of them stands in the
table: what an operator could have reached who knew the load. Beside them are greedy, which chooses
models, and policies for a central queue. All meet the same arrivals. The bound is that for these
arrivals, as ``ramsis simulate`` has it. Finished cases in ``--out`` are not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramsis import SynthesisSettings, generate_policy, load_profile
from ramsis.bounds import realised_bound
from ramsis.cluster import Cluster
from ramsis.profiles import pareto_front
from ramsis.sim import (
    BentoML,
    Clipper,
    ConstantLoad,
    Fleet,
    FleetScheduler,
    Greedy,
    Policies,
    SimulationResult,
    SimulationSettings,
    Symphony,
    simulate,
)

OBJECTIVES = (1.0, 0.75, 0.5)
KINDS = (BentoML, Symphony, Clipper)


@dataclass(frozen=True)
class Case:
    """A profile, its SLO and workers, and a load."""

    profile: str
    slo_ms: float
    workers: int
    load_qps: float

    def named(self, settings: argparse.Namespace) -> str:
        """What a finished case is known by."""
        return (f"{self.profile} {self.slo_ms:g} ms, {self.workers} workers, {self.load_qps:g} "
                f"QPS, {settings.service}, {settings.duration_s:g} s, {settings.seeds} seeds")


CASES = [Case(profile, slo_ms, workers, load_qps)
         for profile, slo_ms, workers, loads in (
             ("digits-cpu", 25.0, 4, (800.0, 1600.0, 3200.0)),
             ("text-cpu", 95.0, 20, (1000.0, 2000.0, 3000.0)),
             ("image-cpu", 350.0, 20, (450.0, 1100.0, 1700.0)))
         for load_qps in loads]


class Comparison:
    """The schedulers of a case on the same arrivals."""

    def __init__(self, case: Case, settings: argparse.Namespace) -> None:
        self.case, self.settings = case, settings
        self.profile = load_profile(case.profile)
        self.fleet = Fleet.of(self.profile, workers=case.workers, slo_ms=case.slo_ms,
                              service=settings.service)
        self.bound = 0.0

    def run(self, spec: FleetScheduler) -> SimulationResult:
        """The figures of a scheduler."""
        result = simulate(
            Cluster.of(self.profile, workers=self.case.workers, slo_ms=self.case.slo_ms), spec,
            ConstantLoad(self.case.load_qps, 1000.0 * self.settings.duration_s),
            SimulationSettings(service=self.settings.service, seeds=range(self.settings.seeds)))
        self.bound = realised_bound(
            [self.fleet.service_times], slo_ms=self.case.slo_ms, workers=[self.case.workers],
            max_batch=self.fleet.max_batch, duration_ms=result.duration_ms,
            counts=tuple(one.queries for one in result.metrics)) or 0.0
        return result

    def row(self) -> dict[str, Any]:
        """The best of each scheduler, and the bound."""
        found = {kind.name: self.best_of(kind) for kind in KINDS}
        for name, spec in (("greedy", Greedy()), ("central-queue", self.policies())):
            found[name] = self.figures(self.run(spec))
        return {"case": self.case.named(self.settings), "profile": self.case.profile,
                "slo_ms": self.case.slo_ms, "workers": self.case.workers,
                "load_qps": self.case.load_qps, "upper_bound": self.bound, "schedulers": found}

    def best_of(self, kind: type[Any]) -> dict[str, Any]:
        """The best model and objective of a scheduler that runs one model."""
        front = [name for name in pareto_front(self.fleet.table, 1)
                 if self.fleet.largest_batch(self.fleet.models.index(name), self.case.slo_ms)]
        return max((self.figures(self.run(kind(name, objective=objective)))
                    | {"model": name, "objective": objective}
                    for name in front for objective in OBJECTIVES),
                   key=lambda figures: figures["effective_accuracy"])

    def policies(self) -> Policies:
        """For a central queue, made for this load."""
        made = generate_policy(self.profile, self.case.load_qps, SynthesisSettings(
            slo_ms=self.case.slo_ms, workers=self.case.workers, dispatch="central-queue",
            service=self.settings.service))
        return Policies((made,))

    @staticmethod
    def figures(result: SimulationResult) -> dict[str, Any]:
        """What is kept of a result."""
        return {"effective_accuracy": result.effective_accuracy,
                "violation_rate": result.violation_rate}


def rows(settings: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each case: those in the file, and the others."""
    done = {}
    if settings.out is not None and settings.out.exists():
        done = {row["case"]: row for row in map(json.loads, settings.out.open())}
    for case in CASES:
        row = done.get(case.named(settings))
        if row is None:
            row = Comparison(case, settings).row()
            if settings.out is not None:
                with settings.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        yield row


def main() -> None:
    """Print the table: the bound, and by how much each scheduler is below it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--service", default="distribution", choices=("distribution", "p95"))
    parser.add_argument("--duration-s", type=float, default=5.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="JSON lines of finished cases")
    parser.add_argument("--json", action="store_true")
    settings = parser.parse_args()
    names = [*(kind.name for kind in KINDS), "greedy", "central-queue"]
    if not settings.json:
        print("| | load (QPS) | bound |", " | ".join(names), "|")
        print("|" + "---|" * (3 + len(names)))
    for row in rows(settings):
        if settings.json:
            print(json.dumps(row))
            continue
        cells = (row["schedulers"][name] for name in names)
        print(f"| `{row['profile']}`, SLO {row['slo_ms']:g} ms, {row['workers']} workers "
              f"| {row['load_qps']:g} | {row['upper_bound']:.4f} |",
              " | ".join(f"{row['upper_bound'] - cell['effective_accuracy']:.4f} "
                         f"({cell['violation_rate']:.2%})" for cell in cells), "|", flush=True)


if __name__ == "__main__":
    main()
