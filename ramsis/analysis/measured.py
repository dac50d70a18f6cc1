"""Promises whose rates are measured."""

from __future__ import annotations

from dataclasses import replace

from ramsis.analysis.sampled import at_confidence
from ramsis.analysis.worker import OVERLOAD_VIOLATION_RATE
from ramsis.policy import Expectations
from ramsis.policy.records import Simulated

__all__ = ["as_measured"]


def as_measured(expected: Expectations, found: Simulated, load_qps: float) -> Expectations:
    """A promise with the rates of a simulation, and their interval; the rest stays as it is."""
    in_time = 1.0 - found.violation_rate
    above = expected.capacity_qps is not None and load_qps > expected.capacity_qps
    measured = replace(
        expected,
        accuracy=found.effective_accuracy / in_time if in_time > 0 else None,
        violation_rate=found.violation_rate, effective_accuracy=found.effective_accuracy,
        overloaded=above or found.violation_rate > OVERLOAD_VIOLATION_RATE)
    interval = expected.interval
    if interval is None:
        return measured
    return at_confidence(measured, interval.samples, interval.confidence)
