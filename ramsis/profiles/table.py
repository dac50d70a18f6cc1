"""Latency table l(m, b) for policies, computed from measured batch profiles.

Let v(m, b) be the chosen statistic of model m at batch size b.

- At a measured b, v(m, b) is the measured value.
- Between two measured sizes, v(m, b) is linear between these two neighbours.
- Above the largest measured size B, v(m, b) = v(m, B) + (b - B)·s, where s >= 0 is the
  Theil-Sen slope (median of the slopes of all pairs of measured points), which is robust to
  outliers. With a single measured size, latency is proportional to b; of more than 1,000 sizes,
  1,000 evenly spread ones are used for s.

A dip within the measurement errors is noise. Isotonic regression [2] pools decreasing values of
neighbouring sizes; if the pooled value is within the 95 % interval of each of them
(:meth:`ramsis.profiles.batch.BatchProfile.interval_ms`), it replaces them in v.

Other dips are real. A batch of b requests may be padded up to a measured larger size, hence

    l(m, b) = min over v(m, b') of measured b' >= b, and over v(m, b) itself when b was filled,

and the size b' at which the minimum is reached is the size to *run*.

A filled value is never used for a smaller batch, so it lowers no measured one. The rows are
non-decreasing in b: between two measured sizes with increasing v both terms of the minimum
increase; with decreasing v, v(m, b) is above its right neighbour, so padding gives a constant
value; above B the line starts at v(m, B) and does not decrease.

[1] P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63, 1968.
[2] R. E. Barlow et al., "Statistical Inference under Order Restrictions", Wiley, 1972.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.errors import InvalidValueError, check_known
from ramsis.reprs import dataclass

_ROUNDING = 1e-9  # relative tolerance of a mean
_MOST_POINTS = 1000  # largest number of points for the pairwise slopes, 4 MB of each


class Origin(IntEnum):
    """How an entry of a latency table came about, such as measured or interpolated."""

    MEASURED = 0
    """The measured statistic of this batch size."""
    PADDED = 1
    """The measured statistic of a larger batch size, which is lower."""
    INTERPOLATED = 2
    """On the line between two measured batch sizes."""
    EXTRAPOLATED = 3
    """Beyond the largest measured batch size."""
    SMOOTHED = 4
    """Measured, and pooled with neighbours from which it differs by noise."""


@dataclass(frozen=True, eq=False)
class LatencyTable:
    """Latency of each model at batch sizes 1 … B, and its accuracy.

    The arrays are private read-only copies. An InvalidValueError names the model and the batch
    of a wrong value.

    Parameters
    ----------
    models : tuple of str, length M
        Names, without duplicates.
    accuracy : ndarray, shape (M,)
        Fractions in [0, 1].
    latency_ms : ndarray, shape (M, B)
        ``latency_ms[m, b-1]`` is the latency of a batch of b, in ms: finite, > 0, non-decreasing
        along a row.
    origin : ndarray of int8, shape (M, B)
        An :class:`Origin` for each entry.
    statistic : str
        Statistic of the latencies, such as ``"p95"``.
    run_as : ndarray of int, shape (M, B), optional
        The batch size to run for a batch of b, at least b; by default b.
    """

    models: tuple[str, ...]
    accuracy: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    origin: NDArray[np.int8]
    statistic: str = "p95"
    run_as: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not np.size(self.run_as):
            shape = np.shape(self.latency_ms)
            put(self, "run_as", np.broadcast_to(1 + np.arange(shape[-1] if shape else 0), shape))
        put(self, "models", tuple(self.models))
        for name, dtype in (("run_as", np.int64), ("accuracy", np.float64),
                            ("latency_ms", np.float64), ("origin", np.int8)):
            put(self, name, _frozen(getattr(self, name), dtype, name))
        _check_shapes(self)
        _check_entries(self)

    @classmethod
    def measured(
        cls,
        models: Sequence[str],
        accuracy: ArrayLike,
        latency_ms: ArrayLike,
        statistic: str = "p95",
    ) -> LatencyTable:
        """Create a table whose every entry counts as measured.

        >>> LatencyTable.measured(["a"], [0.7], [[10.0, 15.0]]).max_batch
        2
        """
        latency = np.asarray(latency_ms, dtype=float)
        origin = np.zeros(latency.shape, dtype=np.int8)
        return cls(tuple(models), np.asarray(accuracy, dtype=float), latency, origin, statistic)

    def _summary(self) -> str:
        return (f"of {len(self.models)} models: batches 1 to {self.max_batch}, {self.statistic} "
                f"{self.latency_ms.min():.3g} to {self.latency_ms.max():.3g} ms")

    @property
    def max_batch(self) -> int:
        """Largest batch size B of the table."""
        return int(self.latency_ms.shape[1])

    @cached_property
    def fastest(self) -> int:
        """Index of the model of lowest batch-1 latency (ties: more accurate, then first)."""
        order = np.lexsort((-self.accuracy, self.latency_ms[:, 0]))
        return int(order[0])

    def select(self, models: Sequence[str]) -> LatencyTable:
        """Return a table of the named models, one or more, in the order of the names."""
        for name in models:
            check_known("unknown model", name, self.models, "models")
        rows = [self.models.index(name) for name in models]
        return LatencyTable(tuple(models), self.accuracy[rows], self.latency_ms[rows],
                            self.origin[rows], self.statistic, self.run_as[rows])


def _frozen(values: ArrayLike, dtype: type[np.generic], where: str) -> NDArray[Any]:
    try:
        array = np.array(values, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise InvalidValueError("not an array of numbers", where=where, value=values) from error
    array.setflags(write=False)
    return array


def _check_shapes(table: LatencyTable) -> None:
    count = len(table.models)
    if count == 0:
        raise InvalidValueError("no models", where="models", allowed="one or more names")
    if not all(isinstance(name, str) and name for name in table.models):
        raise InvalidValueError("a model has no name", where="models", value=table.models,
                                allowed="non-empty strings")
    if len(set(table.models)) != count:
        raise InvalidValueError("duplicate model", where="models", value=table.models,
                                allowed="each name once")
    if table.accuracy.shape != (count,):
        raise InvalidValueError("wrong shape", where="accuracy", value=table.accuracy.shape,
                                allowed=f"({count},)")
    if table.latency_ms.ndim != 2 or len(table.latency_ms) != count or not table.latency_ms.size:
        raise InvalidValueError("wrong shape", where="latency_ms", value=table.latency_ms.shape,
                                allowed=f"({count}, B) with B >= 1")
    for name in ("origin", "run_as"):
        if getattr(table, name).shape != table.latency_ms.shape:
            raise InvalidValueError("wrong shape", where=name, value=getattr(table, name).shape,
                                    allowed=str(table.latency_ms.shape))


def _check_entries(table: LatencyTable) -> None:
    accurate = (table.accuracy >= 0) & (table.accuracy <= 1)
    if not accurate.all():
        row = int(np.argmin(accurate))
        raise InvalidValueError("accuracy out of range", where=f"model {table.models[row]}",
                                value=float(table.accuracy[row]), allowed="a fraction in [0, 1]")
    valid = (table.origin >= min(Origin)) & (table.origin <= max(Origin))
    if not valid.all():
        raise InvalidValueError("unknown origin", where="origin",
                                value=int(table.origin[~valid][0]), allowed="0, 1, 2, 3 or 4")
    positive = np.isfinite(table.latency_ms) & (table.latency_ms > 0)
    _refuse_entry(table, ~positive, "latency is not positive", "a finite number > 0")
    falling = np.zeros_like(positive)
    falling[:, 1:] = np.diff(table.latency_ms, axis=1) < 0
    _refuse_entry(table, falling, "latency falls with the batch size",
                  "at least the latency of the batch before")


def _refuse_entry(
    table: LatencyTable, bad: NDArray[np.bool_], what: str, allowed: str
) -> None:
    if not bad.any():
        return
    row, column = (int(i) for i in np.argwhere(bad)[0])
    raise InvalidValueError(what,
                            where=f"model {table.models[row]}, batch {column + 1}, latency_ms",
                            value=float(table.latency_ms[row, column]), allowed=allowed)


def theil_sen_slope(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the median slope over all pairs of points (at least two distinct x; Sen 1968).

    More than 1,000 points are thinned to 1,000 evenly spread ones, as pairs grow quadratically.

    >>> theil_sen_slope(np.arange(5.0), np.array([1.0, 2.0, 3.0, 4.0, 900.0]))
    1.0
    """
    if len(x) > _MOST_POINTS:
        taken = np.linspace(0, len(x) - 1, _MOST_POINTS).round().astype(int)
        x, y = x[taken], y[taken]
    first, second = np.triu_indices(len(x), k=1)
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


def smoothed(
    values_ms: NDArray[np.float64], low_ms: NDArray[np.float64], high_ms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return values by increasing batch size with dips within the noise smoothed.

    ``low_ms`` and ``high_ms`` are the confidence interval of each value, shape (P,); the value
    itself if its error is unknown.
    """
    result = values_ms.copy()
    if (np.diff(values_ms) >= 0).all():
        return result
    start, size = 0, len(values_ms)
    while start < size:
        length, mean = _pooled(values_ms[start:], low_ms[start:], high_ms[start:])
        if (values_ms[start : start + length] == values_ms[start]).all():
            start += 1
        else:
            result[start : start + length] = mean
            start += length
    return result


def _pooled(
    values: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[int, float]:
    """Return length and mean of the longest prefix whose mean is within all its intervals.

    Isotonic regression pools a prefix if no shorter prefix has a lower mean.
    """
    window = 16
    while window < len(values) and low[:window].max() <= high[:window].min():
        window *= 2  # beyond the window nothing pools
    values, low, high = values[:window], low[:window], high[:window]
    mean = np.cumsum(values) / np.arange(1, len(values) + 1)
    pools = ((np.minimum.accumulate(mean) >= mean - _ROUNDING * values[0])
             & (np.maximum.accumulate(low) <= mean) & (mean <= np.minimum.accumulate(high)))
    last = int(np.flatnonzero(pools[1:])[-1]) + 1 if pools[1:].any() else 0
    return last + 1, float(mean[last])


def unpadded(
    batches: NDArray[np.int64], values_ms: NDArray[np.float64], max_batch: int
) -> NDArray[np.float64]:
    """Return v(m, 1 … B), the times of a row without padding; arguments as for ``fill_row``."""
    sizes = np.arange(1, max_batch + 1)
    filled = np.interp(sizes, batches, values_ms)
    beyond = sizes > batches[-1]
    if beyond.any():
        slope = (values_ms[0] if len(batches) == 1 else
                 max(0.0, theil_sen_slope(batches, values_ms)))
        filled[beyond] = values_ms[-1] + (sizes[beyond] - batches[-1]) * slope
    return filled


def fill_row(
    batches: NDArray[np.int64], values_ms: NDArray[np.float64], max_batch: int
) -> tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.int64]]:
    """Return a row of the latency table, by the rules of this module.

    ``batches``, shape (P,), are the measured batch sizes, strictly increasing from 1, and
    ``values_ms`` the statistic at these sizes, > 0. Sizes above ``max_batch``, the largest B of
    the row, are still used for padding. Returned are, each of shape (B,): the latencies l(m, 1 …
    B), non-decreasing; the :class:`Origin` of each; and the batch sizes to run.
    """
    sizes = np.arange(1, max_batch + 1)
    filled = unpadded(batches, values_ms, max_batch)
    origin = np.where(np.isin(sizes, batches), Origin.MEASURED, Origin.INTERPOLATED)
    origin[sizes > batches[-1]] = Origin.EXTRAPOLATED
    least_above = np.minimum.accumulate(values_ms[::-1])[::-1]
    padded = np.append(least_above, np.inf)[np.searchsorted(batches, sizes)]
    lower = padded < filled
    origin[lower] = Origin.PADDED
    # The maximum only corrects a rounding error of np.interp between decreasing values.
    latency = np.maximum.accumulate(np.minimum(filled, padded))
    run_as = sizes.copy()
    # For each size the first larger measured size that has the minimum value.
    places = np.where(values_ms == least_above, np.arange(len(batches)), len(batches))
    least_at = np.minimum.accumulate(places[::-1])[::-1]
    run_as[lower] = batches[least_at[np.searchsorted(batches, sizes[lower])]]
    return latency, origin.astype(np.int8), run_as
