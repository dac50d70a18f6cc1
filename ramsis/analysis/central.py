"""What a central queue's policy delivers in the steady state of its model.

The rates at which its batches are started, and how many of their queries are in time, come out of
the policy's evaluation (:mod:`ramsis.central.solve`); here they become the figures of a policy
file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramsis.analysis.worker import OVERLOAD_VIOLATION_RATE
from ramsis.central.problem import FleetProblem
from ramsis.central.solve import FleetTotals
from ramsis.policy import Expectations, PerDecision, Spread

__all__ = ["CentralAnalysis"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CentralAnalysis:
    """The stationary behaviour of a central queue's policy.

    Attributes
    ----------
    problem : FleetProblem
    totals : FleetTotals
        Of the policy.
    """

    problem: FleetProblem
    totals: FleetTotals

    def _share(self) -> FloatArray:
        """Share of the queries served that each option serves."""
        served = self.totals.batches * self.problem.option_batch
        share: FloatArray = served / max(float(served.sum()), 1e-300)
        return share

    def distributions(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Values and probabilities of the batch size (per query), queue length and slack."""
        problem, totals = self.problem, self.totals
        return {
            "batch_size": (problem.option_batch.astype(float), self._share()),
            "queue_length": (problem.queue.astype(float), totals.queue),
            "slack_ms": (problem.slack_ms, totals.slack),
        }

    def expectations(
        self, *, capacity_qps: float | None = None, upper_bound: float | None = None
    ) -> Expectations:
        """The record that a policy file carries.

        Parameters
        ----------
        capacity_qps, upper_bound : float, optional
            Of the fluid program.
        """
        problem, totals, share = self.problem, self.totals, self._share()
        in_time = float(np.clip(totals.in_time.sum(), 0.0, 1.0))
        effective = float(np.clip(totals.in_time @ problem.accuracy, 0.0, in_time))
        good = totals.in_time / problem.option_batch
        violations = 1.0 - in_time
        above = capacity_qps is not None and problem.load_qps > capacity_qps
        return Expectations(
            accuracy=effective / in_time if in_time > 0 else None,
            violation_rate=violations,
            effective_accuracy=effective,
            per_decision=PerDecision(
                accuracy=float(good @ problem.accuracy / good.sum()) if good.sum() > 0 else None,
                violation_rate=float(np.clip(totals.late_share, 0.0, 1.0)),
            ),
            **{name: _spread(*found) for name, found in self.distributions().items()},
            model_share={
                problem.law.models[m]: min(float(share[problem.option_model == m].sum()), 1.0)
                for m in np.unique(problem.option_model)
            },
            utilisation=float(np.clip(
                totals.batches @ problem.mean_ms * problem.load / problem.workers, 0.0, 1.0)),
            full_queue_rate=float(np.clip(totals.overflow, 0.0, 1.0)),
            overloaded=bool(above or violations > OVERLOAD_VIOLATION_RATE),
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
