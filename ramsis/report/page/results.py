"""Sections on results of commands with ``--json``: simulations, capacity, scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ramsis.report.chart import Axis, Series, violations
from ramsis.report.columns import LOAD, PLACED, SCALED, SIMULATED, capacity_columns
from ramsis.report.page.parts import (
    Entry,
    PageTable,
    Part,
    Section,
    curves,
    dots,
    number,
    option_values_in,
    rows_figure,
    shown,
    span,
    text,
)
from ramsis.report.simulations import (
    capacity_charts,
    over_time_charts,
    placed_charts,
    scaling_charts,
    simulation_charts,
)
from ramsis.report.verdicts import bounded_schedulers, simulation_verdict, target_words
from ramsis.tables import Column, load_text, scheduler_words, with_error, with_values

Rows = Sequence[Mapping[str, Any]]
_JUDGED = (*SIMULATED[:2], Column("met", "meets target"), *SIMULATED[2:])
_CLASSES = (
    LOAD, Column("size", "size"),
    Column("share", "share of the requests", ".1%"), Column("in_time_rate", "in time", ".2%"),
    Column("in_time_rate_half_width", "± (95 %)", ".2%"),
    Column("expected_in_time_rate", "promised", ".2%"),
    Column("accuracy", "accuracy of these", ".4f"))


def simulation_section(document: Mapping[str, Any], rows: Rows, source: str) -> Section:
    """Return the section on a simulation: schedulers, their promises, and the bound."""
    rows = [{**row, "met": {True: "yes", False: "no", None: None}[row["meets_target"]]}
            if "meets_target" in row else row for row in rows]
    parts: list[Part] = [PageTable("Schedulers, means over the seeds",
                                   with_values(_JUDGED, rows), rows),
                         *class_tables(rows, SIMULATED[0])]
    parts += shown(simulation_charts(rows))
    parts += shown(over_time_charts(rows, "label", "Load over time, of the first seed"))
    accuracies = _known_models(document, rows)
    if any(row.get("model_share") for row in rows):
        parts.append(_models(rows, accuracies))
    terms = [("schedulers", text(rows, "label")), ("workers", text(rows, "workers")),
             ("target", target_words(rows[0])),
             ("SLO", span(rows, "slo_ms", "ms")), ("load", span(rows, "load_qps", "queries/s")),
             ("service times", text(rows, "service")), ("seeds", text(rows, "seeds")),
             ("simulated for", span(rows, "duration_s", "s")),
             ("load monitor", "on" if rows[0].get("monitor") else "off")]
    return result_section("Simulation", source, document, terms, parts,
                          verdict=simulation_verdict(rows),
                          measures=_simulated_measures(rows), models=accuracies)


def class_tables(rows: Rows, *names: Column) -> list[Part]:
    """Return the table of the size classes of rows, by their names; none without classes."""
    classes = [
        {**row, **size_class, "size": f"{low:.10g}–{high:.10g} {row.get('unit') or ''}".rstrip()}
        for row in rows for size_class in row.get("by_class", ())
        for low, high in (size_class["sizes"],)]
    return [PageTable("In time by size", with_values((*names, *_CLASSES), classes), classes)
            ] if classes else []


def _simulated_measures(rows: Rows) -> dict[str, tuple[float | None, str]]:
    """Return the figures to compare between reports: title → value and format.

    A title names the load only if there are several rows, and the scheduler only if there are
    several schedulers. So the figures of two simulations of one scheduler each have equal titles.
    """
    several = len({row["label"] for row in rows}) > 1
    measures: dict[str, tuple[float | None, str]] = {}
    for row in rows:
        at = "" if row["load_qps"] is None or len(rows) == 1 else (
            f" at {row['load_qps']:.6g} queries/s")
        of = f", {row['label']}" if several else ""
        for key, words, form in (
                ("effective_accuracy", "effective accuracy", ".4f"),
                ("violation_rate", "violations", ".4%"), ("accuracy", "accuracy", ".4f"),
                ("response_p99_ms", "99th percentile of the response (ms)", ".1f"),
                ("utilisation", "utilisation", ".1%")):
            measures[words + at + of] = row.get(key), form
    return measures


def _known_models(document: Mapping[str, Any], rows: Rows) -> dict[str, float | None]:
    """Return the accuracy of each model that the document or a row names; None if not stated."""
    accuracies: dict[str, float | None] = {
        name: None for row in rows for name in row.get("model_share", {})}
    named = document.get("models")
    if isinstance(named, Mapping):
        accuracies |= {str(name): float(value) for name, value in named.items()
                       if isinstance(value, int | float)}
    return accuracies


def _models(rows: Rows, accuracies: Mapping[str, float | None]) -> Part:
    """Return the figure of the models' shares in the answers, by rising accuracy."""
    def rank(name: str) -> tuple[float, str]:
        return number(accuracies.get(name)), name

    bars: list[tuple[str, list[Entry]]] = []
    several = len({row["load_qps"] for row in rows}) > 1
    for row in rows:
        at = f", {load_text(row['load_qps'])} queries/s" if several else ""
        share = {name: value for name, value in row.get("model_share", {}).items() if value}
        bars.append((row["label"] + at, [
            (name, share[name], None) for name in sorted(share, key=rank)]))
    names = sorted({part[0] for _, parts in bars for part in parts}, key=rank)
    return rows_figure("Which models answered", Axis("share of the answers", percent=True,
                       most=1.0), bars, names=names, models=True)


def capacity_section(
    document: Mapping[str, Any], rows: Rows, source: str, *, typed: bool = False
) -> Section:
    """Return the section on the fewest workers, or the cheapest of several types."""
    rows = [{**row, "scheduler": scheduler_words(str(row["scheduler"])),
             "clear_word": "yes" if row.get("clear") is True else "no",
             **({"mix": ", ".join(f"{name}: {count}" for name, count
                                  in row["worker_types"].items() if count)} if typed else {})}
            for row in rows]
    key, columns = "cost" if typed else "workers", capacity_columns(typed=typed)
    first = rows[0]
    parts: list[Part] = [PageTable("Enough workers", with_values(columns, rows), rows),
                         *class_tables(rows, columns[0]),
                         *shown(capacity_charts(rows, key)),
                         _promises(rows, first.get("max_violation"))]
    terms = [("targets", target_words(first)), ("SLO", span(rows, "slo_ms", "ms")),
             ("load", span(rows, "load_qps", "queries/s")),
             ("schedulers", text(rows, "scheduler")),
             ("service times", text(rows, "service")), ("seeds", text(rows, "seeds"))]
    return result_section(
        "Capacity", source, document, terms, parts,
        verdict=[] if typed else _enough(rows), measures={
            f"{key}, {row['scheduler']}" + ("" if row["load_qps"] is None else
                                            f" at {row['load_qps']:.6g} queries/s"):
            (row[key], ".6g") for row in rows})


def _enough(rows: Rows) -> list[str]:
    """Return a sentence on the fewest workers at the highest load."""
    load = max((row["load_qps"] for row in rows if row["load_qps"] is not None), default=None)
    trials = [row for row in rows if row["load_qps"] == load]
    best = min(trials, key=lambda row: row["workers"])
    least = ", ".join(f"{row['workers']:.10g} with {row['scheduler']}" for row in trials)
    at = "" if load is None else f" for {load:.6g} queries/s"
    single = best["workers"] == 1
    return [f"{best['workers']:.10g} worker{'' if single else 's'} "
            f"{'is' if single else 'are'} enough"
            f"{at} ({least}; with {bounded_schedulers(best)} no "
            f"scheduler does with fewer than {best['workers_bound']:.10g})",
            *_opinions(trials)]


def _opinions(rows: Rows) -> list[str]:
    """Return a sentence on what second opinions bring, for each row with any."""
    return [f"{row['scheduler']}: {row['second_opinions']:.1%} of the requests get a second "
            f"opinion, which adds {with_error(row['gain'], row.get('gain_error'))} (standard "
            "error) of effective accuracy" for row in rows if row.get("second_opinions")]


def _promises(rows: Rows, budget: float | None) -> Part:
    return dots(
        "Violations: promise, simulation, and what is allowed", violations(budget=budget),
        [(row["scheduler"] + ("" if row["load_qps"] is None else
                              f", {load_text(row['load_qps'])} queries/s"), row) for row in rows],
        {"promised": "expected_violation_rate", "simulated": "violation_rate",
         "allowed": "max_violation"})


def placed_section(document: Mapping[str, Any], rows: Rows, source: str) -> Section:
    """Return the section on families of a simulated placement."""
    parts: list[Part] = [PageTable("Families", with_values(PLACED, rows), rows),
                         *shown(placed_charts(rows))]
    terms = [("placement", str(document.get("placement", "–"))),
             ("families", text(rows, "family")), ("seeds", text(rows, "seeds")),
             ("simulated for", span(rows, "duration_s", "s"))]
    return result_section("Simulated placement", source, document, terms, parts)


def scaling_section(
    document: Mapping[str, Any], rows: Rows, source: str
) -> Section:
    """Return the section on costs and results of scaling policies and rules."""
    rows = [{**row, "name": row["scheduler"] + (" (tuned)" if row.get("tuned") is True
                                                and row["scheduler"] != "ramsis" else ""),
             "meets_word": "yes" if row.get("meets_target") is True else
             None if row.get("cost_worker_s") is not None else "no"} for row in rows]
    stated = document.get("bound")
    bound: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
    parts: list[Part] = [PageTable("Schedulers", with_values(
        (Column("name", "scheduler"), *SCALED[2:-1]), rows), rows)]
    points = [Series(row["name"], [row["violation_rate"]], [row["worker_s"]], draw="points",
                     named=True, text=[row["name"]]) for row in rows]
    least = bound.get("worker_s")
    if isinstance(least, int | float):
        widest = max(0.001, *(row["violation_rate"] for row in rows))
        points.append(Series("bound (one model per request)", [0.0, widest], [least, least],
                             draw="line", ref=True))
    parts.append(curves("Cost against violations", violations(),
                        Axis("worker-seconds", zero=True), points))
    parts += shown(scaling_charts(rows, bound, "name"))
    meeting = sorted((row for row in rows if row["meets_word"] == "yes"),
                     key=lambda row: row["worker_s"])
    verdict = [f"{row['name']} meets the target with {row['worker_s']:.0f} worker-seconds"
               for row in meeting[:2]]
    if verdict and isinstance(least, int | float):
        verdict[0] += f"; with one model per request no scheduler does with less than {least:.0f}"
    least = bound.get("cost_worker_s")
    priced = sorted((row for row in rows if row.get("cost_worker_s") is not None),
                    key=lambda row: row["cost_worker_s"])
    verdict += [f"{row['name']} costs {row['cost_worker_s']:.0f} worker-seconds, violations and "
                "missed accuracy included" for row in priced[:2]]
    if priced and isinstance(least, int | float):
        verdict[-1] += f"; with one model per request no scheduler costs less than {least:.0f}"
    return result_section("Scaling", source, document, option_values_in(document), parts,
                          verdict=verdict, measures={
                              f"worker-seconds, {row['name']}": (row["worker_s"], ".0f")
                              for row in rows})


def result_section(
    kind: str, source: str, document: Mapping[str, Any], terms: Sequence[tuple[str, str]],
    parts: Sequence[Part], **more: Any,
) -> Section:
    """Return a section with the document's command and fingerprints, and further attributes."""
    command, by = document.get("command"), document.get("created_by")
    prints = document.get("fingerprints")
    origin = [("file", source)]
    if isinstance(by, str):
        origin.append(("made by", by))
    if isinstance(prints, Mapping):
        origin += [(f"fingerprint of {name}", str(value)) for name, value in prints.items()]
    return Section(kind, source, [pair for pair in terms if pair[1] not in ("", "–")], parts,
                   (command,) if isinstance(command, str) else (), origin, **more)
