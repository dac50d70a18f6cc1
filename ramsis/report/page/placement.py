"""Section on a placement: uses of workers, figures of families, and the gap to the bound."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import placement_milp
from ramsis.files import fingerprint, read_json
from ramsis.report.chart import Axis, Series
from ramsis.report.columns import FAMILIES
from ramsis.report.page.parts import (
    Entry,
    Note,
    PageTable,
    Part,
    Section,
    checked_rows,
    curves,
    dots,
    rows_figure,
)
from ramsis.tables import Column, load_text

_SHORT = 0.999  # a smaller share served in time is mentioned

_GROUPS = (
    Column("worker_type", "worker type"), Column("workers", "workers", "d"),
    Column("variants", "holds"), Column("batch", "batch", "d"), Column("family", "family"),
    Column("share", "of its demand", ".1%"), Column("busy", "busy", ".1%"),
    Column("load_qps", "QPS each", ".1f"), Column("memory", "memory", ".0%"))


def placement_section(path: Path, name: str) -> Section:
    """Return the section on a placement file; ``name`` is its title for the reader."""
    placed = placement_milp.read_placement(path)
    document = read_json(path)
    problem = placed.problem
    families = checked_rows({"rows": document.get("families")}, f"{path}: families", numbers=(
        "demand_qps", "slo_ms", "served_share", "effective_accuracy", "workers"), optional=(
        "accuracy", "worst_latency_ms"), texts=("name",))
    demand = {family.name: family.demand_qps for family in problem.families}
    rows: list[dict[str, Any]] = []
    used = {group.worker_type for group in placed.groups}
    bars: dict[str, list[Entry]] = {
        instance_type.name: [] for instance_type in problem.instance_types
        if instance_type.name in used or instance_type in problem.worker_types}
    for group in placed.groups:
        count = len(group.workers)
        for i, use in enumerate(group.uses):
            share = use.load_qps * (count // group.together) / demand[use.family]
            rows.append({
                "worker_type": "the same" if i else group.worker_type,
                "workers": None if i else count,
                "variants": " + ".join(use.variants), "batch": use.batch, "family": use.family,
                "share": share, "busy": use.load_qps / use.rate_qps, "load_qps": use.load_qps,
                "memory": None if i else group.memory_mb / group.memory_limit_mb})
            bars[group.worker_type].append((use.family, count / len(group.uses),
                                            " + ".join(use.variants)))
    for kind in (item for item in problem.worker_types if item.partitions is None):
        unused = kind.count - sum(len(group.workers) for group in placed.groups
                                  if group.worker_type == kind.name)
        if unused > 0:
            bars[kind.name].append(("not used", unused, None))
    parts: list[Part] = [
        PageTable("What runs where", _GROUPS, rows),
        PageTable("What families get", FAMILIES, families),
        rows_figure("Workers by family", Axis("workers", whole=True), list(bars.items()),
                    names=list(demand)),
        dots("Accuracy and what is answered in time", Axis("share", percent=True), [
            (row["name"], row) for row in families], {
                "effective accuracy": "effective_accuracy", "accuracy of the answers": "accuracy",
                "answered in time": "served_share"}),
        *_front(document), *_worth(document),
        *(Note(str(note)) for note in document.get("notes") or ())]
    command = document.get("command")
    return Section("Placement", problem.name, _asked(placed, document), parts,
                   (*([command] if isinstance(command, str) else []),
                    f"ramsis simulate --placement {name}"),
                   (("file", name), ("fingerprint of the problem",
                                          fingerprint(problem.to_document()))),
                   verdict=_verdict(document, families, sum(
                       len(group.workers) for group in placed.groups)),
                   measures={
                       "effective accuracy": (_number(document.get("effective_accuracy")), ".4f"),
                       "cost per hour": (_number(document.get("cost_per_hour")), ".6g"),
                       **{f"effective accuracy, {row['name']}": (row["effective_accuracy"], ".4f")
                          for row in families}})


def _verdict(
    document: Mapping[str, Any], families: list[dict[str, Any]], workers: int
) -> list[str]:
    """Summarise a placement: its quality, its cost, and the value of one more worker."""
    cost, prices = _number(document.get("cost_per_hour")), document.get("prices")
    sentences = [f"{document.get('status')}: {_words(document.get('effective_accuracy'))} "
                 f"effective accuracy with {workers} worker{'' if workers == 1 else 's'}"
                 + (f", {cost:.6g} per hour" if cost else "")]
    short = [f"{row['name']} ({row['served_share']:.2%})" for row in families
             if row["served_share"] < _SHORT]
    if short:
        sentences.append(f"Not all is served in time: {', '.join(short)}")
    worth = [(name, price) for name, price in prices.items() if _number(price)] if isinstance(
        prices, Mapping) else []
    if worth:
        name, price = max(worth, key=lambda pair: pair[1])
        sentences.append(f"One more worker of {name} is worth {price:.3g} of the objective")
    return sentences


def _worth(document: Mapping[str, Any]) -> list[PageTable]:
    """Return the table of shadow prices, if there are any."""
    prices = document.get("prices")
    rows = [{"worker_type": str(name), "price": _number(price)} for name, price in (
        prices.items() if isinstance(prices, Mapping) else ())]
    return [PageTable("What one more worker is worth", [
        Column("worker_type", "worker type"), Column("price", "of the objective", ".3g")],
        rows)] if rows else []


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _asked(placed: Any, document: Mapping[str, Any]) -> list[tuple[str, str]]:
    problem = placed.problem
    types = ", ".join(f"{kind.name}: {kind.count}" for kind in problem.worker_types)
    families = ", ".join(f"{family.name} {load_text(family.demand_qps)} queries/s in "
                         f"{family.slo_ms:g} ms" for family in problem.families)
    asked = [("problem", problem.name), ("families", families), ("worker types", types),
             ("variants", str(len(problem.variants))), ("status", str(document.get("status")))]
    for stage in document.get("stages") or ():
        if isinstance(stage, Mapping):
            asked.append((str(stage.get("metric")), f"{_words(stage.get('objective'))}; no "
                          f"placement passes {_words(stage.get('dual_bound'))}"))
    if document.get("cost_per_hour"):
        asked.append(("cost per hour", _words(document["cost_per_hour"])))
    return asked


def _words(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _front(document: Mapping[str, Any]) -> list[Part]:
    """Return the figure of accuracy over cost, if the placement has that front."""
    if not document.get("front"):
        return []
    points = checked_rows({"rows": document["front"]}, "front", numbers=(
        "cost_per_hour", "effective_accuracy", "dual_bound", "workers"))
    cost = [row["cost_per_hour"] for row in points]
    return [curves("Accuracy for its cost", Axis("cost per hour"), Axis("effective accuracy"), [
        Series("placements", cost, [row["effective_accuracy"] for row in points], named=True,
               text=[f"{row['workers']:.10g} workers" for row in points]),
        Series("no placement is above", cost, [row["dual_bound"] for row in points], ref=True,
               draw="line")])]
