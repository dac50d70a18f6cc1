"""A slow and obvious twin of lookups with one place of two answers, and vectors made with it.

It shares no code with the runtime. ``python -m tests.reference.mixture_lookup`` prints the file.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

from tests.reference import fleet_lookup, lookup

Case = dict[str, Any]

WORKER: Case = {**lookup.POLICY,
                "mixture": {"probability": 0.25, "place": [1, 2], "answer": [0, 2]}}
FLEETS: list[Case] = [
    {**fleet_lookup.POLICY, "mixture": {"probability": 0.25, "place": place, "answer": answer}}
    for place, answer in (
        ([0, 0, 3], [1]),  # a batch amid waits, above and at the place
        ([1, 1, 4], [0]),  # at the highest bin
        ([2, 0, 1], [-2]),  # a drop amid waits, with a wait below
        ([0, 1, 2], [-1]),  # a wait below a wait
        ([3, 0, 0], [0]),  # at the lowest bin
    )
]


def decide(policy: Case, queued: int, slack_ms: float, uniform: float) -> Case:
    """A worker's answer, and whether a number was drawn for it."""
    usual = lookup.decide(policy, queued, slack_ms)
    if "error" in usual or queued > policy["max_queue"]:
        return {**usual, "draws": False}
    bins = [j for j, low in enumerate(policy["slack_ms"]) if low <= slack_ms] or [0]
    mixture = policy["mixture"]
    if [queued - 1, bins[-1]] != mixture["place"]:
        return {**usual, "draws": False}
    if uniform >= mixture["probability"]:
        return {**usual, "draws": True}
    model, batch = mixture["answer"]
    return {"model": policy["models"][model]["name"], "batch": batch, "draws": True}


def decide_fleet(policy: Case, idle: int, queued: int, slack_ms: float, uniform: float) -> Case:
    """A fleet's answer, and whether a number was drawn for it."""
    usual = fleet_lookup.decide(policy, idle, queued, slack_ms)
    if "error" in usual or idle == 0 or queued > policy["queue_levels"][-1]:
        return {**usual, "draws": False}
    i = max(i for i, level in enumerate(policy["idle_levels"]) if level <= idle) - 1
    n = max(n for n, level in enumerate(policy["queue_levels"]) if level <= queued) - 1
    row = policy["table"]["rows"][policy["table"]["index"][i][n]]
    mixture, answers = policy["mixture"], list[int]()
    for j in range(len(policy["slack_ms"])):
        answers.append([a for b, a in zip(row[::2], row[1::2], strict=True) if b <= j][-1])
    bins = [j for j, low in enumerate(policy["slack_ms"]) if low <= slack_ms] or [0]
    j, place = bins[-1], mixture["place"][2] if [i, n] == mixture["place"][:2] else None
    answer = answers[j]
    if j == place and uniform < mixture["probability"]:
        (answer,) = mixture["answer"]
    found: Case = {"drop": True}
    if answer == -1:
        low = j
        while low > 0 and answers[low - 1] == -1 and low - 1 != place:
            low -= 1
        found = {"wait_below_ms": policy["slack_ms"][low] if low else None}
    elif answer >= 0:
        model, batch = policy["options"][answer]
        found = {"model": policy["models"][model]["name"], "batch": batch}
    return {**found, "draws": j == place}


UNIFORM = (0.0, math.nextafter(0.25, 0.0), 0.25, 0.9)


def worker_cases() -> list[Case]:
    """Every queue, and slacks around every edge, with numbers on both sides."""
    return [{"queued": n, "slack_ms": s, "uniform": u, **decide(WORKER, n, s, u)}
            for n, s, u in itertools.product((0, 1, 2, 3, 4), _around(WORKER), UNIFORM)]


def fleet_cases(policy: Case) -> list[Case]:
    """The place's levels and others, slacks around every edge, numbers on both sides."""
    i, n, _ = policy["mixture"]["place"]
    idle = sorted({0, 4, policy["idle_levels"][i + 1]})
    queued = sorted({3, 8, policy["queue_levels"][n + 1]})
    return [{"idle": i, "queued": n, "slack_ms": s, "uniform": u,
             **decide_fleet(policy, i, n, s, u)}
            for i, n, s, u in itertools.product(idle, queued, _around(policy), UNIFORM[1:3])]


def _around(policy: Case) -> list[float]:
    return [-3.0, *(f for edge in policy["slack_ms"] for f in (edge, math.nextafter(edge, 0.0)))]


def vectors_text() -> str:
    """The vectors' file: one case to a line."""
    sets = [{"policy": WORKER, "lookups": worker_cases()},
            *({"policy": policy, "lookups": fleet_cases(policy)} for policy in FLEETS)]
    parts = {"format": "ramsis.mixture-lookup-vectors/1", "sets": sets}
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {lookup.lines(value)}"
                              for key, value in parts.items()) + "\n}\n"


if __name__ == "__main__":
    print(vectors_text(), end="")
