"""Poisson process: requests arrive one at a time, independently of one another.

>>> process = Poisson(load_qps=2000.0)
>>> round(float(np.exp(process.log_pf(np.array([3]), np.array([1.0]))[0])), 6)
0.180447
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ramsis.arrays import FloatArray
from ramsis.arrivals.process import ShippedProcess, renewal_times


@dataclass(frozen=True)
class Poisson(ShippedProcess):
    """Poisson process with a given load.

    Parameters
    ----------
    load_qps : float
        Requests per second, finite and > 0.

    Raises
    ------
    InvalidValueError
        When the load is not a finite number > 0.
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
