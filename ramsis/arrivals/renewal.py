"""Renewal processes: Poisson, gamma gaps, equal gaps.

The gaps between arrivals are independent, with mean 1/λ and coefficient of variation CV. At CV = 1
they are exponential and the process is Poisson. At any other CV the time since the last arrival
carries information on the next one, so counts of disjoint intervals are not independent.

>>> process = Poisson(load_qps=2000.0)
>>> round(float(np.exp(process.log_pf(np.array([3]), np.array([1.0]))[0])), 6)
0.180447
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ramsis.arrays import FloatArray
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
        """Coefficient of variation of the gaps between arrivals."""
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


@dataclass(frozen=True)
class Poisson(ShippedProcess):
    """Poisson process with a given load.

    Parameters
    ----------
    load_qps : float
        Requests per second, finite and > 0.
    """

    name: ClassVar[str] = "poisson"

    load_qps: float

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> FloatArray:
        """Return log PF(k, T) = k log(λT) − λT − log k!, within 1e-9 for λT up to 1e5."""
        # Take logarithms of each argument before broadcasting, which multiplies their number.
        counts = np.asarray(count, dtype=float)
        mean = self.rate_per_ms * np.asarray(interval_ms, dtype=float)
        log_mean = np.log(np.where(mean > 0, mean, 1.0))
        result: FloatArray = counts * log_mean
        result -= mean
        result -= gammaln(counts + 1.0)
        if not mean.all():
            np.copyto(result, np.where(counts == 0, 0.0, -np.inf), where=mean == 0)
        return result

    def count_probabilities(self, counts: int, interval_ms: FloatArray) -> FloatArray:
        """Return PF(k, T) for k = 0 … counts − 1, shape (T, counts), by its recurrence."""
        from ramsis.arrivals._kernels import poisson_rows  # which takes long to load

        probabilities = np.empty((len(interval_ms), counts))
        poisson_rows(self.rate_per_ms * interval_ms, probabilities)
        return probabilities

    def integrated_tail(self, tail: FloatArray, interval_ms: FloatArray) -> FloatArray:
        """Return ∫₀ᵀ P(N(s) >= r) ds = T·P(N(T) >= r) − (r/λ)·P(N(T) >= r+1), for r = 1 … R.

        Parameters
        ----------
        tail : ndarray, shape (T, R+1)
            ``tail[i, r-1]`` = P(N(interval_ms[i]) >= r).
        interval_ms : ndarray, shape (T,)

        Returns
        -------
        ndarray, shape (T, R), in ms
        """
        order = np.arange(1, tail.shape[1])
        result: FloatArray = (
            interval_ms[:, None] * tail[:, :-1] - order / self.rate_per_ms * tail[:, 1:]
        )
        return result

    @property
    def gap_cv(self) -> float:
        """Coefficient of variation of the gaps: 1, as they are exponential."""
        return 1.0

    @property
    def poisson_rate_per_ms(self) -> float:
        """Arrival rate per ms."""
        return self.rate_per_ms

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Sample arrival times in ms within ``duration_ms`` by summing exponential gaps."""
        return renewal_times(rng, self.rate_per_ms, duration_ms, 1.0)
