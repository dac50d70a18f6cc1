"""``ramsis capacity --scenario``: how many workers, or how much memory, a scenario needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from ramsis.cli.output.rows import Column, print_json, print_rows, progress
from ramsis.cli.parallel_jobs import plain, rows_of
from ramsis.errors import InvalidValueError
from ramsis.planning import (
    fewest_by_scenario_bound,
    fewest_in_scenario,
    scheduler_named,
    with_workers,
)
from ramsis.scenario import Scenario
from ramsis.sweep import Engine
from ramsis.sweep.engines import Question
from ramsis.sweep.scenarios import SweepScenario, scheduler_inputs

_COLUMNS = (
    Column("scheduler", "scheduler"),
    Column("workers", "workers", "d"),
    Column("workers_bound", "lower bound", "d"),
    Column("memory_mb", "memory (MB)", ",.0f"),
    Column("memory_mb_bound", "lower bound (MB)", ",.0f"),
    Column("gap", "above the bound", "g", wide=True),
    Column("in_time", "in time", ".4f"),
    Column("in_time_half_width", "± (95 %)", ".4f"),
    Column("response_p99_ms", "p99 response (ms)", ".1f"),
    Column("loads", "models loaded", "d", wide=True),
    Column("cold_starts", "cold starts", "d"),
    Column("utilisation", "utilisation", ".1%", wide=True),
    Column("clear_word", "certain"),
)


def scenario_capacity(
    scenario_file: str, grow: str | None, schedulers: Sequence[str], terms: Mapping[str, Any], *,
    engine: Engine, keep: Path | str | None, as_json: bool,
) -> None:
    """Find what each scheduler needs; print rows first and failures last.

    ``terms`` are ``max_violation``, ``seeds`` and ``most`` of
    :func:`ramsis.planning.fewest_in_scenario`.
    """
    read = SweepScenario.read(scenario_file)
    if grow is None:
        raise InvalidValueError("no worker type to have more of", where="--grow",
                                allowed=", ".join(worker_type.name
                                                  for worker_type in read.scenario.worker_types))
    with_workers(read.scenario, grow.partition(":")[0], 1)  # refuses a type that there is not
    for text in schedulers:
        scheduler_named(text)
    asked = {"grow": grow, **read.document, **{key: plain(value) for key, value in terms.items()}}
    with progress("lower bound", None):
        bounds, missed = rows_of([Question(
            partial(_bound, read.scenario, grow, terms),
            {"asked": "capacity of a scenario, bound", **asked})], engine, keep, lambda: None)
    if missed:
        raise missed[0]
    least = bounds[0]["least"]
    searches = [Question(
        partial(_search, read.scenario, text, grow, {**terms, "least": least}),
        {"asked": "capacity of a scenario", **scheduler_inputs(text), **asked,
         "least": plain(least)}) for text in schedulers]
    # In this process each search shows its own progress.
    with progress("searches", len(searches), shown=engine.elsewhere) as advance:
        rows, missed = rows_of(searches, engine, keep, advance)
    if rows and as_json:
        print_json(rows, scenario=scenario_file, name=read.scenario.name,
                   duration_s=read.scenario.duration_s)
    elif rows:
        words = {True: "yes", False: "no", None: None}
        rows = [{**row, "clear_word": words[row["clear"]]} for row in rows]
        print_rows([column for column in _COLUMNS if column.key in rows[0]], rows)
    for other in missed[1:]:
        click.echo(f"note: {other}", err=True)
    if missed:
        raise missed[0]



def _bound(scenario: Scenario, grow: str, terms: Mapping[str, Any]) -> dict[str, Any]:
    return {"least": fewest_by_scenario_bound(scenario, grow, **terms)}


def _search(
    scenario: Scenario, scheduler: str, grow: str, terms: Mapping[str, Any]
) -> dict[str, Any]:
    with progress(f"{scheduler}: workers tried", None) as advance:
        return fewest_in_scenario(scenario, scheduler, grow, on_trial=advance, **terms)
