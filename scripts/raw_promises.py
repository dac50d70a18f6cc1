"""Promises of policies that are made from raw samples, replayed on these samples.

Service times have heavy tails: log-normal, bimodal, one outlier in 500. Each policy is made from
a profile of the samples, and replayed by a simulator of its own (tests/sim/raw_replay.py), which
reads the file by itself and decides as ramsis.runtime does; each service time is one of the raw
samples of the size to run. A promise holds when the violation rate is within 25 % or 0.0002 of its
interval, and the effective accuracy within 0.002; a budget, when the rate is no higher, by twice
its standard error.

Results are appended to a file of JSON lines, and those that are there are not made again.

python scripts/raw_promises.py [--quick] [--budgets 0.01 0.001 0.0005]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import evaluation.command  # noqa: F401 - sets the threads before anything is loaded
from acceptance.results import Results
from study import parser_of

from ramsis.errors import InfeasibleError
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.sim.raw_replay import replayed
from tests.sim.raw_samples import LARGEST, LAWS, Measured

PER_WORKER, CENTRAL = "round-robin", "central-queue"
STATIONS = (
    (PER_WORKER, 1, 60.0, 60.0), (PER_WORKER, 1, 150.0, 60.0), (PER_WORKER, 2, 100.0, 60.0),
    (PER_WORKER, 2, 250.0, 90.0), (PER_WORKER, 4, 600.0, 60.0),
    (CENTRAL, 1, 60.0, 60.0), (CENTRAL, 2, 60.0, 60.0), (CENTRAL, 12, 900.0, 60.0),
    (CENTRAL, 12, 2400.0, 60.0), (CENTRAL, 4, 300.0, 60.0),
)
"""Dispatch, workers, QPS, SLO in ms."""
SMALLER = 9
"""Largest batch of central queues."""
RATE_SHARE, RATE, ACCURACY = 0.25, 2e-4, 0.002
"""How far a replay may be from the promise's interval, by share or as such; from the accuracy."""


@dataclass(frozen=True)
class Case:
    """One setting."""

    law: str
    dispatch: str
    workers: int
    load_qps: float
    slo_ms: float
    samples: int
    queries: int
    budget: float | None = None
    seed: int = 1


def cases(quick: bool, budgets: tuple[float, ...], samples: int, queries: int) -> Iterator[Case]:
    """All settings, first without a budget."""
    stations = STATIONS[1::5] if quick else STATIONS
    for budget in (None, *budgets):
        for law in LAWS:
            for station in stations:
                yield Case(law, *station, samples, queries // (6 if quick else 1), budget)


def outcome(case: Case) -> dict[str, Any]:
    """What was promised and what was delivered."""
    # A central queue of any length is in the table; of others what the largest batch takes.
    most = LARGEST if case.dispatch == PER_WORKER else SMALLER
    measured = Measured.of(LAWS[case.law], case.samples, case.seed, largest=most)
    settings = SynthesisSettings(
        slo_ms=case.slo_ms, workers=case.workers, dispatch=case.dispatch,
        max_queue=most - (case.dispatch == PER_WORKER), max_violation=case.budget)
    start = time.process_time()
    try:
        policy = generate_policy(measured.profile, case.load_qps, settings)
    except InfeasibleError as refusal:
        return {"holds": "samples or more" in str(refusal) or "at least" in str(refusal),
                "refused": str(refusal)}
    made = time.process_time() - start
    found = replayed(policy, measured.samples, case.queries, case.seed)
    expected = policy.expectations
    assert expected.interval is not None
    low, high = expected.interval.violation_rate
    within = (min((1 - RATE_SHARE) * low, low - RATE) <= found.violation_rate
              <= max((1 + RATE_SHARE) * high, high + RATE))
    close = abs(found.effective_accuracy - expected.effective_accuracy) <= ACCURACY
    kept = case.budget is None or found.violation_rate - 2 * found.error <= case.budget
    return {"holds": within and close and kept, "promised": expected.violation_rate,
            "interval": [low, high], "replayed": found.violation_rate, "error": found.error,
            "accuracy": expected.effective_accuracy,
            "replayed_accuracy": found.effective_accuracy, "seconds": round(made, 2)}


def line(case: Case, found: dict[str, Any]) -> str:
    """One row of the table."""
    budget = "-" if case.budget is None else f"{100 * case.budget:g}"
    head = (f"{case.law:10} {case.dispatch:13} {case.workers:2} {case.load_qps:6g} "
            f"{case.slo_ms:3g} {case.samples:6} {budget:>5}  ")
    mark = "" if found["holds"] else "  MISS"
    if "refused" in found:
        return f"{head}refused: {found['refused']}{mark}"
    low, high = found["interval"]
    return (f"{head}{100 * found['promised']:7.4f} [{100 * low:7.4f}, {100 * high:7.4f}] "
            f"{100 * found['replayed']:7.4f} ±{100 * found['error']:.4f}  "
            f"{found['accuracy']:.4f} {found['replayed_accuracy']:.4f} "
            f"{found['seconds']:6.1f}{mark}")


def main() -> int:
    """Make what is missing, print the table, and say how many hold."""
    command = parser_of(__doc__)
    command.add_argument("--out", type=Path, metavar="FILE",
                         default=Path("evaluation_out/raw_promises.jsonl"))
    command.add_argument("--quick", action="store_true", help="two stations, fewer queries")
    command.add_argument("--budgets", type=float, nargs="*", default=[], metavar="V")
    command.add_argument("--only-budgets", action="store_true")
    command.add_argument("--dispatch", choices=(PER_WORKER, CENTRAL), help="of this kind only")
    command.add_argument("--samples", type=int, default=2000, help="of each batch")
    command.add_argument("--queries", type=int, default=3_000_000, help="of each replay")
    given = command.parse_args()
    results, missed, made, refused = Results(given.out), 0, 0, 0
    print("law        dispatch       K    QPS SLO samples budget % | promised [interval] "
          "replayed, % | effective accuracy promised, replayed | s")
    for case in cases(given.quick, tuple(given.budgets), given.samples, given.queries):
        if (given.only_budgets and case.budget is None) or case.dispatch != (
                given.dispatch or case.dispatch):
            continue
        found = results.row(asdict(case), partial(outcome, case))
        print(line(case, found), flush=True)
        made, missed = made + 1, missed + (not found["holds"])
        refused += "refused" in found
    print(f"{made - missed} of {made} hold, {refused} refused")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
