"""The placement problems that are timed; as a program, one of them solved in a fresh process.

``python tests/bench/placements.py NAME`` prints the work done, the time from problem to checked
placement, and the peak of the process's memory, as one JSON object. NAME is ``hundred``,
``shared`` (the same with two variants on a worker), ``ten-thousand`` or ``large``; the name of a
solver may follow.
"""

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from placement_milp import Limits, place, problem_from_document
from tests.bench.cases import report

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT.parent / "shared" / "reference" / "placement_100_workers.json"
GAPS = {"hundred": 1e-6, "shared": 1e-2, "ten-thousand": 1e-6, "large": 1e-4}


def synthetic(
    families: int, variants: int, types: int, workers: int, seed: int = 1
) -> dict[str, Any]:
    """A made-up problem: more accurate variants are slower, types differ in speed.

    The demand is what about 60 % of the workers would serve with variants of middling accuracy.
    """
    rng = np.random.default_rng(seed)
    names = [f"family-{i}" for i in range(families)]
    speed = rng.uniform(0.5, 4.0, types)
    found = []
    for i in range(variants):
        size = rng.uniform(0.0, 1.0)
        found.append({
            "name": f"variant-{i}", "family": names[i % families], "memory_mb": 100 + 4000 * size,
            "accuracy": float(0.6 + 0.39 * size ** 0.6), "load_ms": 500 + 5000 * size,
            "latency": [
                {"worker_type": f"type-{t}", "batch": b,
                 "latency_ms": float((8 + 90 * size) * (0.6 + 0.4 * b**0.85) / speed[t]
                                     * rng.uniform(0.9, 1.1))}
                for t in range(types) for b in (1, 2, 4, 8, 16, 32)],
        })
    demand = rng.dirichlet(np.full(families, 3.0)) * 55.0 * workers
    return {
        "format": "ramsis.placement-problem/1", "name": f"synthetic-{workers}",
        "objective": {"kind": "effective-accuracy", "unserved_penalty": 2.0},
        "families": [{"name": n, "demand_qps": float(d), "slo_ms": 300.0}
                     for n, d in zip(names, demand, strict=True)],
        "worker_types": [{"name": f"type-{t}", "count": workers // types, "memory_mb": 16000}
                         for t in range(types)],
        "variants": found,
    }


def document(name: str) -> dict[str, Any]:
    """The problem of a name; made up where the reference instance is not at hand."""
    if name == "large":
        return synthetic(36, 184, 10, 1000)
    if REFERENCE.exists():
        found: dict[str, Any] = json.loads(REFERENCE.read_text(encoding="utf-8"))
    else:
        found = synthetic(9, 26, 3, 99)
    if name == "shared":
        found["rules"] = {**found.get("rules", {}), "variants_per_worker": 2}
    if name == "ten-thousand":
        for family in found["families"]:
            family["demand_qps"] *= 100
        for worker_type in found["worker_types"]:
            worker_type["count"] *= 100
    return found


@dataclass(frozen=True)
class PlacementWork:
    """How much was done, so that speed cannot come from doing less."""

    workers: int
    variants: int
    families: int
    status: str
    gap: float
    objective: float
    effective_accuracy: float


def solved(name: str, solver: str = "highs") -> PlacementWork:
    """Read, solve, name the workers and check."""
    problem = problem_from_document(document(name))
    placement = place(problem, Limits(gap=GAPS[name], solver=solver))
    assert placement.gap is not None
    return PlacementWork(
        sum(item.count for item in problem.worker_types), len(problem.variants),
        len(problem.families), placement.status, placement.gap, placement.objective,
        placement.effective_accuracy)


if __name__ == "__main__":
    report(partial(solved, *sys.argv[1:]))
