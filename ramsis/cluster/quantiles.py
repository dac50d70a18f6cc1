"""Distributions of times as quantiles: the quantile function, and its inverse.

A distribution is kept as its Q values at the levels (i + 1/2)/Q, i = 0 ... Q-1, each of which
stands for 1/Q of the probability. Between two levels the quantile function is linear, outside the
first and the last it is constant; so its mean is the mean of the values. With Q = 1 the time is
fixed. Compiled loops have the same two functions in :mod:`ramsis.cluster._kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["cdf", "quantile"]

FloatArray = NDArray[np.float64]


def quantile(values: Sequence[Any] | FloatArray, level: float) -> Any:
    """The quantile function at a level; at a uniform number it is a draw.

    Parameters
    ----------
    values : sequence of float, length Q, or ndarray, shape (Q, ...)
        Rising along the first axis. Of several distributions the result has the other axes.
    level : float
        In [0, 1].

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    last = len(values) - 1
    if last == 0:
        return values[0]
    position = min(max(level * len(values) - 0.5, 0.0), float(last))
    below = min(int(position), last - 1)
    low = values[below]
    return low + (position - below) * (values[below + 1] - low)


def cdf(values: FloatArray, time_ms: float) -> FloatArray:
    """Probability that a time is at most ``time_ms``.

    Parameters
    ----------
    values : ndarray, shape (..., Q)
        Rising along the last axis; may be infinite.
    time_ms : float

    Returns
    -------
    ndarray, shape (...)

    >>> cdf(np.array([1.0, 2.0, 3.0, 4.0]), 2.5).item()
    0.5
    """
    size = values.shape[-1]
    below = (values <= time_ms).sum(axis=-1)
    at = np.clip(below, 1, size - 1 if size > 1 else 1)
    low = np.take_along_axis(values, at[..., None] - 1, axis=-1)[..., 0]
    high = np.take_along_axis(values, np.minimum(at, size - 1)[..., None], axis=-1)[..., 0]
    with np.errstate(invalid="ignore"):  # infinite values
        share = np.clip((time_ms - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    inner = (at - 0.5 + share) / size
    return cast(FloatArray, np.where(below == 0, 0.0, np.where(below == size, 1.0, inner)))
