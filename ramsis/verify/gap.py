"""Check that no policy is said to be better than every scheduler can be."""

from __future__ import annotations

from ramsis.policy import Policy
from ramsis.synthesis.certified import gap_of_promise
from ramsis.verify.checks import Check

_BY_CHANCE = 2.0  # half-widths: arrivals that are drawn may be fewer than on average


def gap_check(policy: Policy, tolerance: float) -> Check:
    """The certified gap of the promise, which is no scheduler's if it is below 0."""
    price, bound, gap = gap_of_promise(policy).values()
    expected, measured = policy.expectations, policy.budget or policy.replay
    allowed = tolerance * (1.0 + price)
    if measured is not None:
        allowed += _BY_CHANCE * (measured.effective_half_width
                                 + price * measured.violation_half_width)
    value = expected.effective_accuracy - price * expected.violation_rate
    return Check("certified_gap", gap, gap, value <= bound + allowed)
