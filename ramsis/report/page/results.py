"""Sections on results of commands with ``--json``: simulations, capacity, scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ramsis.report.page.parts import (
    Axis,
    Entry,
    PageTable,
    Part,
    Section,
    Series,
    curves,
    dots,
    number,
    option_values_in,
    rows_figure,
    span,
    text,
    violations,
)
from ramsis.report.verdicts import (
    OVERLOAD,
    bounded_schedulers,
    bounds_on_workers,
    simulation_verdict,
    target_words,
    upper_bounds,
)
from ramsis.tables import Column, load_text, scheduler_words, with_error, with_values

Rows = Sequence[Mapping[str, Any]]
_LOAD = Axis("load (queries/s)")
_EFFECTIVE = Axis("effective accuracy", most=1.0)
_LATE = violations()
_TIME = Axis("time (s)", zero=True)
FIGURES = (  # of a simulation
    Column("violation_rate", "violations", ".4%"),
    Column("expected_violation_rate", "promised", ".4%"),
    Column("effective_accuracy", "effective acc.", ".4f"),
    Column("effective_accuracy_half_width", "±", ".4f"),
    Column("expected_effective_accuracy", "promised", ".4f"),
    Column("upper_bound", "upper bound", ".4f"), Column("certified_gap", "certified gap", ".2%"),
    Column("response_p99_ms", "p99 (ms)", ".1f"), Column("utilisation", "utilisation", ".1%"))
_CLASSES = (
    Column("load_qps", "load (QPS)", ".6g"), Column("size", "size"),
    Column("share", "share of the requests", ".1%"), Column("in_time_rate", "in time", ".2%"),
    Column("in_time_rate_half_width", "± (95 %)", ".2%"),
    Column("expected_in_time_rate", "promised", ".2%"),
    Column("accuracy", "accuracy of these", ".4f"))
_SIMULATED = (
    Column("label", "scheduler"), Column("load_qps", "load (QPS)", ".6g"),
    Column("met", "meets target"), Column("accuracy", "accuracy", ".4f"),
    Column("second_opinions", "second opinions", ".1%"), *FIGURES)


def simulation_section(document: Mapping[str, Any], rows: Rows, source: str) -> Section:
    """Return the section on a simulation: schedulers, their promises, and the bound."""
    rows = [{**row, "met": {True: "yes", False: "no", None: None}[row["meets_target"]]}
            if "meets_target" in row else row for row in rows]
    shown = with_values(_SIMULATED, rows)
    parts: list[Part] = [PageTable("Schedulers, means over the seeds", shown, rows),
                         *class_tables(rows, Column("label", "scheduler"))]
    loads = {row["load_qps"] for row in rows}
    if len(loads) > 1 and None not in loads:
        parts += _over_loads(rows)
    else:
        parts += _side_by_side(rows)
    parts += _over_time(_with_series(rows, "label", ("load_qps", "accuracy", "violation_rate")),
                       "Load over time, of the first seed")
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
    """Return the models of the document with their accuracies, and those that answered."""
    accuracies: dict[str, float | None] = {
        name: None for row in rows for name in row.get("model_share", {})}
    named = document.get("models")
    if isinstance(named, Mapping):
        accuracies |= {str(name): float(value) for name, value in named.items()
                       if isinstance(value, int | float)}
    return accuracies


def _with_series(
    rows: Rows, name: str, keys: Sequence[str]
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return name and series over time of the rows that have all of ``keys``."""
    return [(row[name], row["over_time"]) for row in rows
            if _are_series(row.get("over_time"), keys)]


def _are_series(series: object, keys: Sequence[str]) -> bool:
    """Return whether there are values of all keys for each time."""
    return isinstance(series, Mapping) and isinstance(series.get("time_s"), list) and all(
        isinstance(series.get(key), list) and len(series[key]) == len(series["time_s"])
        for key in keys)


def _over_time(
    rows: Sequence[tuple[str, Mapping[str, Any]]], load: str, *between: Part
) -> list[Part]:
    """Return figures of the first series' load, and of accuracy and violations of all."""
    if not rows:
        return []
    first = rows[0][1]
    return [curves(load, _TIME, Axis("queries/s", zero=True), [
                Series("load", first["time_s"], first["load_qps"], draw="line", steps=True)]),
            *between,
            *(curves(title, _TIME, axis, [
                Series(name, series["time_s"], series[key], draw="line")
                for name, series in rows]) for title, axis, key in (
                    ("Accuracy in time over time", Axis("accuracy", most=1.0), "accuracy"),
                    ("Violations over time", _LATE, "violation_rate")))]


def _over_loads(rows: Rows) -> list[Part]:
    effective, late, slow = [], [], []
    fit = [row for row in rows if row["violation_rate"] <= OVERLOAD] or rows
    for name, of_scheduler in _by_scheduler(rows, "label").items():
        loads = [row["load_qps"] for row in of_scheduler]
        effective.append(Series(name, loads,  # one in overload would make the others one line
                                [row["effective_accuracy"] if row in fit else None
                                 for row in of_scheduler],
                                [row.get("effective_accuracy_half_width")
                                 for row in of_scheduler]))
        if any(row.get("expected_effective_accuracy") is not None for row in of_scheduler):
            effective.append(Series(
                f"{name}, promised", loads,
                [row.get("expected_effective_accuracy") for row in of_scheduler],
                draw="line"))
        late.append(Series(name, loads, [row["violation_rate"] for row in of_scheduler],
                           [row.get("violation_rate_half_width") for row in of_scheduler]))
        slow.append(Series(name, loads, [row.get("response_p99_ms") for row in of_scheduler]))
    effective += [Series(name, [*bounds], [*bounds.values()], draw="line", ref=True)
                  for name, bounds in upper_bounds(rows).items()]
    slos = {row["load_qps"]: row["slo_ms"] for row in rows}
    slow.append(Series("SLO", sorted(slos), [slos[x] for x in sorted(slos)], draw="line",
                       ref=True))
    without = "" if len(fit) == len(rows) else ", without rows in OVERLOAD"
    return [curves(f"Promise, simulation and bound{without}", _LOAD, _EFFECTIVE, effective),
            curves("Violations", _LOAD, _LATE, late),
            curves("99th percentile of the response time", _LOAD, Axis("response (ms)", zero=True),
                   slow)]


def _side_by_side(rows: Rows) -> list[Part]:
    """Return figures of promise, simulation and bound of each scheduler, at the only load."""
    named = [(row["label"], {**row, **{name: bound for name, bounds in upper_bounds(
        [{**row, "load_qps": 0.0}]).items() for bound in bounds.values()}}) for row in rows]
    return [dots("Promise, simulation and bound", _EFFECTIVE, named, {
                "promised": "expected_effective_accuracy", "simulated": "effective_accuracy",
                **{name: name for name in upper_bounds(rows)}}),
            dots("Violations", _LATE, named, {
                "promised": "expected_violation_rate", "simulated": "violation_rate"})]


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


_CAPACITY = (
    Column("scheduler", "scheduler"), Column("load_qps", "load (QPS)", ".6g"),
    Column("mix", "worker types"), Column("workers", "workers", "d"),
    Column("workers_bound", "bound", "d"), Column("cost", "cost", "g"),
    Column("cost_bound", "bound", "g"), Column("gap", "gap", ".6g"),
    Column("expected_accuracy", "promised acc.", ".4f"), Column("accuracy", "accuracy", ".4f"),
    Column("expected_violation_rate", "promised viol.", ".4%"),
    Column("violation_rate", "violations", ".4%"),
    Column("violation_rate_half_width", "±", ".4%"),
    Column("effective_accuracy", "effective acc.", ".4f"),
    Column("second_opinions", "second opinions", ".1%"),
    Column("gain", "gain by them", ".4f"), Column("gain_error", "± (s.e.)", ".4f"),
    Column("clear_word", "clear"))


def capacity_section(
    document: Mapping[str, Any], rows: Rows, source: str, *, typed: bool = False
) -> Section:
    """Return the section on the fewest workers, or the cheapest of several types."""
    rows = [{**row, "scheduler": scheduler_words(str(row["scheduler"])),
             "clear_word": "yes" if row.get("clear") is True else "no",
             **({"mix": ", ".join(f"{name}: {count}" for name, count
                                  in row["worker_types"].items() if count)} if typed else {})}
            for row in rows]
    shown = with_values(_CAPACITY, rows)
    key, bound, words = (("cost", "cost_bound", "cost") if typed else
                         ("workers", "workers_bound", "workers"))
    parts: list[Part] = [PageTable("Enough workers", shown, rows),
                         *class_tables(rows, Column("scheduler", "scheduler"))]
    loads = {row["load_qps"] for row in rows}
    if len(loads) > 1 and None not in loads:
        parts += _workers_over_loads(rows, key, bound, words)
    else:
        parts.append(dots("Needed, and the bound", Axis(words, whole=not typed, zero=True), [
            (row["scheduler"], {**row, name: row[bound]}) for row in rows
            for name in bounds_on_workers([row], bound)],
            {"needed": key, **{name: name for name in bounds_on_workers(rows, bound)}}))
    first = rows[0]
    parts.append(_promises(rows, first.get("max_violation")))
    terms = [("targets", target_words(first)), ("SLO", span(rows, "slo_ms", "ms")),
             ("load", span(rows, "load_qps", "queries/s")),
             ("schedulers", text(rows, "scheduler")),
             ("service times", text(rows, "service")), ("seeds", text(rows, "seeds"))]
    return result_section(
        "Capacity", source, document, terms, parts,
        verdict=[] if typed else _enough(rows), measures={
            f"{words}, {row['scheduler']}" + ("" if row["load_qps"] is None else
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


def _workers_over_loads(rows: Rows, key: str, bound: str, words: str) -> list[Part]:
    needed, more = [], []
    for name, of_scheduler in _by_scheduler(rows, "scheduler").items():
        loads = [row["load_qps"] for row in of_scheduler]
        needed.append(Series(name, loads, [row[key] for row in of_scheduler]))
        more.append(Series(name, loads, [row[key] / row[bound] - 1.0 if row[bound] else None
                                         for row in of_scheduler]))
    needed += [Series(name, [*bounds], [*bounds.values()], draw="line", ref=True)
               for name, bounds in bounds_on_workers(rows, bound).items()]
    return [curves("Needed, and the bound", _LOAD,
                   Axis(words, whole=words == "workers", zero=True), needed),
            curves("More than the bound", _LOAD, Axis("more", percent=True, zero=True), more)]


def _promises(rows: Rows, budget: float | None) -> Part:
    return dots(
        "Violations: promise, simulation, and what is allowed", violations(budget=budget),
        [(row["scheduler"] + ("" if row["load_qps"] is None else
                              f", {load_text(row['load_qps'])} queries/s"), row) for row in rows],
        {"promised": "expected_violation_rate", "simulated": "violation_rate",
         "allowed": "max_violation"})


_PLACED = (
    Column("family", "family"), Column("load_qps", "load (QPS)", ".6g"),
    Column("slo_ms", "SLO (ms)", "g"), Column("utilisation", "busy", ".1%"),
    Column("placement_effective_accuracy", "placement", ".4f"),
    Column("expected_effective_accuracy", "policies", ".4f"),
    Column("effective_accuracy", "simulated", ".4f"),
    Column("effective_accuracy_half_width", "±", ".4f"),
    Column("upper_bound", "upper bound", ".4f"), Column("violation_rate", "violations", ".3%"))


def placed_section(document: Mapping[str, Any], rows: Rows, source: str) -> Section:
    """Return the section on families of a simulated placement."""
    shown = with_values(_PLACED, rows)
    named = [(row["family"], row) for row in rows]
    parts: list[Part] = [
        PageTable("Families", shown, rows),
        dots("Promise, simulation and bound", _EFFECTIVE, named, {
            "promise of the placement": "placement_effective_accuracy",
            "promise of the policies": "expected_effective_accuracy",
            "simulated": "effective_accuracy",
            "upper bound (one model per request)": "upper_bound"}),
        dots("Violations", _LATE, named, {"simulated": "violation_rate"})]
    terms = [("placement", str(document.get("placement", "–"))),
             ("families", text(rows, "family")), ("seeds", text(rows, "seeds")),
             ("simulated for", span(rows, "duration_s", "s"))]
    return result_section("Simulated placement", source, document, terms, parts)


_SCALED = (
    Column("name", "scheduler"), Column("worker_s", "worker-seconds", ".0f"),
    Column("cost", "cost", ".4g"), Column("cost_worker_s", "cost in worker-seconds", ".0f"),
    Column("violation_rate", "violations", ".4%"),
    Column("effective_accuracy", "effective accuracy", ".4f"), Column("meets", "meets target"))
_SERIES = ("load_qps", "workers", "wanted", "active", "accuracy", "violation_rate")


def scaling_section(
    document: Mapping[str, Any], rows: Rows, source: str
) -> Section:
    """Return the section on costs and results of scaling policies and rules."""
    rows = [{**row, "name": row["scheduler"] + (" (tuned)" if row.get("tuned") is True
                                                and row["scheduler"] != "ramsis" else ""),
             "meets": "yes" if row.get("meets_target") is True else
             None if row.get("cost_worker_s") is not None else "no"} for row in rows]
    stated = document.get("bound")
    bound: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
    parts: list[Part] = [PageTable("Schedulers", with_values(_SCALED, rows), rows)]
    points = [Series(row["name"], [row["violation_rate"]], [row["worker_s"]], draw="points",
                     named=True, text=[row["name"]]) for row in rows]
    least = bound.get("worker_s")
    if isinstance(least, int | float):
        widest = max(0.001, *(row["violation_rate"] for row in rows))
        points.append(Series("bound (one model per request)", [0.0, widest], [least, least],
                             draw="line", ref=True))
    parts.append(curves("Cost against violations", violations(),
                        Axis("worker-seconds", zero=True), points))
    parts += _scaled_over_time(rows, bound)
    meeting = sorted((row for row in rows if row["meets"] == "yes"),
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


def _scaled_over_time(rows: Rows, bound: Mapping[str, Any]) -> list[Part]:
    """Return figures of load, workers, accuracy and violations over time."""
    with_series = _with_series(rows, "name", _SERIES)
    if not with_series:
        return []
    first = with_series[0][1]
    workers = [Series(name, series["time_s"], series["workers"], draw="line",
                      steps=True) for name, series in with_series]
    if _are_series(bound, ("workers",)):
        workers.append(Series("bound (one model per request)", bound["time_s"], bound["workers"],
                              draw="line", ref=True, steps=True))
    wanted = [Series(key, first["time_s"], first[key], draw="line", steps=True)
              for key in ("wanted", "active")]
    axis = Axis("workers", zero=True)
    return _over_time(
        with_series, "Load over time", curves("Workers that are paid for", _TIME, axis, workers),
        curves(f"Workers wanted and active, {with_series[0][0]}", _TIME, axis, wanted))


def _by_scheduler(rows: Rows, key: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of each scheduler, by rising load."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: number(row["load_qps"])):
        by_name.setdefault(row[key], []).append(row)
    return {row[key]: by_name[row[key]] for row in rows}


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
