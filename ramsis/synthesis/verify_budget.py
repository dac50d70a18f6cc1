"""Check what a policy claims that was made within a budget of violations.

What it promises was measured, so it is measured again: with the same seeds, which must give the
same to 1e-6, and with others, whose intervals must overlap the stated ones and reach below the
budget.
"""

from __future__ import annotations

from ramsis.analysis.worker import OVERLOAD_VIOLATION_RATE
from ramsis.policy import Policy
from ramsis.synthesis.checks import Check, close, interval_checks
from ramsis.synthesis.simulated import simulated
from ramsis.synthesis.stated import accuracy_check

__all__ = ["budget_checks"]

_ROUNDING = 1e-9
_OTHER_SEED = 1 << 30
_SAME_RUNS = 1e-6
_MEASURED = ("violation_rate", "violation_half_width", "effective_accuracy",
             "effective_half_width", "queries", "runs", "seed")


def budget_checks(
    policy: Policy, own_arrivals: str | None = None
) -> tuple[Check, ...]:
    """The claims of a policy that has a ``budget``.

    Parameters
    ----------
    own_arrivals : str, optional
        ``package.module:name`` of an arrival process of one's own.

    Raises
    ------
    InvalidValueError
        The arrival process cannot be drawn from.
    """
    budget, expected = policy.budget, policy.expectations
    assert budget is not None
    again, other = (
        simulated(policy, queries=budget.queries, runs=budget.runs, seed=seed,
                  own_arrivals=own_arrivals) for seed in (budget.seed, _OTHER_SEED)
    )
    limit = budget.max_violation_rate
    in_time = 1.0 - again.violation_rate
    above = expected.capacity_qps is not None and policy.load_qps > expected.capacity_qps
    overloaded = above or again.violation_rate > OVERLOAD_VIOLATION_RATE
    least = other.violation_rate - other.violation_half_width
    return (
        accuracy_check("expected accuracy", expected.accuracy,
                       again.effective_accuracy / in_time if in_time > 0 else None, in_time,
                       _SAME_RUNS),
        close("expected violation rate", expected.violation_rate, again.violation_rate,
              _SAME_RUNS),
        close("expected effective accuracy", expected.effective_accuracy,
              again.effective_accuracy, _SAME_RUNS),
        *(close(f"budget: {name.replace('_', ' ')}", getattr(budget, name), getattr(again, name),
                _SAME_RUNS) for name in _MEASURED),
        Check("overloaded", float(expected.overloaded), float(overloaded),
              expected.overloaded == overloaded),
        Check("violation rate within the budget", limit, again.upper,
              max(again.upper, budget.upper) <= limit),
        close("violation rate with other seeds", expected.violation_rate, other.violation_rate,
              budget.violation_half_width + other.violation_half_width),
        close("effective accuracy with other seeds", expected.effective_accuracy,
              other.effective_accuracy,
              budget.effective_half_width + other.effective_half_width),
        Check("budget with other seeds", limit, least, least <= limit),
        *_interval_checks(policy, _ROUNDING),
    )


def _interval_checks(policy: Policy, tolerance: float) -> tuple[Check, ...]:
    """The interval by the number of samples is that of the rate, and below the budget."""
    budget, interval = policy.budget, policy.expectations.interval
    if budget is None or interval is None:
        return ()
    upper = interval.violation_rate[1] + budget.violation_half_width
    return (
        *interval_checks(policy.expectations, interval, tolerance),
        Check("upper end within the budget", budget.max_violation_rate, upper,
              upper <= budget.max_violation_rate + tolerance),
    )
