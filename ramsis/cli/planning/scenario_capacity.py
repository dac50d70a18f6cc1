"""``ramsis capacity --scenario``: how many workers, or how much memory, a scenario needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ramsis.cli.output.rows import Column, print_json, print_rows, progress
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.sweep import Engine

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
    # here, as they take long to load
    from ramsis.cli.parallel_jobs import rows_of, scenario_bound_question, scenario_question
    from ramsis.planning import fewest_in_scenario, scheduler_named, with_workers
    from ramsis.sweep.scenarios import SweepScenario

    read = SweepScenario.read(scenario_file)
    if grow is None:
        raise InvalidValueError("no worker type to have more of", where="--grow",
                                allowed=", ".join(worker_type.name
                                                  for worker_type in read.scenario.worker_types))
    with_workers(read.scenario, grow.partition(":")[0], 1)  # refuses a type that there is not
    for text in schedulers:
        scheduler_named(text)
    with progress("lower bound", None):
        bounds, missed = rows_of([scenario_bound_question(read, grow, **terms)], engine, keep,
                                 lambda: None)
    if missed:
        raise missed[0]
    terms = {**terms, "least": bounds[0]["least"]}
    rows: list[dict[str, Any]] = []
    if engine.elsewhere or keep is not None:
        questions = [scenario_question(read, text, grow, **terms) for text in schedulers]
        with progress("searches", len(questions)) as advance:
            rows, missed = rows_of(questions, engine, keep, advance)
    else:
        for text in schedulers:
            with progress(f"{text}: workers tried", None) as advance:
                try:
                    rows.append(fewest_in_scenario(read.scenario, text, grow, on_trial=advance,
                                                   **terms))
                except InfeasibleError as error:
                    missed.append(error)
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

