"""Rows of a sweep as rows of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evaluation import savings as saving
from evaluation.specs import POLICIES, label, rank

__all__ = ["cells", "figures", "promises", "savings", "savings_summary", "violations"]

Row = Mapping[str, Any]
Rows = Sequence[Row]

_KEPT = ("profile", "model_set", "workers", "slo_ms", "service", "cv", "load_qps", "trace",
         "trace_scale", "scheduler", "duration_s", "seeds", "monitor", "monitor_ms", "told",
         "queries", "accuracy", "violation_rate", "effective_accuracy", "accuracy_half_width",
         "violation_rate_half_width", "effective_accuracy_half_width", "expected_accuracy",
         "expected_violation_rate", "expected_effective_accuracy", "upper_bound",
         "response_p99_ms", "batch_mean", "utilisation")


def cells(rows: Rows) -> Rows:
    """A row for each cell, with what figures need."""
    return [{name: row[name] for name in _KEPT} for row in rows]


def figures(rows: Rows) -> Rows:
    """A column of effective accuracies for each scheduler and set of models."""
    return _pivot(rows, _key, _name, lambda row: f"{row['effective_accuracy']:.4f}")


def promises(rows: Rows) -> Rows:
    """Promise, simulation and their difference."""
    return [{
        "SLO (ms)": f"{row['slo_ms']:g}", "workers": row["workers"],
        "load (QPS)": f"{row['load_qps']:g}",
        "promise": f"{row['expected_effective_accuracy']:.4f}",
        "simulation": f"{row['effective_accuracy']:.4f}",
        "difference": f"{row['effective_accuracy'] - row['expected_effective_accuracy']:+.5f}",
        "±": f"{row['effective_accuracy_half_width'] or 0.0:.5f}",
    } for row in rows]


def violations(rows: Rows) -> Rows:
    """Violations in percent, a column for each scheduler."""
    return _pivot(rows, _key, _name, lambda row: f"{100.0 * row['violation_rate']:.3f}")


def savings(rows: Rows) -> Rows:
    """See :mod:`evaluation.savings`."""
    return [{**row, "scheduler": label(row["scheduler"]), "baseline": label(row["baseline"])}
            for row in saving.savings(rows, POLICIES)]


def savings_summary(rows: Rows) -> Rows:
    """Averages and largest values: workers saved, accuracy gained."""
    def text(value: float | None, unit: str) -> str:
        return "–" if value is None else f"{100.0 * value:.2f}{unit}"

    saved, gained = saving.savings(rows, POLICIES), saving.gains(rows, POLICIES)
    on_trace = [row for row in gained if row["trace"]]
    constant = [row for row in gained if not row["trace"]]
    in_time = [row for row in saving.gains(rows, POLICIES, "accuracy", 1.0) if not row["trace"]]
    result = []
    for what, summary, unit in (
        ("workers saved on the trace", saving.summary(saved, "saved"), " %"),
        ("accuracy gained on the trace", saving.summary(on_trace, "gained"), " points"),
        ("accuracy gained at constant loads", saving.summary(constant, "gained"), " points"),
        ("the same of answers in time, whatever the violations",
         saving.summary(in_time, "gained"), " points"),
    ):
        result += [{
            "": what, "by": label(row["scheduler"]), "against": label(row["baseline"]),
            "SLO (ms)": "all" if row["slo_ms"] is None else f"{row['slo_ms']:g}",
            "cases": row["cases"], "average": text(row["average"], unit),
            "largest": text(row["largest"], unit),
        } for row in summary]
    return result


def _key(row: Row) -> tuple[str, ...]:
    return ("slo_ms", "workers", "load_qps") if row["load_qps"] else ("slo_ms", "workers")


def _name(row: Row) -> str:
    name = label(row["scheduler"])
    return name if row["model_set"] in ("pareto", "three") else f"{name}, more models"


def _pivot(
    rows: Rows, key: Callable[[Row], tuple[str, ...]], column: Callable[[Row], str],
    text: Callable[[Row], str],
) -> Rows:
    """One row for each key, with a text for each column."""
    result: dict[tuple[Any, ...], dict[str, Any]] = {}
    ranked = sorted(rows, key=lambda row: rank(row["scheduler"]))
    columns = list(dict.fromkeys(map(column, ranked)))
    for row in rows:
        names = key(row)
        values = tuple(row[name] for name in names)
        one = result.setdefault(values, {name: f"{value:g}" for name, value
                                         in zip(names, values, strict=True)})
        one[column(row)] = text(row)
    return [{**dict.fromkeys((*one, *columns), "–"), **one} for _, one in sorted(result.items())]
