"""A latency distribution kept as quantiles at equal-probability midpoints.

A sketch of size q holds the values at the levels (i + 1/2)/q, i = 0 … q-1: each stands for
1/q of the probability, so that the mean over the sketch estimates the mean of the
distribution. Between two levels the quantile function is linear, and outside the first and
last level it is constant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["midpoint_levels", "sketch_quantile", "sketch_samples"]


def midpoint_levels(size: int) -> NDArray[np.float64]:
    """The levels (i + 1/2)/size of a sketch.

    >>> midpoint_levels(4).tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    return (np.arange(size) + 0.5) / size


def sketch_samples(samples: ArrayLike, size: int) -> tuple[float, ...]:
    """The sketch of a sample: its quantiles (linear between order statistics).

    Parameters
    ----------
    samples : array_like, shape (n,)
        Latencies, any unit.
    size : int
        Number of quantiles kept.
    """
    values = np.quantile(np.asarray(samples, dtype=float), midpoint_levels(size))
    return tuple(float(value) for value in values)


def sketch_quantile(quantiles: Sequence[float], level: float) -> float:
    """The quantile at ``level`` in [0, 1] of a sketch.

    >>> sketch_quantile((1.0, 2.0, 3.0, 4.0), 0.5)
    2.5
    """
    return float(np.interp(level, midpoint_levels(len(quantiles)), quantiles))
