"""Negative binomial process: the variance of counts is I times their mean in any interval.

It has stationary, independent increments with negative binomial counts. With s = λT/(I − 1),

    PF(k, T) = Γ(k + s) / (k! Γ(s)) · (1/I)^s · (1 − 1/I)^k.

It is a compound Poisson process: batches of requests arrive at Poisson instants, at the rate
λ·ln(I)/(I − 1), and a batch's size has the logarithmic distribution with p = 1 − 1/I. I is the
index of dispersion of the counts; the squared coefficient of variation of the gaps is another
number (I = 4: 3.35, I = 16: 10.6).

With n = k + s and d = (k − λT)/I, PF is s/n times a binomial probability of s among n, and
(Loader 2000, "Fast and accurate computation of binomial probabilities")

    log PF = log(s/n)/2 − log(2πk)/2 + δ(n) − δ(s) − δ(k) − D(s, −d) − D(k, d),
    D(x, d) = x log(x/M) + M − x,  M = x − d,

where δ is the error of Stirling's formula. No large numbers cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ramsis.arrays import FloatArray
from ramsis.arrivals.process import Parameter, ShippedProcess, check_amount, poisson_instants
from ramsis.arrivals.renewal import Poisson
from ramsis.errors import at_least

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_SERIES = 0.1  # relative deviation below which D is summed as a series
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)


@dataclass(frozen=True)
class NegativeBinomial(ShippedProcess):
    """Negative binomial process with a given load and index of dispersion.

    Parameters
    ----------
    load_qps : float
        Requests per second, finite and > 0.
    dispersion : float
        I, variance over mean of the counts, finite and >= 1; at 1 it is the Poisson process.

    Examples
    --------
    >>> process = NegativeBinomial(2000.0, dispersion=4.0)
    >>> probability = np.exp(process.log_pf(np.arange(200), np.array([1.0])))
    >>> mean = probability @ np.arange(200)
    >>> round(float(probability @ (np.arange(200) - mean) ** 2 / mean), 9)
    4.0
    """

    name: ClassVar[str] = "negative-binomial"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("dispersion", "I", "index of dispersion",
                  at_least(1)._replace(
                      allowed="a finite number >= 1 (variance over mean of the counts)")),
    )

    load_qps: float
    dispersion: float

    def simplest(self) -> ShippedProcess:
        """Return a Poisson process if the index of dispersion is 1."""
        return Poisson(self.load_qps) if self.dispersion == 1.0 else self

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> FloatArray:
        """Return log PF(k, T), with an error below 1e-9 for λT up to 1e5."""
        if self.dispersion == 1.0:
            return Poisson(self.load_qps).log_pf(count, interval_ms)
        mean = self.rate_per_ms * np.asarray(interval_ms, dtype=float)
        k, mean = np.broadcast_arrays(np.asarray(count, dtype=float), mean)
        shape = mean / (self.dispersion - 1.0)
        result = np.where(k == 0, -shape * math.log(self.dispersion), -np.inf)
        some = (k > 0) & (mean > 0)
        result[some] = self._log_pf(k[some], mean[some], shape[some])
        return result

    def _log_pf(self, k: FloatArray, mean: FloatArray, shape: FloatArray) -> FloatArray:
        """Return log P(k arrivals), for k and the mean > 0, in Loader's form."""
        total = k + shape
        beyond = (k - mean) / self.dispersion
        return np.asarray(
            0.5 * (np.log(shape / total) - np.log(k)) - _HALF_LOG_2PI
            + _stirling_error(total) - _stirling_error(shape) - _stirling_error(k)
            - _deviance(shape, -beyond) - _deviance(k, beyond)
        )

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Sample sorted arrival times in ms; arrivals of a batch coincide."""
        if self.dispersion == 1.0:
            return Poisson(self.load_qps).sample(duration_ms, rng)
        batches = self.rate_per_ms * math.log(self.dispersion) / (self.dispersion - 1.0)
        instants = poisson_instants(batches, duration_ms, rng)
        likely = min(1.0 - 1.0 / self.dispersion, math.nextafter(1.0, 0.0))  # may round to 1
        sizes = rng.logseries(likely, size=len(instants))
        check_amount(float(sizes.sum(dtype=float)))
        return np.repeat(instants, sizes)


def _stirling_error(x: FloatArray) -> FloatArray:
    """Return log Γ(x + 1) − (x + 1/2) log x + x − log(2π)/2, the error of Stirling's formula."""
    far = np.maximum(x, 16.0)
    series = np.zeros_like(far)
    for coefficient in reversed(_STIRLING):
        series = series / far**2 + coefficient
    near = np.minimum(x, 16.0)
    direct = gammaln(near + 1.0) - (near + 0.5) * np.log(near) + near - _HALF_LOG_2PI
    return np.where(x > 16.0, series / far, direct)


def _deviance(x: FloatArray, d: FloatArray) -> FloatArray:
    """Return D = x log(x/M) + M − x with M = x − d > 0, for x > 0 (Loader's bd0)."""
    M = x - d
    ratio = d / (x + M)
    # With v = d/(x + M), x/M = (1 + v)/(1 − v), so D = d·v + 2x·v·(v²/3 + v⁴/5 + …).
    small = np.abs(ratio) < _SERIES
    v = np.where(small, ratio, 0.0)
    square = v * v
    tail = np.zeros_like(v)
    for j in range(8, 0, -1):
        tail = square * (1.0 / (2 * j + 1) + tail)
    series = d * v + 2.0 * x * v * tail
    plain = x * np.log(x / np.where(small, x, M)) - d
    return np.where(small, series, plain)
