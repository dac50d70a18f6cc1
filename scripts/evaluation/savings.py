"""Workers saved: how many fewer reach what a baseline reaches (the paper's headline).

For each SLO, kind of policies, baseline and number of workers W on the trace: w is the fewest
workers with which these policies have at least the baseline's effective accuracy, interpolated
between the numbers that were simulated and rounded up. The share saved is 1 − w/W, below 0 where
they need more. Where the smallest number simulated is enough, w is that number and the saving is
at least this. Where none is enough, there is no figure.

Accuracy gained: the difference in effective accuracy at the same workers and load, wherever
neither has more than OVERLOAD violations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

__all__ = ["OVERLOAD", "fewest_workers", "gains", "kind", "savings", "setting", "summary",
           "without"]

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


_OF_SIMULATION = ("arrivals", "levels", "profile_s")  # no part of what a scheduler does at a load


def setting(scheduler: str, name: str) -> str:
    """The value of a setting that a scheduler's text has.

    >>> setting("round-robin:paper,grid=fixed:5", "grid")
    'fixed:5'
    """
    values = [value.partition("=") for value in scheduler.partition(":")[2].split(",")]
    return next(value for key, _, value in values if key == name)


def without(scheduler: str, *names: str) -> str:
    """A scheduler's text without some settings.

    >>> without("round-robin:paper,grid=fixed:5", "grid")
    'round-robin:paper'
    """
    name, _, settings = scheduler.partition(":")
    kept = [one for one in settings.split(",") if one.partition("=")[0] not in names]
    return f"{name}:{','.join(kept)}".rstrip(":")


def kind(row: Mapping[str, Any]) -> str:
    """A row's scheduler, without the parameters that are of how it is simulated.

    >>> kind({"scheduler": "central-queue:headroom=0,levels=8"})
    'central-queue:headroom=0'
    """
    return without(str(row["scheduler"]), *_OF_SIMULATION)


def _own(rows: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> list[str]:
    """The kinds of rows that are policies by their name."""
    kinds = dict.fromkeys(map(kind, rows))
    return [one for name in policies for one in kinds if one.partition(":")[0] == name]


def savings(
    rows: Sequence[Mapping[str, Any]], policies: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for each SLO, kind of policies, baseline and number of workers on the trace.

    Schedulers that are not one of the ``policies`` by name are baselines.
    """
    result = []
    policies = _own(rows, policies)
    for slo_ms, own in product(dict.fromkeys(row["slo_ms"] for row in rows), policies):
        at = [row for row in rows if row["slo_ms"] == slo_ms and row["trace"]]
        curve = sorted((row["workers"], row["effective_accuracy"]) for row in at
                       if kind(row) == own)
        if not curve:
            continue
        workers, accuracy = zip(*curve, strict=True)
        for row in at:
            if kind(row) in policies:
                continue
            found = fewest_workers(workers, accuracy, row["effective_accuracy"])
            if found and found[1] and found[0] > row["workers"]:
                found = None  # no number as small was simulated
            result.append({
                "slo_ms": slo_ms, "scheduler": own, "baseline": kind(row),
                "workers": row["workers"], "effective_accuracy": row["effective_accuracy"],
                "enough": found and found[0], "at_least": found and found[1],
                "saved": found and 1.0 - found[0] / row["workers"],
            })
    return result


def gains(
    rows: Sequence[Mapping[str, Any]], policies: Sequence[str],
    figure: str = "effective_accuracy", most_violations: float = OVERLOAD,
) -> list[dict[str, Any]]:
    """A row for each case, kind of policies and baseline, of what is ``gained`` of a figure."""
    def case(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["slo_ms"], row["workers"], row["trace"], row["load_qps"]

    fine = [row for row in rows
            if row["violation_rate"] <= most_violations and row[figure] is not None]
    mine = {(kind(row), case(row)): row[figure] for row in fine}
    policies = _own(rows, policies)
    return [{"slo_ms": row["slo_ms"], "scheduler": own, "baseline": kind(row),
             "trace": row["trace"], "gained": mine[own, case(row)] - row[figure]}
            for own in policies for row in fine
            if kind(row) not in policies and (own, case(row)) in mine]


def summary(rows: Sequence[Mapping[str, Any]], figure: str) -> list[dict[str, Any]]:
    """Average and largest of a figure for each SLO, policies and baseline, and for all SLOs.

    Those for all SLOs have ``None`` as theirs.
    """
    result = []
    for slo_ms in [*dict.fromkeys(row["slo_ms"] for row in rows), None]:
        pairs = dict.fromkeys((row["scheduler"], row["baseline"]) for row in rows)
        for scheduler, baseline in pairs:
            own = [row[figure] for row in rows if slo_ms in (None, row["slo_ms"])
                   and (row["scheduler"], row["baseline"]) == (scheduler, baseline)]
            known = [value for value in own if value is not None]
            result.append({
                "slo_ms": slo_ms, "scheduler": scheduler, "baseline": baseline,
                "cases": len(known), "without": len(own) - len(known),
                "average": sum(known) / len(known) if known else None,
                "largest": max(known, default=None),
            })
    return result
