"""Check what the file of a central queue's policy claims, from what the file holds.

Promise and table are derived twice: by solving the file's problem again, which must give the
same to rounding; and by an independent path that shares nothing with that model: the table is
replayed, lookup by lookup, on simulated Poisson arrivals with its service times, each query judged
by its own deadline, from when the workers, idle at first, have settled until before they drain.
The second must agree up to the model's measured error (0.005 with 60 to 100 workers, one SLO and
less than 1 % violations, else 0.02) and the confidence interval of the simulation. The upper bound
is derived without a linear program; the certified gap is
1 − expected effective accuracy / upper bound: no scheme can be better by more than that share.

Rates that were measured, within a budget of violations and wherever a policy could be replayed
when it was made, are measured again: :mod:`ramsis.synthesis.verify_budget`,
:mod:`ramsis.synthesis.replayed`. Tolerances: :mod:`ramsis.synthesis.stated`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster.slo_class import SloClass
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.synthesis.checks import Check, close, interval_checks, least_dual_of_classes
from ramsis.synthesis.recipes.central_headroom import headroom_claims, plans_of
from ramsis.synthesis.recipes.central_promise import certificate_of, promise_of
from ramsis.synthesis.replayed import replay_checks
from ramsis.synthesis.simulated import simulated
from ramsis.synthesis.stated import certificate_checks, made_again_checks
from ramsis.synthesis.verify_budget import budget_checks

if TYPE_CHECKING:
    from ramsis.central.problem import CentralProblem

__all__ = ["central_claims"]

FloatArray = NDArray[np.float64]

_QUERIES = 100_000  # of each run at least
_RUNS, _FEWEST_RUNS = 8, 3
_MOST_QUERIES = 8_000_000  # of all runs, but for the fewest
_LASTS = 12.0  # a run at least, in SLOs
_FEW_VIOLATIONS = 0.01
_BY_CHANCE = 2.0  # half widths: arrivals that are drawn may be fewer than on average
_HELD_TO_LESS = range(60, 101)  # workers


def central_claims(
    policy: Policy, problem: CentralProblem, tolerance: float
) -> tuple[Check, ...]:
    """Every claim of a policy's file, checked against its problem."""
    plans, solution = plans_of(problem, policy.headroom)
    found = plans.played(solution)
    derived, gain = promise_of(found), found.steady_state.gain
    again = (
        *made_again_checks(policy.expectations, derived, tolerance,
                           measured=policy.budget is not None or policy.replay is not None),
        close("gain", policy.certificate.gain, gain, tolerance),
        *certificate_checks(policy.certificate,
                            certificate_of(solution, derived.upper_bound, gain), tolerance),
        close("spare idle workers", policy.spare_idle, solution.spare_idle, 0.0),
        *headroom_claims(policy.headroom, plans,
                         solution if policy.budget is None else None, tolerance),
        *_bound_checks(policy, problem, tolerance),
    )
    if policy.budget is not None:
        return (*budget_checks(policy), *again)
    same = float((solution.table == policy.codes).mean()) if (
        solution.table.shape == policy.codes.shape) else 0.0
    stated = policy.expectations
    again += (Check("table entries that are derived again", 1.0, same, same == 1.0),
              *interval_checks(stated, derived.interval, tolerance))
    if policy.replay is not None:
        return (*replay_checks(policy), *again)
    each = max(_QUERIES, int(_LASTS * policy.load_qps * policy.slo_ms / 1000.0))
    runs = min(_RUNS, max(_FEWEST_RUNS, _MOST_QUERIES // each))
    replayed = simulated(policy, queries=each * runs, runs=runs, seed=0)
    half_width, violations = replayed.effective_half_width, replayed.violation_rate
    closely = (policy.workers in _HELD_TO_LESS and violations < _FEW_VIOLATIONS
               and not policy.slo_classes)
    error = 0.005 if closely else 0.02
    effective = stated.effective_accuracy
    return (
        Check("effective accuracy in simulation", effective, replayed.effective_accuracy,
              abs(effective - replayed.effective_accuracy) <= error + half_width),
        Check("violation rate in simulation", stated.violation_rate, violations,
              abs(stated.violation_rate - violations) <= 2 * error + half_width),
        *again,
    )


def _bound_checks(
    policy: Policy, problem: CentralProblem, tolerance: float
) -> tuple[Check, ...]:
    bound, effective = dual_bound(problem), policy.expectations.effective_accuracy
    measured = policy.budget or policy.replay
    allowed = tolerance + (_BY_CHANCE * measured.effective_half_width if measured else 0.0)
    gap = None if bound <= 0 else 1.0 - effective / bound
    return (
        close("upper bound", policy.expectations.upper_bound, bound, tolerance),
        Check("effective accuracy within the bound", effective, bound,
              effective <= bound + allowed),
        Check("certified_gap", gap, gap, gap is None or gap * bound >= -allowed),
    )


def dual_bound(problem: CentralProblem) -> float:
    """The fluid bound by its dual, one number found by bisection."""
    classes = problem.classes or (SloClass(problem.slo_ms),)
    return least_dual_of_classes([(one.share, *_columns(problem, one.slo_ms)) for one in classes])


def _columns(problem: CentralProblem, slo_ms: float) -> tuple[FloatArray, FloatArray]:
    """Accuracy that a query of an SLO earns by each batch, and its price in the workers' time."""
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
    price = mean_ms[model, run] / queries * problem.load / problem.workers
    if not reward.size:
        raise InvalidValueError("no batch can be in time")
    return reward, price
