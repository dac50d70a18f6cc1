"""Where policies and simple schedulers differ most: in overload.

The traces ``day`` and ``spikes`` are scaled so that their peaks are one and 1.2 times what 60
workers can answer in time, at p95 and the smallest SLO. Central-queue policies drop what cannot be
in time; per-worker policies are made by both rules for late queries, with and without a price on
violations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.case import FLEET, Case
from evaluation.figures import panels, violations
from evaluation.specs import CENTRAL, LEVELS, WORKER, baselines, label
from ramsis.arrivals.load_table import read_rates
from ramsis.report.figure import PanelRow, plot_panels

__all__ = ["RULES", "draw_overload", "name_of", "overload"]

Rows = Sequence[Mapping[str, Any]]
PEAKS = (1.0, 1.2)
"""Peaks of the traces, as multiples of the capacity."""
RULES = {
    f"{WORKER}:late={late},violation_price={price:g}": f"per worker, {late}, price {price:g}"
    for late in ("serve", "drop") for price in (0.0, 1.0)}


def _capacity(case: Case) -> float:
    """Of 60 workers, in queries per second."""
    return case.load_range[1] / 0.9


def overload(case: Case) -> dict[str, Any]:
    """Traces whose peaks pass the capacity, by both rules for late queries."""
    seconds = 20.0 if case.quick else 300.0
    grid = []
    for trace in ("day", "spikes"):
        rates = read_rates(trace)
        for peak in PEAKS:
            scale = float(f"{peak * _capacity(case) / rates.peak_qps:.3g}")
            longest = min(seconds, case.most_queries / (rates.load_qps * scale))
            grid.append({"trace": trace, "trace_scale": scale,
                         "duration_s": float(f"{min(longest, rates.duration_ms / 1000):.3g}")})
    return {"profiles": case.name, "models": "pareto", "slo_ms": case.slo_ms, "workers": FLEET,
            "service": "p95", "seeds": 1 if case.quick else 2, "grid": grid,
            "scheduler": [f"{CENTRAL}:levels={LEVELS}", *RULES, *baselines(case),
                       "greedy:late=serve"]}


def name_of(row: Mapping[str, Any]) -> str:
    """A scheduler with its rule for late queries."""
    known = row["scheduler"]
    if known in RULES:
        return RULES[known]
    late = known.partition("late=")[2]
    return f"{label(known)}, {late}" if late else label(known)


def draw_overload(rows: Rows, path: Path, case: Case) -> None:
    """A point for each trace and scheduler."""
    names = sorted({f"{row['trace']} × {row['trace_scale']:g}" for row in rows})
    kinds = list(dict.fromkeys(name_of(row) for row in rows))
    placed = sorted(({**row, "at": names.index(f"{row['trace']} × {row['trace_scale']:g}")
                      + 0.09 * (kinds.index(name_of(row)) - len(kinds) / 2)} for row in rows),
                    key=lambda row: row["at"])
    plot_panels([
        PanelRow("effective accuracy", panels(placed, lambda _: "", name_of, "at",
                                              lambda row: row["effective_accuracy"]), 1.2),
        PanelRow("violations (%)", panels(placed, lambda _: "", name_of, "at", violations), 0.9,
                 log_like=True),
    ], path, cases=names)
