"""Distributions of times as quantiles: the quantile function, and its inverse.

A distribution is stored as Q quantiles at Q rising levels in (0, 1]. The quantile function is
linear between two levels and constant outside the first and the last; so its mean is the sum of
the quantiles weighted by :func:`ramsis.profiles.sketch.hat_weights` of the levels. With Q = 1
the time is fixed. :mod:`ramsis.cluster._kernels` has the same two functions for compiled loops.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ramsis.arrays import FloatArray, IntArray

_CELLS = 256


def quantile(
    values: Sequence[Any] | FloatArray, levels: Sequence[float] | FloatArray, level: float
) -> Any:
    """Return the quantile at a level; at a uniform random level it is a sample.

    Parameters
    ----------
    values : sequence of float, length Q, or ndarray, shape (Q, ...)
        Rising along the first axis. Of several distributions the result has the other axes.
    levels : sequence of float, length Q
        Those of the values.
    level : float
        In [0, 1].
    """
    above = bisect_right(levels, level)
    if above == 0 or above == len(values):
        return values[min(above, len(values) - 1)]
    low, start = values[above - 1], levels[above - 1]
    return low + (level - start) / (levels[above] - start) * (values[above] - low)


def cdf(values: FloatArray, levels: FloatArray, time_ms: float) -> FloatArray:
    """Return the probability that a time is at most ``time_ms``.

    Parameters
    ----------
    values : ndarray, shape (..., Q)
        Rising along the last axis; may be infinite.
    levels : ndarray, shape (Q,)
        Those of the values.

    Returns
    -------
    ndarray, shape (...)

    >>> cdf(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.125, 0.375, 0.625, 0.875]), 2.5).item()
    0.5
    """
    size = values.shape[-1]
    if size == 1:
        return (values[..., 0] <= time_ms).astype(float)
    below = (values <= time_ms).sum(axis=-1)
    at = np.clip(below, 1, size - 1)
    low = np.take_along_axis(values, at[..., None] - 1, axis=-1)[..., 0]
    high = np.take_along_axis(values, at[..., None], axis=-1)[..., 0]
    with np.errstate(invalid="ignore"):  # infinite values
        share = np.clip((time_ms - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    inner = levels[at - 1] + share * (levels[at] - levels[at - 1])
    return cast(FloatArray, np.where(below == 0, 0.0, np.where(below == size, 1.0, inner)))


def near_levels(levels: FloatArray) -> IntArray:
    """Return the indices from which compiled loops search for a level, shape (256,).

    For each of 256 equal parts of [0, 1), this is the index of the last level at or below its
    start, at most that of the second last level; 0 where there is none.
    """
    begins = np.arange(_CELLS) / _CELLS
    return np.clip(np.searchsorted(levels, begins, side="right") - 1, 0, max(len(levels) - 2, 0))
