"""Comparison of a file's figures with a fresh solution of its problem.

This finds every figure that was changed since a file was made; whether the figures are right is a
matter for the independent paths of the recipes, which share nothing with the solver. Tolerances,
``t`` being that of the verification (1e-4):

===============================================  ==================================================
figure                                           may differ by
===============================================  ==================================================
rates, accuracies, utilisation, models' shares   t
accuracy where few requests are in time           t / their share, if that is below a hundredth
means of batch, queue and slack                  t times the 99th percentile, at least t
their p50 and p99                                1e-6 of themselves
capacity                                         1e-6 of itself
gain and its bounds                              t
residual and truncated mass                      t / 100; of the mass a tenth, beyond rounding
rounds of the solver                             2, and a tenth; but less than half
===============================================  ==================================================
"""

from __future__ import annotations

from ramsis.policy import CertificateRecord, Expectations, Spread
from ramsis.verify.checks import Check, close

_FEW_IN_TIME = 0.01
_ROUNDING = 1e-6
_FINE = 0.01  # of the tolerance
_ROUNDS, _OF_ROUNDS, _OF_FEW_ROUNDS = 2.0, 0.1, 0.39
_ROUNDED_MASS, _OF_MASS = 1e-14, 0.1


def solved_again_checks(
    stated: Expectations, again: Expectations, tolerance: float
) -> list[Check]:
    """Check every expected figure against the policy of a fresh solution."""
    checks = [
        *rate_checks(stated, again, tolerance, busy=tolerance, shares=tolerance, near=False),
        close("capacity (QPS)", stated.capacity_qps, again.capacity_qps,
              _ROUNDING * (again.capacity_qps or 1.0)),
    ]
    for name in ("batch_size", "queue_length", "slack_ms"):
        checks += _spread(name.removesuffix("_ms").replace("_", " "), getattr(stated, name),
                          getattr(again, name), tolerance)
    return checks


def _spread(what: str, stated: Spread, again: Spread, tolerance: float) -> list[Check]:
    largest = max(1.0, abs(again.p50), abs(again.p99))
    return [
        close(f"mean {what}", stated.mean, again.mean, tolerance * largest),
        close(f"{what} p50", stated.p50, again.p50, _ROUNDING * max(1.0, abs(again.p50))),
        close(f"{what} p99", stated.p99, again.p99, _ROUNDING * max(1.0, abs(again.p99))),
    ]


def rate_checks(
    stated: Expectations, derived: Expectations, tolerance: float, *, busy: float, shares: float,
    near: bool,
) -> list[Check]:
    """Check rates, accuracies and shares of the models; if ``near``, either overload flag holds.

    ``busy`` is the tolerance of utilisation and of full queues, ``shares`` that of the shares.
    """
    per_decision, other = stated.per_decision, derived.per_decision
    return [
        _accuracy_check("expected accuracy", stated.accuracy, derived.accuracy,
                        1.0 - derived.violation_rate, tolerance),
        close("expected violation rate", stated.violation_rate, derived.violation_rate, tolerance),
        close("expected effective accuracy", stated.effective_accuracy,
              derived.effective_accuracy, tolerance),
        Check("overloaded", float(stated.overloaded), float(derived.overloaded),
              near or stated.overloaded == derived.overloaded),
        _accuracy_check("accuracy per decision", per_decision.accuracy, other.accuracy,
                        1.0 - other.violation_rate, tolerance),
        close("violation rate per decision", per_decision.violation_rate, other.violation_rate,
              tolerance),
        close("utilisation", stated.utilisation, derived.utilisation, busy),
        close("full queue rate", stated.full_queue_rate, derived.full_queue_rate, busy),
        *(close(f"share of {name}", stated.model_share.get(name, 0.0),
                derived.model_share.get(name, 0.0), shares)
          for name in sorted({*stated.model_share, *derived.model_share})),
    ]


def _accuracy_check(
    claim: str, stated: float | None, derived: float | None, in_time: float, tolerance: float
) -> Check:
    """Check the accuracy of the requests in time; any value holds if ``in_time`` is about 0."""
    allowed = tolerance * _FEW_IN_TIME / max(in_time, 1e-300)
    if allowed >= 1.0:
        return Check(claim, stated, derived, True)
    return close(claim, stated, derived, max(tolerance, allowed))


def certificate_checks(
    stated: CertificateRecord, again: CertificateRecord, tolerance: float
) -> list[Check]:
    """Check every figure of a certificate but the gain."""
    fine = _FINE * tolerance
    return [
        close("lower bound on the gain, again", stated.gain_lower, again.gain_lower, tolerance),
        close("upper bound on the gain, again", stated.gain_upper, again.gain_upper, tolerance),
        close("residual", stated.bellman_residual, again.bellman_residual, fine),
        close("truncated mass", stated.truncated_mass, again.truncated_mass,
              min(_ROUNDED_MASS + _OF_MASS * again.truncated_mass, fine)),
        close("rounds of the solver", stated.iterations, again.iterations,
              min(_ROUNDS + _OF_ROUNDS * again.iterations, _OF_FEW_ROUNDS * again.iterations)),
        close("nodes in a slack bin", stated.nodes_per_bin, again.nodes_per_bin, 0.0),
        close("tolerance of the solver", stated.tolerance, again.tolerance, 0.0),
        Check("converged", float(stated.converged), float(again.converged),
              stated.converged == again.converged),
    ]
