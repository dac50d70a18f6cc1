"""Checks of the settings that the solvers share: discount, tolerance, iterations."""

from __future__ import annotations

import operator

from ramsis.errors import POSITIVE, InvalidValueError


def check_discount(discount: float | None) -> float | None:
    """Return ``discount`` as a float in [0, 1), or ``None`` for average reward."""
    if discount is None:
        return None
    allowed = "0 <= discount < 1, or None for average reward"
    if not 0.0 <= discount <= 1.0:
        raise InvalidValueError("discount is out of range", value=discount, allowed=allowed)
    if discount == 1.0:
        raise InvalidValueError(
            "discounted sums need not converge at discount 1, use average reward", value=discount,
            allowed=allowed)
    return float(discount)


def required_discount(discount: float) -> float:
    """Return ``discount`` as a float in [0, 1); average reward is refused."""
    checked = check_discount(discount)
    if checked is None:
        raise InvalidValueError("no discount", value=discount, allowed="0 <= discount < 1")
    return checked


def check_tolerance(tolerance: float) -> float:
    """Return ``tolerance`` as a positive finite float."""
    return POSITIVE.required("tolerance", tolerance, "out of range")


def check_iterations(max_iterations: int) -> int:
    """Return ``max_iterations`` as an integer of at least 1."""
    try:
        count = operator.index(max_iterations)
    except TypeError:
        count = 0
    if count < 1:
        raise InvalidValueError("max_iterations is out of range", value=max_iterations,
                                allowed="an integer >= 1")
    return count
