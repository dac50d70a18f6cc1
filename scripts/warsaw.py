"""Thirty minutes on a Kubernetes cluster: the schedulers of the Warsaw thesis, and a planned one.

python scripts/warsaw.py [--overhead-ms X] [--decision-ms X] [--poll-ms X] [--order deadline]
    [--requests equal] [--machines N] [--seed S] [--no-bound] [--json FILE] [--scenario FILE]

The workload is that of P. Blinowski, S. Mrozicki, S. Potrzebowski, K. Wąsowski: *Measuring and
improving resource utilization in a Kubernetes cluster serving AI inference tasks*, BSc thesis,
University of Warsaw, 2024: nine models, 20 machines that hold two models each, requests by minute
of the Azure Functions trace of 2019. Requests by minute are read from its figure 6.2 (± 1 %),
those by model, sizes and times from its simulator (github.com/technical-tigers/tiger-simulator,
MIT). Its figures do not say what the requests of the minutes 10 and 25 ask for; what they exceed
the minutes next to them by is given to VGG-19, whose requests would otherwise not come together.

All of this is 6.7 % of what the machines can do: the violations that the thesis prints come from
overheads of its microservices, which it does not print. ``--overhead-ms`` adds a time to each
inference, during which the machine is taken. ``--decision-ms`` and ``--poll-ms`` make the
scheduler one process that takes time for each request and sees what is new at its polls (the
scheduler ``slow``), and ``--order`` says which it handles first. ``--requests`` divides the same
requests among the models in other ways, and ``--machines`` takes fewer of them. ``bound`` is the
share of the requests that no scheduler can exceed. ``--scenario`` writes the scenario, for
``ramsis simulate``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from study import parser_of

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
    "modified-baseline, no idle holder": (32.53, 1931.51),
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
    "clockwork-adjusted, every 5 s": "clockwork-adjusted:every_ms=5000",
    "clockwork-adjusted, every 10 s": "clockwork-adjusted:every_ms=10000",
    "clockwork-adjusted, every 20 s": "clockwork-adjusted:every_ms=20000",
    "round-robin": "round-robin",
    "round-robin-a": "round-robin:variant=a",
    "round-robin-b": "round-robin:variant=b",
    "round-robin-c": "round-robin:variant=c",
    "round-robin-d": "round-robin:variant=d",
    "planned": "planned:worth=0.1,window_ms=5000",
    "planned, by default": "planned",
}
"""Rows, and how ``ramsis simulate --scheduler`` names what they show."""


def equal_requests() -> dict[str, float]:
    """Return the same number of requests for each model."""
    return dict.fromkeys(MODELS, 1.0)


def equal_work() -> dict[str, float]:
    """Return numbers of requests with which each model has the same work."""
    return {name: 1.0 / latency for name, (_, latency, _) in MODELS.items()}


def mirrored_requests() -> dict[str, float]:
    """Return the thesis' numbers in reverse: the most frequent model's to the rarest one etc."""
    names = sorted(MODELS, key=lambda name: MODELS[name][0])
    return {name: MODELS[other][0] for name, other in zip(names, reversed(names), strict=True)}


REQUESTS = {"thesis": lambda: {name: float(count) for name, (count, _, _) in MODELS.items()},
            "equal": equal_requests, "equal-work": equal_work, "mirrored": mirrored_requests}
"""Weights of the models, by the value of ``--requests``."""


def minutes_by_model(requests: str = "thesis") -> dict[str, list[int]]:
    """Return the requests of each model in each minute, with the totals of both tables.

    Further divisions keep the requests by minute, and what the spikes exceed their neighbours by.
    """
    minutes = np.array(MINUTES, dtype=float)
    beside = np.array([minutes[[m - 1, m + 1]].mean() for m in SPIKES])
    spikes = np.zeros(len(minutes))
    spikes[list(SPIKES)] = np.rint(minutes[list(SPIKES)] - beside)
    rest = minutes - spikes
    weights = REQUESTS[requests]()
    total = sum(count for count, _, _ in MODELS.values())
    counts = {name: total * weight / sum(weights.values()) for name, weight in weights.items()}
    beside_spikes = {**counts, IN_SPIKES: max(counts[IN_SPIKES] - spikes.sum(), 0.0)}
    scale = (total - spikes.sum()) / sum(beside_spikes.values())
    by_model = {}
    for name, count in beside_spikes.items():
        until = np.rint(np.cumsum(rest) * (count * scale) / rest.sum())
        by_model[name] = (np.diff(until, prepend=0.0)
                          + (spikes if name == IN_SPIKES else 0.0)).astype(int).tolist()
    return by_model


def warsaw_scenario(
    overhead_ms: float = 0.0, seed: int = 0, *, requests: str = "thesis", machines: int = MACHINES
) -> Scenario:
    """Return the scenario; the seed draws the deadlines of the models."""
    slo_ms = np.random.default_rng(seed).uniform(*SLO_MS, len(MODELS))
    minutes = minutes_by_model(requests)
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "Warsaw", "duration_s": 60 * len(MINUTES),
        "worker_types": [{"name": "c5.18xlarge", "count": machines, "loading": "blocking",
                          "max_models": MODELS_PER_MACHINE, "load_mb_per_s": LOAD_MB_PER_S}],
        "models": [{"name": name, "memory_mb": size, "inference": {"batching": "none"},
                    "latency": [{"worker_type": "c5.18xlarge", "batch": 1,
                                 "latency_ms": latency + overhead_ms}]}
                   for name, (_, latency, size) in MODELS.items()],
        "streams": [{"name": name, "model": name, "slo_ms": float(slo + 2 * latency),
                     "workload": {"minutes": minutes[name]}}
                    for (name, (_, latency, _)), slo in zip(MODELS.items(), slo_ms, strict=True)],
    }, "Warsaw")


def unused_loads(run: Run) -> int:
    """Count the loads after which the model ran nothing before it was evicted."""
    unused = 0
    for worker, model, end_ms in zip(
            run.load_worker, run.load_model, run.load_end_ms, strict=True):
        evictions = run.unload_ms[(run.unload_worker == worker) & (run.unload_model == model)
                                  & (run.unload_ms >= end_ms)]
        if len(evictions):
            starts = run.start_ms[(run.worker == worker) & (run.model == model)]
            unused += not ((starts >= end_ms) & (starts <= evictions.min())).any()
    return unused


def violations_by_minute(run: Run) -> list[float]:
    """Share of the requests that came in each minute and were not answered in time."""
    minute = (run.arrival_ms // 60_000).astype(int)
    late = np.bincount(minute[~run.in_time], minlength=len(MINUTES))
    return list((late / np.bincount(minute, minlength=len(MINUTES))).tolist())


def slow(spec: str, decision_ms: float, poll_ms: float, order: str = "arrival") -> str:
    """Return a scheduler as one process that takes time, where it takes any."""
    if not decision_ms and not poll_ms:
        return spec
    return (f"slow:of={spec.replace(',', '+')},decision_ms={decision_ms:g},poll_ms={poll_ms:g},"
            f"order={order}")


def rows(
    overhead_ms: float, seed: int, names: Mapping[str, str], bound: bool = True, *,
    decision_ms: float = 0.0, poll_ms: float = 0.0, order: str = "arrival",
    requests: str = "thesis", machines: int = MACHINES,
) -> list[dict[str, Any]]:
    """Return a row for each scheduler."""
    scenario = warsaw_scenario(overhead_ms, seed, requests=requests, machines=machines)
    arrivals = draw_requests(scenario, seed)
    known = scenario_bound(scenario, arrivals) if bound else None
    results = []
    for name, spec in names.items():
        begun_s = time.process_time()
        spec = slow(spec, decision_ms, poll_ms, order)
        run = Engine.of_scenario(scenario, seed, requests=arrivals).serve(scheduler(spec))
        took_s = time.process_time() - begun_s
        metrics = measure(run)
        violations, loading_s = PRINTED.get(name, (None, None))
        latency_s = np.sort((run.answered_ms - run.arrival_ms)[run.answered]) / 1000.0
        results.append({
            "scheduler": name, "spec": spec, "order": order,
            "overhead_ms": overhead_ms, "decision_ms": decision_ms, "poll_ms": poll_ms,
            "requests": requests, "machines": machines, "seed": seed,
            "violation_rate": metrics.violation_rate, "loading_s": metrics.loading_s,
            "bound": None if known is None else known.share, "loads": metrics.loads,
            "unused_loads": unused_loads(run),
            "p50_s": float(np.quantile(latency_s, 0.5)),
            "p90_s": float(np.quantile(latency_s, 0.9)), "longest_s": float(latency_s[-1]),
            "violations_by_minute": violations_by_minute(run),
            "printed_violation_rate": None if violations is None else violations / 100.0,
            "printed_loading_s": loading_s, "requests_per_cpu_s": round(len(arrivals) / took_s),
        })
        least = "" if known is None else f"  at least {1.0 - known.share:8.4%}"
        print(f"{name:34} {metrics.violation_rate:9.4%} in violation{least}  "
              f"{metrics.loading_s:8.1f} s of {metrics.loads} loads", flush=True)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the schedulers, and write rows and scenario."""
    parser = parser_of(__doc__)
    parser.add_argument("--overhead-ms", type=float, default=0.0)
    parser.add_argument("--decision-ms", type=float, default=0.0,
                        help="time that the scheduler takes for each request")
    parser.add_argument("--poll-ms", type=float, default=0.0,
                        help="interval at which the scheduler sees what is new")
    parser.add_argument("--order", choices=("arrival", "deadline"), default="arrival",
                        help="of the requests that wait for the scheduler")
    parser.add_argument("--requests", choices=REQUESTS, default="thesis",
                        help="how requests are divided among the models")
    parser.add_argument("--machines", type=int, default=MACHINES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scheduler", action="append", metavar="NAME",
                        help="only these rows, or others that `ramsis simulate` knows")
    parser.add_argument("--no-bound", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scenario", type=Path)
    options = parser.parse_args(arguments)
    for name in ("overhead_ms", "decision_ms", "poll_ms", "seed", "machines"):
        value = getattr(options, name)
        if not (name == "machines") <= value < float("inf"):
            parser.error(f"--{name.replace('_', '-')} has to be {int(name == 'machines')} or "
                         f"more, and finite, got {value:g}")
    division = {"requests": options.requests, "machines": options.machines}
    if options.scenario is not None:
        write_scenario(warsaw_scenario(options.overhead_ms, options.seed, **division),
                       options.scenario)
    names = SCHEDULERS if options.scheduler is None else {
        name: SCHEDULERS.get(name, name) for name in options.scheduler}
    try:
        results = rows(options.overhead_ms, options.seed, names, not options.no_bound,
                       decision_ms=options.decision_ms, poll_ms=options.poll_ms,
                       order=options.order, **division)
    except RamsisError as error:
        print(f"warsaw.py: {error}", file=sys.stderr)
        return error.exit_code
    if options.json is not None:
        write_atomic(options.json, json.dumps({"rows": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
