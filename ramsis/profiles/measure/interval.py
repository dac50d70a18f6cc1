"""How far a percentile of measured latencies may be off.

For independent samples x₁ … xₙ the number that lie at or below the true quantile of level p is
binomial(n, p), whatever the distribution. The order statistics x₍ₗ₎ and x₍ᵤ₎ with

    P(B < l) ≤ α/2  and  P(B ≥ u) ≤ α/2,   B ~ binomial(n, p),

l as large and u as small as can be, therefore enclose that quantile with probability 1 − α at
least [1]_. Latencies of a real machine are not independent: a slow spell covers several samples
in a row. Samples arrive in turns of equal size; where the shares of the turns below the
percentile spread more than independent samples would, by a factor f in variance, the interval
is made wider by √f.

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
        Samples that were taken in one go.

    Returns
    -------
    float or None
        The distance from the estimate to the farther end of its confidence interval, as a
        fraction of the estimate; None when the samples are too few.
    """
    values = np.asarray(samples, dtype=float)
    found = ranks(len(values), level)
    if found is None:
        return None
    lower, upper = np.partition(values, [found[0] - 1, found[1] - 1])[[found[0] - 1, found[1] - 1]]
    estimate = float(np.quantile(values, level))
    width = max(estimate - lower, upper - estimate) / estimate
    return float(width * math.sqrt(_inflation(values, estimate, level, turn)))


def _inflation(values: NDArray[np.float64], estimate: float, level: float, turn: int) -> float:
    """Return the variance of the turns' shares below the estimate, over that if independent."""
    turns = len(values) // turn
    if turns < _FEWEST_TURNS or turn < 2:
        return 1.0
    shares = (values[: turns * turn].reshape(turns, turn) <= estimate).mean(axis=1)
    return max(1.0, float(shares.var(ddof=1)) * turn / (level * (1 - level)))
