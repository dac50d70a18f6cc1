"""Workers saved: how many fewer reach what a baseline reaches (the paper's headline).

For each SLO, baseline and fleet of W workers on the trace: the fewest workers w with which worker
policies have at least the baseline's effective accuracy, on straight lines between the fleets
that were simulated, rounded up; saved is 1 − w/W, below 0 where they need more. Where the smallest
fleet does already, w is that fleet and the saving is at least this. Where no fleet does, there is
no figure.

Accuracy gained: the difference in effective accuracy at the same workers and load, wherever
neither has more than OVERLOAD violations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["OVERLOAD", "fewest_workers", "gains", "savings", "summary"]

OVERLOAD = 0.05
"""Share of violations above which no accuracy is compared or drawn, as in the paper."""


def fewest_workers(
    workers: Sequence[int], accuracy: Sequence[float], wanted: float
) -> tuple[int, bool] | None:
    """The fewest workers that reach an accuracy, and whether fewer might.

    >>> fewest_workers([20, 30, 40], [0.5, 0.7, 0.8], 0.75)
    (35, False)
    """
    reached = np.maximum.accumulate(np.asarray(accuracy, dtype=float))
    if wanted > reached[-1]:
        return None
    if wanted <= reached[0]:
        return workers[0], True
    i = int(np.searchsorted(reached, wanted))
    share = (wanted - reached[i - 1]) / (reached[i] - reached[i - 1])
    exact = workers[i - 1] + share * (workers[i] - workers[i - 1])
    return math.ceil(exact - 1e-9), False


def savings(rows: Sequence[Mapping[str, Any]], own: str) -> list[dict[str, Any]]:
    """A row for each SLO, baseline and fleet on the trace; ``own`` is the scheme compared."""
    result = []
    for slo_ms in dict.fromkeys(row["slo_ms"] for row in rows):
        at = [row for row in rows if row["slo_ms"] == slo_ms and row["trace"]]
        curve = sorted((row["workers"], row["effective_accuracy"]) for row in at
                       if row["scheme"] == own)
        workers, accuracy = zip(*curve, strict=True)
        for row in at:
            if row["scheme"] == own:
                continue
            found = fewest_workers(workers, accuracy, row["effective_accuracy"])
            if found and found[1] and found[0] > row["workers"]:
                found = None  # no fleet as small was simulated
            result.append({
                "slo_ms": slo_ms, "baseline": row["scheme"], "workers": row["workers"],
                "effective_accuracy": row["effective_accuracy"],
                "enough": found and found[0], "at_least": found and found[1],
                "saved": found and 1.0 - found[0] / row["workers"],
            })
    return result


def gains(rows: Sequence[Mapping[str, Any]], own: str) -> list[dict[str, Any]]:
    """A row for each case and baseline, of ``gained`` effective accuracy."""
    def case(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["slo_ms"], row["workers"], row["trace"], row["load_qps"]

    fine = [row for row in rows if row["violation_rate"] <= OVERLOAD]
    mine = {case(row): row["effective_accuracy"] for row in fine if row["scheme"] == own}
    return [{"slo_ms": row["slo_ms"], "baseline": row["scheme"], "trace": row["trace"],
             "gained": mine[case(row)] - row["effective_accuracy"]}
            for row in fine if row["scheme"] != own and case(row) in mine]


def summary(rows: Sequence[Mapping[str, Any]], figure: str) -> list[dict[str, Any]]:
    """Average and largest of a figure for each SLO and baseline, and for all SLOs (``None``)."""
    result = []
    for slo_ms in [*dict.fromkeys(row["slo_ms"] for row in rows), None]:
        for baseline in dict.fromkeys(row["baseline"] for row in rows):
            own = [row[figure] for row in rows if row["baseline"] == baseline
                   and slo_ms in (None, row["slo_ms"])]
            known = [value for value in own if value is not None]
            result.append({
                "slo_ms": slo_ms, "baseline": baseline, "cases": len(known),
                "without": len(own) - len(known),
                "average": sum(known) / len(known) if known else None,
                "largest": max(known, default=None),
            })
    return result
