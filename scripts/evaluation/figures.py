"""Rows of a sweep as panels of a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.case import Case
from evaluation.savings import OVERLOAD, savings, setting, without
from evaluation.specs import POLICIES, label, rank
from ramsis.report.chart import Series
from ramsis.report.figure import Panel, PanelRow, plot_panels

__all__ = ["draw_batchings", "draw_by_load", "draw_by_workers", "draw_grids", "draw_many_models",
           "draw_promises", "draw_savings"]

Cell = Mapping[str, Any]
Key = Callable[[Cell], str]
LOAD = "load (queries/s)"


def scheduler(row: Cell) -> str:
    """Name of a row's scheduler."""
    return label(row["scheduler"])


def slo(row: Cell) -> str:
    """A row's SLO, at constant loads with its workers."""
    workers = f", {row['workers']} workers" if row.get("load_qps") else ""
    return f"SLO {row['slo_ms']:g} ms{workers}"


def panels(
    rows: Sequence[Cell], column: Key, line: Key, x: str, y: Callable[[Cell], float | None],
    bound: bool = False, half_width: str | None = None,
) -> list[Panel]:
    """A panel for each column, with a line for each of its own, schedulers in one order."""
    names = sorted(dict.fromkeys(map(line, rows)), key=rank)
    result = []
    for title in sorted(dict.fromkeys(map(column, rows)), key=rank):
        own = [row for row in rows if column(row) == title]
        lines = []
        if bound:
            known = {row[x]: row["upper_bound"] for row in own if row["upper_bound"] is not None}
            lines.append(Series("upper bound (one model per request)", list(known),
                              list(known.values()), ref=True))
        for name in names:
            part = [row for row in own if line(row) == name]
            width = None if half_width is None else [row[half_width] or 0.0 for row in part]
            lines.append(Series(name, [row[x] for row in part], [y(row) for row in part], width))
        result.append(Panel(title, lines))
    return result


def effective(row: Cell) -> float | None:
    """Effective accuracy, up to OVERLOAD violations."""
    return None if row["violation_rate"] > OVERLOAD else row["effective_accuracy"]


def violations(row: Cell) -> float | None:
    """Violations in percent."""
    return 100.0 * row["violation_rate"]


def two_rows(
    rows: Sequence[Cell], path: Path, column: Key, line: Key, x: str, x_label: str, bound: bool,
    log_x: bool,
) -> None:
    """Effective accuracy above violations."""
    plot_panels([
        PanelRow("effective accuracy", panels(rows, column, line, x, effective, bound), 1.3),
        PanelRow("violations (%)", panels(rows, column, line, x, violations), 0.8, log_like=True),
    ], path, x_label, log_x=log_x)


def draw_by_workers(rows: Sequence[Cell], path: Path, case: Case) -> None:
    """Fig. 5."""
    two_rows(rows, path, slo, scheduler, "workers", "workers", bound=False, log_x=False)


def draw_by_load(rows: Sequence[Cell], path: Path, case: Case) -> None:
    """Figs. 6 and 12."""
    two_rows(rows, path, slo, scheduler, "load_qps", LOAD, bound=True, log_x=not case.given_loads)


def draw_many_models(rows: Sequence[Cell], path: Path, case: Case) -> None:
    """Fig. 8: a panel for each scheduler."""
    names = {"pareto": f"{len(case.profile.models)} measured models"}
    two_rows(rows, path, lambda row: f"{scheduler(row)}, SLO {row['slo_ms']:g} ms",
             lambda row: names.get(row["model_set"], "with models in between"),
             "load_qps", LOAD, bound=False, log_x=not case.given_loads)


def draw_promises(rows: Sequence[Cell], path: Path, case: Case) -> None:
    """Fig. 7: promise and simulation, and their difference."""
    def fleet(row: Cell) -> str:
        several = len({row["scheduler"] for row in rows}) > 1
        slos = len({row["slo_ms"] for row in rows}) > 1
        return (slo(row) if slos else f"{row['workers']} workers") + (
            f", {scheduler(row)}" if several else "")

    def difference(row: Cell) -> float:
        return 1000.0 * (row["effective_accuracy"] - row["expected_effective_accuracy"])

    scaled = [{**row, "width": 1000.0 * (row["effective_accuracy_half_width"] or 0.0)}
              for row in rows]
    simulated = panels(rows, fleet, lambda _: "simulation", "load_qps", effective)
    promised = panels(rows, fleet, lambda _: "promise", "load_qps",
                      lambda row: row["expected_effective_accuracy"])
    both = [Panel(a.title, [*a.lines, *b.lines])
            for a, b in zip(promised, simulated, strict=True)]
    plot_panels([
        PanelRow("effective accuracy", both, 1.2),
        PanelRow("difference × 1000", panels(scaled, fleet, lambda _: "simulation − promise, with "
                                             "its 95 % interval", "load_qps", difference,
                                             half_width="width"), 0.9),
    ], path, LOAD, log_x=not case.given_loads)


def draw_grids(rows: Sequence[Cell], path: Path, case: Case) -> None:
    """Fig. 10: effective accuracy, and its difference from that of the last grid."""
    column = _apart_from("grid", rows)

    def grid(row: Cell) -> str:
        name = setting(row["scheduler"], "grid")
        return "model-based" if name == "model" else f"D = {name.partition(':')[2]}"

    last = grid(rows[-1])
    best = {(column(row), row["load_qps"]): row["effective_accuracy"] for row in rows
            if grid(row) == last}

    def difference(row: Cell) -> float:
        return 1000.0 * (row["effective_accuracy"] - best[column(row), row["load_qps"]])

    plot_panels([
        PanelRow("effective accuracy",
                 panels(rows, column, grid, "load_qps", effective, bound=True), 1.3),
        PanelRow(f"from {last}, × 1000", panels(rows, column, grid, "load_qps", difference), 0.9),
    ], path, LOAD, log_x=not case.given_loads)


def draw_batchings(rows: Sequence[Cell], path: Path, case: Case) -> None:
    """Fig. 11: accuracy and violations, and what variable batching adds."""
    column = _apart_from("batching", rows)

    def batching(row: Cell) -> str:
        return f"{setting(row['scheduler'], 'batching')} batching"

    whole = {(column(row), row["load_qps"]): effective(row) for row in rows
             if batching(row).startswith("maximal")}

    def gained(row: Cell) -> float | None:
        own, other = effective(row), whole[column(row), row["load_qps"]]
        return None if own is None or other is None else 1000.0 * (own - other)

    parts = [row for row in rows if not batching(row).startswith("maximal")]
    plot_panels([
        PanelRow("effective accuracy",
                 panels(rows, column, batching, "load_qps", effective, bound=True), 1.2),
        PanelRow("gain × 1000", panels(parts, column, batching, "load_qps", gained), 0.7),
        PanelRow("violations (%)", panels(rows, column, batching, "load_qps", violations), 0.7,
                 log_like=True),
    ], path, LOAD, log_x=not case.given_loads)


def _apart_from(name: str, rows: Sequence[Cell]) -> Key:
    """The panel of a row: SLO and workers, and of several policies which, but for a setting."""
    def policies(row: Cell) -> str:
        return without(row["scheduler"], name)

    several = len(set(map(policies, rows))) > 1
    return lambda row: slo(row) + (f", {label(policies(row))}" if several else "")


def draw_savings(rows: Sequence[Cell], path: Path, case: Case) -> None:
    """Headline: workers saved by the baseline's number of workers."""
    saved = savings(rows, POLICIES)
    plot_panels([PanelRow("workers saved (%)", panels(
        saved, slo,
        lambda row: f"{label(row['scheduler'])}, against {label(row['baseline'])}", "workers",
        lambda row: None if row["saved"] is None else 100.0 * row["saved"]), 1.2)],
        path, "workers of the baseline")
