"""Variants of iGniter's policy beside what the thesis prints of it.

python scripts/igniter.py --profile v100.csv --json igniter.json
python scripts/igniter.py --profile v100.csv --cache-draws 2000

The thesis does not print iGniter's coefficients, nor how it divides a model's load into replicas.
It prints how many GPUs the plans take: 5 for five vision models at 500 requests per second each
and an SLO of 200 ms; 6 for a mix of vision and language models at 300 and 300 ms; 2, 3, 8, 8 and 8
for the vision models at 1000 to 5000 requests per second in all and 350 ms. And it prints the
batches of efficientnet_b7 in the first of them: 9, 5, 5 and 5.

A row for each of 512 variants says what it makes of these, those with most of the eight printed
numbers first, and of these with the least distance. ``--cache-draws`` draws how much each model
disturbs the others in the shared cache, from 0 to 1, with variants drawn from the 512.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ramsis.errors import RamsisError
from ramsis.files import canonical_json, write_atomic
from ramsis.studies.sharing import Igniter, gpus_of, models_of
from ramsis.studies.sharing.gpu.profile import SharingProfile, read_sharing_profile
from ramsis.studies.sharing.igniter import DIVISIONS, CacheTerm, GpuWorkload, SchedulingTerm

VISION = ("alexnet", "densenet121", "efficientnet_b7", "resnet50", "vgg19")
LANGUAGE = ("resnet50", "mobilenet_v2", "bert", "gpt2")
CASES = ((VISION, 500.0, 200.0), (LANGUAGE, 300.0, 300.0),
         *((VISION, total / 5, 350.0) for total in (1000.0, 2000.0, 3000.0, 4000.0, 5000.0)))
PRINTED = (5, 6, 2, 3, 8, 8, 8)
BATCHES = [9, 5, 5, 5]
GRID: dict[str, tuple[Any, ...]] = {
    "build_share": (0.25, 0.5), "latency_share": (0.25, 0.5), "division": DIVISIONS,
    "rounds_up": (False, True), "checks_rate": (True, False), "scaling": (1.0, 1.62),
    "cache": (0.15, 0.5), "scheduling_ms": (0.2, 1.0)}


@dataclass(frozen=True)
class CacheOfEach:
    """Factor on the active time: each model disturbs by its own coefficient."""

    of: Mapping[str, float]

    def __call__(self, others: Sequence[GpuWorkload]) -> float:
        """The factor beside these."""
        return 1.0 + sum(self.of[o.row.model] * min(o.row.utilisation, o.share) for o in others)


def variants() -> Iterator[dict[str, Any]]:
    for values in itertools.product(*GRID.values()):
        yield dict(zip(GRID, values, strict=True))


def row_of(profile: SharingProfile, variant: Mapping[str, Any]) -> dict[str, Any]:
    """GPUs of each printed plan, and how far they are from the printed numbers."""
    given = dict(variant)
    cache, scheduling_ms = given.pop("cache"), given.pop("scheduling_ms")
    policy = Igniter(**given, scheduling=SchedulingTerm(scheduling_ms), cache=(
        CacheOfEach(cache) if isinstance(cache, Mapping) else CacheTerm(cache)))
    gpus: list[int] = []
    batches: list[int] = []
    served: list[int] = []
    for names, rps, slo_ms in CASES:
        models = models_of(profile, dict.fromkeys(names, rps), slo_ms)
        replicas, count = policy.everything(models, gpus_of(40, profile.gpu_types()[0]))
        if not gpus:
            batches = sorted((r.batch for r in replicas if r.model == "efficientnet_b7"),
                             reverse=True)
        gpus.append(count)
        served.append(len({r.model for r in replicas}))
    whole = [count if models == len(names) else None
             for count, models, (names, _, _) in zip(gpus, served, CASES, strict=True)]
    met = sum(a == b for a, b in zip(whole, PRINTED, strict=True)) + (batches == BATCHES)
    return {**variant, "gpus": gpus, "models_served": served, "efficientnet_b7_batches": batches,
            "printed_numbers_met": met,
            "distance_gpus": sum(abs(a - b) for a, b in zip(gpus, PRINTED, strict=True))}


def drawn(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Variants with a coefficient of the cache for each model."""
    rng, every = np.random.default_rng(seed), list(variants())
    names = sorted({*VISION, *LANGUAGE})
    for _ in range(count):
        variant = every[int(rng.integers(len(every)))]
        values = rng.uniform(0.0, 1.0, len(names)).round(2).tolist()
        yield {**variant, "cache": dict(zip(names, values, strict=True))}


def line_of(row: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{name} {row[name]}" for name in GRID)
    return (f"{row['printed_numbers_met']} of 8  GPUs {row['gpus']}  efficientnet_b7 "
            f"{row['efficientnet_b7_batches']}  {settings}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profile", required=True, help="CSV file of a profile of sharing")
    parser.add_argument("--cache-draws", type=int, default=0, metavar="N",
                        help="N variants with a coefficient of the cache for each model")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--show", type=int, default=12, metavar="N", help="rows that are printed")
    parser.add_argument("--json", type=Path, help="file of all rows")
    given = parser.parse_args(argv)
    try:
        profile = read_sharing_profile(given.profile)
        tried = drawn(given.cache_draws, given.seed) if given.cache_draws else variants()
        rows = sorted((row_of(profile, variant) for variant in tried), key=lambda row: (
            -row["printed_numbers_met"], row["distance_gpus"]))
        if given.json is not None:
            write_atomic(given.json, canonical_json({"printed_gpus": PRINTED, "rows": rows}))
    except RamsisError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"printed  GPUs {list(PRINTED)}  efficientnet_b7 {BATCHES}")
    for row in rows[:given.show]:
        print(line_of(row))
    both = sum(row["gpus"][0] == 5 and row["gpus"][1] == 6 for row in rows)
    slo = sum(row["gpus"][2:] == list(PRINTED[2:]) for row in rows)
    print(f"{len(rows)} variants: {both} with 5 and 6 GPUs, {slo} with 2, 3, 8, 8 and 8, "
          f"{sum(row['efficientnet_b7_batches'] == BATCHES for row in rows)} with the batches, "
          f"none with more than {rows[0]['printed_numbers_met']} of the 8 numbers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
