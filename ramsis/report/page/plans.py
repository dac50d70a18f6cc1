"""Sections on the results of `ramsis plan` and `ramsis audit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ramsis.report.chart import Axis, Series, violations
from ramsis.report.columns import AUDITED, CAUSES, GROWN, PLANNED
from ramsis.report.page.parts import (
    PLAN,
    Entry,
    PageTable,
    Part,
    Section,
    checked_rows,
    curves,
    option_values,
    option_values_in,
    rows_figure,
    shown,
)
from ramsis.report.page.results import class_tables, result_section
from ramsis.report.simulations import plan_charts
from ramsis.report.verdicts import bounded_schedulers
from ramsis.tables import scheduler_words, with_values

_VERDICT = (("workers", "workers", "d"), ("effective_accuracy", "effective accuracy", ".4f"),
            ("violation_rate", "violations", ".4%"), ("upper_bound", "upper bound", ".4f"),
            ("second_opinions", "second opinions", ".1%"),
            ("gain", "gain by second opinions", ".4f"),
            ("worth_of_one_more_worker", "worth of one more worker", ".4f"), ("cost", "cost", "g"))


def plan_section(path: Path, document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]],
                 name: str) -> Section:
    """Return the section on a plan: verdict, both dispatch rules, and the commands."""
    inputs, verdict = document.get("inputs"), document.get("verdict")
    rows = [{**row, "dispatch": scheduler_words(str(row["dispatch"]))} for row in rows]
    options = inputs.get("options") if isinstance(inputs, Mapping) else None
    words = document.get("words")
    measures = {title: (float(verdict[key]) if isinstance(verdict.get(key), int | float) else None,
                        form if form != "d" else ".10g")
                for key, title, form in _VERDICT} if isinstance(verdict, Mapping) else {}
    commands = document.get("commands")
    growth = document.get("growth")
    grown = [row for row in growth if isinstance(row, Mapping)] if isinstance(
        growth, list) else []
    parts: list[Part] = [PageTable("Dispatch rules side by side", with_values(PLANNED, rows),
                                   rows)]
    parts += shown(plan_charts(rows, options))
    if grown:
        parts += [PageTable("Workers as the load grows", with_values(GROWN, grown), grown),
                  curves("Workers as the load grows", Axis("load (queries/s)", zero=True),
                         Axis("workers", whole=True, zero=True), [
                      Series(label, [row["load_qps"] for row in grown],
                             [row[key] for row in grown], ref=ref)
                      for label, key, ref in (("needed", "workers", False), (
                          f"bound ({bounded_schedulers(grown[0])})", "workers_bound", True))])]
    return Section(
        PLAN, path.resolve().parent.name or name,
        [*option_values(options if isinstance(options, list) else ()), *_budget(verdict, grown)],
        parts,
        tuple(str(command) for command in commands) if isinstance(commands, list) else (),
        (("file", name),),
        verdict=[str(line) for line in words] if isinstance(words, list) else [],
        measures=measures)


def _budget(verdict: object, grown: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the price of a worker and the factors on the load, where the plan has them."""
    terms = []
    if isinstance(verdict, Mapping) and verdict.get("cost") is not None:
        terms.append(("cost per worker", f"{verdict['cost'] / verdict['workers']:g}"))
    if grown:
        factors = ", ".join(f"{row['growth']:g}" for row in grown if row["growth"] != 1.0)
        terms.append(("growth", f"{factors} times the load"))
    return terms


def audit_section(
    document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], source: str
) -> Section:
    """Return the section on an audit: a request log against the best possible, and causes.

    Of requests with a size there are size classes, and no causes.
    """
    row = rows[0]
    best = row["best_policy"] if isinstance(row.get("best_policy"), Mapping) else {}
    if "by_class" in best:
        (best,) = checked_rows({"rows": [best]}, f"{source}: best_policy")
    causes = row["violations_by_cause"]
    levels = [{"what": "as served", **{key: row.get(key) for key in (
                   "accuracy", "violation_rate", "effective_accuracy", "workers")}},
              {"what": "best policy", "workers": row.get("fewest_workers"),
               **{key: best.get(key) for key in (
                   "accuracy", "violation_rate", "effective_accuracy")}},
              {"what": "bound (one model per request)", "effective_accuracy": row["upper_bound"],
               "violation_rate": row.get("least_violation_rate"),
               "workers": row["workers_bound"]},
              *([{"what": "bound (with cascades)",
                  "effective_accuracy": row["upper_bound_with_cascades"]}]
                if "upper_bound_with_cascades" in row else [])]
    count = row["requests"]
    reached: list[tuple[str, list[Entry]]] = [("effective accuracy", [
        (str(level["what"]), level.get("effective_accuracy"), None) for level in levels])]
    parts: list[Part] = [
        PageTable("As served, and what was possible", AUDITED, levels),
        rows_figure("Effective accuracy", Axis("effective accuracy", most=1.0), reached,
                    dots=True)]
    if causes and count:
        parts += [
            PageTable("Violations by cause", CAUSES,
                [{"cause": str(cause), "requests": number, "share": number / count}
                 for cause, number in causes.items()]),
            rows_figure("Violations by cause", violations("share of the requests"), [
                ("violations", [(str(cause), number / count, None)
                                for cause, number in causes.items()])])]
    classes = [{**row, "what": what, "load_qps": None, "by_class": [
        {**size_class, "share": first["share"]} for first, size_class in zip(
            row.get("by_class", ()), by_class, strict=False)]}
        for what, by_class in (("as served", row.get("by_class", ())),
                               ("best policy", best.get("by_class", ())))]
    parts += class_tables(classes, AUDITED[0])
    terms = [("requests", f"{count:,.0f}"), *option_values_in(document)]
    return result_section("Audit", source, document, terms, parts, verdict=_judged(row, best),
                          measures={
                              "effective accuracy": (row["effective_accuracy"], ".4f"),
                              "violations": (row["violation_rate"], ".4%"),
                              "upper bound": (row["upper_bound"], ".4f")})


def _judged(row: Mapping[str, Any], best: Mapping[str, Any]) -> list[str]:
    """Summarise an audit: figures reached, the bound, and the number of workers."""
    beyond = "" if row["upper_bound"] is None else (
        f"; no scheduler with one model per request passes {row['upper_bound']:.4f}")
    sentences = [f"{row['effective_accuracy']:.4f} effective accuracy and "
                 f"{row['violation_rate']:.3%} violations on {row['workers']:.10g} workers"
                 + beyond]
    if isinstance(best.get("effective_accuracy"), float | int):
        sentences.append(
            f"Policies would reach {best['effective_accuracy']:.4f} on as many workers"
            + (f", with second opinions for {best['second_opinions']:.1%} of the requests"
               if best.get("second_opinions") else ""))
    fewest = row.get("fewest_workers")
    if isinstance(fewest, int) and fewest < row["workers"]:
        sentences.append(f"{fewest} workers would have done for what was reached")
    return sentences
