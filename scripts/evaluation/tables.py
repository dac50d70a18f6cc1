"""Rows of a sweep as the tables that are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from study import markdown

from evaluation import savings as saving
from evaluation.specs import POLICIES, label, rank

__all__ = ["cells", "savings", "savings_table", "table"]

Row = Mapping[str, Any]
Rows = Sequence[Row]

_KEPT = ("profile", "model_set", "workers", "slo_ms", "service", "cv", "load_qps", "trace",
         "trace_scale", "scheduler", "duration_s", "seeds", "monitor", "monitor_ms", "told",
         "queries", "accuracy", "violation_rate", "effective_accuracy", "accuracy_half_width",
         "violation_rate_half_width", "effective_accuracy_half_width", "expected_accuracy",
         "expected_violation_rate", "expected_effective_accuracy", "upper_bound",
         "response_p99_ms", "batch_mean", "utilisation")
_CASES = ("model_set", "slo_ms", "workers", "service", "load_qps", "trace", "trace_scale", "cv",
          "told", "monitor", "monitor_ms")


def cells(rows: Rows) -> Rows:
    """A row for each cell, with what figures need."""
    return [{name: row[name] for name in _KEPT} for row in rows]


def table(rows: Rows) -> str:
    """Return a line for each case, with what differs between cases, and a column by scheduler.

    Cells have effective accuracy, promised and simulated, and violations where there are any.
    """
    frame = pd.DataFrame(rows)
    cases = [name for name in _CASES if len(frame[name].unique()) > 1] or ["slo_ms"]
    names = list(dict.fromkeys(map(label, sorted(frame["scheduler"], key=rank))))
    lines = []
    for case, own in frame.groupby(cases, dropna=False):
        by_name = {label(row["scheduler"]): text(row) for row in own.to_dict("records")}
        lines.append([*("–" if pd.isna(value) else f"{value:,g}" if isinstance(value, float)
                        else value for value in case),
                      *(by_name.get(name, "–") for name in names)])
    return markdown([*cases, *names], lines)


def text(row: Mapping[Any, Any]) -> str:
    """Return promise, effective accuracy, and violations where there are any, of a row."""
    promised = row.get("expected_effective_accuracy")
    late = 100.0 * row["violation_rate"]
    share = f"{late:.2g}" if late < 99.5 else "100"
    return (("" if promised is None or pd.isna(promised) else f"{promised:.4f}, ")
            + f"{row['effective_accuracy']:.4f}" + (f" ({share} %)" if late >= 0.0005 else ""))


def savings(rows: Rows) -> Rows:
    """See :mod:`evaluation.savings`."""
    return [{**row, "scheduler": label(row["scheduler"]), "baseline": label(row["baseline"])}
            for row in saving.savings(rows, POLICIES)]


def savings_table(rows: Rows) -> str:
    """Return averages and largest values of workers saved and accuracy gained, in percent."""
    gained, in_time = (saving.gains(rows, POLICIES, *figure)
                       for figure in ((), ("accuracy", 1.0)))
    return markdown(["", "by", "against", "SLO (ms)", "cases", "average", "largest"], [
        [what, label(row["scheduler"]), label(row["baseline"]), row["slo_ms"] or "all",
         row["cases"], *("–" if row[name] is None else f"{100.0 * row[name]:.2f}"
                         for name in ("average", "largest"))]
        for what, found, figure in (
            ("workers saved on the trace", saving.savings(rows, POLICIES), "saved"),
            ("accuracy gained on the trace", [row for row in gained if row["trace"]], "gained"),
            ("accuracy gained at constant loads", [row for row in gained if not row["trace"]],
             "gained"),
            ("the same of answers in time, whatever the violations",
             [row for row in in_time if not row["trace"]], "gained"))
        for row in saving.summary(found, figure)])
