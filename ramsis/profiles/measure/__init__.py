"""Measuring models: warm latencies per batch size, with a stated error."""

from __future__ import annotations

from ramsis.checks import check_arguments
from ramsis.profiles.measure.backends import BACKENDS, Options
from ramsis.profiles.measure.environment import hardware, versions
from ramsis.profiles.measure.measurement import (
    BATCHES,
    ORDERS,
    MeasureSettings,
    Observer,
    measure_profile,
)
from ramsis.profiles.measure.sampling import PERCENTILES, Sampled, StopRule, sample_batches

__all__ = [
    "BACKENDS",
    "BATCHES",
    "ORDERS",
    "PERCENTILES",
    "MeasureSettings",
    "Observer",
    "Options",
    "Sampled",
    "StopRule",
    "hardware",
    "measure_profile",
    "sample_batches",
    "versions",
]

check_arguments(globals(), ["measure_profile"])
