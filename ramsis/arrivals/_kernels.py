"""Compiled evaluation of the Poisson distribution by its recurrence.

PF(k+1, T) = PF(k, T)·λT/(k+1) runs in both directions from the largest requested probability, so
that all factors are positive and nothing cancels. That probability is

    PF(k) = exp(−δ(k) − D(k, m)) / √(2πk),    D(k, m) = k·log(k/m) + m − k,

with m = λT and δ the error of Stirling's formula, which loses no digits at large m (C. Loader,
"Fast and Accurate Computation of Binomial Probabilities", 2000).
"""

from __future__ import annotations

import math

from ramsis.arrays import FloatArray
from ramsis.compiling import njit

_SERIES = 16.0  # k from which the series of δ(k) is exact to 1e-16
_LEAST = 1e-300  # smaller probabilities are set to 0


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _one(count: float, mean: float) -> float:
    """Return the Poisson probability of ``count`` at a mean > 0, by Loader's expansion."""
    if count == 0.0:
        return math.exp(-mean)
    if count < _SERIES:
        error = (math.lgamma(count + 1.0) - (count + 0.5) * math.log(count) + count
                 - 0.5 * math.log(2.0 * math.pi))
    else:
        inverse = 1.0 / (count * count)
        error = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - inverse / 1188.0)
                                              * inverse) * inverse) * inverse) / count
    far = (mean - count) / count  # D = k·(far − log1p(far))
    return math.exp(-error - count * (far - math.log1p(far))) / math.sqrt(
        2.0 * math.pi * count)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def poisson_row(mean: float, row: FloatArray) -> None:
    """Write the Poisson probabilities of 0, 1, … at ``mean`` into ``row``; 0 if negligible."""
    size = row.size
    if mean <= 0.0:
        row[:] = 0.0
        row[0] = 1.0
        return
    peak = int(min(mean, size - 1.0))  # clip first: a large mean would overflow an int
    largest = _one(float(peak), mean)
    row[peak] = largest
    value, by_mean = largest, 1.0 / mean
    for k in range(peak, 0, -1):
        value *= k * by_mean
        if value < _LEAST:
            row[:k] = 0.0
            break
        row[k - 1] = value
    value = largest
    for k in range(peak + 1, size):
        value *= mean / k
        if value < _LEAST:
            row[k:] = 0.0
            break
        row[k] = value


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def poisson_rows(mean: FloatArray, rows: FloatArray) -> None:
    """Write PF(k) for several means, (T,), into ``rows``, (T, K)."""
    for i in range(mean.size):
        poisson_row(mean[i], rows[i])
