"""Quantile sketches of latency distributions: piecewise linear quantile functions.

A sketch has q non-decreasing values at increasing levels; between two levels the quantile function
is linear, outside the first and the last it is constant. So each value has the weight of its *hat
function* in the mean: half of the way to each neighbour, and all beyond the ends.

A sketch of *samples* keeps their tail and mean. The levels are the midpoints (i + 1/2)/size up to
0.9; from there on the probability above decreases by 2^(-1/4) per level, until less than one
sample is above; the last level is 1. The value at a level is the average of the samples under its
hat,

    v_i = ∫ Q(p)·h_i(p) dp / ∫ h_i(p) dp,      Q the quantile function of the samples,

which is non-decreasing in i. The hats sum to 1, so the sketch has exactly the samples' mean, and
the last value is the largest sample. The levels for fewer samples are a subset of those for more,
so a sketch can be written at these without a change.

*Older sketches* have the midpoints of q equal parts as levels, which are not stored. They lack the
top 1/(2q) of the distribution, by which :func:`with_tail` extends them from the stated mean,
maximum and number of samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray

_TAIL = 0.1  # probability of the tail, below which levels have equal distances
_STEPS = 4  # levels per halving of the probability above
_DIGITS = 9  # decimal digits of a level
_PARTS, _OF_TAIL = 2000, 128  # numbers of points that replace the linear pieces, and a tail


def midpoint_levels(size: int) -> FloatArray:
    """Return the levels (i + 1/2)/size of a sketch without a tail.

    >>> midpoint_levels(4).tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    return (np.arange(size) + 0.5) / size


def sketch_levels(size: int, samples: int) -> FloatArray:
    """Return the levels of a sketch with a tail, for a number of samples >= 1.

    ``size`` is the number of equal parts of the probability, up to 0.9; >= 2.
    """
    bulk = midpoint_levels(size)
    halvings = max(np.log2(_TAIL * samples), 0.0)
    tail = _TAIL * 2.0 ** (-np.arange(int(np.ceil(_STEPS * halvings - 1e-9)) + 1) / _STEPS)
    return np.round(np.concatenate([bulk[bulk < 1.0 - _TAIL], 1.0 - tail, [1.0]]), _DIGITS)


def hat_weights(levels: FloatArray) -> FloatArray:
    """Return the weight of the value at each level in the mean; the weights sum to 1.

    >>> hat_weights(np.array([0.25, 0.75, 1.0])).tolist()
    [0.5, 0.375, 0.125]
    """
    edges = np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2.0, [1.0]])
    return np.diff(edges)


def averaged(values: FloatArray, mass: FloatArray, levels: FloatArray) -> FloatArray:
    """Return the averages of a distribution of points under the hat functions of ``levels``.

    ``values`` and ``mass``, shape (n,), are non-decreasing points and their probabilities, which
    sum to 1. The result has the shape of ``levels`` and is non-decreasing; its mean by the hats'
    weights is the mean of the points.
    """
    # Integrate from the upper end, where levels are dense, to avoid cancellation: first(s) is the
    # integral of the quantile function over the topmost s of the probability, second of first.
    from_top, part = values[::-1], mass[::-1]
    above = np.concatenate([[0.0], np.cumsum(part)])
    first = np.concatenate([[0.0], np.cumsum(from_top * part)])
    second = np.concatenate([[0.0], np.cumsum((first[1:] + first[:-1]) / 2.0 * part)])
    s = (1.0 - levels)[::-1]
    at = np.clip(np.searchsorted(above, s, side="right") - 1, 0, len(values) - 1)
    remainder = s - above[at]
    j2 = second[at] + remainder * (first[at] + from_top[at] * remainder / 2.0)
    slope = np.diff(j2) / np.diff(s)
    total = np.append(slope, first[-1]) - np.concatenate([[0.0], slope])
    averages = total[::-1] / hat_weights(levels)
    return np.asarray(np.clip(np.maximum.accumulate(averages), values[0], values[-1]))


def sketch_samples(samples: ArrayLike, size: int) -> tuple[FloatArray, FloatArray]:
    """Return the levels and values of a sketch of latencies, one or more, in any unit.

    ``size`` is the number of equal parts of the probability, up to 0.9; >= 2.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    levels = sketch_levels(size, len(ordered))
    return levels, averaged(ordered, np.full(len(ordered), 1.0 / len(ordered)), levels)


def sketch_quantile(
    quantiles: Sequence[float], level: float, levels: Sequence[float] | None = None
) -> float:
    """Return the quantile at ``level`` in [0, 1] of a sketch, by default with midpoint levels.

    >>> sketch_quantile((1.0, 2.0, 3.0, 4.0), 0.5)
    2.5
    """
    at = midpoint_levels(len(quantiles)) if levels is None else levels
    return float(np.interp(level, at, quantiles))


def with_tail(
    levels: FloatArray, values: FloatArray, *, mean: float | None, largest: float | None,
    samples: int | None,
) -> tuple[FloatArray, FloatArray]:
    """Extend a quantile function to a distribution with the stated mean and maximum.

    The largest sample has its share of the probability. Between the last level and this sample the
    quantile function follows the power law that gives the mean; if none does, all values are moved
    towards the maximum, or the minimum, until the mean is right. ``levels`` and ``values``, shape
    (k,), are those of a piecewise linear quantile function; returned are points and their mass,
    shape (n,).
    """
    top = max(largest or 0.0, float(values[-1]))
    if samples and largest:  # higher levels already contain the largest sample
        count = max(int(np.searchsorted(levels, 1.0 - 1.0 / samples, side="right")), 1)
        levels, values = levels[:count], values[:count]
    last = float(levels[-1])
    fine = np.unique(np.append(levels, np.linspace(levels[0], last, _PARTS)))
    points = np.append(values[0], np.interp((fine[1:] + fine[:-1]) / 2.0, levels, values))
    mass = np.append(levels[0], np.diff(fine))
    atom = min(1.0 / samples if samples else 0.0, 1.0 - last)
    between = 1.0 - last - atom
    if between > 0.0:
        rise = top - float(values[-1])
        wanted = 0.5
        if mean is not None and rise > 0.0:
            missing = (mean - float(points @ mass) - atom * top) / between
            wanted = min(max((missing - float(values[-1])) / rise, 0.0), 1.0)
        # The power's mean is 1/(1 + power); cells' averages are exact.
        upto = (np.arange(_OF_TAIL + 1) / _OF_TAIL) ** (1.0 / max(wanted, 1e-9))
        points = np.append(points, values[-1] + rise * wanted * _OF_TAIL * np.diff(upto))
        mass = np.append(mass, np.full(_OF_TAIL, between / _OF_TAIL))
    points, mass = np.append(points, top), np.append(mass, atom)
    return _moved(points, mass, mean), mass


def _moved(points: FloatArray, mass: FloatArray, mean: float | None) -> FloatArray:
    """Move points towards the largest or the smallest one until they have a mean."""
    current, low, high = float(points @ mass), float(points[0]), float(points[-1])
    if mean is None or not low < mean < high or high <= current or current <= low:
        return points
    if current < mean:
        return points + (mean - current) / (high - current) * (high - points)
    moved = points.copy()
    without_top = current - low - mass[-1] * (high - low)  # the largest sample stays if it can
    part, size = ((moved[:-1], without_top) if current - mean < without_top
                  else (moved, current - low))
    part -= (current - mean) / size * (part - low)
    return moved
