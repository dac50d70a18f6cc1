"""What the best policy for a central queue promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ramsis.bounds import fluid_bound
from ramsis.policy import CertificateRecord, Expectations

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.analysis.central import CentralAnalysis
    from ramsis.central.solve import CentralSolution


def promise_of(found: CentralAnalysis) -> Expectations:
    """Return the promise of a policy under its analysis."""
    problem = found.problem
    bound = fluid_bound(problem.times, slo_ms=problem.slo_ms, workers=problem.workers,
                        load_qps=problem.load_qps, max_batch=problem.times.max_batch)
    most = bound.effective_accuracy
    if problem.classes:
        most = fluid_bound(problem.times, slo_ms=problem.classes, workers=problem.workers,
                           load_qps=problem.load_qps).effective_accuracy
    return found.expectations(capacity_qps=bound.capacity_qps, upper_bound=most)


def certificate_of(
    solution: CentralSolution, upper_bound: float | None, gain: float
) -> CertificateRecord:
    """How a solution was found, with its gain; the bound on the gain is the fluid bound."""
    return CertificateRecord(
        solver="policy-iteration", converged=True, iterations=solution.rounds,
        bellman_residual=solution.residual, gain=gain, gain_lower=None,
        gain_upper=upper_bound, truncated_mass=solution.steady_state.restart)
