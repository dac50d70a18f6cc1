"""Sections on the folder of a sweep: a quantity over any axis, by any other."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from ramsis.errors import InputFileError
from ramsis.files import read_json, read_text
from ramsis.report.columns import LOAD, SIMULATED
from ramsis.report.figure import look_numbers
from ramsis.report.page.clusters import cluster_section
from ramsis.report.page.parts import Figure, Note, PageTable, Part, Section
from ramsis.report.verdicts import sweep_verdict
from ramsis.tables import Column, with_values

RESULTS_NAME, SCENARIOS_NAME = "results.csv", "scenarios.csv"
RECORD_NAME, FAILURES_NAME = "sweep.json", "failures.csv"
_LARGEST = 1 << 30  # bytes of a table
_MOST_CELLS = 30_000  # cells in the figure; more would make the page too large
_AXES = {
    "profile": "profile", "model_set": "models", "workers": "workers",
    "worker_types": "worker types", "slo_ms": "SLO (ms)", "slo_classes": "SLO classes",
    "service": "service times", "network_ms": "network (ms)", "overhead_ms": "overhead (ms)",
    "arrivals": "arrivals", "load_qps": "load (queries/s)", "trace": "trace",
    "trace_scale": "scale of the trace", "scheduler": "scheduler", "duration_s": "duration (s)",
    "seed": "seed", "seeds": "seeds", "monitor": "monitor", "monitor_ms": "monitor (ms)",
    "told": "told"}
_NUMBERS = frozenset(("workers", "slo_ms", "network_ms", "overhead_ms", "load_qps", "trace_scale",
                      "duration_s", "monitor_ms", "told", "seed", "seeds"))
# Keys that have no meaning without another.
_OF = {"trace_scale": "trace", "monitor_ms": "monitor", "told": "monitor"}
_METRICS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("effective_accuracy", "effective accuracy", {"half": "effective_accuracy_half_width",
                                                  "bound": "upper_bound"}),
    ("violation_rate", "violations", {"half": "violation_rate_half_width", "percent": True}),
    ("accuracy", "accuracy in time", {"half": "accuracy_half_width"}),
    ("certified_gap", "certified gap", {"percent": True}),
    ("response_p99_ms", "p99 of the response (ms)", {}),
    ("utilisation", "utilisation", {"percent": True}),
    ("expected_effective_accuracy", "effective accuracy promised", {"bound": "upper_bound"}),
    ("expected_violation_rate", "violations promised", {"percent": True}))

Rows = Sequence[Mapping[str, Any]]


def sweep_section(folder: Path, name: str) -> Section:
    """Return the section on the cells of a sweep, whose tables are in ``folder``.

    Its ``name`` is that of its folder, or a URL.
    """
    rows = _table(folder / RESULTS_NAME)
    failures = _failures(folder, "profile")
    varying = [key for key in _AXES if len({row.get(key) for row in rows}) > 1]
    shown = [Column(key, _AXES[key], "g" if key in _NUMBERS else "") for key in varying]
    columns = with_values(SIMULATED[3:-1], rows)
    parts: list[Part] = []
    if rows:
        parts += _explorer(rows, varying)
        parts.append(PageTable("Cells", [*shown, *columns], rows))
    else:
        parts.append(Note("No cell has a result."))
    if failures:
        parts.append(PageTable("Cells that failed", [Column("scheduler", "scheduler"), LOAD,
            Column("workers", "workers", "g"), Column("error", "why")], failures, 50))
    same = [(_AXES[key], _words(rows[0][key])) for key in _AXES
            if rows and key not in varying and rows[0].get(key) not in (None, "")
            and rows[0].get(_OF.get(key, key)) not in (None, "", "False")]
    spans = [(_AXES[key], _span([row.get(key) for row in rows])) for key in varying]
    terms = [("cells", f"{len(rows)}" + (f", and {len(failures)} that failed" if failures
                                         else "")), *spans, *same]
    return _section(folder, name, terms, parts, sweep_verdict(
        rows, {key: _AXES[key] for key in varying if key != "scheduler"}))


def scenarios_section(folder: Path, name: str) -> Section:
    """Return the section on the scenarios of a sweep; named as in :func:`sweep_section`."""
    rows = [{key: int(value) if isinstance(value, float) and value.is_integer() else value
             for key, value in row.items()} for row in _table(folder / SCENARIOS_NAME)]
    failures = _failures(folder, "scenario")
    terms: list[tuple[str, str]] = []
    parts: list[Part] = [Note("No cell has a result.")]
    verdict: Sequence[str] = ()
    if rows:
        short = _short_names([str(row["scenario"]) for row in rows])
        for row in rows:
            row["scenario"] = short[str(row["scenario"])]
        cells = cluster_section({}, rows, name)
        terms, parts, verdict = list(cells.asked), list(cells.parts), cells.verdict
    if failures:
        parts.append(PageTable("Cells that failed", [Column("scenario", "scenario"), Column(
            "scheduler", "scheduler"), Column("error", "why")], failures, 50))
    return _section(folder, name, terms, parts, verdict)


def _section(
    folder: Path, name: str, terms: Sequence[tuple[str, str]], parts: Sequence[Part],
    verdict: Sequence[str],
) -> Section:
    """Return a section with the sweep's command and versions."""
    path = folder / RECORD_NAME
    document = read_json(path) if path.exists() else {}
    source, prints = document.get("source"), document.get("profiles")
    command = ["ramsis", "sweep", str(source), "--out", name]
    origin = [("folder", name), ("made by", str(document.get("created_by", "–")))]
    if isinstance(prints, Mapping):
        origin += [(f"fingerprint of {profile}", str(value))
                   for profile, value in prints.items()]
    return Section("Sweep", PurePath(name).name, terms, parts,
                   (shlex.join(command),) if source else (), origin, verdict=verdict)


def _short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return names of files without folder and suffix where these differ, else the paths."""
    different = list(dict.fromkeys(paths))
    stems = [PurePath(path).stem for path in different]
    return dict(zip(different, stems if len(set(stems)) == len(stems) else different,
                    strict=True))


def _failures(folder: Path, of: str) -> list[dict[str, Any]]:
    """Return the failed cells of a ``profile``, or a ``scenario``."""
    path = folder / FAILURES_NAME
    return [row for row in _table(path) if row.get(of)] if path.exists() else []


def _table(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a CSV file, with numbers as such."""
    lines = csv.DictReader(read_text(path, limit=_LARGEST).splitlines())
    try:
        return [{key: _value(key, text) for key, text in line.items()} for line in lines]
    except (ValueError, TypeError, AttributeError, csv.Error) as error:
        raise InputFileError(f"not a table of a sweep ({error})", where=str(path)) from None


_TEXTS = frozenset(_AXES) - _NUMBERS | {"error", "scenario"}


def _value(key: str, text: str | None) -> Any:
    if text is None or key is None:
        raise ValueError("a row of another length")
    if text == "":
        return None
    return text if key in _TEXTS else float(text)


def _words(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _span(values: Sequence[Any]) -> str:
    different = list(dict.fromkeys(_words(value) for value in values if value is not None))
    more = f" … ({len(different)} values)" if len(different) > 8 else ""
    return ", ".join(different[:8]) + more


def _explorer(rows: Rows, varying: Sequence[str]) -> list[Part]:
    """Return the figure of all cells, and a note where they are too many."""
    numbers = [key for key in varying if key in _NUMBERS]
    over = next((key for key in ("load_qps", "workers", "slo_ms") if key in numbers),
                numbers[0] if numbers else None)
    kept = rows[:_MOST_CELLS]
    if over is None:  # nothing to draw over: one point
        over = "load_qps" if rows[0].get("load_qps") is not None else "workers"
        varying = [over, *varying]
    axes = []
    for key in varying:
        values = list(dict.fromkeys(row[key] for row in kept))
        if key in _NUMBERS:
            values.sort(key=lambda value: (value is None, value or 0.0))
        axes.append((key, values))
    metrics, columns = _metrics(kept)
    if not metrics:
        return [Note("No cell has figures.")]
    place = [{value: i for i, value in enumerate(values)} for _, values in axes]
    lines = next((i for i, (key, _) in enumerate(axes) if key == "scheduler" and key != over),
                 next((i for i, (key, _) in enumerate(axes) if key != over), None))
    label = "The cells of the sweep: choose a quantity, the axis, and what lines stand for"
    figure = Figure("Cells", label, {
        "kind": "explore", "label": label, "slider": "",
        "axes": [{"label": _AXES[key], "values": ["–" if v is None and key not in _NUMBERS else v
                                                  for v in values],
                  "looks": list(look_numbers(map(str, values)).values()),
                  "number": key in _NUMBERS and None not in values,
                  "whole": key in ("workers", "seed", "seeds")} for key, values in axes],
        "over": [key for key, _ in axes].index(over), "lines": lines, "metrics": metrics,
        "cells": [[at[row[key]] for (key, _), at in zip(axes, place, strict=True)]
                  for row in kept],
        "values": [[row.get(name) for name in columns] for row in kept]})
    if len(kept) < len(rows):
        return [figure, Note(f"The figure has the first {len(kept)} of {len(rows)} cells; "
                             f"{RESULTS_NAME} has all.")]
    return [figure]


def _metrics(rows: Rows) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the quantities that the rows have, and the columns that they need."""
    columns: list[str] = []

    def at(name: str) -> int:
        if name not in columns:
            columns.append(name)
        return columns.index(name)

    metrics = []
    for name, label, more in _METRICS:
        if not any(row.get(name) is not None for row in rows):
            continue
        metric: dict[str, Any] = {"label": label, "at": at(name), "log": False,
                                  "percent": more.get("percent", False),
                                  "zero": more.get("percent", False)}
        for key in ("half", "bound"):
            column = more.get(key)
            if isinstance(column, str) and any(row.get(column) is not None for row in rows):
                metric[key] = at(column)
        metrics.append(metric)
    return metrics, columns
