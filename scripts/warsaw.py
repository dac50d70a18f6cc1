"""Thirty minutes on a Kubernetes cluster: the schedulers of the Warsaw thesis, and a planned one.

python scripts/warsaw.py [--overhead-ms X] [--seed S] [--no-bound] [--json FILE] [--scenario FILE]

The workload is that of P. Blinowski, S. Mrozicki, S. Potrzebowski, K. Wąsowski: *Measuring and
improving resource utilization in a Kubernetes cluster serving AI inference tasks*, BSc thesis,
University of Warsaw, 2024: nine models, 20 machines that hold two models each, requests by minute
of the Azure Functions trace of 2019. Requests by minute are read from its figure 6.2 (± 1 %),
those by model, sizes and times from its simulator (github.com/technical-tigers/tiger-simulator,
MIT). Its figures do not say what the requests of the minutes 10 and 25 ask for; what they exceed
the minutes next to them by is given to VGG-19, whose requests would otherwise not come together.

All of this is 6.7 % of what the machines can do: the violations that the thesis prints come from
overheads of its microservices, which it does not print. ``--overhead-ms`` adds a time to each
inference, during which the machine is taken. ``bound`` is the share of the requests that no
scheduler can exceed. ``--scenario`` writes the scenario, for ``ramsis simulate``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ramsis.bounds import scenario_bound
from ramsis.errors import RamsisError
from ramsis.files import write_atomic
from ramsis.scenario import Scenario, draw_requests, scenario_from_document, write_scenario
from ramsis.sim import Engine, Run, measure, scheduler

MINUTES = (
    1767, 2082, 1812, 1708, 1798, 1920, 1839, 1785, 1668, 1758, 3606, 1726, 1740, 1726, 1704,
    1614, 1555, 1821, 1663, 1560, 1591, 1569, 1717, 1505, 1573, 3317, 1496, 2010, 1551, 1654,
)
"""Requests in each minute; figure 6.2."""
SPIKES = (10, 25)
MODELS = {  # requests in 30 min, latency in ms, size in MB; the simulator's repository
    "DenseNet-169": (191, 74.58, 55.0),
    "Inception-ResNet-v2": (2247, 45.25, 215.0),
    "MobileNet-V1": (2793, 11.7, 16.9),
    "Resnet18": (15608, 21.96, 135.0),
    "SqueezeNet": (11249, 9.31, 0.5),
    "VGG-16": (1717, 56.72, 528.0),
    "VGG-19": (5228, 59.27, 549.0),
    "VGG16": (14117, 38.8, 528.0),
    "Whisper": (1686, 506.74, 1500.0),
}
IN_SPIKES = "VGG-19"
MACHINES, MODELS_PER_MACHINE = 20, 2
LOAD_MB_PER_S = 4096 / 8
SLO_MS = (500.0, 1000.0)
"""Uniform between these, drawn once for each model, plus twice its latency."""
PRINTED = {  # violations in % and loading time in s; figures 6.14 and 6.15
    "modified-baseline": (32.53, 1931.51),
    "clockwork-adjusted": (17.69, 1061.24),
    "round-robin": (16.36, 857.81),
    "round-robin-a": (14.25, 774.86),
    "round-robin-b": (15.21, 909.45),
    "round-robin-c": (13.64, 1177.02),
    "round-robin-d": (3.49, 828.24),
}
SCHEDULERS: Mapping[str, str] = {
    "baseline": "baseline",
    "modified-baseline": "modified-baseline",
    "modified-baseline, no idle holder": "modified-baseline:load_when=no-idle",
    "clockwork-adjusted": "clockwork-adjusted",
    "round-robin": "round-robin",
    "round-robin-a": "round-robin:variant=a",
    "round-robin-b": "round-robin:variant=b",
    "round-robin-c": "round-robin:variant=c",
    "round-robin-d": "round-robin:variant=d",
    "planned": "planned:worth=0.1,window_ms=5000",
}
"""Rows, and how ``ramsis simulate --scheduler`` names what they show."""


def minutes_by_model() -> dict[str, list[int]]:
    """Requests of each model in each minute, with the totals of both tables."""
    minutes = np.array(MINUTES, dtype=float)
    beside = np.array([minutes[[m - 1, m + 1]].mean() for m in SPIKES])
    spikes = np.zeros(len(minutes))
    spikes[list(SPIKES)] = np.rint(minutes[list(SPIKES)] - beside)
    rest = minutes - spikes
    found = {}
    for name, (requests, _, _) in MODELS.items():
        own = spikes if name == IN_SPIKES else np.zeros(len(minutes))
        upto = np.rint(np.cumsum(rest) * (requests - own.sum()) / rest.sum())
        found[name] = (np.diff(upto, prepend=0.0) + own).astype(int).tolist()
    return found


def warsaw_scenario(overhead_ms: float = 0.0, seed: int = 0) -> Scenario:
    """The scenario; the seed draws the deadlines of the models."""
    slo_ms = np.random.default_rng(seed).uniform(*SLO_MS, len(MODELS))
    minutes = minutes_by_model()
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "Warsaw", "duration_s": 60 * len(MINUTES),
        "worker_types": [{"name": "c5.18xlarge", "count": MACHINES, "loading": "blocking",
                          "max_models": MODELS_PER_MACHINE, "load_mb_per_s": LOAD_MB_PER_S}],
        "models": [{"name": name, "memory_mb": size, "inference": {"batching": "none"},
                    "latency": [{"worker_type": "c5.18xlarge", "batch": 1,
                                 "latency_ms": latency + overhead_ms}]}
                   for name, (_, latency, size) in MODELS.items()],
        "streams": [{"name": name, "model": name, "slo_ms": float(slo + 2 * latency),
                     "workload": {"minutes": minutes[name]}}
                    for (name, (_, latency, _)), slo in zip(MODELS.items(), slo_ms, strict=True)],
    }, "Warsaw")


def violations_by_minute(run: Run) -> list[float]:
    """Share of the requests that came in each minute and were not answered in time."""
    minute = (run.arrival_ms // 60_000).astype(int)
    late = np.bincount(minute[~run.in_time], minlength=len(MINUTES))
    return list((late / np.bincount(minute, minlength=len(MINUTES))).tolist())


def rows(
    overhead_ms: float, seed: int, names: Mapping[str, str], bound: bool = True
) -> list[dict[str, Any]]:
    """A row for each scheduler."""
    scenario = warsaw_scenario(overhead_ms, seed)
    requests = draw_requests(scenario, seed)
    known = scenario_bound(scenario, requests) if bound else None
    found = []
    for name, spec in names.items():
        begun_s = time.process_time()
        run = Engine.of_scenario(scenario, seed, requests=requests).serve(scheduler(spec))
        took_s = time.process_time() - begun_s
        metrics = measure(run)
        violations, loading_s = PRINTED.get(name, (None, None))
        found.append({
            "scheduler": name, "spec": spec, "overhead_ms": overhead_ms, "seed": seed,
            "violation_rate": metrics.violation_rate, "loading_s": metrics.loading_s,
            "bound": None if known is None else known.share, "loads": metrics.loads,
            "longest_s": (metrics.response_longest_ms or 0.0) / 1000.0,
            "violations_by_minute": violations_by_minute(run),
            "printed_violation_rate": None if violations is None else violations / 100.0,
            "printed_loading_s": loading_s, "requests_per_cpu_s": round(len(requests) / took_s),
        })
        least = "" if known is None else f"  at least {1.0 - known.share:8.4%}"
        print(f"{name:34} {metrics.violation_rate:9.4%} in violation{least}  "
              f"{metrics.loading_s:8.1f} s of {metrics.loads} loads", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--overhead-ms", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scheduler", action="append", metavar="NAME",
                        help="only these rows, or others that `ramsis simulate` knows")
    parser.add_argument("--no-bound", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scenario", type=Path)
    options = parser.parse_args(arguments)
    if not 0.0 <= options.overhead_ms < float("inf") or options.seed < 0:
        parser.error("--overhead-ms and --seed have to be 0 or more")
    if options.scenario is not None:
        write_scenario(warsaw_scenario(options.overhead_ms, options.seed), options.scenario)
    names = SCHEDULERS if options.scheduler is None else {
        name: SCHEDULERS.get(name, name) for name in options.scheduler}
    try:
        found = rows(options.overhead_ms, options.seed, names, not options.no_bound)
    except RamsisError as error:
        print(f"warsaw.py: {error}", file=sys.stderr)
        return error.exit_code
    if options.json is not None:
        write_atomic(options.json, json.dumps({"rows": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
