"""Quantile functions of :mod:`ramsis.cluster.service_times`, the same for compiled loops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.compiling import njit


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def quantile(
    quantiles_ms: FloatArray, levels: FloatArray, near: NDArray[np.int64], place: tuple[int, int],
    level: float,
) -> float:
    """Return the quantile at ``level`` of one of several distributions, (M, B, Q).

    ``place`` is its model and column. ``near`` is the result of
    :func:`ramsis.cluster.service_times.near_levels`. The whole arrays are passed, since slicing a
    row would cost more than the search.
    """
    count = quantiles_ms.shape[2]
    model, column = place
    below = near[min(int(level * near.size), near.size - 1)]
    while below < count - 2 and levels[below + 1] <= level:
        below += 1
    above = min(below + 1, count - 1)
    low, high = quantiles_ms[model, column, below], quantiles_ms[model, column, above]
    start, width = levels[below], levels[above] - levels[below]
    result = low if width <= 0.0 else low + (level - start) / width * (high - low)
    if level < levels[0]:
        result = quantiles_ms[model, column, 0]
    elif level >= levels[count - 1]:
        result = quantiles_ms[model, column, count - 1]
    return float(result)  # a single return; with several, each use of an array counts references


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def cdf(values: FloatArray, levels: FloatArray, time_ms: float) -> float:
    """Return the probability that a time with these quantiles, (Q,), is at most ``time_ms``."""
    size = values.size
    below = np.searchsorted(values, time_ms, side="right")
    if below == 0:
        return 0.0
    if below == size:
        return 1.0
    share = (time_ms - values[below - 1]) / (values[below] - values[below - 1])
    return float(levels[below - 1] + share * (levels[below] - levels[below - 1]))
