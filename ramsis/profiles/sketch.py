"""A latency distribution kept as quantiles: a piecewise linear quantile function.

A sketch is q values that do not fall, at levels that rise; between two levels the quantile
function is linear, outside the first and the last it is constant. So each value counts in the
mean with the weight of its *hat*: half of the way to either neighbour, and all beyond the ends.

*Samples* are kept with their tail and their mean. The levels are the midpoints (i + 1/2)/size up
to 0.9; from there on the probability above falls by 2^(-1/4) from one level to the next, until
less than one sample lies above; the last level is 1. The value at a level is the average of the
samples under its hat,

    v_i = ∫ Q(p)·h_i(p) dp / ∫ h_i(p) dp,      Q the quantile function of the samples,

which does not fall with i; the hats add up to 1, so the sketch has the mean of the samples
exactly, and the last value is the largest sample. The levels for fewer samples are some of those
for more, so a sketch can be written at these without a change.

*Older sketches* stand at the midpoints of all q equal parts and have no levels of their own. They
end where 1/(2q) is missing. :func:`with_tail` extends them by the stated mean, maximum and number
of samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray

_TAIL = 0.1  # the probability above which levels are equally far apart
_STEPS = 4  # levels while the probability above halves
_DIGITS = 9  # of a level
_PARTS, _OF_TAIL = 2000, 128  # points that stand for linear pieces, and for a tail


def midpoint_levels(size: int) -> FloatArray:
    """Return the levels (i + 1/2)/size of a sketch without a tail.

    >>> midpoint_levels(4).tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    return (np.arange(size) + 0.5) / size


def sketch_levels(size: int, samples: int) -> FloatArray:
    """Return the levels of a sketch with a tail, for a number of samples.

    Parameters
    ----------
    size : int
        Equal parts of the probability, as far as 0.9; >= 2.
    samples : int
        >= 1.
    """
    bulk = midpoint_levels(size)
    halvings = max(np.log2(_TAIL * samples), 0.0)
    tail = _TAIL * 2.0 ** (-np.arange(int(np.ceil(_STEPS * halvings - 1e-9)) + 1) / _STEPS)
    return np.round(np.concatenate([bulk[bulk < 1.0 - _TAIL], 1.0 - tail, [1.0]]), _DIGITS)


def hat_weights(levels: FloatArray) -> FloatArray:
    """Return the weight of the value at each level in the mean; the weights add up to 1.

    >>> hat_weights(np.array([0.25, 0.75, 1.0])).tolist()
    [0.5, 0.375, 0.125]
    """
    edges = np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2.0, [1.0]])
    return np.diff(edges)


def averaged(values: FloatArray, mass: FloatArray, levels: FloatArray) -> FloatArray:
    """Return the averages of a distribution of points under the hat functions of ``levels``.

    Parameters
    ----------
    values, mass : ndarray, shape (n,)
        Points that do not fall, and their probabilities, which add up to 1.
    levels : ndarray, shape (q,)

    Returns
    -------
    ndarray, shape (q,)
        Not falling; with the weights of the hats its mean is that of the points.
    """
    # Integrals from the upper end, where the levels are dense and numbers are to stay small:
    # first(s) of the quantile function over the topmost s of the probability, second of first.
    from_top, part = values[::-1], mass[::-1]
    above = np.concatenate([[0.0], np.cumsum(part)])
    first = np.concatenate([[0.0], np.cumsum(from_top * part)])
    second = np.concatenate([[0.0], np.cumsum((first[1:] + first[:-1]) / 2.0 * part)])
    s = (1.0 - levels)[::-1]
    at = np.clip(np.searchsorted(above, s, side="right") - 1, 0, len(values) - 1)
    rest = s - above[at]
    j2 = second[at] + rest * (first[at] + from_top[at] * rest / 2.0)
    slope = np.diff(j2) / np.diff(s)
    total = np.append(slope, first[-1]) - np.concatenate([[0.0], slope])
    found = total[::-1] / hat_weights(levels)
    return np.asarray(np.clip(np.maximum.accumulate(found), values[0], values[-1]))


def sketch_samples(samples: ArrayLike, size: int) -> tuple[FloatArray, FloatArray]:
    """Return the levels and values of a sketch of samples.

    Parameters
    ----------
    samples : array_like, shape (n,)
        Latencies, any unit; n >= 1.
    size : int
        Equal parts of the probability, as far as 0.9; >= 2.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    levels = sketch_levels(size, len(ordered))
    return levels, averaged(ordered, np.full(len(ordered), 1.0 / len(ordered)), levels)


def sketch_quantile(
    quantiles: Sequence[float], level: float, levels: Sequence[float] | None = None
) -> float:
    """Return the quantile at ``level`` in [0, 1] of a sketch, by default at equal midpoints.

    >>> sketch_quantile((1.0, 2.0, 3.0, 4.0), 0.5)
    2.5
    """
    at = midpoint_levels(len(quantiles)) if levels is None else levels
    return float(np.interp(level, at, quantiles))


def with_tail(
    levels: FloatArray, values: FloatArray, *, mean: float | None, largest: float | None,
    samples: int | None,
) -> tuple[FloatArray, FloatArray]:
    """Return points of a distribution with known quantiles, of the stated mean and maximum.

    The largest sample has its share of the probability. Between it and the last level the
    quantile function rises by the power of the way that gives the mean; where none does, all
    values are moved towards the maximum, or the minimum, until it is the mean.

    Parameters
    ----------
    levels, values : ndarray, shape (k,)
        Levels and values of a piecewise linear quantile function.

    Returns
    -------
    points, mass : ndarray, shape (n,)
    """
    top = max(largest or 0.0, float(values[-1]))
    if samples and largest:  # above this the sketch is made of the largest sample already
        kept = max(int(np.searchsorted(levels, 1.0 - 1.0 / samples, side="right")), 1)
        levels, values = levels[:kept], values[:kept]
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
            left = (mean - float(points @ mass) - atom * top) / between
            wanted = min(max((left - float(values[-1])) / rise, 0.0), 1.0)
        # The power's mean is 1/(1 + power); cells' averages are exact.
        upto = (np.arange(_OF_TAIL + 1) / _OF_TAIL) ** (1.0 / max(wanted, 1e-9))
        points = np.append(points, values[-1] + rise * wanted * _OF_TAIL * np.diff(upto))
        mass = np.append(mass, np.full(_OF_TAIL, between / _OF_TAIL))
    points, mass = np.append(points, top), np.append(mass, atom)
    return _moved(points, mass, mean), mass


def _moved(points: FloatArray, mass: FloatArray, mean: float | None) -> FloatArray:
    """Return points with this mean, moved towards the largest or the smallest one."""
    found, low, high = float(points @ mass), float(points[0]), float(points[-1])
    if mean is None or not low < mean < high or high <= found or found <= low:
        return points
    if found < mean:
        return points + (mean - found) / (high - found) * (high - points)
    moved = points.copy()
    others = found - low - mass[-1] * (high - low)  # the largest sample stays if it can
    part, size = (moved[:-1], others) if found - mean < others else (moved, found - low)
    part -= (found - mean) / size * (part - low)
    return moved
