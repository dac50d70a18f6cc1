"""Sections on schedulers of a cluster, on GPU sharing, and on frontiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ramsis.report.chart import LEAST_BUDGET, Axis, Series
from ramsis.report.columns import CORNERS, GROUPS, PLAYED, scheduler_columns
from ramsis.report.page.parts import (
    Entry,
    Note,
    PageTable,
    Part,
    Section,
    curves,
    dots,
    rows_figure,
    span,
    text,
)
from ramsis.report.page.results import result_section
from ramsis.report.verdicts import sweep_verdict
from ramsis.tables import Column, load_text, with_values

Rows = Sequence[Mapping[str, Any]]
_FLOOR = 1e-5  # violation rates below this are drawn here, as the axis is logarithmic


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


def played_section(document: Mapping[str, Any], rows: Rows, source: str) -> Section:
    """Return the section on families of a simulated placement whose models share GPUs."""
    named = [(row["family"], row) for row in rows]
    parts: list[Part] = [
        PageTable("Families, means over the seeds; segments are 95th percentiles",
                  with_values(PLAYED, rows), rows),
        dots("Goodput", Axis("requests per second", zero=True), named,
             {"asked for": "target_rps", "in time": "goodput_rps"}),
        dots("95th percentiles of a request's way", Axis("ms", zero=True), named, {
            "router to node": "router_to_node_p95_ms",
            "waiting at the worker": "node_to_worker_p95_ms",
            "processing": "processing_p95_ms", "all of it": "response_p95_ms", "SLO": "slo_ms"})]
    goodput, bound = document.get("goodput_rps"), document.get("bound_rps")
    terms = [("placement", str(document.get("placement", "–"))),
             ("families", text(rows, "family")),
             ("interference", str(document.get("interference", "–"))),
             ("goodput", _of(goodput, bound)),
             ("simulated for", span([document], "duration_s", "s"))]
    return result_section("Models that share GPUs", source, document, terms, parts)


def _of(goodput: object, bound: object) -> str:
    if not isinstance(goodput, float | int) or not isinstance(bound, float | int):
        return "–"
    return f"{goodput:.1f} requests per second, at most {bound:.1f}"


_POLICIES = (
    Column("policy", "policy"), Column("rps", "rps each", "g"), Column("slo_ms", "SLO (ms)", "g"),
    Column("gpus", "GPUs", "d"), Column("planned_goodput_rps", "planned (rps)", ".1f"),
    Column("simulated_goodput_rps", "simulated (rps)", ".1f"),
    Column("goodput_deviation_rps", "±", ".1f"), Column("bound_rps", "bound (rps)", ".1f"),
    Column("fairness", "fairness", ".3f"), Column("smallest_share", "least in time", ".1%"),
    Column("not_served", "not served"))
_AXES = {"rps": ("load of each model (requests/s)", "requests/s of each model"),
         "gpus": ("GPUs", "GPUs"), "slo_ms": ("SLO (ms)", "ms SLO")}


def sharing_section(document: Mapping[str, Any], rows: Rows, source: str) -> Section:
    """Return the section on sharing policies: plans, simulated goodput, and the upper bound."""
    rows = [{**row, "not_served": ", ".join(row.get("unserved") or ()) or "–"} for row in rows]
    several = {name: len({row[name] for row in rows}) for name in _AXES}
    over = max(_AXES, key=several.__getitem__)
    others = [name for name in _AXES if name != over and several[name] > 1]
    frames: dict[str, list[Series]] = {}
    for key in sorted({tuple(row[name] for name in others) for row in rows}):
        matching = [row for row in rows if tuple(row[name] for name in others) == key]
        label = ", ".join(f"{value:g} {_AXES[name][1]}"
                          for name, value in zip(others, key, strict=True))
        frames[label] = _by_policy(matching, over)
    axis = Axis(_AXES[over][0], whole=over == "gpus")
    shown = [column for column in with_values(_POLICIES, rows) if several.get(column.key, 2) > 1]
    parts: list[Part] = [
        curves("Goodput by policy", axis, Axis("goodput (requests/s)", zero=True), frames,
               "of" if others else ""),
        PageTable("Policies, means over the seeds", shown, rows)]
    first = rows[0].get("models")
    terms = [("models", ", ".join(map(str, first)) if isinstance(first, list) else "–"),
             ("load of each", span(rows, "rps", "requests per second")),
             ("SLO", span(rows, "slo_ms", "ms")), ("GPUs", text(rows, "gpus")),
             ("policies", text(rows, "policy")),
             ("interference", str(document.get("interference", "–"))),
             ("seeds", str(document.get("seeds", "–"))),
             ("simulated for", span([document], "duration_s", "s"))]
    return result_section("Policies of sharing", source, document, terms, parts)


def _by_policy(rows: Rows, over: str) -> list[Series]:
    lines = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        points = sorted((row[over], row["simulated_goodput_rps"]) for row in rows
                        if row["policy"] == policy)
        lines.append(Series(policy, [x for x, _ in points], [y for _, y in points]))
    bounds = sorted({row[over]: row["bound_rps"] for row in rows}.items())
    lines.append(Series("upper bound of any plan", [x for x, _ in bounds],
                        [y for _, y in bounds], draw="line", ref=True))
    return lines


def frontier_section(document: Mapping[str, Any], rows: Rows, source: str) -> Section:
    """Return the section on the corners of the frontier of each load."""
    drawn: list[Series] = []
    for load in dict.fromkeys(row["load_qps"] for row in rows):
        corners = sorted((row for row in rows if row["load_qps"] == load),
                         key=lambda row: row["expected_violation_rate"])
        drawn.append(Series(
            f"{load_text(load)} queries/s, model",
            [_drawn(row["expected_violation_rate"]) for row in corners],
            [row["expected_effective_accuracy"] for row in corners]))
        simulated = [row for row in corners if row.get("violation_rate") is not None]
        if simulated:
            drawn.append(Series(
                f"{load_text(load)} queries/s, simulated",
                [_drawn(row["violation_rate"]) for row in simulated],
                [row.get("effective_accuracy") for row in simulated], draw="points"))
    parts: list[Part] = [
        curves("Accuracy against violations", Axis("violations", log=True, percent=True,
                                                   reach=LEAST_BUDGET),
               Axis("effective accuracy"), drawn)]
    if any(_FLOOR in series.x for series in drawn):
        parts.append(Note(f"What has fewer violations than {100 * _FLOOR:g} % is drawn there."))
    parts.append(PageTable("Corners", with_values(CORNERS, rows), rows))
    terms = [("load", span(rows, "load_qps", "queries/s")), ("scheduler", text(rows, "scheduler")),
             ("workers", text(rows, "workers")), ("SLO", span(rows, "slo_ms", "ms")),
             ("service times", text(rows, "service"))]
    return result_section("Frontier", source, document, terms, parts)


def _drawn(rate: float) -> float:
    return max(rate, _FLOOR)
