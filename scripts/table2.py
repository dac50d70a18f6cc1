"""Table 2: how long it takes to generate a policy, by slack grid and number of models.

    python scripts/table2.py --profiles NAME [--quick]

Times are of one core, the shortest of a few runs at one load; they are measured anew each time,
so this is no sweep.
"""

from __future__ import annotations

import time

from evaluation.case import FLEET, STEP
from evaluation.command import case_of, csv_text, parser, show

from ramsis import profiles
from ramsis.errors import RamsisError
from ramsis.files import write_atomic
from ramsis.profiles import ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy

GRIDS = {"fixed:10": "D = 10", "fixed:100": "D = 100", "model": "model-based"}


def seconds(profile: ProfileSet, load_qps: float, settings: SynthesisSettings, runs: int) -> float:
    """Of the quickest run."""
    taken = []
    for _ in range(runs):
        begun = time.perf_counter()
        generate_policy(profile, load_qps, settings)
        taken.append(time.perf_counter() - begun)
    return min(taken)


def main() -> None:
    given = parser("Table 2: seconds to generate a policy").parse_args()
    try:
        case = case_of(given)
        sets = [case.profile, profiles.interpolate_front(case.profile, STEP)]
        load_qps = case.loads_qps[len(case.loads_qps) // 2]
        rows = []
        for grid, name in GRIDS.items():
            settings = SynthesisSettings(slo_ms=case.slo_ms, workers=FLEET, grid=grid,
                                         service="p95")
            taken = [seconds(models, load_qps, settings, 2 if case.quick else 5)
                     for models in sets]
            rows.append({"slack grid": name, **{
                f"{len(models.models)} models": f"{value:.3f}"
                for models, value in zip(sets, taken, strict=True)}})
        target = given.out / case.label / ("table2-quick.csv" if case.quick else "table2.csv")
        write_atomic(target, csv_text(rows))
    except RamsisError as error:
        raise SystemExit(f"error: {error}") from None
    show(f"Table 2: seconds to generate a policy, maximal batching, SLO {case.slo_ms:g} ms, "
         f"{load_qps:g} QPS, {FLEET} workers", rows)
    print(f"\n{target}")


if __name__ == "__main__":
    main()
