"""Re-deriving a policy file's claims from what the file holds, by a slower, independent path.

The worker's MDP is written out in full (explicit rows, four-interval sums), where the file's
policy was found on slack nodes. Then

- the file's table is held against the model: admissible choices, late states, batches;
- power iteration gives its stationary distribution, hence every expectation;
- value iteration gives the optimal gain, which the policy's gain must reach;
- the fluid bound is computed again from its dual, min over y >= 0 of
  y + max(0, max_{m,b} accuracy(m) − y·p_{m,b}), p the share of the fleet's time that serving
  every query by (m, b) would take; the minimum lies at a crossing of two of its lines.

A claim stands when it is within the tolerance of what was derived; the file's quadrature alone
accounts for about 1e-6 at D = 100.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramsis.analysis import WorkerAnalysis, analyse_worker
from ramsis.mdp.explicit import ExplicitWorkerMDP, build_explicit
from ramsis.mdp.problem import WorkerProblem
from ramsis.policy import Expectations, WorkerPolicy, read
from ramsis.solvers.result import Certificate
from ramsis.solvers.stationary import power_iteration
from ramsis.solvers.value_iteration import value_iteration
from ramsis.synthesis.replay import problem_of

__all__ = ["TOLERANCE", "Check", "verify_policy"]

TOLERANCE = 1e-4
"""How far a claim may be from what is derived, in accuracy or as a fraction of the queries."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Check:
    """One claim and what became of it.

    Attributes
    ----------
    claim : str
        What is claimed, such as ``expected violation rate``.
    stated, derived : float or None
        The file's figure and the independent one; None for an accuracy that is undefined.
    holds : bool
    """

    claim: str
    stated: float | None
    derived: float | None
    holds: bool


def verify_policy(
    path: str | os.PathLike[str], *, tolerance: float = TOLERANCE
) -> tuple[Check, ...]:
    """Every claim of a worker policy file, checked.

    Parameters
    ----------
    tolerance : float
        Largest difference between a stated and a derived figure.

    Raises
    ------
    InputFileError
        The file breaks its format, or names an arrival process that cannot be made from it.
    """
    policy = read(path)
    problem = problem_of(policy, str(path))
    explicit = build_explicit(problem)
    table = _table_check(policy, problem)
    if not table.holds:
        return (table,)
    analysis, gain = _stationary(explicit, policy)
    optimum = value_iteration(explicit.mdp).certificate
    bound, capacity = _dual_bound(policy, problem)
    return (
        table,
        *_expectation_checks(policy.expectations, analysis.expectations(), tolerance),
        *_gain_checks(policy, gain, optimum, tolerance),
        _close("upper bound", policy.expectations.upper_bound, bound, tolerance),
        _close("capacity (QPS)", policy.expectations.capacity_qps, capacity, 1e-6 * capacity),
        Check("effective accuracy within the bound", policy.expectations.effective_accuracy,
              bound, policy.expectations.effective_accuracy <= bound + tolerance),
    )


def _table_check(policy: WorkerPolicy, problem: WorkerProblem) -> Check:
    """Share of the table's entries that are allowed by the model: all of them."""
    fits = problem.in_time(policy.model_table)
    late = problem.fastest_policy()
    forced = ~problem.in_time(late) & (policy.model_table == problem.latency.fastest)
    queued = np.arange(1, problem.max_queue + 1)[:, None]
    allowed = (fits | forced) & (policy.batch_table == queued)
    share = float(allowed.mean())
    return Check("table entries that the model allows", 1.0, share, share == 1.0)


def _stationary(
    explicit: ExplicitWorkerMDP, policy: WorkerPolicy
) -> tuple[WorkerAnalysis, float]:
    """Behaviour and gain of the file's table, by power iteration on the explicit rows."""
    rows = explicit.mdp.rows_of(explicit.labels(policy.model_table))
    law = power_iteration(explicit.mdp.transition[rows]).distribution
    gain = float(law @ explicit.mdp.reward[rows]) / float(law @ explicit.mdp.costs[rows])
    analysis = analyse_worker(
        explicit.problem,
        policy.model_table,
        explicit.by_queue_and_bin(law),
        float(law @ explicit.excess[rows]),
    )
    return analysis, gain


def _expectation_checks(
    stated: Expectations, derived: Expectations, tolerance: float
) -> list[Check]:
    pairs = [
        ("expected accuracy", stated.accuracy, derived.accuracy),
        ("expected violation rate", stated.violation_rate, derived.violation_rate),
        ("expected effective accuracy", stated.effective_accuracy, derived.effective_accuracy),
        ("accuracy per decision", stated.per_decision.accuracy, derived.per_decision.accuracy),
        ("violation rate per decision", stated.per_decision.violation_rate,
         derived.per_decision.violation_rate),
        ("utilisation", stated.utilisation, derived.utilisation),
        ("full queue rate", stated.full_queue_rate, derived.full_queue_rate),
        ("mean batch size", stated.batch_size.mean, derived.batch_size.mean),
    ]
    checks = [_close(claim, mine, other, tolerance) for claim, mine, other in pairs[:-1]]
    size = pairs[-1]
    checks.append(_close(*size, tolerance * derived.batch_size.mean * 10))
    models = sorted({*stated.model_share, *derived.model_share})
    checks += [
        _close(f"share of {name}", stated.model_share.get(name, 0.0),
               derived.model_share.get(name, 0.0), tolerance)
        for name in models
    ]
    return checks


def _gain_checks(
    policy: WorkerPolicy, gain: float, optimum: Certificate, tolerance: float
) -> list[Check]:
    """The stated gain is the policy's, and no policy of this model has more."""
    stated = policy.certificate
    upper = stated.gain if stated.gain_upper is None else stated.gain_upper
    return [
        _close("gain", stated.gain, gain, tolerance),
        Check("gain against the optimum", stated.gain, optimum.upper_bound,
              stated.gain >= optimum.lower_bound - tolerance),
        Check("stated upper bound on the gain", upper, optimum.lower_bound,
              upper >= optimum.lower_bound - tolerance),
    ]


def _close(
    claim: str, stated: float | None, derived: float | None, tolerance: float
) -> Check:
    if stated is None or derived is None:
        return Check(claim, stated, derived, stated is None and derived is None)
    return Check(claim, stated, derived, abs(stated - derived) <= tolerance)


def _dual_bound(policy: WorkerPolicy, problem: WorkerProblem) -> tuple[float, float]:
    """The fluid bound and the capacity in queries per second, without a linear program."""
    batch = np.arange(1, problem.max_queue + 1)
    service_ms = problem.latency.latency_ms[:, : problem.max_queue]
    usable = service_ms <= problem.slo_ms
    accuracy = np.broadcast_to(problem.latency.accuracy[:, None], service_ms.shape)[usable]
    rate = (np.broadcast_to(batch, service_ms.shape)[usable]) / service_ms[usable]
    capacity = 1000.0 * policy.workers * float(rate.max())
    price = policy.load_qps / (1000.0 * policy.workers * rate)
    return _least_dual(accuracy, price), capacity


def _least_dual(accuracy: FloatArray, price: FloatArray) -> float:
    """Least, over y >= 0, of y + max(0, max accuracy − y·price), at its breakpoints."""
    rise = accuracy[:, None] - accuracy[None, :]
    run = price[:, None] - price[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = np.concatenate([(rise / run).ravel(), accuracy / price])
    y = np.append(crossings[np.isfinite(crossings) & (crossings >= 0)], 0.0)
    dual = y + np.maximum(0.0, (accuracy - y[:, None] * price).max(axis=1))
    return float(dual.min())
