"""Expectations of a central queue's policy in the steady state of its model.

The policy's evaluation (:mod:`ramsis.central.solve`) gives the rate at which batches of each
action are started, and how many of their requests are in time. This module computes the figures of
a policy file from them.
"""

from __future__ import annotations

import numpy as np

from ramsis.analysis.sampled import (
    Evidence,
    Started,
    accuracy_error,
    at_confidence,
    evidence_of_groups,
)
from ramsis.analysis.worker import OVERLOAD_VIOLATION_RATE
from ramsis.arrays import FloatArray, fraction, ratio
from ramsis.central.problem import CentralProblem
from ramsis.central.solve import SteadyState
from ramsis.policy import Expectations, PerDecision, Spread
from ramsis.reprs import dataclass


@dataclass(frozen=True, eq=False)
class CentralAnalysis:
    """The stationary behaviour of a central queue's policy."""

    problem: CentralProblem
    steady_state: SteadyState

    def _share(self) -> FloatArray:
        """Return the share of the requests served that each action serves."""
        served = self.steady_state.batches * self.problem.action_batch
        share: FloatArray = served / max(float(served.sum()), 1e-300)
        return share

    def distributions(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Return values and probabilities of batch size (per request), queue length and slack."""
        problem, steady = self.problem, self.steady_state
        return {
            "batch_size": (problem.action_batch.astype(float), self._share()),
            "queue_length": (problem.queue.astype(float), steady.queue),
            "slack_ms": (problem.slack_ms, steady.slack),
        }

    def expectations(
        self, *, capacity_qps: float | None = None, upper_bound: float | None = None
    ) -> Expectations:
        """Return the expectations for a policy file; capacity and bound of the fluid program."""
        problem, steady, share = self.problem, self.steady_state, self._share()
        in_time = fraction(steady.in_time.sum())
        effective = float(np.clip(steady.in_time @ problem.accuracy, 0.0, in_time))
        good = steady.in_time / problem.action_batch
        violations = 1.0 - in_time
        above = capacity_qps is not None and problem.load_qps > capacity_qps
        spread = {name: _spread(*law) for name, law in self.distributions().items()}
        expected = Expectations(
            accuracy=ratio(effective, in_time),
            violation_rate=violations,
            effective_accuracy=effective,
            per_decision=PerDecision(
                accuracy=ratio(float(good @ problem.accuracy), float(good.sum())),
                violation_rate=fraction(steady.late_share),
            ),
            batch_size=spread["batch_size"], queue_length=spread["queue_length"],
            slack_ms=spread["slack_ms"],
            model_share={
                problem.times.models[m]: fraction(share[problem.action_model == m].sum())
                for m in np.unique(problem.action_model)
            },
            utilisation=fraction(
                float(steady.batches @ problem.mean_ms) * problem.load / problem.workers),
            full_queue_rate=fraction(steady.overflow),
            overloaded=bool(above or violations > OVERLOAD_VIOLATION_RATE),
            capacity_qps=capacity_qps,
            upper_bound=upper_bound,
        )
        return at_confidence(expected, self.evidence())

    def evidence(self) -> Evidence | None:
        """Return the evidence behind the promise, by groups of samples.

        See :mod:`ramsis.analysis.sampled`. It is None if service times are fixed, or the number of
        samples is not known. Requests that arrive during a long batch count as late by it only if
        there is one worker; else they go to the other workers.
        """
        problem, steady, times = self.problem, self.steady_state, self.problem.times
        if not times.distributed:
            return None
        late = steady.batches * problem.action_batch - steady.in_time
        started = [
            Started(times.models[m], problem.quantiles_ms[a],
                    int(times.samples[m, batch - 1]), steady.started[a] * batch, float(late[a]),
                    problem.load * float(steady.batches[a]) * (problem.workers == 1))
            for a, (m, batch) in enumerate(zip(problem.action_model.tolist(),
                                               problem.action_batch.tolist(), strict=True))]
        evidence = evidence_of_groups(started, problem.slack_ms, times.weights, times.tails,
                                      problem.slo_ms)
        if evidence is None:
            return None
        return evidence._replace(accuracy_error=accuracy_error(
            times, slo_ms=problem.classes or problem.slo_ms, workers=problem.workers,
            load_qps=problem.load_qps))


def _spread(values: FloatArray, probability: FloatArray) -> Spread:
    """Return mean, median and 99th percentile of values in any order."""
    order = np.argsort(values, kind="stable")
    values, probability = values[order], probability[order] / max(float(probability.sum()), 1e-300)
    upto = np.cumsum(probability)
    p50, p99 = (float(values[min(int(np.searchsorted(upto, level)), len(values) - 1)])
                for level in (0.5, 0.99))
    return Spread(float(values @ probability), p50, p99)
