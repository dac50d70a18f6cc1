"""A slow and obvious twin of the runtime, and the conformance vectors made with it.

It shares no code with the runtime: bins and levels are found by linear scans, the load by
counting every arrival anew. ``python -m tests.reference.lookup`` prints the vectors' file.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

Case = dict[str, Any]

ERROR = {"error": True}

POLICY: Case = {
    "format": "ramsis.policy/1",
    "kind": "worker",
    "created_by": "by hand",
    "models": [
        {"name": "small", "accuracy": 0.6, "latency_ms": [10.1, 14.0, 18.0, 22.0],
         "latency_origin": "mmme"},
        {"name": "medium", "accuracy": 0.7, "latency_ms": [33.3, 50.0, 66.7, 83.4],
         "latency_origin": "mmme"},
        {"name": "large", "accuracy": 0.8, "latency_ms": [90.0, 140.0, 190.0, 240.0],
         "latency_origin": "mmme"},
    ],
    "slo_ms": 100.0,
    "workers": 4,
    "load_qps": 80.0,
    "service": "p95",
    "arrivals": {"process": "poisson"},
    "dispatch": "round-robin",
    "batching": "variable",
    "late": "serve",
    "objective": "per-query",
    "violation_price": 0.0,
    "max_queue": 3,
    "slack_ms": [0.0, 0.1, 33.300000000000004, 66.7, 90.0],
    "table": {
        "model": [[0, 0, 0, 1, 2], [0, 0, 1, 1, 2], [0, 0, 0, 1, 1]],
        "batch": [[1, 1, 1, 1, 1], [2, 1, 1, 2, 1], [3, 1, 2, 3, 2]],
    },
    "overflow": {"model": 0, "batch": 4},
    "expectations": {
        "accuracy": 0.75, "violation_rate": 0.2, "effective_accuracy": 0.6,
        "per_decision": {"accuracy": 0.76, "violation_rate": 0.25},
        "batch_size": {"mean": 1.25, "p50": 1.0, "p99": 3.0},
        "queue_length": {"mean": 1.5, "p50": 1.0, "p99": 3.0},
        "slack_ms": {"mean": 80.0, "p50": 90.0, "p99": 100.0},
        "model_share": {"small": 0.25, "medium": 0.5, "large": 0.25},
        "utilisation": 0.9, "full_queue_rate": 0.01, "overloaded": False,
        "capacity_qps": 120.0, "upper_bound": 0.65,
    },
    "certificate": {
        "solver": "policy-iteration", "converged": True, "iterations": 4,
        "bellman_residual": 1e-12, "gain": 0.6, "gain_lower": 0.6, "gain_upper": 0.6,
        "truncated_mass": 1e-12, "nodes_per_bin": 2, "tolerance": None,
    },
    "inputs": {"profile": "sha256:0", "profile_name": "by-hand", "settings": "sha256:1"},
}


DROPPING: Case = {
    **POLICY,
    "late": "drop",
    "table": {
        "model": [[0, 0, 0, 1, 2], [0, 0, 1, 1, 2], [0, 0, 0, 2, 1]],
        "batch": [[0, 1, 1, 1, 1], [0, 0, 1, 2, 1], [0, 0, 0, 0, 2]],
    },
    "overflow": {"model": 0, "batch": 0},
}


def decide(policy: Case, queued: int, slack_ms: float) -> Case:
    """The answer to a lookup, or :data:`ERROR`."""
    if math.isnan(slack_ms) or queued < 1:
        return ERROR
    if queued > policy["max_queue"]:
        model, batch = policy["overflow"]["model"], policy["overflow"]["batch"]
    else:
        column = 0
        for j, low in enumerate(policy["slack_ms"]):
            if low <= slack_ms:
                column = j
        model = policy["table"]["model"][queued - 1][column]
        batch = policy["table"]["batch"][queued - 1][column]
    if batch == 0:
        return {"drop": True}
    return {"model": policy["models"][model]["name"], "batch": batch}


def choose(levels: list[tuple[float, str]], load_qps: float, process: str | None) -> Case:
    """The answer of a set with these (load, process label), or :data:`ERROR`."""
    labels = {label for _, label in levels}
    if process is None and len(labels) == 1:
        (process,) = labels
    if process not in labels or math.isnan(load_qps) or load_qps < 0:
        return ERROR
    loads = [load for load, label in levels if label == process]
    enough = [load for load in loads if load >= load_qps]
    return {"level_qps": min(enough) if enough else max(loads), "above_highest": not enough}


def observed_load_qps(
    arrivals: list[tuple[float, int]], first_call_ms: float, now_ms: float, window_ms: float
) -> float:
    """The load monitor's answer at ``now_ms`` after these (time, count)."""
    count = sum(n for t, n in arrivals if now_ms - window_ms < t <= now_ms)
    span_ms = now_ms - first_call_ms
    if span_ms < window_ms / 10:
        span_ms = window_ms / 10
    if span_ms > window_ms:
        span_ms = window_ms
    return count * 1000 / span_ms


def _written(number: float) -> float | str:
    """JSON has no infinities and no NaN: they are written as texts."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def lookup_cases(policy: Case) -> list[Case]:
    """Every queue length that matters with slacks on, just below and just above every edge."""
    edges = [*policy["slack_ms"], policy["slo_ms"]]
    around = [f(edge) for edge in edges for f in (
        lambda x: math.nextafter(x, -math.inf), float, lambda x: math.nextafter(x, math.inf))]
    slacks = [-math.inf, -1e308, -250.0, *around, 1e9, 1e308, math.inf, math.nan]
    return [
        {"queued": queued, "slack_ms": _written(slack), **decide(policy, queued, slack)}
        for queued, slack in itertools.product([-1, 0, 1, 2, 3, 4, 1_000_000_000], slacks)
        if queued in (1, 2, 3) or slack in (-math.inf, 0.0, 90.0) or math.isnan(slack)
    ]


def set_cases() -> list[Case]:
    """Sets of levels, each with loads asked for in order."""
    poisson = {"process": "poisson"}
    bursty = {"process": "negative-binomial", "dispersion": 4.0}
    switching = {"process": "mmpp", "switch_per_s": [0.1, 2], "factors": [0.5, 1.5]}
    labels = ["poisson", "negative-binomial:dispersion=4",
              "mmpp:factors=[0.5,1.5],switch_per_s=[0.1,2]"]
    one = [(load, poisson, labels[0]) for load in (1200.0, 400.0, 62.5)]
    several = [(400.0, poisson, labels[0]), (400.0, bursty, labels[1]),
               (800.0, bursty, labels[1]), (100.0, switching, labels[2])]
    rising = [0.0, 62.5, math.nextafter(62.5, math.inf), 400.0, 400.5, 1200.0,
              math.nextafter(1200.0, math.inf), 1300.0, 5000.0, 1200.0, 1201.0, math.inf, 10.0,
              -1.0, math.nan]
    asked: list[tuple[list[Any], list[tuple[float, str | None]]]] = [
        (one, [(load, None) for load in rising]),
        (several, [(load, label) for label in [*labels, None, "weibull"]
                   for load in (50.0, 400.0, 500.0, 900.0, 901.0)]),
    ]
    return [_one_set(members, loads) for members, loads in asked]


def _one_set(members: list[Any], asked: list[tuple[float, str | None]]) -> Case:
    keys = [(load, label) for load, _, label in members]
    above: set[str | None] = set()
    cases = []
    for load, process in asked:
        answer = dict(choose(keys, load, process))
        if "error" not in answer:
            answer["calls_back"] = answer["above_highest"] and process not in above
            (above.add if answer["above_highest"] else above.discard)(process)
        cases.append({"load_qps": _written(load), "process": process, **answer})
    return {"levels": [{"load_qps": load, "arrivals": arrivals, "label": label}
                       for load, arrivals, label in members], "cases": cases}


def monitor_cases() -> list[Case]:
    """Sequences of calls to a load monitor."""
    refused: list[Case] = [{"record_ms": 1.0, "count": 1}, {"record_ms": 0.5, "count": 1},
                           {"load_at_ms": 0.0}, {"record_ms": 2.0, "count": 0},
                           {"record_ms": "NaN", "count": 1}, {"load_at_ms": "Infinity"},
                           {"load_at_ms": 100.0}]
    steady = [{"record_ms": float(t), "count": 1} for t in range(0, 600, 50)]
    return [
        _one_monitor(500.0, [{"load_at_ms": 0.0}, {"load_at_ms": 600.0}]),
        _one_monitor(500.0, [{"record_ms": 7.0, "count": 3}, {"load_at_ms": 7.0},
                             {"load_at_ms": 57.0}, {"load_at_ms": 107.0},
                             {"load_at_ms": math.nextafter(507.0, 0.0)}, {"load_at_ms": 507.0}]),
        _one_monitor(500.0, [*steady, {"load_at_ms": 550.0}, {"load_at_ms": 575.0},
                             {"load_at_ms": 800.0}, {"record_ms": 800.0, "count": 100},
                             {"load_at_ms": 800.0}, {"load_at_ms": 5000.0}]),
        _one_monitor(100.0, refused),
    ]


def _one_monitor(window_ms: float, steps: list[Case]) -> Case:
    arrivals: list[tuple[float, int]] = []
    times: list[float] = []
    answered = []
    for step in steps:
        now = float(step["record_ms"] if "record_ms" in step else step["load_at_ms"])
        bad = not math.isfinite(now) or any(now < t for t in times) or step.get("count", 1) < 1
        if bad:
            answered.append({**step, **ERROR})
            continue
        times.append(now)
        if "count" in step:
            arrivals.append((now, step["count"]))
            answered.append(step)
        else:
            load = observed_load_qps(arrivals, times[0], now, window_ms)
            answered.append({**step, "load_qps": load})
    return {"window_ms": window_ms, "steps": answered}


def vectors() -> Case:
    """All vectors: policies with lookups in them, choices in sets, and load monitors."""
    return {"format": "ramsis.lookup-vectors/1", "policy": POLICY,
            "lookups": lookup_cases(POLICY), "dropping_policy": DROPPING,
            "dropping_lookups": lookup_cases(DROPPING), "sets": set_cases(),
            "monitors": monitor_cases()}


def vectors_text() -> str:
    """The vectors' file: one case to a line."""
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {lines(value)}"
                              for key, value in vectors().items()) + "\n}\n"


def lines(value: Any) -> str:
    """A value as JSON, long lists and objects an item to a line."""
    nested = isinstance(value, (dict, list)) and len(json.dumps(value)) > 160
    if nested and isinstance(value, dict):
        return "{" + ",\n ".join(f"{json.dumps(k)}: {lines(v)}" for k, v in value.items()) + "}"
    if nested:
        return "[" + ",\n ".join(map(lines, value)) + "]"
    return json.dumps(value)


if __name__ == "__main__":
    print(vectors_text(), end="")
