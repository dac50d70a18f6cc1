"""Checks of a central queue's policy file from its contents alone.

The table and its certificate are derived by solving the file's problem again, which must give the
same. Its figures are measured again, also by a simulator that shares nothing with the first
(:mod:`ramsis.verify.replay`). The upper bound is derived without a linear program. A budget of
violations: :mod:`ramsis.verify.budget`.
Tolerances of the certificate: :mod:`ramsis.verify.solved_again`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.cluster.cluster import SloClass
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.synthesis.recipes import problem_of
from ramsis.synthesis.recipes.central import (
    analysis_of,
    certificate_of,
    limits_of,
    solved_again,
)
from ramsis.verify.budget import budget_checks
from ramsis.verify.checks import Check, close, interval_checks, least_dual_of_classes
from ramsis.verify.replay import not_measured_checks, replay_checks
from ramsis.verify.solved_again import certificate_checks, solved_again_checks

if TYPE_CHECKING:
    from ramsis.central.problem import CentralProblem

_BY_CHANCE = 2.0  # half-widths by which a simulation may exceed the bound, by its drawn arrivals
_ROUNDING = 1e-6


def central_claims(policy: Policy, where: str, tolerance: float) -> tuple[Check, ...]:
    """Check every claim of a policy file, which ``where`` names, against its problem."""
    problem: CentralProblem = problem_of(policy, where)
    solution = solved_again(problem, policy.planned_factor)
    _, capacity_qps, upper_bound = limits_of(problem, policy.load_qps)
    derived = analysis_of(problem, solution).expectations(
        capacity_qps=capacity_qps, upper_bound=upper_bound)
    certificate = certificate_of(solution, upper_bound)
    again = (
        close("gain", policy.certificate.gain, certificate.gain, tolerance),
        *certificate_checks(policy.certificate, certificate, tolerance),
        close("capacity (QPS)", policy.expectations.capacity_qps, capacity_qps,
              _ROUNDING * capacity_qps),
        *_bound_checks(policy, problem, tolerance),
        *(replay_checks(policy) if policy.replay is not None
          else solved_again_checks(policy.expectations, derived, tolerance)),
        *not_measured_checks(policy),
    )
    if policy.budget is not None:
        return (*budget_checks(policy, derived.interval), *again)
    same = float((solution.table == policy.codes).mean()) if (
        solution.table.shape == policy.codes.shape) else 0.0
    return (
        Check("table entries that are derived again", 1.0, same, same == 1.0),
        *again,
        *interval_checks(policy.expectations, derived.interval, tolerance, policy.replay),
    )


def _bound_checks(
    policy: Policy, problem: CentralProblem, tolerance: float
) -> tuple[Check, ...]:
    """Check the stated upper bound against the dual bound, and effective accuracy against it."""
    bound, effective = dual_bound(problem, policy.load_qps), policy.expectations.effective_accuracy
    measured = policy.budget or policy.replay
    allowed = tolerance + (_BY_CHANCE * measured.effective_half_width if measured else 0.0)
    return (
        close("upper bound", policy.expectations.upper_bound, bound, tolerance),
        Check("effective accuracy within the bound", effective, bound,
              effective <= bound + allowed),
    )


def dual_bound(problem: CentralProblem, load_qps: float) -> float:
    """Compute the fluid bound from its dual by bisection."""
    classes = problem.classes or (SloClass(problem.slo_ms),)
    return least_dual_of_classes([(slo_class.share, *_columns(problem, slo_class.slo_ms, load_qps))
                                  for slo_class in classes])


def _columns(
    problem: CentralProblem, slo_ms: float, load_qps: float
) -> tuple[FloatArray, FloatArray]:
    """Return each batch's accuracy for a request of an SLO, and its worker time per request."""
    times = problem.times
    mean_ms, in_time = times.mean_ms, times.cdf(slo_ms)
    model, column = np.nonzero(in_time > 0)
    queries, run = column + 1.0, column
    for m in range(len(times.models)):
        for b in range(times.max_batch):
            fewer = np.flatnonzero(mean_ms[m, :b] > mean_ms[m, b])  # padding saves time
            model = np.append(model, np.full(len(fewer), m))
            queries, run = np.append(queries, fewer + 1.0), np.append(run, np.full(len(fewer), b))
    reward = times.accuracy[model] * in_time[model, run]
    price = mean_ms[model, run] / queries * load_qps / 1000.0 / problem.workers
    if not reward.size:
        raise InvalidValueError("no batch can be in time")
    return reward, price
