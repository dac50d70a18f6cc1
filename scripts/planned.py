"""The planned scheduler where models outnumber places, beside others on the same requests.

python scripts/planned.py --cells
python scripts/planned.py --random 1000 --jobs 16 --rows rows.jsonl --json all.json

*The cells.* Twelve models share eight places, on four workers of two places or eight of one. A
load takes 150 ms. The twelve cells differ in rate, in how popular some models are, and in whether
loads block batches. Four more cells: two lanes where memory is tight, six places for seven
models, a hot model that is overloaded for a minute, and twelve models with time to wait for their
loads. ``pinned`` is the best fixed set of models with hindsight, held from the start.

*Random scenarios* have 2 to 8 workers and 3 to 24 models of one or two worker types, loads of 10
to 500 ms, and at least 10,000 requests. Every second one has memory for 0.4 to 0.9 of the copies
that one of each model takes; the others for 1.2 to 4 times as many.

They are played by ``--jobs`` processes. With ``--rows`` each is a line of JSON as soon as it has
ended, and a further run plays those that the file lacks. One that planned is far below the best in
is named with its seed: ``--random 1 --seed SEED`` plays it again.

Prints a row for each scenario, with shares of requests in time, and then what they come to.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.bounds import scenario_bound
from ramsis.errors import RamsisError
from ramsis.files import write_atomic
from ramsis.scenario import (
    Requests,
    Scenario,
    StartState,
    draw_requests,
    scenario_from_document,
)
from ramsis.sim import Engine, scheduler
from ramsis.sim.schedulers.loading.planned import Planned

COMPARED = ("planned", "clockwork", "lru", "round-robin", "random")
BATCHES = (1, 2, 4, 8, 16)
LEAST_REQUESTS = 10_000
FAR_BELOW = 0.03


class Pinned(Planned):
    """Holds what it holds at the start, and drops requests for all else."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.fixed = True

    def load_more(self) -> None:
        """Load nothing."""


def latencies(worker_type: str, batch_1_ms: float, growth: float = 0.75) -> list[dict[str, Any]]:
    """Batch times that grow with a power of the size."""
    return [{"worker_type": worker_type, "batch": batch,
             "latency_ms": round(batch_1_ms * batch**growth, 3)} for batch in BATCHES]


def cell(
    name: str, models: int, workers: int, shares: Sequence[float], rate_qps: float, *,
    slo_ms: float = 200.0, load_ms: float = 150.0, batch_1_ms: float = 10.0,
    duration_s: float = 30.0, **worker: Any,
) -> Scenario:
    """Models of equal size, one worker type, nothing held at the start."""
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": name, "duration_s": duration_s,
        "worker_types": [{"name": "gpu", "count": workers, "memory_mb": 1000, **worker}],
        "models": [{"name": "m", "copies": models, "memory_mb": 100, "load_ms": load_ms,
                    "latency": latencies("gpu", batch_1_ms)}],
        "streams": [{"name": "users", "model": "m", "slo_ms": slo_ms, "shares": list(shares),
                     "workload": {"load_qps": rate_qps}}]})


def popularity(models: int, skew: float) -> list[float]:
    """Shares by a power law of the rank."""
    return [float(share) for share in (np.arange(models) + 1.0) ** -skew]


def scarce_cells() -> list[Scenario]:
    """Twelve models on eight places."""
    found = []
    for number, (rate_qps, skew) in enumerate(
            (rate, skew) for rate in (170.0, 430.0, 790.0) for skew in (0.3, 1.1)):
        for loading in ("blocking", "beside"):
            workers = (8, 4)[number % 2]
            found.append(cell(
                f"12 on 8: {workers} workers, {rate_qps:g}/s, skew {skew:g}, {loading}", 12,
                workers, popularity(12, skew), rate_qps, max_models=8 // workers,
                loading=loading))
    return found


def other_cells() -> list[Scenario]:
    """Two lanes, 6 places for 7 models, a hot model, and time to wait."""
    document = {
        "format": "ramsis.scenario/1", "name": "hot model for a minute", "duration_s": 120,
        "worker_types": [{"name": "gpu", "count": 4, "max_models": 3}],
        "models": [{"name": "m", "copies": 9, "load_ms": 300,
                    "latency": latencies("gpu", 10.0)}],
        "streams": [
            {"name": "all", "model": "m", "slo_ms": 100, "workload": {"load_qps": 55}},
            {"name": "hot", "model": "m", "slo_ms": 100, "shares": [1, 0, 0, 0, 0, 0, 0, 0, 0],
             "workload": {"minutes": [4000, 27_000]}}]}
    return [
        cell("two lanes, memory for 7 of 9", 9, 2, popularity(9, 0.6), 330.0, slo_ms=150.0,
             load_ms=90.0, batch_1_ms=14.0, max_models=4, lanes=2),
        cell("6 places for 7 models", 7, 3, popularity(7, 0.5), 210.0, slo_ms=350.0,
             load_ms=120.0, max_models=2),
        scenario_from_document(document),
        cell("12 on 8, with time to wait", 12, 4, popularity(12, 1.0), 90.0, slo_ms=1100.0,
             max_models=2, loading="blocking")]


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


def pinned_share(scenario: Scenario, requests: Requests, seed: int) -> float:
    """The largest share of sets that are held from the start: most wanted models, with copies."""
    kind, = scenario.worker_types
    count = np.bincount(requests.model, minlength=len(scenario.arrays.models)).astype(float)
    workers = kind.count
    places = (kind.max_models or 10) * workers
    order = np.argsort(-count, kind="stable")
    best = 0.0
    for distinct in range(1, min(places, len(count)) + 1):
        copies = np.zeros(len(count), dtype=int)
        copies[order[:distinct]] = 1
        for _ in range(places - distinct):
            more = np.where((copies > 0) & (copies < workers), count / np.maximum(copies, 1), -1.0)
            if more.max() < 0.0:
                break
            copies[more.argmax()] += 1
        held = _placed(count / np.maximum(copies, 1), copies, workers, places // workers)
        names = scenario.arrays.models
        there = replace(scenario, start=tuple(
            StartState(f"{kind.name}-{w + 1}" if workers > 1 else kind.name,
                       tuple(names[m] for m in models))
            for w, models in enumerate(held) if models))
        run = Engine.of_scenario(there, seed, requests=requests).serve(Pinned)
        best = max(best, float(run.in_time.mean()))
    return best


def _placed(
    work: NDArray[np.float64], copies: NDArray[np.int64], workers: int, places: int
) -> list[list[int]]:
    """Copies on workers, those of most work first, each on the worker of least work."""
    held: list[list[int]] = [[] for _ in range(workers)]
    busy = [0.0] * workers
    for model in np.argsort(-work, kind="stable").tolist():
        for _ in range(copies[model]):
            free = [w for w in range(workers) if len(held[w]) < places and model not in held[w]]
            if not free:
                break
            worker = min(free, key=busy.__getitem__)
            held[worker].append(model)
            busy[worker] += work[model]
    return held


def random_row(seed: int, schedulers: Sequence[str], bound: bool) -> dict[str, Any]:
    """What each scheduler makes of the random scenario of a seed."""
    return {"kind": "random", "seed": seed, "scarce": seed % 2 == 0,
            **shares_of(*random_scenario(seed), schedulers, seed, bound)}


def random_rows(
    seeds: Sequence[int], schedulers: Sequence[str], bound: bool, jobs: int
) -> Iterator[dict[str, Any]]:
    """A row for each seed, as they end."""
    if jobs == 1:
        for seed in seeds:
            yield random_row(seed, schedulers, bound)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(random_row, seed, schedulers, bound)
                                  for seed in seeds]):
            yield done.result()


def played(
    options: argparse.Namespace, schedulers: Sequence[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each scenario, and lines that say what they come to."""
    rows, lines = [], []
    bound = not options.no_bound
    if options.cells:
        for number, scenario in enumerate([*scarce_cells(), *other_cells()]):
            requests = draw_requests(scenario, options.seed)
            row = {"kind": "scarce" if number < 12 else "other",
                   **shares_of(scenario, requests, schedulers, options.seed, bound)}
            if number < 12:
                row["pinned"] = round(pinned_share(scenario, requests, options.seed), 4)
            rows.append(row)
            show(row, schedulers)
        lines += said_of_cells(rows, schedulers)
    if options.random:
        seeds = range(options.seed, options.seed + options.random)
        found = {row["seed"]: row for row in rows_before(options.rows) if row["seed"] in seeds}
        for row in random_rows([seed for seed in seeds if seed not in found], schedulers, bound,
                               options.jobs):
            show(row, schedulers)
            found[row["seed"]] = row
            if options.rows is not None:
                with options.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        rows += (found[seed] for seed in seeds)
        lines += said_of_random([found[seed] for seed in seeds], schedulers)
    return rows, lines


def rows_before(path: Path | None) -> list[dict[str, Any]]:
    """Rows of an earlier run; a last line that was cut off is left out."""
    if path is None or not path.exists():
        return []
    whole = path.read_text(encoding="utf-8")
    complete = whole[:whole.rfind("\n") + 1]
    if complete != whole:
        write_atomic(path, complete)
    return [json.loads(line) for line in complete.splitlines()]


def show(row: dict[str, Any], schedulers: Sequence[str]) -> None:
    """Print a row."""
    print("  ".join([f"{row['scenario']:<44}", *(
        f"{name} {row[name]:.4f}" for name in (*schedulers, "pinned", "bound")
        if row.get(name) is not None), f"loads {row['planned_loads']}"]), flush=True)


def best_other(row: dict[str, Any], schedulers: Sequence[str]) -> float:
    """The largest share of the schedulers that planned is compared with."""
    return max((row[name] for name in schedulers[1:] if row[name] is not None), default=0.0)


def said_of_cells(rows: Sequence[dict[str, Any]], schedulers: Sequence[str]) -> list[str]:
    """Where planned stands in the cells."""
    scarce = [row for row in rows if row["kind"] == "scarce"]
    others = [row for row in rows if row["kind"] == "other"]
    lines = []
    if "clockwork" in schedulers:
        no_less = sum(row["planned"] >= row["clockwork"] for row in scarce)
        lines.append(f"8 places for 12 models: planned is no less than clockwork in {no_less} of "
                     f"{len(scarce)} cells")
    share = float(np.mean([row["planned"] / row["pinned"] for row in scarce]))
    lines.append(f"mean share of the pinned with hindsight: {share:.3f}")
    below = max(best_other(row, schedulers) - row["planned"] for row in others)
    lines.append(f"other cells: planned is at most {max(below, 0.0):.4f} below the best")
    return lines


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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", action="store_true", help="play the sixteen cells")
    parser.add_argument("--random", type=int, default=0, metavar="N",
                        help="play N random scenarios")
    parser.add_argument("--seed", type=int, default=0, help="of the first, and of the cells")
    parser.add_argument("--jobs", type=int, default=1, metavar="N",
                        help="processes that play random scenarios")
    parser.add_argument("--rows", type=Path, metavar="FILE",
                        help="add a line of JSON for each random scenario; play those it lacks")
    parser.add_argument("--scheduler", action="append", metavar="NAME",
                        help=f"beside planned; repeat; by default {', '.join(COMPARED[1:])}")
    parser.add_argument("--no-bound", action="store_true", help="leave out what none can beat")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    schedulers = ("planned", *(options.scheduler or COMPARED[1:]))
    try:
        for name in schedulers:  # one that is not there would fail in each scenario
            scheduler(name)
    except RamsisError as error:
        parser.error(str(error))
    rows, lines = played(options, schedulers)
    print("\n".join(lines))
    if options.json is not None:
        write_atomic(options.json, json.dumps({"rows": rows, "summary": lines}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
