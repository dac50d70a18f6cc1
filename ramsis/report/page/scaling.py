"""The section on fleets that scale: `scale`, and `simulate --scaling`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ramsis.report.page.parts import (
    Axis,
    Figure,
    PageTable,
    Part,
    Section,
    Series,
    curves,
    violations,
)
from ramsis.report.page.results import (
    TIME,
    are_series,
    over_time,
    result_section,
    with_series,
)
from ramsis.report.page.rows import given_in
from ramsis.tables import Column, with_values

_COLUMNS = (
    Column("name", "scheduler"), Column("worker_s", "worker-seconds", ".0f"),
    Column("cost", "cost", ".4g"), Column("cost_worker_s", "cost in worker-seconds", ".0f"),
    Column("violation_rate", "violations", ".4%"),
    Column("effective_accuracy", "effective accuracy", ".4f"), Column("meets", "meets target"))
_SERIES = ("load_qps", "workers", "wanted", "active", "accuracy", "violation_rate")


def scaling_section(
    document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], source: str
) -> Section:
    """What scaling policies and rules cost and deliver, at once and over time."""
    rows = [{**row, "name": row["scheduler"] + (" (tuned)" if row.get("tuned") is True
                                                and row["scheduler"] != "ramsis" else ""),
             "meets": "yes" if row.get("meets_target") is True else
             None if row.get("cost_worker_s") is not None else "no"} for row in rows]
    given = document.get("bound")
    bound: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    parts: list[Part] = [PageTable("Schedulers", with_values(_COLUMNS, rows), rows)]
    points = [Series(row["name"], [row["violation_rate"]], [row["worker_s"]], draw="points",
                     look=look, named=True, text=[row["name"]]) for look, row in enumerate(rows)]
    least = bound.get("worker_s")
    if isinstance(least, int | float):
        widest = max(0.001, *(row["violation_rate"] for row in rows))
        points.append(Series("bound of any scheduler", [0.0, widest], [least, least],
                             draw="line", ref=True))
    parts.append(curves("Cost against violations", violations(),
                        Axis("worker-seconds", zero=True), points))
    parts += _over_time(rows, bound)
    meeting = sorted((row for row in rows if row["meets"] == "yes"),
                     key=lambda row: row["worker_s"])
    verdict = [f"{row['name']} meets the target with {row['worker_s']:.0f} worker-seconds"
               for row in meeting[:2]]
    if verdict and isinstance(least, int | float):
        verdict[0] += f"; no scheduler does with less than {least:.0f}"
    least = bound.get("cost_worker_s")
    priced = sorted((row for row in rows if row.get("cost_worker_s") is not None),
                    key=lambda row: row["cost_worker_s"])
    verdict += [f"{row['name']} costs {row['cost_worker_s']:.0f} worker-seconds, violations and "
                "missed accuracy included" for row in priced[:2]]
    if priced and isinstance(least, int | float):
        verdict[-1] += f"; no scheduler costs less than {least:.0f}"
    return result_section("Scaling", source, document, given_in(document), parts,
                          verdict=verdict, measures={
                              f"worker-seconds, {row['name']}": (row["worker_s"], ".0f")
                              for row in rows})


def _over_time(rows: Sequence[Mapping[str, Any]], bound: Mapping[str, Any]) -> list[Figure]:
    """Load, workers, accuracy and violations of the rows that have series."""
    own = with_series(rows, "name", _SERIES)
    if not own:
        return []
    first = own[0][2]
    workers = [Series(name, series["time_s"], series["workers"], draw="line", look=look,
                      steps=True) for look, name, series in own]
    if are_series(bound, ("workers",)):
        workers.append(Series("bound of any scheduler", bound["time_s"], bound["workers"],
                              draw="line", ref=True, steps=True))
    wanted = [Series(key, first["time_s"], first[key], draw="line", steps=True)
              for key in ("wanted", "active")]
    axis = Axis("workers", zero=True)
    return over_time(
        own, "Load over time", curves("Workers that are paid for", TIME, axis, workers),
        curves(f"Workers wanted and active, {own[0][1]}", TIME, axis, wanted))
