"""Confidence interval of a percentile of measured latencies.

For independent samples x₁ … xₙ the number that lie at or below the true quantile of level p is
binomial(n, p), whatever the distribution. The order statistics x₍ₗ₎ and x₍ᵤ₎ with

    P(B < l) ≤ α/2  and  P(B ≥ u) ≤ α/2,   B ~ binomial(n, p),

with l as large and u as small as possible, therefore enclose that quantile with probability of at
least 1 − α [1]_. Latencies of a real machine are not independent: a slow spell covers several
consecutive samples. Samples are taken in turns of equal size. If the variance of the turns' shares
below the percentile is f > 1 times that of independent samples, the interval is widened by √f.

The stated error is the distance of the estimate from the farther end, relative to the estimate.

References
----------
.. [1] H. A. David, H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95
"""Probability that the interval encloses the percentile."""

_FEWEST_TURNS = 5
"""Fewer turns say nothing of how much they differ."""


def ranks(n: int, level: float) -> tuple[int, int] | None:
    """Return ranks l < u, from 1, of the order statistics that enclose the quantile of ``level``.

    None when ``n`` samples are too few for one of them.

    >>> ranks(100, 0.95)
    (90, 100)
    >>> ranks(50, 0.95) is None
    True
    """
    from scipy.special import bdtr  # here, so that servers start without scipy

    tail = (1 - CONFIDENCE) / 2
    cumulative = bdtr(np.arange(n), n, level)  # P(B ≤ 0) … P(B ≤ n − 1)
    lower = int(np.searchsorted(cumulative, tail, side="right"))
    upper = int(np.searchsorted(cumulative, 1 - tail)) + 1
    return (lower, upper) if lower >= 1 and upper <= n else None


def relative_error(samples: ArrayLike, level: float, turn: int = 1) -> float | None:
    """Return the relative error of a sample's quantile, at :data:`CONFIDENCE`.

    Parameters
    ----------
    samples : array_like, shape (n,)
        Values > 0 in the order in which they were taken.
    level : float
        Level of the quantile, in (0, 1).
    turn : int
        Number of consecutive samples of a turn.

    Returns
    -------
    float or None
        The distance from the estimate to the farther end of its confidence interval, as a
        fraction of the estimate; None when the samples are too few.
    """
    values = np.asarray(samples, dtype=float)
    rank = ranks(len(values), level)
    if rank is None:
        return None
    lower, upper = np.partition(values, [rank[0] - 1, rank[1] - 1])[[rank[0] - 1, rank[1] - 1]]
    estimate = float(np.quantile(values, level))
    width = max(estimate - lower, upper - estimate) / estimate
    return float(width * math.sqrt(_inflation(values, estimate, level, turn)))


def _inflation(values: NDArray[np.float64], estimate: float, level: float, turn: int) -> float:
    """Return the variance of turns' shares below the estimate, relative to independent samples."""
    turns = len(values) // turn
    if turns < _FEWEST_TURNS or turn < 2:
        return 1.0
    shares = (values[: turns * turn].reshape(turns, turn) <= estimate).mean(axis=1)
    return max(1.0, float(shares.var(ddof=1)) * turn / (level * (1 - level)))
