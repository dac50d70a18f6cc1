"""A claim of a file and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Check", "close", "least_dual"]

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


def close(
    claim: str, stated: float | None, derived: float | None, tolerance: float
) -> Check:
    """The claim that two figures differ by at most a tolerance, or are both undefined."""
    if stated is None or derived is None:
        return Check(claim, stated, derived, stated is None and derived is None)
    return Check(claim, stated, derived, bool(abs(stated - derived) <= tolerance))


def least_dual(accuracy: FloatArray, price: FloatArray) -> float:
    """Least, over y >= 0, of y + max(0, max accuracy − y·price): convex, so by bisection."""
    low, high = 0.0, float((accuracy / price).max())
    while low < (middle := (low + high) / 2) < high:
        best = int((accuracy - middle * price).argmax())
        falls = accuracy[best] > middle * price[best] and price[best] > 1.0
        low, high = (middle, high) if falls else (low, middle)
    return high + max(0.0, float((accuracy - high * price).max()))
