"""Make the shipped placement problem ``digits`` from the shipped profile ``digits-cpu``.

    python scripts/make_placement_example.py --out placement_milp/examples/digits.json

Three made-up applications read handwritten digits, each with its own copy of the measured
classifiers: cheques are checked at once and must be right, post codes are many, forms can wait.
There are four cores like the one that was measured, two at half its speed, and something runs
already.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from placement_milp.io import variants_from_profile
from ramsis import profiles
from ramsis.files import canonical_json, write_atomic

FAMILIES: tuple[dict[str, Any], ...] = (
    {"name": "cheques", "demand_qps": 200.0, "slo_ms": 25.0, "min_accuracy": 0.92},
    {"name": "forms", "demand_qps": 700.0, "slo_ms": 200.0},
    {"name": "post-codes", "demand_qps": 6000.0, "slo_ms": 50.0, "min_served": 1.0},
)
WORKER_TYPES = (
    {"name": "core", "count": 4, "memory_mb": 200.0, "cost_per_hour": 0.05},
    {"name": "slow-core", "count": 2, "memory_mb": 200.0, "cost_per_hour": 0.02,
     "latency_like": "core", "relative_speed": 0.5},
)
CURRENT = (
    {"worker": "core-1", "variants": ["post-codes/svm-poly-1600"]},
    {"worker": "core-2", "variants": ["cheques/svm-poly-3200"]},
    {"worker": "slow-core-1", "variants": ["forms/svm-poly-6400"]},
)


def variants(family: str) -> list[dict[str, Any]]:
    profile = profiles.load("digits-cpu")
    found = []
    for variant in variants_from_profile(profile, family, "core"):
        document = asdict(variant)
        document["latency"] = [
            {"worker_type": entry.worker_type, "batch": entry.batch,
             "latency_ms": round(entry.latency_ms, 4)} for entry in variant.latency
        ]
        found.append(document)
    return found


def document() -> dict[str, Any]:
    return {
        "format": "ramsis.placement-problem/1", "name": "digits",
        "objective": {"kind": "effective-accuracy", "unserved_penalty": 1.0},
        "rules": {"latency_share_of_slo": 0.5, "variants_per_worker": 2},
        "families": list(FAMILIES), "worker_types": list(WORKER_TYPES),
        "variants": [v for family in FAMILIES for v in variants(family["name"])],
        "current": list(CURRENT),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    write_atomic(parser.parse_args().out, canonical_json(document()))
