"""Renewal process with gamma gaps: arrivals that are more or less regular than Poisson ones.

The gaps between arrivals are independent, with mean 1/λ and coefficient of variation CV. At CV = 1
they are exponential and the process is Poisson. At any other CV the time since the last arrival
carries information on the next one, so counts of disjoint intervals are not independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.poisson import Poisson
from ramsis.arrivals.process import Parameter, ShippedProcess, check_sample, renewal_times
from ramsis.errors import Rule

_MOST_CV = 1000.0  # above it, or below its inverse, gaps under- or overflow


@dataclass(frozen=True)
class Renewal(ShippedProcess):
    """Renewal process with gamma-distributed gaps of a given coefficient of variation.

    Parameters
    ----------
    load_qps : float
        Requests per second, finite and > 0.
    cv : float
        Standard deviation of a gap over its mean, from 0.001 to 1000; 1 is Poisson. The first gap
        begins at time 0.

    Raises
    ------
    InvalidValueError
        When a number is out of range.
    """

    name: ClassVar[str] = "renewal"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("cv", "CV", "cv, the coefficient of variation of the gaps,",
                  Rule(f"a number from {1 / _MOST_CV:g} to {_MOST_CV:g}",
                       lambda value: 1 / _MOST_CV <= value <= _MOST_CV)),
    )
    why_no_counts: ClassVar[str] = (
        "the counts of disjoint intervals are not independent unless CV is 1")

    load_qps: float
    cv: float

    def simplest(self) -> ShippedProcess:
        """Return a Poisson process if the gaps are exponential."""
        return Poisson(self.load_qps) if self.cv == 1.0 else self

    @property
    def gap_cv(self) -> float:
        """Coefficient of variation of the gaps."""
        return self.cv

    def sample(self, duration_ms: float, rng: np.random.Generator) -> NDArray[np.float64]:
        """Sample sorted arrival times in ms within ``duration_ms``."""
        return renewal_times(rng, self.rate_per_ms, duration_ms, self.cv)


@dataclass(frozen=True)
class FixedRate(ShippedProcess):
    """Deterministic arrivals: one request every 1000 / load_qps ms, the first at 0.

    >>> FixedRate(load_qps=400.0).sample(10.0, np.random.default_rng()).tolist()
    [0.0, 2.5, 5.0, 7.5]
    """

    name: ClassVar[str] = "fixed-rate"
    why_no_counts: ClassVar[str] = "the counts of disjoint intervals are not independent"

    load_qps: float

    @property
    def gap_cv(self) -> float:
        """Coefficient of variation of the gaps: 0, as they are equal."""
        return 0.0

    def sample(self, duration_ms: float, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return sorted arrival times in ms within ``duration_ms``; ``rng`` is not used."""
        check_sample(self.rate_per_ms, duration_ms)
        gap_ms = 1000.0 / self.load_qps
        times: NDArray[np.float64] = (
            np.arange(float(math.ceil(duration_ms / gap_ms))) * gap_ms)
        return times[times < duration_ms]
