"""Tail probabilities of arrival counts, for any process with count probabilities PF(k, T).

    tail(r, T)            = P(N(T) >= r) = 1 − Σ_{k<r} PF(k, T)
    integrated_tail(r, T) = ∫₀ᵀ P(N(s) >= r) ds

With U_r the time of the r-th arrival, P(U_r <= T) = tail(r, T). Together the two give the
probability that U_r lies in an interval, and its mean there:

    E[U_r; a < U_r <= b] = b·tail(r, b) − a·tail(r, a) − (integrated_tail(r, b) − … (r, a)).
"""

from __future__ import annotations

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals.process import ArrivalProcess
from ramsis.errors import InvalidValueError

_QUADRATURE_POINTS = 5
_MOST_COUNTS = 1_000_000
_TOTAL_TOLERANCE = 1e-6


def count_probabilities(
    process: ArrivalProcess, counts: int, interval_ms: FloatArray
) -> FloatArray:
    """Return PF(k, T) for k = 0 … counts − 1; shape (len(interval_ms), counts)."""
    closed_form = getattr(process, "count_probabilities", None)
    if callable(closed_form):
        return np.asarray(closed_form(counts, interval_ms))
    return np.exp(process.log_pf(np.arange(counts), interval_ms[:, None]))


def count_tail(process: ArrivalProcess, orders: int, interval_ms: FloatArray) -> FloatArray:
    """Return P(N(T) >= r) for r = 1 … orders; shape (len(interval_ms), orders)."""
    probability = count_probabilities(process, orders, interval_ms)
    np.cumsum(probability, axis=1, out=probability)
    np.subtract(1.0, probability, out=probability)
    return np.maximum(probability, 0.0, out=probability)


def passage_tails(
    process: ArrivalProcess, orders: int, interval_ms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return P(U_r <= T) and ∫₀ᵀ P(U_r <= s) ds for r = 1 … orders.

    U_r is the time of the r-th arrival. The integrals are in ms.

    Parameters
    ----------
    orders : int
        Largest r.
    interval_ms : ndarray, shape (T,)
        Lengths in ms, >= 0, non-increasing.

    Returns
    -------
    tail, integral : ndarrays, shape (T, orders)

    Notes
    -----
    A process with a closed form gives the integral through its ``integrated_tail``; for any
    other it is summed by Gauss-Legendre quadrature between neighbouring lengths.
    """
    closed_form = getattr(process, "integrated_tail", None)
    tail = count_tail(process, orders + 1, interval_ms)
    np.minimum.accumulate(tail, axis=0, out=tail)  # remove increases by rounding
    if callable(closed_form):
        return tail[:, :-1], closed_form(tail, interval_ms)
    tail = tail[:, :-1]
    point, weight = np.polynomial.legendre.leggauss(_QUADRATURE_POINTS)
    low = np.append(interval_ms[1:], 0.0)
    width = interval_ms - low
    inner = low[:, None] + width[:, None] * (point + 1.0) / 2.0
    value = count_tail(process, orders, inner.ravel()).reshape(*inner.shape, orders)
    piece = np.einsum("q,tqr->tr", weight / 2.0, value) * width[:, None]
    return tail, np.cumsum(piece[::-1], axis=0)[::-1]


def counts_support(process: ArrivalProcess, longest_ms: float) -> int:
    """Return a count k with P(N(T) > k) below about 1e-18 for every T up to ``longest_ms``."""
    length = np.array([longest_ms])
    size = 16 + int(1.25 * process.rate_per_ms * longest_ms)
    most = 4 * size + _MOST_COUNTS
    while True:
        log_probability = process.log_pf(np.arange(size + 1), length)
        total = float(np.exp(log_probability).sum())
        # Test several last counts at once, as single ones may be impossible (arrivals in pairs).
        if abs(total - 1.0) < _TOTAL_TOLERANCE and log_probability[-16:].max() < -42.0:
            return size
        if size > most:
            break
        size += 16 + size // 4
    raise InvalidValueError("PF(k, T) does not add up to 1 over k",
                            where=f"arrivals, T = {longest_ms:g} ms", value=total,
                            allowed=f"1 within {_TOTAL_TOLERANCE:g}")


def counts_cdf(process: ArrivalProcess, interval_ms: FloatArray, largest: int) -> FloatArray:
    """Return P(N(T) <= k) for k = 0 … largest; shape (len(interval_ms), largest + 1).

    Each row is scaled to end at 1: the distribution given at most ``largest`` arrivals.
    """
    cdf = count_probabilities(process, largest + 1, interval_ms)
    np.cumsum(cdf, axis=1, out=cdf)
    cdf /= cdf[:, -1:]
    return cdf
