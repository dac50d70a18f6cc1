"""The most robust policy of a central queue within a headroom.

See :mod:`ramsis.synthesis.headroom`. What a policy comes to at other service times than it was
planned with is worked out from the model's own policy, which its table improves on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError
from ramsis.policy.records import HeadroomRecord
from ramsis.synthesis.checks import Check
from ramsis.synthesis.headroom import Chosen, Played, most_robust, record_claims

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.central.problem import CentralProblem
    from ramsis.central.solve import CentralSolution

__all__ = ["headroom_claims", "most_robust_central", "planned_problem", "played"]


def most_robust_central(pure: CentralSolution, headroom: float) -> Chosen[CentralSolution]:
    """The policy planned for the longest service times that loses no more than the headroom.

    Its problem is that of the longer times; ``pure`` is the optimum of the true ones.
    """
    from ramsis.central.solve import solve_central

    true = pure.problem

    def planned(factor: float) -> CentralSolution | None:
        try:
            return solve_central(planned_problem(true, factor))
        except (InvalidValueError, InfeasibleError, NotConvergedError):
            return None

    return most_robust(pure, planned, lambda plan, slower: played(plan, true, slower), headroom)


def planned_problem(true: CentralProblem, factor: float) -> CentralProblem:
    """The problem of policies that are planned as if service took a factor longer.

    Raises
    ------
    InvalidValueError, InfeasibleError
        As :meth:`ramsis.central.problem.CentralProblem.create`.
    """
    from ramsis.central.classes import ClassesProblem
    from ramsis.central.problem import CentralProblem

    problem = CentralProblem.create(
        true.times.scaled(factor), slo_ms=true.slo_ms, workers=true.workers,
        load_qps=true.load_qps, price=true.price, steps=_steps(true))
    problem = replace(problem, random_ends=true.random_ends,
                      end_variability=true.end_variability)
    return ClassesProblem.of(problem, true.classes) if true.classes else problem


def played(plan: CentralSolution, true: CentralProblem, slower: float = 1.0) -> Played:
    """What a policy comes to when service takes a factor longer than the true times."""
    from ramsis.analysis.central import CentralAnalysis
    from ramsis.central.solve import evaluate_central

    if plan.problem is true and slower == 1.0:
        steady, problem = plan.steady_state, true
    else:
        problem = replace(plan.problem, times=true.times.scaled(slower))
        steady = evaluate_central(problem, plan)
    found = CentralAnalysis(problem, steady).expectations()
    return Played(found.effective_accuracy, found.violation_rate, steady.gain)


def headroom_claims(
    stated: HeadroomRecord | None, problem: CentralProblem, plan: CentralSolution | None,
    tolerance: float,
) -> tuple[Check, ...]:
    """What a policy's file says of its headroom, worked out again.

    Parameters
    ----------
    problem : CentralProblem
        Of the file.
    plan : CentralSolution or None
        For its factor on service times; None where the table was changed after planning, for a
        budget.
    """
    if stated is None:
        return ()
    from ramsis.central.solve import solve_central

    pure = solve_central(planned_problem(problem, 1.0))
    again, record = most_robust_central(pure, stated.allowed_loss)
    plan = again if plan is None else plan
    found = {slower: played(plan, problem, slower) for slower in (1.0, stated.slower)}
    return record_claims(stated, record, found, played(pure, pure.problem), tolerance)


def _steps(problem: CentralProblem) -> int | None:
    """Number of equal slack bins of a problem; None where they are of its latencies."""
    steps = round(problem.slo_ms / float(problem.slack_ms[1]))
    equal = problem.slo_ms * np.arange(steps) / steps
    return steps if steps > 1 and np.isin(equal, problem.slack_ms).all() else None
