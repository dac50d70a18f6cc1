"""What the best policy for a central queue promises."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ramsis.bounds import fluid_bound
from ramsis.policy import CertificateRecord, Expectations

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.central.problem import CentralProblem
    from ramsis.central.solve import CentralSolution

__all__ = ["certificate_of", "promise_of", "stated_promise"]


def promise_of(
    problem: CentralProblem, factor: float = 1.0
) -> tuple[Expectations, CentralSolution, float]:
    """What the best policy promises, the solution that it comes from, and its gain.

    Parameters
    ----------
    factor : float
        The policy is planned with service times that are longer by this factor.
    """
    from ramsis.central.solve import solve_central

    planning = problem if factor == 1.0 else replace(problem, times=problem.times.scaled(factor))
    solution = solve_central(planning)
    expectations, gain = stated_promise(problem, solution)
    return expectations, solution, gain


def stated_promise(
    problem: CentralProblem, solution: CentralSolution
) -> tuple[Expectations, float]:
    """What a solution's policy promises, and its gain, at the times of a problem."""
    from ramsis.analysis.central import CentralAnalysis
    from ramsis.central.solve import evaluate_central

    own = solution.problem is problem
    steady = solution.steady_state if own else evaluate_central(problem, solution)
    bound = fluid_bound(problem.times, slo_ms=problem.slo_ms, workers=problem.workers,
                        load_qps=problem.load_qps, max_batch=problem.times.max_batch)
    most = bound.effective_accuracy
    if problem.classes:
        most = fluid_bound(problem.times, slo_ms=problem.classes, workers=problem.workers,
                           load_qps=problem.load_qps).effective_accuracy
    expectations = CentralAnalysis(problem, steady).expectations(
        capacity_qps=bound.capacity_qps, upper_bound=most)
    return expectations, steady.gain


def certificate_of(
    solution: CentralSolution, upper_bound: float | None, gain: float
) -> CertificateRecord:
    """How a solution was found, with its gain; the bound on the gain is the fluid bound."""
    return CertificateRecord(
        solver="policy-iteration", converged=True, iterations=solution.rounds,
        bellman_residual=solution.residual, gain=gain, gain_lower=None,
        gain_upper=upper_bound, truncated_mass=solution.steady_state.restart)
