"""Rules of second opinions drawn by chance, to test with."""

from typing import Any

import numpy as np

from ramsis.fields import Fields
from ramsis.runtime import Selector
from ramsis.runtime.cascade import CascadeRule, cascade_table
from ramsis.runtime.table import DecisionTable

SLO_MS, MODELS, BATCH, QUEUED, BINS = 60.0, 3, 6, 8, 24
_CONFIDENCES = 8


def drawn_document(
    rng: np.random.Generator, workers: int, dispatch: str = "central-queue"
) -> dict[str, Any]:
    """What lookups read of a policy file with a rule drawn by chance.

    Ranks of confidence are the confidences themselves.
    """
    levels = int(rng.integers(1, 5))
    actions = [[m, b] for m in range(MODELS - 1) for b in range(1, BATCH + 1)]
    rows, index = [], []
    for _ in range(levels):
        index.append([len(rows) + n for n in range(QUEUED)])
        for queued in range(1, QUEUED + 1):
            allowed = [code for code, (_, b) in enumerate(actions) if b <= queued]
            starts = [0, *sorted(rng.choice(np.arange(1, BINS), 3, replace=False).tolist())]
            codes = [int(rng.choice([-2, *allowed])), *map(int, rng.choice(allowed, 3))]
            if rng.random() < 0.3:
                codes[int(rng.integers(1, 4))] = -1
            rows.append([value for pair in zip(starts, codes, strict=True) for value in pair])
    second_ms = np.cumsum([rng.uniform(10.0, 16.0), *rng.uniform(0.0, 1.5, BATCH - 1)])
    latency_ms = [np.cumsum(rng.uniform(0.5, 3.0, BATCH)).tolist() for _ in range(MODELS - 1)]
    return {
        "slo_ms": SLO_MS, "workers": workers, "dispatch": dispatch,
        "models": [{"name": f"m{m}", "accuracy": 0.8 + 0.05 * m, "latency_ms": times}
                   for m, times in enumerate([*latency_ms, second_ms.tolist()])],
        "cascade": {
            "second": MODELS - 1, "levels_per_fresh": float(rng.uniform(0.0, 0.5)),
            "levels_per_unsure": float(rng.uniform(0.0, 0.5)), "step_ms": SLO_MS / BINS,
            "bins": BINS, "actions": actions, "rows": rows, "index": index,
            "unsure_bins": rng.integers(2, _CONFIDENCES + 1, (levels, MODELS)).tolist(),
            "gather": rng.integers(1, BATCH + 1, levels).tolist(),
            "least": rng.integers(1, BATCH + 2, levels).tolist(),
            "last_call_ms": float(rng.uniform(0.0, 20.0)), "second_ms": second_ms.tolist(),
            "models": [*[{"thresholds": [(q + 1) / _CONFIDENCES for q in range(_CONFIDENCES - 1)],
                          "share": [1 / _CONFIDENCES] * _CONFIDENCES,
                          "increment": rng.uniform(0.0, 0.1, _CONFIDENCES).tolist()}
                         for _ in range(MODELS - 1)],
                       {"thresholds": [], "share": [], "increment": []}]}}


def selector_of(document: dict[str, Any], load_qps: float = 100.0) -> Selector:
    """Lookup of such a document; its table, which has no second opinions, runs all at once."""
    central = document["dispatch"] == "central-queue"
    idle = document["workers"] if central else 1
    table = DecisionTable(
        models=tuple(model["name"] for model in document["models"]), slo_ms=SLO_MS,
        load_qps=load_qps, workers=document["workers"], dispatch=document["dispatch"],
        arrivals="poisson", idle=tuple(range(idle + 1)), queued=(0, 1), slack_ms=(0.0,),
        actions=[[0, 1]], rows=[[0, 0]], row_of=[[0]] * idle, longer_queue=0)
    cascade = cascade_table(Fields(document["cascade"], "drawn", "cascade"), MODELS)
    return Selector(table, CascadeRule(cascade, table))
