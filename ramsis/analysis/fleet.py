"""What a fleet policy delivers in the steady state of its model.

The rates at which its batches are started, and how many of their queries are in time, come out of
the policy's evaluation (:mod:`ramsis.central.solve`); here they become the figures of a policy
file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.analysis.worker import OVERLOAD_VIOLATION_RATE
from ramsis.central.problem import FleetProblem
from ramsis.central.solve import FleetTotals
from ramsis.policy import Expectations, PerDecision, Spread

__all__ = ["fleet_expectations"]

FloatArray = NDArray[np.float64]


def fleet_expectations(
    problem: FleetProblem, totals: FleetTotals, *, capacity_qps: float, upper_bound: float
) -> Expectations:
    """The promise of a fleet policy.

    Parameters
    ----------
    problem : FleetProblem
    totals : FleetTotals
        Of the policy.
    capacity_qps, upper_bound : float
        Of the fluid program.
    """
    in_time = float(np.clip(totals.in_time.sum(), 0.0, 1.0))
    effective = float(np.clip(totals.in_time @ problem.accuracy, 0.0, in_time))
    batch = problem.option_batch
    served = totals.batches * batch
    share = served / max(float(served.sum()), 1e-300)
    good = totals.in_time / batch
    violations = 1.0 - in_time
    return Expectations(
        accuracy=effective / in_time if in_time > 0 else None,
        violation_rate=violations,
        effective_accuracy=effective,
        per_decision=PerDecision(
            accuracy=float(good @ problem.accuracy / good.sum()) if good.sum() > 0 else None,
            violation_rate=float(np.clip(totals.late_share, 0.0, 1.0)),
        ),
        batch_size=_spread(batch.astype(float), share),
        queue_length=_spread(problem.queue.astype(float), totals.queue),
        slack_ms=_spread(problem.slack_ms, totals.slack),
        model_share={
            problem.law.models[m]: min(float(share[problem.option_model == m].sum()), 1.0)
            for m in np.unique(problem.option_model)
        },
        utilisation=float(np.clip(
            totals.batches @ problem.mean_ms * problem.load / problem.workers, 0.0, 1.0)),
        full_queue_rate=float(np.clip(totals.overflow, 0.0, 1.0)),
        overloaded=bool(problem.load_qps > capacity_qps or violations > OVERLOAD_VIOLATION_RATE),
        capacity_qps=capacity_qps,
        upper_bound=upper_bound,
    )


def _spread(values: FloatArray, law: FloatArray) -> Spread:
    order = np.argsort(values, kind="stable")
    values, law = values[order], law[order] / max(float(law.sum()), 1e-300)
    upto = np.cumsum(law)
    p50, p99 = (float(values[min(int(np.searchsorted(upto, level)), len(values) - 1)])
                for level in (0.5, 0.99))
    return Spread(float(values @ law), p50, p99)
