"""Checks of a file's claims against derived figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ramsis.analysis.sampled import Evidence, at_confidence
from ramsis.arrays import FloatArray
from ramsis.policy import Expectations
from ramsis.policy.records import Interval, Simulated

_OF_SAMPLES = 2e-3
_UNSEEN = 1e-8  # shares of the requests that do not matter
_SAME_RUNS = 1e-9
_AGAIN = 1e-6  # of figures measured twice with the same seeds, as a share


@dataclass(frozen=True)
class Check:
    """One claim, its stated and derived figures, and whether it holds.

    Attributes
    ----------
    claim : str
        Name of the claim, such as ``expected violation rate``.
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
    """Check that two figures differ by at most a tolerance, or are both undefined."""
    if stated is None or derived is None:
        return Check(claim, stated, derived, stated is None and derived is None)
    return Check(claim, stated, derived, bool(abs(stated - derived) <= tolerance))


def exactly(claim: str, stated: float | None, derived: float | None) -> Check:
    """Check that two measurements of a figure on the same requests are equal."""
    return close(claim, stated, derived, _AGAIN * abs(derived or 0.0))


def interval_checks(
    stated: Expectations, derived: Interval | None, tolerance: float,
    simulated: Simulated | None = None,
) -> tuple[Check, ...]:
    """Check the interval implied by the stated rates, confidence and number of samples.

    The effective number of samples depends on rare late requests, so a relative difference of two
    thousandths is allowed. ``violation_error`` and ``effective_error`` must be the half-widths of
    the simulation that measured the rates, if any.
    """
    interval = stated.interval
    if interval is None or derived is None:
        return (Check("interval", None, None, interval is derived),)
    other = at_confidence(stated, Evidence.behind(interval), interval.confidence).interval
    assert other is not None
    return (
        close("effective samples", interval.samples, derived.samples,
              _OF_SAMPLES * derived.samples),
        close("unseen violations", interval.unseen, derived.unseen,
              max(_OF_SAMPLES * derived.unseen, _UNSEEN)),
        close("deviation of unseen violations", interval.unseen_deviation,
              derived.unseen_deviation, max(_OF_SAMPLES * derived.unseen_deviation, _UNSEEN)),
        close("error of the violation rate", interval.violation_error,
              0.0 if simulated is None else simulated.violation_half_width, _SAME_RUNS),
        close("error of effective accuracy", interval.effective_error,
              0.0 if simulated is None else simulated.effective_half_width, _SAME_RUNS),
        close("error of mean service times", interval.accuracy_error, derived.accuracy_error,
              _OF_SAMPLES * derived.accuracy_error + _SAME_RUNS),
        *(close(f"{what}, {end} end", getattr(interval, name)[i], getattr(other, name)[i],
                tolerance)
          for name, what in (("violation_rate", "violation rate"),
                             ("effective_accuracy", "effective accuracy"))
          for i, end in enumerate(("lower", "upper"))),
    )


def least_dual(accuracy: FloatArray, price: FloatArray) -> float:
    """Return the minimum over y >= 0 of y + max(0, max_i (accuracy_i − y·price_i))."""
    return least_dual_of_classes([(1.0, accuracy, price)])


def least_dual_of_classes(classes: Sequence[tuple[float, FloatArray, FloatArray]]) -> float:
    """Return the minimum over y >= 0 of y + Σ_c share_c·max(0, max_i (accuracy_ci − y·price_ci)).

    It is the dual of a linear program in which class c has ways i to answer, each with an accuracy
    and a worker time, its price. ``classes`` are triples of share, accuracies and prices.
    """
    def best(y: float) -> list[tuple[float, float, float]]:
        """Return share, reduced value and price of each class's best column, if value > 0."""
        columns = [(share, *max(zip((accuracy - y * price).tolist(), price.tolist(), strict=True)))
                   for share, accuracy, price in classes]
        return [column for column in columns if column[1] > 0]

    low, high = 0.0, max(float((accuracy / price).max()) for _, accuracy, price in classes)
    while low < (middle := (low + high) / 2) < high:
        falls = sum(share * price for share, _, price in best(middle)) > 1.0
        low, high = (middle, high) if falls else (low, middle)
    return high + sum(share * worth for share, worth, _ in best(high))
