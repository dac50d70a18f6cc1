"""A slow and obvious twin of the fleet's lookup, and the conformance vectors made with it.

It shares no code with the runtime. ``python -m tests.reference.fleet_lookup`` prints the file.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from tests.reference import lookup

Case = dict[str, Any]

_SHARED = ("format", "created_by", "slo_ms", "load_qps", "arrivals", "expectations",
           "certificate", "inputs")

POLICY: Case = {
    **{key: lookup.POLICY[key] for key in _SHARED},
    "kind": "fleet",
    "models": [
        {"name": "small", "accuracy": 0.6, "service_ms": [[10.1], [14.0], [18.0], [22.0]]},
        {"name": "medium", "accuracy": 0.7, "service_ms": [[33.3], [50.0]]},
        {"name": "large", "accuracy": 0.8, "service_ms": [[90.0]]},
    ],
    "workers": 9,
    "service": "p95",
    "violation_price": 0.5,
    "late": "drop",
    "spare_idle": 4,
    "idle_levels": [0, 1, 2, 5, 9],
    "queue_levels": [0, 1, 2, 4, 7],
    "slack_ms": [0.0, 10.1, 33.300000000000004, 66.7, 90.0],
    "options": [[0, 1], [1, 1], [0, 2], [0, 4], [2, 1]],
    "table": {
        "rows": [[0, -2, 1, 0, 2, 1, 3, -1], [0, -2, 1, 0, 3, -1], [0, -1, 2, 4], [0, 2, 4, -1],
                 [0, -2, 2, 3, 3, -1, 4, 2]],
        "index": [[0, 1, 3, 4], [0, 2, 3, 4], [2, 2, 4, 4], [2, 1, 3, 3]],
    },
}


def decide(policy: Case, idle: int, queued: int, slack_ms: float) -> Case:
    """The answer to a lookup, or an error."""
    if math.isnan(slack_ms) or queued < 1 or idle < 0:
        return {"error": True}
    if queued > policy["queue_levels"][-1]:
        return {"drop": True}
    if idle == 0:
        return {"wait_below_ms": None}
    place = max(i for i, level in enumerate(policy["idle_levels"]) if level <= idle)
    line = policy["table"]["index"][place - 1]
    place = max(n for n, level in enumerate(policy["queue_levels"]) if level <= queued)
    row = policy["table"]["rows"][line[place - 1]]
    bins = [j for j, low in enumerate(policy["slack_ms"]) if low <= slack_ms] or [0]
    named, answer = max((pair for pair in zip(row[::2], row[1::2], strict=True)
                         if pair[0] <= bins[-1]), key=lambda pair: pair[0])
    if answer == -2:
        return {"drop": True}
    if answer == -1:
        return {"wait_below_ms": policy["slack_ms"][named] if named else None}
    model, batch = policy["options"][answer]
    return {"model": policy["models"][model]["name"], "batch": batch}


def cases() -> list[Case]:
    """Every level and its neighbours, every edge and the doubles beside it."""
    slacks = [-math.inf, -250.0, -0.0, math.inf, math.nan, 100.0]
    for edge in POLICY["slack_ms"]:
        slacks += [math.nextafter(edge, -math.inf), edge, math.nextafter(edge, math.inf)]
    idle, queued = (-1, 0, 1, 2, 4, 5, 9, 40), (0, 1, 2, 3, 4, 6, 7, 8, 1000)
    return [{"idle": i, "queued": n, "slack_ms": _text(s), **decide(POLICY, i, n, s)}
            for i, n, s in itertools.product(idle, queued, sorted(slacks, key=str))]


def _text(slack_ms: float) -> float | str:
    if math.isnan(slack_ms):
        return "NaN"
    if math.isinf(slack_ms):
        return "Infinity" if slack_ms > 0 else "-Infinity"
    return slack_ms


def vectors_text() -> str:
    """The vectors' file: one case to a line."""
    parts = {"format": "ramsis.fleet-lookup-vectors/1", "policy": POLICY, "lookups": cases()}
    return "{\n" + ",\n".join(f"{lookup.json.dumps(key)}: {lookup.lines(value)}"
                              for key, value in parts.items()) + "\n}\n"


if __name__ == "__main__":
    print(vectors_text(), end="")
