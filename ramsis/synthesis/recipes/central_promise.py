"""What the best policy for a central queue promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ramsis.bounds import fluid_bound
from ramsis.policy import Expectations

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.central.problem import FleetProblem
    from ramsis.central.solve import FleetSolution

__all__ = ["promise_of"]


def promise_of(problem: FleetProblem) -> tuple[Expectations, FleetSolution]:
    """What the best policy promises, and the solution that it comes from."""
    from ramsis.analysis.central import CentralAnalysis
    from ramsis.central.solve import solve_fleet

    solution = solve_fleet(problem)
    bound = fluid_bound(problem.law, slo_ms=problem.slo_ms, workers=problem.workers,
                        load_qps=problem.load_qps, max_batch=problem.law.max_batch)
    most = bound.effective_accuracy
    if problem.classes:
        most = fluid_bound(problem.law, slo_ms=problem.classes, workers=problem.workers,
                           load_qps=problem.load_qps).effective_accuracy
    expectations = CentralAnalysis(problem, solution.totals).expectations(
        capacity_qps=bound.capacity_qps, upper_bound=most)
    return expectations, solution
