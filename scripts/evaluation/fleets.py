"""Central-queue policies beside other schedulers, with random service times (results page).

Three experiments on each profile set, by the rules of :mod:`evaluation.case` and these:

- *fleets*: over the load (60 workers, the smallest SLO; two loads beyond the capacity more), over
  workers (the eighth of the loads), and over the SLO (the same load, 60 workers, SLOs in equal
  ratios from four times the fastest model's latency to one and a half of the slowest's).
- *fleet_promises*: promise and simulation for 20, 60 and 100 workers at the same loads for each,
  with random service times and those at p95.
- *robustness*: 60 workers, the smallest SLO, the seventh and the ninth of the loads, in conditions
  that the policy was not made for: a stated load that is wrong by a fifth, gaps of coefficients of
  variation 2 and 4, the trace ``spikes`` with the load monitor, with one ten times as slow, and
  with none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.case import FLEET, Case, round_slo
from evaluation.figures import LOAD, effective, panels, scheduler, violations
from evaluation.specs import CENTRAL, LEVELS, POLICIES, baselines, rank
from ramsis.report.chart import Series
from ramsis.report.figure import Panel, PanelRow, plot_panels

__all__ = ["draw_fleets", "draw_promises", "draw_robustness", "fleets", "promises", "robustness"]

Cell = Mapping[str, Any]
Rows = Sequence[Cell]
DRAWN = "distribution"
BEYOND = (1.05, 1.2)
"""Loads above the capacity at p95, as multiples of it."""
_SLOS = 7
FLEETS = (20, 60, 100)
_CASES = {
    "as told": {}, "told 0.8 of the load": {"told": 0.8}, "told 1.2 of the load": {"told": 1.2},
    "gaps of CV 2": {"cv": 2.0}, "gaps of CV 4": {"cv": 4.0},
    "spikes": {"trace": "spikes"}, "spikes, monitor of 5 s": {"trace": "spikes",
                                                              "monitor_ms": 5000.0},
    "spikes, told the mean": {"trace": "spikes", "monitor": "off"},
}


def _loads(case: Case) -> list[float]:
    """Those of the case, and some beyond the capacity."""
    capacity = case.load_range[1] / 0.9
    return [*case.loads_qps, *(() if case.given_loads else (
        float(f"{x * capacity:.2g}") for x in BEYOND))]


def _high(case: Case) -> float:
    """The load at which workers and SLOs are compared."""
    return case.loads_qps[-3 if len(case.loads_qps) > 3 else -1]


def _shared(case: Case, **more: Any) -> dict[str, Any]:
    return {"profiles": case.name, "models": "pareto", "service": DRAWN,
            "duration_s": case.duration_s, "seeds": 2 if case.quick else 5, **more}


def fleets(case: Case) -> dict[str, Any]:
    """Over loads, workers and SLOs."""
    single_ms = case.table.latency_ms[:, 0]
    between = np.geomspace(4.0 * single_ms.min(), 1.5 * single_ms.max(), _SLOS).tolist()
    slos = sorted({case.slo_ms, *map(round_slo, between)})
    at = {"workers": FLEET, "slo_ms": case.slo_ms, "load_qps": _high(case)}
    return _shared(case, scheduler=[*POLICIES, *baselines(case)], grid=[
        {**at, "load_qps": _loads(case)},
        {**at, "workers": [20, 60, 100] if case.quick else [15, *range(20, 101, 10)]},
        {**at, "slo_ms": slos[::2] if case.quick else slos},
    ])


def promises(case: Case) -> dict[str, Any]:
    """Three numbers of workers, with random service times and those at p95."""
    workers = FLEETS[:2] if case.quick else FLEETS
    return {**_shared(case, scheduler=CENTRAL, slo_ms=case.slo_ms, service=["p95", DRAWN]),
            "grid": [{"workers": k, "load_qps": [float(f"{x * k / FLEET:.4g}")
                                                 for x in _loads(case)]} for k in workers]}


def robustness(case: Case) -> dict[str, Any]:
    """Conditions that the policies were not made for."""
    others = baselines(case)
    for_poisson = [f"{name}:arrivals=poisson" for name in POLICIES]  # also under other gaps
    grids: list[dict[str, Any]] = []
    for load_qps in _robust_loads(case):
        for changes in _CASES.values():
            if "trace" not in changes:
                grids.append({"load_qps": load_qps, "scheduler": [*for_poisson, *others],
                              **changes})
                continue
            levels = f"{CENTRAL}:levels={LEVELS}"
            grids.append({"trace_scale": load_qps / 1000.0, "scheduler": [levels, POLICIES[1],
                                                                       *others], **changes})
    return _shared(case, workers=FLEET, slo_ms=case.slo_ms, grid=grids)


def _robust_loads(case: Case) -> list[float]:
    loads = case.loads_qps
    return [loads[-4], loads[-2]] if len(loads) > 4 else [loads[-1]]


def draw_fleets(rows: Rows, path: Path, case: Case) -> None:
    """A column each over loads, workers and SLOs."""
    at = {"workers": FLEET, "slo_ms": case.slo_ms, "load_qps": _high(case)}
    columns = (
        ("load_qps", LOAD, True, f"{FLEET} workers, SLO {case.slo_ms:g} ms"),
        ("workers", "workers", False, f"{_high(case):,g} queries/s, SLO {case.slo_ms:g} ms"),
        ("slo_ms", "SLO (ms)", True, f"{FLEET} workers, {_high(case):,g} queries/s"),
    )

    def row(quantity: str, height: float, y: Any, bound: bool, log_like: bool) -> PanelRow:
        result = []
        for x, x_label, log_x, title in columns:
            own = sorted((r for r in rows if all(r[name] == value for name, value in at.items()
                                                 if name != x)), key=lambda r: r[x])
            (panel,) = panels(own, lambda _, t=title: t, scheduler, x, y)
            known = {r[x]: r["upper_bound"] for r in own if bound and r["upper_bound"] >= worst}
            most = Series("upper bound (one model per request)", list(known), list(known.values()),
                        ref=True)
            result.append(Panel(title, [most, *panel.lines], x_label, log_x))
        return PanelRow(quantity, result, height, log_like)

    worst = 0.99 * float(case.table.accuracy.min())

    def in_capacity(r: Cell) -> float | None:
        """In overload, where no scheduler serves every query, the other rows say more."""
        return effective(r) if r["upper_bound"] >= worst else None

    plot_panels([row("effective accuracy", 1.2, in_capacity, True, False),
                 row("short of the bound (%)", 1.0, short, False, True),
                 row("violations (%)", 0.8, violations, False, True)], path)


def short(row: Cell) -> float:
    """Distance to the bound, in percent of it; 0 where a run is above it by chance."""
    return max(0.0, 100.0 * (1.0 - row["effective_accuracy"] / row["upper_bound"]))


def draw_promises(rows: Rows, path: Path, case: Case) -> None:
    """The difference of simulation and promise."""
    def fleet(row: Cell) -> str:
        return f"{row['workers']} workers"

    def service(row: Cell) -> str:
        return "service drawn" if row["service"] == DRAWN else "service p95"

    scaled = [{**row, "width": 1000.0 * (row["effective_accuracy_half_width"] or 0.0),
               "load_qps": row["load_qps"] * FLEET / row["workers"]} for row in rows]
    plot_panels([
        PanelRow("simulation − promise, × 1000", panels(
                 scaled, fleet, service, "load_qps", lambda row: 1000.0 * _error(row),
                 half_width="width"), 1.3),
        PanelRow("violations (%)", panels(scaled, fleet, service, "load_qps", violations), 0.8,
                 log_like=True),
    ], path, f"load for {FLEET} workers (queries/s)", log_x=True)


def _error(row: Cell) -> float:
    return float(row["effective_accuracy"] - row["expected_effective_accuracy"])


def _case(row: Cell) -> str:
    """The case of robustness of a row."""
    usual: dict[str, Any] = {"told": 1.0, "cv": 1.0, "trace": None, "monitor_ms": 500.0,
                             "monitor": None}
    own = {name: row[name] for name, value in usual.items() if row[name] != value}
    if own.get("monitor") is False:
        own["monitor"] = "off"
    return next(name for name, changes in _CASES.items() if changes == own)


def _load(row: Cell) -> float:
    return float(row["load_qps"] or 1000.0 * row["trace_scale"])


def draw_robustness(rows: Rows, path: Path, case: Case) -> None:
    """A point for each case and scheduler, beside each other where they are equal."""
    names = list(_CASES)
    kinds = sorted({scheduler(row) for row in rows}, key=rank)
    placed = [{**row, "at": names.index(_case(row)) + 0.13 * (kinds.index(scheduler(row)) - 2.0)}
              for row in rows]
    placed.sort(key=lambda row: row["at"])

    def row(quantity: str, height: float, y: Any, log_like: bool) -> PanelRow:
        return PanelRow(quantity, [
            Panel(f"{load_qps:,g} queries/s", panel.lines)
            for load_qps in sorted({_load(r) for r in placed})
            for panel in panels([r for r in placed if _load(r) == load_qps],
                                lambda _: "", scheduler, "at", y)], height, log_like)

    plot_panels([row("effective accuracy", 1.3, effective, False),
                 row("violations (%)", 0.9, violations, True)], path, cases=names)
