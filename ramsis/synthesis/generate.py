"""From a profile to policies: one per load level, with what each will deliver.

The steps: profile → latency table → Pareto pruning → worker problem → solver → stationary
analysis and fluid bound → policy file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ramsis import __version__
from ramsis.analysis import analyse_worker
from ramsis.arrivals import Arrivals, describe_process, is_orderly
from ramsis.bounds import fluid_bound
from ramsis.errors import InputFileError, InvalidValueError, OutputError, describe
from ramsis.files import fingerprint
from ramsis.policy import (
    MANIFEST_NAME,
    CertificateRecord,
    Inputs,
    Policy,
    PolicyModel,
    SetFolder,
    encoded,
    level_of,
    read_set,
    remove_set,
)
from ramsis.profiles import ProfileSet
from ramsis.profiles.file import to_document
from ramsis.runtime.manifest import read_manifest
from ramsis.runtime.policy_set import ALL_WORKERS
from ramsis.synthesis.fleet import fleet_policy, fleet_problem
from ramsis.synthesis.levels import adaptive_levels
from ramsis.synthesis.service import bounded_by, latency_table, service_times
from ramsis.synthesis.settings import SynthesisSettings
from ramsis.worker.actions import LateRule
from ramsis.worker.grid import DEFAULT_GRID
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.shortest_queue import check_shortest_queue
from ramsis.worker.solve import WorkerSolution, solve_worker

__all__ = ["choose_loads", "generate_policy", "generate_set", "latency_table", "worker_problem"]

_ORIGIN_LETTERS = "mpie"
_HARDLY_ANY_IN_TIME = 0.999  # violation rate above which the accuracy of the rest says nothing


def worker_problem(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> WorkerProblem:
    """The decision problem that the policy for a load solves.

    Raises
    ------
    InvalidValueError
        A number out of range, or an SLO below every latency.
    """
    table, quantiles_ms = service_times(profile, settings)
    problem = WorkerProblem.create(
        table,
        slo_ms=settings.slo_ms,
        workers=settings.workers,
        arrivals=Arrivals.parse(settings.arrivals).counted(load_qps),
        grid=settings.grid or DEFAULT_GRID,
        max_queue=settings.max_queue,
        objective=settings.objective,
        late=settings.late,
        batching=settings.batching,
        violation_price=settings.violation_price,
        quantiles_ms=quantiles_ms,
    )
    if settings.dispatch == "shortest-queue":
        check_shortest_queue(problem)
    return problem


def generate_policy(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Policy:
    """The best worker or fleet policy for one load, with its promise and certificate.

    Raises
    ------
    InvalidValueError
        A number out of range.
    InfeasibleError
        An SLO below every latency; a budget of violations that cannot be met.
    NotConvergedError
        The solver stopped before its rule was met.
    """
    return _prepared(profile, load_qps, settings)()


def _prepared(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Callable[[], Policy]:
    """The synthesis for one load, its input checked."""
    if settings.max_violation is not None:
        _prepared(profile, load_qps, priced(settings, 1.0))
        return partial(_within_budget, profile, load_qps, settings)
    if not settings.rule.own_queues:
        return partial(fleet_policy, profile, fleet_problem(profile, load_qps, settings), settings)
    problem = worker_problem(profile, load_qps, settings)
    return partial(_policy, problem, load_qps, settings, _inputs(profile, settings))


def priced(
    settings: SynthesisSettings, price: float
) -> SynthesisSettings:
    """The settings with a price instead of a budget of violations."""
    return replace(settings, violation_price=price, max_violation=None)


def _within_budget(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Policy:
    from ramsis.synthesis.budget import policy_within

    assert settings.max_violation is not None
    policy = policy_within(lambda price: _prepared(profile, load_qps, priced(settings, price))(),
                           settings.max_violation, own_arrivals=settings.arrivals)
    # The search's own settings had a price instead.
    inputs = replace(policy.inputs, settings=fingerprint(settings.as_dict()))
    return replace(policy, inputs=inputs)


def choose_loads(
    profile: ProfileSet,
    lowest_qps: float,
    highest_qps: float,
    settings: SynthesisSettings,
    max_accuracy_step: float,
) -> tuple[float, ...]:
    """The fewest load levels whose expected accuracies differ by at most a step.

    See :func:`ramsis.synthesis.levels.adaptive_levels`; a policy is made for each load tried.
    It is the accuracy of the queries in time, so overload, where the fastest model does all
    work, takes few levels; where hardly any is in time it is that model's.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As :func:`generate_policy`, and for a range or a step out of range.
    """
    def accuracy_at(load_qps: float) -> float:
        policy = _prepared(profile, load_qps, settings)()
        expected = policy.expectations
        if expected.accuracy is None or expected.violation_rate > _HARDLY_ANY_IN_TIME:
            return policy.models[0].accuracy
        return expected.accuracy

    return adaptive_levels(accuracy_at, lowest_qps, highest_qps, max_accuracy_step)


def _inputs(profile: ProfileSet, settings: SynthesisSettings) -> Inputs:
    return Inputs(
        profile=fingerprint(to_document(profile)),
        profile_name=profile.name,
        settings=fingerprint(settings.as_dict()),
    )


def _policy(
    problem: WorkerProblem, load_qps: float, settings: SynthesisSettings, inputs: Inputs
) -> Policy:
    table = problem.latency
    solution = solve_worker(problem, settings.solver, dispatch=settings.dispatch)
    solution.certificate.require_converged(f"load {load_qps:g} QPS")
    bound = fluid_bound(
        bounded_by(problem),
        slo_ms=settings.slo_ms,
        workers=settings.workers,
        load_qps=load_qps,
        max_batch=settings.max_queue,
    )
    analysis = analyse_worker(problem, solution.policy, solution.frequency, solution.excess)
    expectations = analysis.expectations(
        capacity_qps=bound.capacity_qps, upper_bound=bound.effective_accuracy
    )
    model, batch = problem.model_and_batch(solution.policy)
    last = 0 if problem.late is LateRule.DROP else problem.max_queue
    actions, codes, longer_queue = encoded(model, batch, (table.fastest, last))
    return Policy(
        models=_models(problem),
        slo_ms=problem.slo_ms,
        workers=problem.workers,
        load_qps=load_qps,
        arrivals=_arrivals(problem, settings),
        service=table.statistic,
        dispatch=settings.dispatch,
        batching=problem.batching.value,
        late=problem.late.value,
        objective=problem.objective.value,
        idle_levels=np.arange(2),
        queue_levels=np.arange(problem.max_queue + 1),
        slack_ms=problem.slack_ms,
        actions=actions,
        codes=codes,
        longer_queue=longer_queue,
        expectations=expectations,
        certificate=_certificate(solution, settings.dispatch),
        inputs=inputs,
        created_by=f"ramsis {__version__}",
        violation_price=problem.violation_price,
    )


def _arrivals(problem: WorkerProblem, settings: SynthesisSettings) -> dict[str, Any]:
    """What the process says of itself, else the name that it was made by."""
    if hasattr(problem.arrivals, "describe"):
        return describe_process(problem.arrivals)
    return {"process": settings.arrivals}


def _models(problem: WorkerProblem) -> tuple[PolicyModel, ...]:
    table = problem.latency
    return tuple(
        PolicyModel(
            name=name,
            accuracy=float(table.accuracy[m]),
            latency_ms=tuple(table.latency_ms[m].tolist()),
            latency_origin="".join(_ORIGIN_LETTERS[o] for o in table.origin[m]),
            quantiles_ms=_finite_rows(problem, m),
        )
        for m, name in enumerate(table.models)
    )


def _finite_rows(problem: WorkerProblem, model: int) -> tuple[tuple[float, ...], ...] | None:
    if problem.quantiles_ms is None:
        return None
    rows = problem.quantiles_ms[model]
    return tuple(tuple(row.tolist()) for row in rows[np.isfinite(rows[:, -1])])


def _certificate(solution: WorkerSolution, dispatch: str) -> CertificateRecord:
    found = solution.certificate
    structured = solution.solver in ("policy-iteration", "value-iteration")
    on_nodes = structured and dispatch == "round-robin"
    quadrature = on_nodes and is_orderly(solution.problem.arrivals)
    return CertificateRecord(
        solver=solution.solver,
        converged=found.converged,
        iterations=found.iterations,
        bellman_residual=found.bellman_residual,
        gain=solution.gain,
        gain_lower=found.lower_bound,
        gain_upper=found.upper_bound,
        truncated_mass=found.truncated_mass,
        nodes_per_bin=2 if quadrature else None,
    )


def generate_set(
    profile: ProfileSet,
    loads_qps: Sequence[float],
    settings: SynthesisSettings,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    on_policy: Callable[[Policy], None] | None = None,
) -> tuple[Policy, ...]:
    """Write a policy file for each load, and the manifest of the folder.

    The manifest is brought up to date after every file, so an interruption leaves a valid set
    of the loads that are finished. A folder that holds a set made from the same profile and
    settings is extended, with other loads or another arrival process; what it has already is
    made anew.

    Parameters
    ----------
    loads_qps : sequence of float
    folder : path
        Made when missing.
    overwrite : bool
        Remove the set that the folder holds, whatever it was made from, before writing.
    on_policy : callable, optional
        Told each policy as its file is finished.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As :func:`generate_policy`; a load out of range before anything is written.
    OutputError
        The folder cannot be written, or holds a set made from something else.
    """
    if not loads_qps:
        raise InvalidValueError(describe("no loads", where="loads_qps", allowed="one or more"))
    # All of them, before anything is touched.
    prepared = [_prepared(profile, load_qps, settings) for load_qps in loads_qps]
    made = (make() for make in prepared)
    first = next(made)
    target = _target(Path(folder), first, overwrite)
    policies: list[Policy] = []
    for policy in chain([first], made):
        target.add(level_of(policy))
        policies.append(policy)
        if on_policy is not None:
            on_policy(policy)
    return tuple(policies)


def _target(folder: Path, policy: Policy, overwrite: bool) -> SetFolder:
    """The folder of a set of such policies, with what it has already."""
    target = SetFolder.of(folder, policy)
    if not os.path.exists(folder / MANIFEST_NAME):
        return target
    if _is_divided(folder):
        raise OutputError(describe("the folder holds policies of several stations or types",
                                   where=str(folder), allowed="another folder"))
    if overwrite:
        remove_set(folder)
        return target
    for level in read_set(folder).levels:
        if level.policy.inputs != policy.inputs:
            raise OutputError(
                describe("the folder holds policies made from another profile or other settings",
                         where=str(folder), value=level.policy.inputs.profile_name,
                         allowed="an empty folder, or --overwrite")
            )
    target.keep_present()
    return target


def _is_divided(folder: Path) -> bool:
    """Whether a folder holds a set of several stations or worker types; not if it is damaged."""
    try:
        found = read_manifest(folder)
    except InputFileError:
        return False
    return set(found.worker_types) != {ALL_WORKERS} or any(
        len(level.stations) > 1 for level in found.levels)
