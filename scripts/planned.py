"""The planned scheduler beside others on random scenarios.

    python scripts/planned.py --random 100 [--rows rows.jsonl] [--json all.json]

Scenarios have 2 to 8 workers and 3 to 24 models of one or two worker types, loads of 10 to 500 ms,
and at least 10,000 requests. Every second one has memory for 0.4 to 0.9 of the copies that one of
each model takes; the others for 1.2 to 4 times as many.

With ``--rows`` each is a line of JSON as soon as it has ended, and a further run plays those that
the file lacks. One that planned is far below the best in is named with its seed: ``--random 1
--seed SEED`` plays it again. Printed is a row for each scenario, with shares of requests in time,
and then what they come to.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from study import Results, parser_of

from ramsis.bounds import scenario_bound
from ramsis.errors import RamsisError
from ramsis.files import write_atomic
from ramsis.scenario import (
    Requests,
    Scenario,
    draw_requests,
    scenario_from_document,
)
from ramsis.sim import Engine, scheduler

COMPARED = ("clockwork", "lru", "round-robin", "random")
BATCHES = (1, 2, 4, 8, 16)
LEAST_REQUESTS = 10_000
FAR_BELOW = 0.03


def latencies(worker_type: str, batch_1_ms: float, growth: float = 0.75) -> list[dict[str, Any]]:
    """Batch times that grow with a power of the size."""
    return [{"worker_type": worker_type, "batch": batch,
             "latency_ms": round(batch_1_ms * batch**growth, 3)} for batch in BATCHES]


def random_scenario(seed: int) -> tuple[Scenario, Requests]:
    """See the module; scarce memory where the seed is even."""
    rng = np.random.default_rng((seed, 31))
    workers, models = int(rng.integers(2, 9)), int(rng.integers(3, 25))
    places = (rng.uniform(0.4, 0.9) if seed % 2 == 0 else rng.uniform(1.2, 4.0)) * models
    each = max(round(places / workers), 1)
    two_types = workers >= 3 and rng.random() < 0.3
    counts = (workers - workers // 3, workers // 3) if two_types else (workers,)
    size_mb = rng.uniform(50.0, 200.0, models) if rng.random() < 0.5 else np.full(models, 100.0)
    lanes = int(rng.choice([1, 1, 2]))
    loading, at_a_time = str(rng.choice(["beside", "blocking"])), int(rng.choice([1, 1, 2]))
    types = [{"name": f"gpu{i}", "count": count, "lanes": lanes, "loading": loading,
              "loads_at_a_time": at_a_time,
              "memory_mb": float(max(each * 1.05 * size_mb.mean(), size_mb.max()))}
             for i, count in enumerate(counts)]
    batch_ms = rng.uniform(3.0, 30.0) * rng.lognormal(0.0, 0.4, models)
    growth, load_ms = rng.uniform(0.5, 0.95), float(np.exp(rng.uniform(np.log(10), np.log(500))))
    slo_ms = float(batch_ms.max() * np.exp(rng.uniform(np.log(2.5), np.log(30.0))))
    shares = rng.permutation((np.arange(models) + 1.0) ** -rng.uniform(0.0, 1.6))
    shares /= shares.sum()
    speeds = (1.0, 0.6)
    capacity = sum(count * lanes / speed
                   for count, speed in zip(counts, speeds, strict=False))
    rate_qps = float(rng.uniform(0.3, 1.3) * 1000.0 * capacity / (shares * batch_ms).sum())
    arrivals = "negative-binomial:4" if rng.random() < 0.3 else "poisson"
    scenario = scenario_from_document({
        "format": "ramsis.scenario/1", "name": f"random {seed}",
        "duration_s": max(1.05 * LEAST_REQUESTS / rate_qps, 10.0), "worker_types": types,
        "models": [{"name": f"m{m}", "memory_mb": float(size_mb[m]), "load_ms": load_ms,
                    "latency": [row for i, one in enumerate(types) for row in latencies(
                        str(one["name"]), float(batch_ms[m] * speeds[i]), growth)]}
                   for m in range(models)],
        "streams": [{"name": f"s{m}", "model": f"m{m}", "slo_ms": slo_ms,
                     "workload": {"load_qps": float(rate_qps * share), "arrivals": arrivals}}
                    for m, share in enumerate(shares)]})
    requests = draw_requests(scenario, seed)
    if rng.random() < 0.3:
        other = rng.permutation(models)
        changed = requests.arrival_ms > 0.5 * requests.arrival_ms.max()
        model = np.where(changed, other[requests.model], requests.model)
        requests = replace(requests, model=model, stream=model)
    return scenario, requests


def shares_of(
    scenario: Scenario, requests: Requests, schedulers: Sequence[str], seed: int, bound: bool
) -> dict[str, Any]:
    """Share in time under each scheduler, loads, processor time, and the bound."""
    row: dict[str, Any] = {"scenario": scenario.name, "requests": len(requests)}
    for name in schedulers:
        begin = time.process_time()
        try:
            run = Engine.of_scenario(scenario, seed, requests=requests).serve(scheduler(name))
        except RamsisError as error:  # such as plain round-robin's loads without end
            row[name] = None
            row[f"{name}_failed"] = str(error)
            continue
        row[name] = round(float(run.in_time.mean()), 4)
        row[f"{name}_loads"] = len(run.load_model)
        row[f"{name}_cpu_s"] = round(time.process_time() - begin, 3)
    if bound:
        found = scenario_bound(scenario, requests)
        row["bound"] = None if found is None else round(found.share, 4)
    return row


def random_row(seed: int, schedulers: Sequence[str], bound: bool) -> dict[str, Any]:
    """Return, and print, what each scheduler makes of the random scenario of a seed."""
    row = {"seed": seed, "scarce": seed % 2 == 0,
           **shares_of(*random_scenario(seed), schedulers, seed, bound)}
    show(row, schedulers)
    return row


def show(row: dict[str, Any], schedulers: Sequence[str]) -> None:
    """Print a row."""
    print("  ".join([f"{row['scenario']:<44}", *(
        f"{name} {row[name]:.4f}" for name in (*schedulers, "bound")
        if row.get(name) is not None), f"loads {row['planned_loads']}"]), flush=True)


def best_other(row: dict[str, Any], schedulers: Sequence[str]) -> float:
    """The largest share of the schedulers that planned is compared with."""
    return max((row[name] for name in schedulers[1:] if row[name] is not None), default=0.0)


def said_of_random(rows: Sequence[dict[str, Any]], schedulers: Sequence[str]) -> list[str]:
    """Where planned stands in random scenarios."""
    lines = []
    others = [name for name in schedulers if name != "random"]
    for text, some in (("", rows), (" with scarce memory", [r for r in rows if r["scarce"]])):
        if not some:
            continue
        below = np.array([best_other(row, others) - row["planned"] for row in some])
        worst = some[int(below.argmax())]["scenario"]
        lines.append(
            f"{len(some)} random scenarios{text}: planned is within .01 of the best of "
            f"{', '.join(others[1:])} in {int((below <= 0.01).sum())}, and at most "
            f"{max(below.max(), 0.0):.4f} below ({worst})")
        far = [row["seed"] for row, by in zip(some, below, strict=True) if by > FAR_BELOW]
        if far:
            lines.append(f"  more than {FAR_BELOW} below with seeds "
                         f"{', '.join(map(str, sorted(far)))}")
        shares = [row["planned"] / row["bound"] for row in some if row.get("bound")]
        if shares:
            lines.append(f"  mean share of the bound: {np.mean(shares):.3f}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--random", type=int, required=True, metavar="N", help="scenarios")
    parser.add_argument("--seed", type=int, default=0, help="of the first")
    parser.add_argument("--rows", type=Path, metavar="FILE",
                        help="add a line of JSON for each scenario; play those it lacks")
    parser.add_argument("--scheduler", action="append", metavar="NAME",
                        help=f"beside planned; repeat; by default {', '.join(COMPARED)}")
    parser.add_argument("--no-bound", action="store_true", help="leave out what none can beat")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    schedulers = ("planned", *(options.scheduler or COMPARED))
    try:
        for name in schedulers:  # one that is not there would fail in each scenario
            scheduler(name)
    except RamsisError as error:
        parser.error(str(error))
    results = Results(options.rows) if options.rows else None
    rows = []
    for seed in range(options.seed, options.seed + options.random):
        play = partial(random_row, seed, schedulers, not options.no_bound)
        rows.append(play() if results is None else results.row(
            {"seed": seed, "schedulers": schedulers, "bound": not options.no_bound}, play))
    lines = said_of_random(rows, schedulers)
    print("\n".join(lines))
    if options.json is not None:
        write_atomic(options.json, json.dumps({"rows": rows, "summary": lines}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
