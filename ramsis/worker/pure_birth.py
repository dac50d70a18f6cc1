"""A pure birth process: arrivals whose rate depends on how many are there already.

From level n the next birth comes at rate λ(n). The distribution over the levels after a time t is
row n of exp(G·t) with G(n, n) = −λ(n), G(n, n+1) = λ(n); the highest level is absorbing. By
uniformisation at q = max λ,

    exp(G·t) = Σ_i Poisson(i; q·t)·Uⁱ,   U = I + G/q,

a sum of non-negative terms, cut off where what is left is below 1e-16. The powers of one step
exp(G·δ) are kept, so that a time needs one short sum for its remainder below δ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, pdtrik, xlogy

__all__ = ["PureBirthProcess"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_BIRTHS_PER_STEP = 4.0
_MOST_STEPS = 500
_LEFT_OUT = 1e-16
_ROUNDING = 1e-12  # of a number of steps; the error is far below that of the probabilities


class PureBirthProcess:
    """The distribution of the level after a time.

    Parameters
    ----------
    rates_per_ms : ndarray, shape (L+1,)
        λ(n) > 0 of levels 0 … L; that of the highest level plays no part.
    longest_ms : float
        Times go up to here.
    often_ms : float, optional
        Multiples of this are quicker than other times.

    Examples
    --------
    >>> process = PureBirthProcess(np.full(50, 0.5), longest_ms=4.0)
    >>> process.distribution(np.array([0]), np.array([2.0]))[0, :3].round(6).tolist()
    [0.367879, 0.367879, 0.18394]
    """

    def __init__(
        self, rates_per_ms: FloatArray, longest_ms: float, often_ms: float | None = None
    ) -> None:
        self.rates_per_ms = rates_per_ms
        self._fastest = float(rates_per_ms[:-1].max())
        self._onward = np.append(rates_per_ms[:-1] / self._fastest, 0.0)
        period_ms = longest_ms if often_ms is None else often_ms
        parts = np.ceil(period_ms * self._fastest / _BIRTHS_PER_STEP)
        most = max(1.0, _MOST_STEPS * period_ms / longest_ms)
        self._step_ms = float(period_ms / np.clip(parts, 1.0, most // 1.0))
        steps = int(np.ceil(longest_ms / self._step_ms))
        one = self._advance(np.eye(len(rates_per_ms)), np.full(len(rates_per_ms), self._step_ms))
        powers = [np.eye(len(rates_per_ms))]
        for _ in range(steps):
            powers.append(powers[-1] @ one)
        self._powers = np.array(powers)

    def distribution(self, levels: IntArray, times_ms: FloatArray) -> FloatArray:
        """P(level at the end), shape (R, L+1), from each level after each time, shapes (R,)."""
        steps = times_ms / self._step_ms
        whole = np.minimum((steps + _ROUNDING).astype(np.int64), len(self._powers) - 1)
        found = self._powers[whole, levels]
        more = steps - whole > _ROUNDING
        if more.any():
            found[more] = self._advance(found[more], (steps - whole)[more] * self._step_ms)
        return found

    def _advance(self, start: FloatArray, times_ms: FloatArray) -> FloatArray:
        """Each row of ``start``, a distribution, after one more time, by uniformisation."""
        mean = self._fastest * times_ms
        number = np.arange(int(np.ceil(pdtrik(1.0 - _LEFT_OUT, mean.max()))) + 2)[:, None]
        weights = np.exp(xlogy(number, mean) - gammaln(number + 1.0) - mean)
        total = weights[0, :, None] * start
        current = start
        for weight in weights[1:]:
            moved = current * self._onward
            current = current - moved
            current[:, 1:] += moved[:, :-1]
            total += weight[:, None] * current
        return total
