"""A central queue simulated the slow and obvious way: lists instead of heaps, no engine."""

import math
from collections.abc import Sequence
from typing import Any

from tests.reference.lookup import decide


def replay(document: dict[str, Any], arrival_ms: Sequence[float]) -> tuple[float, int, int]:
    """Accuracy summed over the queries in time, how many these are, and how many are dropped.

    Service times are those of the file, of one quantile.
    """
    models = {model["name"]: model for model in document["models"]}
    slo_ms, workers = document["slo_ms"], document["workers"]
    queue: list[float] = []
    busy: list[float] = []
    coming = list(arrival_ms)
    earned, in_time, dropped = 0.0, 0, 0
    timer, limit = math.inf, math.inf
    while coming or busy or timer < math.inf:
        now = min([*coming[:1], *busy, timer])
        at_most = math.inf
        if now in busy:
            busy.remove(now)
        elif coming and coming[0] == now:
            queue.append(coming.pop(0))
        else:
            at_most = limit
        timer = math.inf
        while queue:
            slack = min(queue[0] + slo_ms - now, at_most)
            answer = decide(document, workers - len(busy), len(queue), slack)
            if "wait_below_ms" in answer:
                if answer["wait_below_ms"] is not None:
                    limit = math.nextafter(answer["wait_below_ms"], -math.inf)
                    timer = max(queue[0] + slo_ms - limit, now)
                break
            at_most = math.inf
            if "drop" in answer:
                queue.pop(0)
                dropped += 1
                continue
            model = models[answer["model"]]
            end = now + model["latency_ms"][answer["batch"] - 1]
            for _ in range(answer["batch"]):
                if end <= queue.pop(0) + slo_ms:
                    earned += model["accuracy"]
                    in_time += 1
            busy.append(end)
    return earned, in_time, dropped
