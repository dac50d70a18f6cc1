"""What the best policy for a central queue promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ramsis.bounds import fluid_bound
from ramsis.policy import Expectations

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.central.problem import CentralProblem
    from ramsis.central.solve import CentralSolution

__all__ = ["promise_of"]


def promise_of(problem: CentralProblem) -> tuple[Expectations, CentralSolution]:
    """What the best policy promises, and the solution that it comes from."""
    from ramsis.analysis.central import CentralAnalysis
    from ramsis.central.solve import solve_central

    solution = solve_central(problem)
    bound = fluid_bound(problem.times, slo_ms=problem.slo_ms, workers=problem.workers,
                        load_qps=problem.load_qps, max_batch=problem.times.max_batch)
    most = bound.effective_accuracy
    if problem.classes:
        most = fluid_bound(problem.times, slo_ms=problem.classes, workers=problem.workers,
                           load_qps=problem.load_qps).effective_accuracy
    expectations = CentralAnalysis(problem, solution.steady_state).expectations(
        capacity_qps=bound.capacity_qps, upper_bound=most)
    return expectations, solution
