"""The experiments of the σOS thesis, simulated: which scheduler wins which, and by how much.

python scripts/sigmaos.py [--json rows.json] [--seeds 200] [--scenarios FOLDER]

Three times of t5-small are fitted to the experiment with ten requests, one after the other: an
inference, the first load of all and any later one. Everything else is printed in the thesis, and
the tables are the same system with other streams of requests. ``--scenarios`` writes the
scenarios, for ``ramsis simulate``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.files import write_atomic
from ramsis.scenario import Scenario, scenario_from_document, write_scenario
from ramsis.sim import Engine, Run, scheduler

Row = dict[str, Any]

# K. Liu, Enabling Efficient ML Inference in SigmaOS with Model-Aware Scheduling, MIT, 2025.
MACHINES, CORES = 8, 4  # section 6.1
WARM_S, FIRST_LOAD_S, LATER_LOAD_S = 0.996, 6.68, 3.20
"""Fitted: ten requests take 16.64 s with one load and 29.43 s with five (section 6.2)."""
PRINTED_S: Mapping[str, Mapping[str, float]] = {
    "6.1": {"colocation": 12.38, "colocation-queue": 18.80, "registry": 14.41},
    "6.2": {"colocation": 11.18, "colocation-queue": 9.65, "registry": 15.19},
    "6.3": {"colocation": 23.09, "colocation-queue": 25.27, "registry": 20.34},
}
"""Totals, section 6.4."""
TEN_S = {"default": 29.43, "colocation": 16.64}  # section 6.2
TEN_COLD_STARTS = {"t5-small": 5, "t5-base": 5, "t5-large": 7}  # of the default, section 6.2
MANY, MANY_S = 2100, {"default": 2115.19, "colocation": 2097.30}  # section 6.3
EXTRA_S = {"t5-small": 3.0, "t5-base": 6.0, "t5-large": 17.0}
"""What a cold start costs, "about", section 6.3; elsewhere there it is 40 s for t5-large."""
BREAK_EVEN = {"t5-small": 2100, "t5-base": 4200, "t5-large": 11900}
"""Requests from which on the mean times differ by less than ``CLOSE_S``, section 6.3."""
CLOSE_S = 0.01

POST_S, FAR_S = 5.0, 5.0  # section 6.4: processing after inference, and a slow network
NEAR_S = 0.001
"""Ours: the network of table 6.3, of which the thesis says that a few bytes take little time."""

NAMES = {"default": "sigmaos", "colocation": "sigmaos-colocation",
         "colocation-queue": "sigmaos-colocation-queue", "registry": "sigmaos-registry",
         "dynamic": "sigmaos-dynamic"}


def system(
    name: str, streams: Sequence[Row], *, load_s: float = LATER_LOAD_S,
    first_load_s: float = FIRST_LOAD_S,
) -> Scenario:
    """The thesis' machines and its model, with some streams."""
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": name, "duration_s": 1e6,
        "worker_types": [{"name": "machine", "count": MACHINES, "cores": CORES}],
        "models": [{
            "name": "t5", "load_ms": 1e3 * load_s, "first_load_ms": 1e3 * first_load_s,
            "latency": [{"worker_type": "machine", "batch": 1, "latency_ms": 1e3 * WARM_S}]}],
        "streams": [{"model": "t5", "slo_ms": 1e9, **one} for one in streams],
    })


def sequential(requests: int, **loads: float) -> Scenario:
    """Requests one after the other, each on one core."""
    return system(f"{requests}-sequential", [{
        "name": "translations", "workload": {"users": 1, "requests": requests}, "cores": 1}],
        **loads)


def concurrent(table: str, *, warming: bool, post_s: float, network_s: float) -> Scenario:
    """Two requests at once that each take all cores, after a first one or without it."""
    needs = {"cores": CORES, "post_ms": 1e3 * post_s, "network_ms": 1e3 * network_s}
    pair = {"name": "pair", "workload": {"times_ms": [0, 0]}, **needs}
    if not warming:
        return system(f"table-{table}", [pair])
    first = {"name": "warming", "workload": {"times_ms": [0]}, **needs}
    return system(f"table-{table}", [first, {**pair, "after": "warming"}])


TABLES = {
    "6.1": concurrent("6.1", warming=False, post_s=POST_S, network_s=FAR_S),
    "6.2": concurrent("6.2", warming=True, post_s=0.0, network_s=FAR_S),
    "6.3": concurrent("6.3", warming=True, post_s=POST_S, network_s=NEAR_S),
}


def served(scenario: Scenario, name: str, seed: int) -> Run:
    """One run of a scheduler."""
    return Engine.of_scenario(scenario, seed).serve(scheduler(NAMES[name]))


def totals(scenario: Scenario, name: str, seeds: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Total time in s and number of loads of each run."""
    runs = [served(scenario, name, seed) for seed in range(seeds)]
    return (np.array([run.answered_ms.max() / 1e3 for run in runs]),
            np.array([len(run.load_model) for run in runs]))


def row(table: str, name: str, simulated_s: float, loads: float, printed_s: float | None = None,
        **more: Any) -> Row:
    """One row of the results."""
    found: Row = {"table": table, "scheduler": name, "simulated_s": round(float(simulated_s), 4),
                  "cold_starts": round(float(loads), 3), **more}
    return found if printed_s is None else {**found, "printed_s": printed_s}


def of_tables(seeds: int) -> Iterator[Row]:
    """Tables 6.1 to 6.3: total time until the last request is done."""
    for table, scenario in TABLES.items():
        for name in (*PRINTED_S[table], "dynamic"):
            times_s, loads = totals(scenario, name, seeds)
            yield row(table, name, times_s.mean(), loads.mean(), PRINTED_S[table].get(name))


def of_sequences(seeds: int) -> Iterator[Row]:
    """Ten requests one after the other, and 2100."""
    for name in ("default", "colocation", "dynamic"):
        times_s, loads = totals(sequential(10), name, seeds)
        if name == "default":
            five = loads == TEN_COLD_STARTS["t5-small"]
            yield row("10 sequential", name, times_s[five].mean(), 5, TEN_S[name],
                      runs="with 5 cold starts")
            yield row("10 sequential", name, times_s.mean(), loads.mean(), runs="all")
        else:
            yield row("10 sequential", name, times_s.mean(), loads.mean(), TEN_S.get(name))
    for name in ("default", "colocation"):
        times_s, loads = totals(sequential(MANY), name, 3)
        yield row(f"{MANY} sequential", name, times_s.mean(), loads.mean(), MANY_S[name])


def of_cold_starts(seeds: int) -> Iterator[Row]:
    """How often the default scheduler has as many cold starts in ten requests as were printed."""
    _, loads = totals(sequential(10), "default", 10 * seeds)
    for model, printed in TEN_COLD_STARTS.items():
        yield {"table": "cold starts", "scheduler": "default", "model": model, "printed": printed,
               "simulated": round(float(loads.mean()), 2),
               "share_of_runs": round(float((loads == printed).mean()), 3)}


def break_even(load_s: float, most: int) -> int:
    """The number of requests from which on the default is close to colocation."""
    scenario = sequential(most, load_s=load_s)
    default, colocation = (served(scenario, name, 0).answered_ms / 1e3
                           for name in ("default", "colocation"))
    apart = (default - colocation) / np.arange(1, most + 1) >= CLOSE_S * (1 + 1e-9)
    return int(np.flatnonzero(apart)[-1]) + 2


def of_break_even() -> Iterator[Row]:
    """From which number of requests on cold starts do not matter."""
    costs = [("t5-small", LATER_LOAD_S, "fitted"),
             *((model, extra_s, "printed") for model, extra_s in EXTRA_S.items())]
    for model, extra_s, origin in costs:
        yield {"table": "break-even", "model": model, "cold_start_s": extra_s, "time": origin,
               "printed": BREAK_EVEN[model],
               "simulated": break_even(extra_s, BREAK_EVEN[model] * 5 // 4)}


def line(found: Row) -> str:
    """One row, as text."""
    name = " ".join(str(found[key]) for key in ("scheduler", "model", "runs", "time")
                    if key in found)
    printed = found.get("printed_s", found.get("printed"))
    simulated = found.get("simulated_s", found.get("simulated"))
    apart = "" if printed is None else f"{100 * (simulated / printed - 1):+7.2f} %"
    return (f"{found['table']:16} {name:27} {'-' if printed is None else printed:>9} "
            f"{simulated:>10} {apart}")


def main() -> int:
    """Run everything; print and write the rows."""
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    command.add_argument("--seeds", type=int, default=200, help="runs of each random scheduler")
    command.add_argument("--scenarios", type=Path, metavar="FOLDER", help="write the scenarios")
    given = command.parse_args()
    print(f"{'table':16} {'scheduler or model':27} {'printed':>9} {'simulated':>10} difference")
    rows = []
    for part in (partial(of_tables, given.seeds), partial(of_sequences, given.seeds),
                 partial(of_cold_starts, given.seeds), of_break_even):
        for found in part():
            print(line(found), flush=True)
            rows.append(found)
    if given.json is not None:
        write_atomic(given.json, json.dumps(rows, indent=1) + "\n")
    if given.scenarios is not None:
        given.scenarios.mkdir(parents=True, exist_ok=True)
        for scenario in (*TABLES.values(), sequential(10), sequential(MANY)):
            write_scenario(scenario, given.scenarios / f"{scenario.name}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
