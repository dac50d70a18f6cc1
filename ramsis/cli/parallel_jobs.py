"""Capacity searches and levels of policy sets, in several processes or on Ray."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from ramsis.cli.progress import progress
from ramsis.cluster import Cluster, WorkerType
from ramsis.errors import (
    InfeasibleError,
    InputFileError,
    InvalidValueError,
    NotConvergedError,
    RamsisError,
)
from ramsis.policy import Level, Policy
from ramsis.profiles import ProfileSet
from ramsis.sweep import Engine
from ramsis.sweep.engines import Question, answers
from ramsis.sweep.pool import JobOutcome
from ramsis.sweep.store import Place
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.capacity import Trial, fewest_workers, offered_types
from ramsis.synthesis.schedulers import fleet_scheduler
from ramsis.synthesis.sets import Point, made_level

_ERRORS = {error.exit_code: error for error in (
    InfeasibleError, InputFileError, InvalidValueError, NotConvergedError)}


def capacity_question(
    models: ProfileSet | Sequence[WorkerType], workload: Any, scheduler: str, **terms: Any
) -> Question:
    """Return the job that searches the fewest workers for a workload under a scheduler.

    ``terms`` are the other arguments of :func:`ramsis.synthesis.capacity.fewest_workers`, such as
    ``targets``, ``slo_ms``, ``service`` and ``seeds``.
    """
    return Question(
        partial(_capacity_row, models, workload, scheduler, terms),
        {"asked": "capacity", "scheduler": scheduler, "workload": plain(workload),
         "types": [{"name": worker_type.name,
                    "profile": worker_type.profile.fingerprint_with_confidences,
                    "count": worker_type.count,
                    "cost": worker_type.cost} for worker_type in offered_types(models)],
         **{key: plain(value) for key, value in terms.items()}})


def _capacity_row(
    models: Any, workload: Any, scheduler: str, terms: Mapping[str, Any]
) -> dict[str, Any]:
    named = fleet_scheduler(scheduler)
    levels = len(named.loads_for(workload)) if named.makes_policies else 1
    label = f"{named.name}: workers" if workload.varies else (
        f"{named.name}, {workload.load_qps:g}/s: workers")
    bounds = ""

    def on_trial(trial: Trial) -> None:
        nonlocal bounds
        bounds = f"{trial.workers} {'meet' if trial.met else 'miss'} the target, "
        advance(0, text=bounds.removesuffix(", "), more=levels)

    with progress(label, levels) as advance:
        return fewest_workers(
            models, workload, scheduler=scheduler, **terms, on_trial=on_trial,
            on_level=lambda workers: advance(text=f"{bounds}trying {workers}")).row()


def plain(value: Any) -> Any:
    """Convert a value to plain JSON: records by their fields, arrays by their digests."""
    if isinstance(value, np.ndarray):
        return f"sha256:{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, range | list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {"is": type(value).__name__,
                **{item.name: plain(getattr(value, item.name)) for item in fields(value)}}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def rows_of(
    questions: Sequence[Question], engine: Engine, place: Place | None,
    on_answer: Callable[[], object],
) -> tuple[list[dict[str, Any]], list[InfeasibleError]]:
    """Run jobs; return the rows in the order of the jobs, and the errors of infeasible ones."""
    outcomes: dict[int, JobOutcome] = {}
    for index, outcome in answers(questions, engine, place):
        outcomes[index] = outcome
        on_answer()
    rows, missed = [], []
    for i in range(len(questions)):
        try:
            rows.append(value_of(outcomes[i]))
        except InfeasibleError as error:
            missed.append(error)
    return rows, missed


def value_of(outcome: JobOutcome) -> dict[str, Any]:
    """Return the result of a job, or raise its error."""
    if outcome.error is not None or outcome.value is None:
        raise _ERRORS.get(outcome.exit_code, RamsisError)(str(outcome.error))
    return outcome.value


def level_maker(
    cluster: Cluster, engine: Engine
) -> Callable[[Sequence[Point]], Iterator[Level[Policy]]]:
    """Return the function that :func:`ramsis.synthesis.generate_set` calls to make levels."""
    def make(points: Sequence[Point]) -> Iterator[Level[Policy]]:
        jobs = [Question(partial(_made, cluster, load_qps, settings))
                for load_qps, settings in points]
        for _, outcome in answers(jobs, engine):
            yield value_of(outcome)["level"]

    return make


def _made(cluster: Cluster, load_qps: float, settings: SynthesisSettings) -> dict[str, Any]:
    return {"level": made_level(cluster, load_qps, settings)}

