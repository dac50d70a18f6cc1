"""The functions of :mod:`ramsis.cluster.quantiles` for compiled loops, equal to the last bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit

__all__ = ["cdf", "quantile"]

FloatArray = NDArray[np.float64]


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def quantile(quantiles_ms: FloatArray, model: int, batch: int, level: float) -> float:
    """The quantile function of a batch of ``batch`` on a model; ``quantiles_ms``: (M, B, Q).

    The array comes whole: a row cut out of it would cost more than all the rest.
    """
    count = quantiles_ms.shape[2]
    position = min(max(level * count - 0.5, 0.0), float(count - 1))
    below = min(int(position), count - 2)
    low = quantiles_ms[model, batch - 1, below]
    high = quantiles_ms[model, batch - 1, below + 1]
    return float(low + (position - below) * (high - low))


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def cdf(values: FloatArray, time_ms: float) -> float:
    """Probability that a time with these quantiles, shape (Q,), is at most ``time_ms``."""
    size = values.size
    below = np.searchsorted(values, time_ms, side="right")
    if below == 0:
        return 0.0
    if below == size:
        return 1.0
    step = values[below] - values[below - 1]
    return float((below - 0.5 + (time_ms - values[below - 1]) / step) / size)
