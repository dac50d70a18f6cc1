"""Section on schedulers of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ramsis.report.chart import Axis
from ramsis.report.columns import GROUPS, scheduler_columns
from ramsis.report.page.parts import (
    Entry,
    PageTable,
    Part,
    Section,
    dots,
    rows_figure,
    span,
    text,
)
from ramsis.report.page.results import result_section
from ramsis.report.verdicts import sweep_verdict
from ramsis.tables import Column, with_values

Rows = Sequence[Mapping[str, Any]]
_FAIRNESS = (
    Column("row", "scheduler"), Column("by", "over each"), Column("fairness", "fairness", ".4f"),
    Column("worst", "worst"), Column("worst_in_time", "in time of the worst", ".4f"))
_STAGES = ("waiting", "loading", "service", "machine")
_MOST_BARS = 40  # of a figure


def cluster_section(document: Mapping[str, Any], rows: Rows, source: str) -> Section:
    """Return the section on schedulers of one or several scenarios, with their bounds."""
    def label(row: Mapping[str, Any]) -> str:
        return ", ".join([*(str(row[key]) for key in several), row["scheduler"]])

    several = [key for key in ("scenario", "seed") if len({row.get(key) for row in rows}) > 1]
    shown = [column for column in scheduler_columns(rows)
             if column.key not in ("scenario", "seed") or column.key in several]
    named = [(label(row), row) for row in rows]
    parts: list[Part] = [
        PageTable("Schedulers, means over the seeds; counts are sums", shown, rows),
        dots("Requests in time", Axis("share of the requests", percent=True, zero=True, most=1.0),
             named, {"in time": "in_time", "bound of any scheduler": "bound"}),
        dots("Response times", Axis("response (ms)", zero=True), named, {
            "50th percentile": "response_p50_ms", "99th percentile": "response_p99_ms"})]
    if any(row.get("loading_s") for row in rows):
        parts.append(rows_figure("Time that loads took", Axis("loading (s)", zero=True), [
            (name, [("all loads added up", row.get("loading_s"), None)]) for name, row in named]))
    parts += _groups([(name, row["by"]) for name, row in named if row.get("by")])
    terms = [("scenario", str(document.get("name", document.get("scenario",
                                                                text(rows, "scenario"))))),
             ("schedulers", text(rows, "scheduler")), ("requests", text(rows[:1], "requests")),
             ("seeds", text(rows, "seeds")),
             ("simulated for", span([document], "duration_s", "s"))]
    return result_section(
        "Cluster", source, document, terms, parts, verdict=sweep_verdict(
            rows, {key: key for key in several}, score="in_time", bound="bound",
            words="of the requests in time"),
        measures={f"requests in time, {label(row)}": (row["in_time"], ".4f") for row in rows})


def _groups(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Part]:
    """Return tables and figures of fairness, and of the requests of each group."""
    fair = [{"row": row, "by": by, **figures} for row, by_each in rows
            for by, figures in by_each.items()]
    parts: list[Part] = [] if not fair else [
        PageTable("Fairness: Jain's index of the shares in time", _FAIRNESS, fair)]
    for by in dict.fromkeys(row["by"] for row in fair):
        groups = [{"scheduler": row["row"], **group} for row in fair if row["by"] == by
                  for group in row["groups"]]
        parts.append(PageTable(
            f"By {by}: counts are sums over the seeds, times are means over the answers",
            [replace(column, title=column.title.format(by=by))
             for column in with_values(GROUPS, groups)], groups))
        bars: list[tuple[str, list[Entry]]] = [(f"{group['scheduler']}, {group['name']}", [
            (stage, group[f"{stage}_mean_ms"], None) for stage in _STAGES])
            for group in groups if group["waiting_mean_ms"] is not None]
        if bars:
            parts.append(rows_figure(f"Where the time to an answer goes, by {by}",
                                     Axis("ms, mean", zero=True), bars[:_MOST_BARS]))
    return parts
