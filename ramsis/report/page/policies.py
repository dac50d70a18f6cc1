"""Section on a policy set: promises by load, and decision tables as heat maps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ramsis import profiles
from ramsis.policy import Level, Policy, PolicySet
from ramsis.policy.policy import price_and_headroom
from ramsis.policy.table import compressed
from ramsis.report.chart import Axis
from ramsis.report.columns import OPINIONS, PROMISED
from ramsis.report.page.parts import (
    Entry,
    Figure,
    Note,
    PageTable,
    Part,
    Section,
    rows_figure,
    shown,
)
from ramsis.report.page.results import class_tables
from ramsis.report.simulations import promise_charts
from ramsis.report.states import rare_from
from ramsis.report.verdicts import bounded_schedulers
from ramsis.tables import Column, effective_words, load_text, with_values

if TYPE_CHECKING:
    from ramsis.sized.policy import SizedPolicy

_BUDGET = 3_000_000  # characters that the tables of all policies may take
_MOST_MAPS = 8  # stations whose tables are shown
_COLUMNS = (
    *PROMISED[:2], Column("arrivals", "arrivals"), *PROMISED[2:],
    Column("upper_bound_one_model", "the same for one model", ".4f"),
    *OPINIONS, Column("simulated", "simulated", ".4f"),
    Column("capacity_qps", "capacity (QPS)", ".6g"), Column("utilisation", "utilisation", ".1%"),
    Column("state", "state"))

_OF_SIZES = (
    Column("certified_gap", "certified gap", ".2%"), Column("decides", "decides by"),
    Column("response_p99_ms", "p99 (ms)", ".1f"), Column("padding", "padding", ".1%"))

Levels = Sequence[Level[Policy]]


def policies_section(
    policies: PolicySet[Policy], source: str, commands: Sequence[str] = ()
) -> Section:
    """Return the section on a policy set: promises, decision tables and settings."""
    levels = sorted(policies.levels, key=lambda level: (level.arrivals, level.slowness,
                                                        level.load_qps))
    first = levels[0].stations[0].policy
    rows = [_row(level) for level in levels]
    lowest = min(row["slowness"] for row in rows)
    usual = [row for row in rows if row["slowness"] == lowest]
    columns = [column for column in _COLUMNS
               if any(row.get(column.key) not in (None, "") for row in rows)
               and (column.key != "slowness" or len(usual) < len(rows))]
    parts: list[Part] = [PageTable("What is promised, by load", columns, rows),
                         *shown(promise_charts(rows)), *_shares(levels), *_maps(levels)]
    slos = ", ".join(f"{slo:g} ms" + (f" ({share:.0%})" if share < 1 else "")
                     for slo, share in policies.slo_classes.items())
    workers = ", ".join(f"{count}" if len(policies.worker_types) == 1 else f"{name}: {count}"
                        for name, count in policies.worker_types.items())
    terms = [("workers", workers), ("SLO", slos),
             ("loads", _span([level.load_qps for level in levels])),
             ("arrivals", ", ".join(policies.processes)), ("dispatch", first.dispatch),
             ("service times", first.service), ("batching", first.batching),
             ("late requests", first.late), ("optimised", first.objective),
             *price_and_headroom(station.policy for level in levels for station in level.stations),
             ("models", ", ".join(model.name for model in first.models))]
    return Section("Policies", source, terms, parts, (*commands, f"ramsis verify {source}"),
                   _origin(levels), verdict=_verdict(usual, workers), measures=_measures(rows),
                   models=_models(levels))


def sized_section(
    policies: Sequence[SizedPolicy], source: str, commands: Sequence[str] = ()
) -> Section:
    """Return the section on policies for requests with a size: promises, also by size class."""
    first = policies[0]
    document, tables = first.document, first.tables
    rows = [{**policy.row(), "slowness": 1.0, "arrivals": policy.document["arrivals"]["process"],
             "state": "overload" if policy.expectations["overloaded"] else "ok",
             # With weights it bounds their sum, and not the effective accuracy.
             "upper_bound": policy.expectations["upper_bound"] if len(
                 {*policy.document["classes"]["weights"]}) == 1 else None}
            for policy in policies]
    columns = [column for column in _COLUMNS if column.key != "slowness"]
    columns = with_values((*columns[:-1], *_OF_SIZES, columns[-1]), rows)
    workers = str(tables.workers)
    terms = [("workers", workers), ("SLO", f"{tables.slo_ms:g} ms"),
             ("loads", _span([policy.load_qps for policy in policies])),
             ("arrivals", ", ".join(dict.fromkeys(row["arrivals"] for row in rows))),
             ("dispatch", first.row()["dispatch"]), ("service times", document["service"]),
             ("models", ", ".join(model["name"] for model in document["models"]))]
    origin = [("made by", str(document["created_by"])), *(
        (key.replace("_", " "), str(value)) for key, value in document["inputs"].items()
        if isinstance(value, str | int | float))]
    return Section(
        "Policies", source, terms,
        [PageTable("What is promised, by load", columns, rows), *shown(promise_charts(rows)),
         *class_tables(rows)],
        (*commands, f"ramsis verify {source}"), origin, verdict=_verdict(rows, workers),
        measures=_measures(rows),
        models={model["name"]: model["accuracy"] for model in document["models"]})


def _verdict(rows: Sequence[dict[str, Any]], workers: str) -> list[str]:
    """Summarise the promises from the lowest to the highest load, and overloaded levels."""
    low, high = rows[0], rows[-1]
    effective = [row["expected_effective_accuracy"] for row in rows]
    worst = max(row["expected_violation_rate"] for row in rows)
    bound = high.get("upper_bound")
    loads = " to ".join(dict.fromkeys(load_text(row["load_qps"]) for row in (low, high)))
    words = effective_words(*(row["expected_accuracy"] for row in rows))
    values = " to ".join(dict.fromkeys(
        f"{value:.4f}" for value in (min(effective), max(effective))))
    beyond = "" if bound is None else (
        f"; at {load_text(high['load_qps'])} queries/s no scheduler with "
        f"{bounded_schedulers(high)} passes {bound:.4f}")
    sentences = [f"At {loads} queries/s, {workers} worker{'' if workers == '1' else 's'}: {values}"
                 f" {words} promised, {worst:.4%} violations at most{beyond}"]
    asked = [row for row in rows if row.get("second_opinions")]
    if asked:
        share, gain = (" to ".join(dict.fromkeys(
            format(function(row[key] for row in asked), form) for function in (min, max)))
            for key, form in (("second_opinions", ".1%"), ("gain", ".4f")))
        loads = "" if len(rows) == 1 else f", at {len(asked)} of {len(rows)} loads"
        sentences.append(f"{share} of the requests get a second opinion{loads}, which adds {gain} "
                         "of effective accuracy")
    over = [row["load_qps"] for row in rows if "overload" in row["state"]]
    if over:
        sentences.append(f"Overload from {load_text(min(over))} queries/s on: serve them with "
                         "more workers")
    return sentences


def _measures(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[float | None, str]]:
    """Return, for each load, the figures that can be compared with other policies."""
    measures: dict[str, tuple[float | None, str]] = {}
    for row in rows:
        at = f" at {load_text(row['load_qps'])} queries/s{_slower(row['slowness'])}"
        measures["effective accuracy" + at] = row["expected_effective_accuracy"], ".4f"
        measures["violations" + at] = row["expected_violation_rate"], ".4%"
    return measures


def _models(levels: Levels) -> dict[str, float | None]:
    """Return the models of the policies, or all models of the shipped profile that they use."""
    policies = [station.policy for level in levels for station in level.stations]
    accuracies: dict[str, float | None] = {}
    for policy in policies:
        accuracies |= {model.name: model.accuracy for model in policy.models}
    inputs = _inputs(policies[0])
    name = inputs.get("profile_name")
    if name in profiles.shipped_names():
        shipped = profiles.load(str(name))
        if inputs.get("profile") in (shipped.fingerprint, shipped.fingerprint_with_confidences):
            accuracies |= {model.name: model.accuracy for model in shipped.models}
    return accuracies


def _span(loads_qps: Sequence[float]) -> str:
    loads = sorted({*loads_qps})
    if len(loads) == 1:
        return f"{load_text(loads[0])} queries/s"
    return f"{len(loads)} levels from {load_text(loads[0])} to {load_text(loads[-1])} queries/s"


def _slower(slowness: float) -> str:
    return "" if slowness == 1.0 else f", slowness {slowness:g}"


def _row(level: Level[Policy]) -> dict[str, Any]:
    """Return the row of a level: its promise, and further figures of a single policy."""
    row: dict[str, Any] = {"load_qps": level.load_qps, "slowness": level.slowness,
                           "arrivals": level.arrivals, **level.expected}
    cells = []
    if level.expected.get("overloaded"):
        cells.append("overload")
    if len(level.stations) == 1:
        policy = level.stations[0].policy
        expected = policy.expectations
        row |= {"capacity_qps": expected.capacity_qps, "upper_bound": policy.upper_bound,
                **policy.opinions}
        if policy.cascade is None:  # other figures are of the policy without second opinions
            row["utilisation"] = expected.utilisation
            if policy.replay is not None:
                row["simulated"] = policy.replay.effective_accuracy
        if not policy.certificate.converged:
            cells.append("not converged")
    return {**row, "state": ", ".join(cells) or "ok"}


def _shares(levels: Levels) -> list[Part]:
    """Return figures of which models answer, a bar for each level and station.

    Levels with second opinions have a bar of first answers and second opinions instead.
    """
    rows: list[tuple[str, list[Entry]]] = []
    asked: list[tuple[str, list[Entry]]] = []
    models: dict[str, float] = {}
    for level in levels:
        for station in level.stations:
            policy = station.policy
            models |= {model.name: model.accuracy for model in policy.models}
            name = f"{load_text(level.load_qps)} queries/s{_slower(level.slowness)}"
            if len(level.stations) > 1:
                name += f", {station.name}"
            if policy.cascade is not None:
                promise, second = policy.cascade.promise, policy.models[policy.cascade.second].name
                first = 1.0 - promise.second_opinions - promise.violation_rate
                asked.append((name, [("first answer", first, None), (
                    f"second opinion by {second}", promise.second_opinions, None)]))
                continue
            share = policy.expectations.model_share
            rows.append((name, [(model.name, share[model.name], None) for model in policy.models
                                if share.get(model.name)]))
    used = {part[0] for _, parts in rows for part in parts}
    names = sorted(used, key=lambda name: models[name])
    axis = Axis("share of the queries", percent=True, most=1.0)
    figures: list[Part] = []
    if rows:
        figures.append(rows_figure("Which models answer", axis, rows, names=names, models=True))
    if asked:
        figures.append(rows_figure("Answers that are first and second opinions", axis, asked))
    return figures


def _maps(levels: Levels) -> list[Part]:
    """Return a heat map for each station, with its levels by slider."""
    stations: dict[tuple[str, float, str], list[tuple[float, Policy]]] = {}
    for level in levels:
        for station in level.stations:
            key = level.arrivals, level.slowness, station.name
            stations.setdefault(key, []).append((level.load_qps, station.policy))
    several = len({arrivals for arrivals, _, _ in stations}) > 1
    room = _BUDGET // min(len(stations), _MOST_MAPS)
    parts: list[Part] = []
    for (arrivals, slowness, name), tables in list(stations.items())[:_MOST_MAPS]:
        words = [name + _slower(slowness)] if len(stations) > 1 else []
        parts += _map(", ".join(["What is decided", *words, *([arrivals] if several else [])]),
                      tables, room)
    if any(policy.cascade for tables in stations.values() for _, policy in tables):
        parts.append(Note("Policies with second opinions decide by these tables only where a "
                          "server states no confidence; else by the rule in the file."))
    if len(stations) > _MOST_MAPS:
        parts.append(Note(f"The tables of {_MOST_MAPS} of {len(stations)} stations are shown."))
    return parts


def _map(title: str, tables: Sequence[tuple[float, Policy]], room: int) -> list[Part]:
    policies = [policy for _, policy in tables]
    models: dict[str, float] = {}
    for policy in policies:
        models |= {model.name: model.accuracy for model in policy.models}
    names = sorted(models, key=lambda name: (models[name], name))
    place = {name: i for i, name in enumerate(names)}
    frames = [_frame(load_qps, policy, place) for load_qps, policy in tables]
    kept = _fitting(frames, room)
    label = (f"{title}: model by queued requests and slack, for {len(kept)} loads; the values "
             "below it are the same as a table")
    figure = Figure(title, label, {
        "kind": "map", "label": label, "slider": "load (queries/s)", "models": names,
        "of_models": True,
        "largest": max(policy.max_batch for policy in policies), "frames": kept})
    if len(kept) < len(frames):
        return [figure, Note(f"The tables of {len(kept)} of {len(frames)} levels are shown.")]
    return [figure]


def _frame(load_qps: float, policy: Policy, place: dict[str, int]) -> dict[str, Any]:
    rows, index = compressed(policy.codes)
    expected = policy.expectations
    bound = "" if expected.upper_bound is None else f" (bound {expected.upper_bound:.4f})"
    return {
        "label": load_text(load_qps),
        "note": f"{load_text(policy.load_qps)} queries/s"
                f"{', without second opinions' if policy.cascade else ''}: effective accuracy "
                f"{expected.effective_accuracy:.4f}{bound}, violations "
                f"{expected.violation_rate:.3%} promised",
        "idle": policy.idle_levels[1:].tolist(), "queued": policy.queue_levels[1:].tolist(),
        "slack": policy.slack_ms.tolist(), "rows": rows, "index": index,
        "rare": rare_from(policy).tolist(),
        "actions": [[place[policy.models[model].name], batch]
                    for model, batch in policy.actions.tolist()]}


def _fitting(frames: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """Return evenly spaced frames that take no more characters than there is room for."""
    sizes = [len(json.dumps(frame)) for frame in frames]
    step = 1
    while step < len(frames) and sum(sizes[::step]) > room:
        step += 1
    return frames[::step]


def _origin(levels: Levels) -> list[tuple[str, str]]:
    policies = [station.policy for level in levels for station in level.stations]
    origin: dict[str, dict[str, None]] = {}
    for policy in policies:
        for term, text in (("made by", policy.created_by), *(
                (key.replace("_", " "), str(value))
                for key, value in _inputs(policy).items())):
            origin.setdefault(term, {})[text] = None
        origin.setdefault("solver", {})[policy.certificate.solver] = None
    return [(term, ", ".join(list(texts)[:6]) + (" …" if len(texts) > 6 else ""))
            for term, texts in origin.items()]


def _inputs(policy: Policy) -> dict[str, Any]:
    return {key: value for key, value in policy.to_document()["inputs"].items()
            if isinstance(value, str | int | float)}
