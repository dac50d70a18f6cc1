"""Promises whose rates are measured."""

from __future__ import annotations

from dataclasses import replace

from ramsis.analysis.sampled import Evidence, at_confidence
from ramsis.analysis.worker import OVERLOAD_VIOLATION_RATE
from ramsis.policy import Expectations
from ramsis.policy.records import Simulated

__all__ = ["as_measured"]


def as_measured(
    expected: Expectations, found: Simulated, load_qps: float, *, within_bound: bool = False
) -> Expectations:
    """A promise with the rates of a simulation, and their interval; the rest stays as it is.

    Parameters
    ----------
    within_bound : bool
        Whether to take no more than the promise's upper bound, which a simulation can pass by
        chance.
    """
    in_time = 1.0 - found.violation_rate
    effective = found.effective_accuracy
    if within_bound and expected.upper_bound is not None:
        effective = min(effective, expected.upper_bound)
    above = expected.capacity_qps is not None and load_qps > expected.capacity_qps
    measured = replace(
        expected,
        accuracy=effective / in_time if in_time > 0 else None,
        violation_rate=found.violation_rate, effective_accuracy=effective,
        overloaded=above or found.violation_rate > OVERLOAD_VIOLATION_RATE)
    interval = expected.interval
    if interval is None:
        return measured
    return at_confidence(measured, Evidence.behind(interval), interval.confidence)
