"""Table 2: time to generate a policy, by slack grid and number of models.

    python scripts/table2.py --profiles NAME [--quick] [--paper-size]

Times are processor time of one core, the shortest of a few runs at one load; they are measured
anew each time, so this is no sweep. Of --schedulers the first policies are made, of --workers the
first number is taken.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from pathlib import Path

from evaluation.case import STEP, Case
from evaluation.command import cases_of, csv_text, parser
from evaluation.specs import WORKER, policies_of
from study import markdown

from ramsis import profiles
from ramsis.errors import InvalidValueError, RamsisError
from ramsis.files import write_atomic
from ramsis.profiles import ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.schedulers import fleet_scheduler

GRIDS = ("fixed:10", "fixed:100", "model")
BATCHINGS = ("maximal", "variable")
PAPER_SLO_MS, PAPER_LOAD_QPS, PAPER_BATCH = 500.0, 2000.0, 29


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
    command = parser("Table 2: seconds to generate a policy")
    command.add_argument("--max-queue", type=int, metavar="N", default=32,
                         help="longest queue and largest batch (default: %(default)s)")
    command.add_argument("--paper-size", action="store_true",
                         help=f"the paper's: SLO {PAPER_SLO_MS:g} ms, batches up to "
                         f"{PAPER_BATCH}, {PAPER_LOAD_QPS:g} queries per second")
    given = command.parse_args()
    if given.paper_size:
        given.slo_ms, given.loads = (PAPER_SLO_MS,), (PAPER_LOAD_QPS,)
        given.max_queue = PAPER_BATCH
    try:
        for case in cases_of(given):
            table(case, given.out, given.max_queue)
    except RamsisError as error:
        raise SystemExit(f"error: {error}") from None


def table(case: Case, folder: Path, max_queue: int) -> None:
    """Take the times of one profile set."""
    scheduler, workers = policies_of(case.given_schedulers or (WORKER,))[0], case.fleets[0]
    made = replace(fleet_scheduler(scheduler).settings(
        slo_ms=case.slo_ms, workers=workers, service="p95"), service="p95", max_queue=max_queue)
    sets = [case.profile, profiles.interpolate_front(case.profile, STEP)]
    loads_qps = case.loads_for(workers)
    load_qps = loads_qps[len(loads_qps) // 2]
    rows = []
    for grid, batching in product(case.given_grids or GRIDS, BATCHINGS):
        settings = replace(made, grid=grid, batching=batching)
        taken = [seconds(models, load_qps, settings, 1 if case.quick else 3)
                 for models in sets]
        name = "model-based" if grid == "model" else f"D = {grid.partition(':')[2]}"
        rows.append({"slack grid": name, "batching": batching, **{
            f"{len(models.models)} models": value
            for models, value in zip(sets, taken, strict=True)}})
    target = folder / case.label / ("table2-quick.csv" if case.quick else "table2.csv")
    write_atomic(target, csv_text(rows))
    print(f"Table 2: seconds to generate a policy ({scheduler}), SLO {case.slo_ms:g} ms, batches "
          f"up to {max_queue}, {load_qps:g} QPS, {workers} workers\n\n"
          f"{markdown(list(rows[0]), [list(row.values()) for row in rows])}\n\n{target}")


if __name__ == "__main__":
    main()
