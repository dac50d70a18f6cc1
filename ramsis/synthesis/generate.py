"""From a profile to policies: one per load level, with what each will deliver.

The steps: profile → latency table → Pareto pruning → worker problem → solver → stationary
analysis and fluid bound → policy file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ramsis import __version__
from ramsis.analysis import analyse_worker
from ramsis.arrivals import Arrivals, describe_process, is_orderly
from ramsis.bounds import fluid_bound
from ramsis.files import fingerprint
from ramsis.policy import (
    CertificateRecord,
    Inputs,
    Policy,
    PolicyModel,
    encoded,
)
from ramsis.profiles import ProfileSet
from ramsis.profiles.file import to_document
from ramsis.synthesis.fleet import fleet_policy, fleet_problem
from ramsis.synthesis.service import bounded_by, latency_table, service_times
from ramsis.synthesis.settings import SynthesisSettings
from ramsis.worker.actions import LateRule
from ramsis.worker.grid import DEFAULT_GRID
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.shortest_queue import check_shortest_queue
from ramsis.worker.solve import WorkerSolution, solve_worker

__all__ = ["generate_policy", "latency_table", "prepared", "priced", "worker_problem"]

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
    return prepared(profile, load_qps, settings)()


def prepared(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Callable[[], Policy]:
    """The synthesis for one load, its input checked."""
    if settings.max_violation is not None:
        prepared(profile, load_qps, priced(settings, 1.0))
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
    policy = policy_within(lambda price: prepared(profile, load_qps, priced(settings, price))(),
                           settings.max_violation, own_arrivals=settings.arrivals)
    # The search's own settings had a price instead.
    inputs = replace(policy.inputs, settings=fingerprint(settings.as_dict()))
    return replace(policy, inputs=inputs)


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
