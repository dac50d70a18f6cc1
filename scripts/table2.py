"""Table 2: time to generate a policy, by slack grid and number of models.

    python scripts/table2.py --profiles NAME [--quick]

Times are processor time of one core, the shortest of a few runs at one load; they are measured
anew each time, so this is no sweep.
"""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

from evaluation.case import FLEET, STEP, Case
from evaluation.command import cases_of, csv_text, parser, show

from ramsis import profiles
from ramsis.errors import InvalidValueError, RamsisError
from ramsis.files import write_atomic
from ramsis.profiles import ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy

GRIDS = {"fixed:10": "D = 10", "fixed:100": "D = 100", "model": "model-based"}
BATCHINGS = ("maximal", "variable")


def seconds(profile: ProfileSet, load_qps: float, settings: SynthesisSettings, runs: int) -> str:
    """Processor time of the quickest run, or that the problem is too large."""
    taken = []
    for _ in range(runs):
        begun = time.process_time()
        try:
            generate_policy(profile, load_qps, settings)
        except InvalidValueError as error:
            if "too large" not in str(error):
                raise
            return "too large"
        taken.append(time.process_time() - begun)
    return f"{min(taken):.3f}"


def main() -> None:
    given = parser("Table 2: seconds to generate a policy").parse_args()
    try:
        for case in cases_of(given):
            table(case, given.out)
    except RamsisError as error:
        raise SystemExit(f"error: {error}") from None


def table(case: Case, folder: Path) -> None:
    """Take the times of one profile set."""
    sets = [case.profile, profiles.interpolate_front(case.profile, STEP)]
    load_qps = case.loads_qps[len(case.loads_qps) // 2]
    rows = []
    for (grid, name), batching in product(GRIDS.items(), BATCHINGS):
        settings = SynthesisSettings(slo_ms=case.slo_ms, workers=FLEET, grid=grid,
                                     batching=batching, service="p95")
        taken = [seconds(models, load_qps, settings, 1 if case.quick else 3)
                 for models in sets]
        rows.append({"slack grid": name, "batching": batching, **{
            f"{len(models.models)} models": value
            for models, value in zip(sets, taken, strict=True)}})
    target = folder / case.label / ("table2-quick.csv" if case.quick else "table2.csv")
    write_atomic(target, csv_text(rows))
    show(f"Table 2: seconds to generate a policy, SLO {case.slo_ms:g} ms, "
         f"{load_qps:g} QPS, {FLEET} workers", rows)
    print(f"\n{target}")


if __name__ == "__main__":
    main()
