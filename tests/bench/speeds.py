"""Speeds that users notice, measured on request: of this code or, interleaved, of the code before.

``python tests/bench/speeds.py PROFILE`` reads names of tasks from its input, runs them one by one
and prints the processor time that each took in seconds. Whose code runs is a matter of PYTHONPATH;
so only names are imported here that have been there for long.
"""

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ramsis import profiles
from ramsis.cluster import Cluster
from ramsis.sim import ConstantLoad, Policies, simulate
from ramsis.synthesis import SynthesisSettings, generate_policy

SLO_MS, WORKERS, LOAD_QPS, SIMULATED_QPS = 150.0, 60, 2000.0, 1600.0
QUERIES = 2_000_000

Task = Callable[[], object]


def tasks(profile: Path) -> dict[str, Callable[[], Task]]:
    """By name, what prepares a task."""
    own = profiles.load(str(profile))

    def settings(**options: Any) -> SynthesisSettings:
        return SynthesisSettings(slo_ms=SLO_MS, workers=WORKERS, **options)

    def made(whose: Any = own, **options: Any) -> Task:
        chosen = settings(**options)
        return lambda: generate_policy(whose, LOAD_QPS, chosen)

    def simulated() -> Task:
        policy = generate_policy(own, SIMULATED_QPS, settings(service="p95"))
        cluster = Cluster.of(own, workers=WORKERS, slo_ms=SLO_MS)
        load = ConstantLoad(SIMULATED_QPS, 1000.0 * QUERIES / SIMULATED_QPS)
        return lambda: simulate(cluster, Policies((policy,)), load)

    drawn = profiles.load("image-cpu")
    return {
        "pure": lambda: made(headroom=0.0),
        "pure, late=serve": lambda: made(headroom=0.0, late="serve"),
        "pure, drawn times": lambda: made(drawn, headroom=0.0),
        "all that a file states": made,
        "all, drawn times": lambda: made(drawn),
        "central queue": lambda: made(dispatch="central-queue"),
        "simulate": simulated,
    }


def _main(profile: str) -> None:
    known, ready = tasks(Path(profile)), dict[str, Task]()
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready[name] = known[name]()
            ready[name]()  # compiled, and memory at hand
        gc.collect()
        before = time.process_time()
        ready[name]()
        print(time.process_time() - before, flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
