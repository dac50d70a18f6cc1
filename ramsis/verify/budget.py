"""Checks of a policy that was generated within a violation budget.

The simulation in which the policy met its budget is repeated: with the same seeds, which must give
the same figures, and with other seeds, whose interval must reach below the budget. The promise
comes from another simulation (:mod:`ramsis.verify.replay`).
"""

from __future__ import annotations

from ramsis.policy import Policy
from ramsis.policy.records import Interval
from ramsis.synthesis.simulated import simulated
from ramsis.verify.checks import Check, close, interval_checks

_ROUNDING = 1e-9
_OTHER_SEED = 1 << 30
_SAME_RUNS = 1e-6
_MEASURED = ("violation_rate", "violation_half_width", "effective_accuracy",
             "effective_half_width", "queries", "runs", "seed")


def budget_checks(policy: Policy, derived: Interval | None) -> tuple[Check, ...]:
    """Check the claims of a policy that has a ``budget``.

    ``derived`` is the interval, by the number of samples, of the policy that is optimal at the
    file's price, solved again. The policy of the file differs from it in a few answers, and keeps
    its interval.
    """
    budget = policy.budget
    assert budget is not None
    again, other = (simulated(policy, queries=budget.queries, runs=budget.runs, seed=seed)
                    for seed in (budget.seed, _OTHER_SEED))
    limit = budget.max_violation_rate
    least = other.violation_rate - other.violation_half_width
    interval = policy.expectations.interval
    return (
        *(close(f"budget: {name.replace('_', ' ')}", getattr(budget, name), getattr(again, name),
                _SAME_RUNS * abs(getattr(again, name))) for name in _MEASURED),
        Check("violation rate within the budget", limit, again.upper,
              max(again.upper, budget.upper) <= limit),
        Check("budget with other seeds", limit, least, least <= limit),
        *interval_checks(policy.expectations, derived, _ROUNDING, policy.replay),
        *(() if interval is None else (Check(
            "upper end within the budget", limit, interval.violation_rate[1],
            interval.violation_rate[1] <= limit + budget.violation_half_width + _ROUNDING),)),
    )
