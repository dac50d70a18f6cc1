"""Latency of one model at one batch size: statistics, and optionally a quantile sketch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.errors import check_known
from ramsis.profiles.sketch import hat_weights, midpoint_levels, sketch_quantile, sketch_samples
from ramsis.profiles.values import ProfileError, batch_size, count, latency, number
from ramsis.reprs import dataclass

Statistic = Literal["p95", "p99", "p90", "p50", "mean"]
STATISTICS: tuple[str, ...] = get_args(Statistic)
"""The statistics that a latency table can be made of; the first is the default."""

_LEVELS = {"p50_ms": 0.50, "p90_ms": 0.90, "p95_ms": 0.95, "p99_ms": 0.99}
_ASCENDING = ("min_ms", *_LEVELS, "max_ms")
_LATENCIES = ("mean_ms", *_ASCENDING, "quantiles_ms")
_SQUARED = 1e150  # ms; larger samples would overflow in sums of squares
_Z = 1.96
_SLACK = 1e-3
"""Relative slack in comparisons between statistics, which files may hold rounded."""


@dataclass(frozen=True)
class BatchProfile:
    """Latency of one model at one batch size. All latencies in ms, finite and >= 1e-4.

    Parameters
    ----------
    batch : int
        Batch size, >= 1.
    p95_ms, mean_ms, p50_ms, p90_ms, p99_ms : float, optional
        Percentiles and mean, one of them at least unless ``quantiles_ms`` is given; derived
        from ``quantiles_ms`` where that is given and they are not.
    min_ms, max_ms, std_ms : float, optional
        Least and largest latency; standard deviation (>= 0).
    n : int, optional
        Number of samples, >= 1.
    quantiles_ms : tuple of float, optional
        Quantile sketch of the distribution (:mod:`ramsis.profiles.sketch`): two or more values,
        non-decreasing.
    quantile_levels : tuple of float, optional
        Levels of the quantiles, increasing, in (0, 1]; by default midpoints of equal parts.
    relative_error : float, optional
        Relative error of the percentile at which the measurement aimed, >= 0.

    Raises
    ------
    ProfileError
        When a value is out of range, there is no percentile, mean or sketch, percentiles fall,
        the mean or the quantiles lie outside [min, max] (0.1 % aside).
    """

    batch: int
    n: int | None = None
    mean_ms: float | None = None
    std_ms: float | None = None
    min_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    quantiles_ms: tuple[float, ...] | None = None
    relative_error: float | None = None
    quantile_levels: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "batch", batch_size(self.batch, "batch"))
        if self.n is not None:
            put(self, "n", count(self.n, "n"))
        for name, what in (("std_ms", "standard deviation"), ("relative_error", "error")):
            if getattr(self, name) is not None:
                put(self, name, number(getattr(self, name), name))
                if getattr(self, name) < 0:
                    raise ProfileError(f"{what} is negative", name, getattr(self, name),
                                       "a finite number >= 0")
        for name in ("mean_ms", *_ASCENDING):
            if getattr(self, name) is not None:
                put(self, name, latency(getattr(self, name), name))
        if self.quantiles_ms is not None:
            put(self, "quantiles_ms", _quantiles(self.quantiles_ms))
        if self.quantile_levels is not None:
            put(self, "quantile_levels", _checked_levels(self.quantile_levels, self.quantiles_ms))
        if self.quantiles_ms is None and not self.statistics:
            raise ProfileError("missing", "p95_ms", allowed="a finite number > 0, another of "
                               f"{', '.join(STATISTICS)}, or quantiles_ms to derive them from")
        self._check_order()
        if self.quantiles_ms is not None:
            self._derive(self.quantiles_ms)

    @classmethod
    def from_samples(
        cls, batch: int, samples_ms: ArrayLike, quantiles: int = 128
    ) -> BatchProfile:
        """Create the profile of measured latencies: all statistics, rounded to 1 ns, and a sketch.

        The sketch has the samples' mean and maximum (:mod:`ramsis.profiles.sketch`).

        Parameters
        ----------
        batch : int
            Batch size.
        samples_ms : array_like, shape (n,)
            Latencies in ms, finite and > 0; one or more.
        quantiles : int
            Number of equal parts of the probability in the sketch, outside its tail; >= 2.

        Raises
        ------
        ProfileError
            When a sample is out of range; the message gives its index.
        """
        samples = np.asarray(samples_ms, dtype=float)
        if samples.ndim != 1 or not samples.size:
            raise ProfileError("not a list of samples", "samples_ms", samples.shape,
                               "one or more latencies")
        good = (samples > 0) & (samples < _SQUARED)
        if not good.all():
            first = int(np.argmin(good))
            raise ProfileError("latency is not positive", f"samples_ms[{first}]",
                               float(samples[first]), f"a finite number > 0, below {_SQUARED:g}")
        values = {"mean_ms": samples.mean(), "std_ms": samples.std(),
                  "min_ms": samples.min(), "max_ms": samples.max()}
        values |= zip(_LEVELS, np.quantile(samples, list(_LEVELS.values())), strict=True)
        rounded = {name: round(float(value), 6) for name, value in values.items()}
        levels, sketch = sketch_samples(samples, quantiles)
        return cls(batch, len(samples), quantiles_ms=tuple(np.round(sketch, 6).tolist()),
                   quantile_levels=tuple(levels.tolist()), **rounded)

    @property
    def levels(self) -> NDArray[np.float64]:
        """Return the levels of ``quantiles_ms``, which must be stated; shape (q,)."""
        if self.quantile_levels is not None:
            return np.array(self.quantile_levels)
        return midpoint_levels(len(self.quantiles_ms or ()))

    def longer(self, by_ms: float) -> BatchProfile:
        """Return the profile with ``by_ms`` >= 0 added to each latency."""
        return self._changed(_LATENCIES, lambda latency_ms: latency_ms + by_ms)

    def slower(self, factor: float) -> BatchProfile:
        """Return the profile with each latency multiplied by a factor > 0."""
        return self._changed((*_LATENCIES, "std_ms"), lambda latency_ms: factor * latency_ms)

    def _changed(
        self, names: Sequence[str], change: Callable[[float], float]
    ) -> BatchProfile:
        values = {name: value for name in names if (value := getattr(self, name)) is not None}
        changed: dict[str, Any] = {
            name: tuple(map(change, value)) if isinstance(value, tuple) else change(value)
            for name, value in values.items()}
        return replace(self, **changed)

    def _derive(self, quantiles_ms: tuple[float, ...]) -> None:
        """Fill missing statistics from the sketch, clipped to be consistent with stated ones."""
        stated = [getattr(self, name) for name in _ASCENDING]
        for i, name in enumerate(_ASCENDING):
            if name in _LEVELS and stated[i] is None:
                low = max((value for value in stated[:i] if value is not None), default=0.0)
                high = min((value for value in stated[i:] if value is not None), default=math.inf)
                value = sketch_quantile(quantiles_ms, _LEVELS[name], self.quantile_levels)
                object.__setattr__(self, name, min(max(value, low), high))
        if self.mean_ms is None:
            mean = math.fsum(hat_weights(self.levels) * np.array(quantiles_ms))
            object.__setattr__(self, "mean_ms", mean)

    def _check_order(self) -> None:
        stated = [(name, value) for name in _ASCENDING
                  if (value := getattr(self, name)) is not None]
        for (lower, low), (upper, high) in pairwise(stated):
            if high < low * (1 - _SLACK):
                raise ProfileError(f"{upper} is below {lower}", upper, high,
                                   f"at least {lower} = {low!r}")
        low, high = self.min_ms or 0.0, self.max_ms or math.inf
        inside = [] if self.mean_ms is None else [("mean_ms", self.mean_ms)]
        if self.quantiles_ms is not None:
            last = len(self.quantiles_ms) - 1
            inside += [("quantiles_ms[0]", self.quantiles_ms[0]),
                       (f"quantiles_ms[{last}]", self.quantiles_ms[last])]
        for name, value in inside:
            if not low * (1 - _SLACK) <= value <= high * (1 + _SLACK):
                raise ProfileError("outside min_ms … max_ms", name, value,
                                   f"between {self.min_ms!r} and {self.max_ms!r}")

    @property
    def statistics(self) -> tuple[str, ...]:
        """Return the names in :data:`STATISTICS` that the profile holds."""
        return tuple(name for name in STATISTICS if getattr(self, f"{name}_ms") is not None)

    def interval_ms(self, statistic: str) -> tuple[float, float]:
        """Return the 95 % confidence interval of a statistic; its value if n is unknown.

        For a percentile, these are quantiles of the sketch, by the binomial number of samples
        below it; without a sketch, ``relative_error`` is used if stated. For a mean, they are 1.96
        standard errors away.
        """
        value = self.statistic_ms(statistic)
        level = _LEVELS.get(f"{statistic}_ms")
        if level is None:
            error = _Z * (self.std_ms or 0.0) / math.sqrt(self.n) if self.n else 0.0
        elif self.n and self.quantiles_ms is not None:
            step = _Z * math.sqrt(level * (1.0 - level) / self.n)
            low, high = (sketch_quantile(self.quantiles_ms, min(at, 1.0), self.quantile_levels)
                         for at in (level - step, level + step))
            return min(low, value), max(high, value)
        else:
            error = value * (self.relative_error or 0.0)
        return value - error, value + error

    def statistic_ms(self, statistic: str) -> float:
        """Return the statistic named ``"p95"``, ``"p99"``, ``"p90"``, ``"p50"`` or ``"mean"``.

        Raises
        ------
        InvalidValueError
            When the name is another, or the profile does not hold this statistic.
        """
        check_known("unknown statistic", statistic, STATISTICS, "statistic")
        value: float | None = getattr(self, f"{statistic}_ms")
        if value is None:
            raise ProfileError("statistic is not in the profile", f"{statistic}_ms",
                               allowed=", ".join(self.statistics))
        return value


def _quantiles(values: object) -> tuple[float, ...]:
    if not isinstance(values, (list, tuple)) or len(values) < 2:
        raise ProfileError("not a list of quantiles", "quantiles_ms", values,
                           "two or more numbers")
    numbers = tuple(latency(value, f"quantiles_ms[{i}]")
                    for i, value in enumerate(values))
    for i in range(1, len(numbers)):
        if numbers[i] < numbers[i - 1]:
            raise ProfileError("quantiles fall", f"quantiles_ms[{i}]", numbers[i],
                               f"at least quantiles_ms[{i - 1}] = {numbers[i - 1]!r}")
    return numbers


def _checked_levels(
    values: object, quantiles_ms: tuple[float, ...] | None
) -> tuple[float, ...]:
    if quantiles_ms is None:
        raise ProfileError("levels without quantiles", "quantile_levels", values,
                           "quantiles_ms beside them")
    if not isinstance(values, (list, tuple)) or len(values) != len(quantiles_ms):
        raise ProfileError("not a level for each quantile", "quantile_levels", values,
                           f"{len(quantiles_ms)} numbers, one for each of quantiles_ms")
    levels = tuple(number(value, f"quantile_levels[{i}]") for i, value in enumerate(values))
    for i, (low, level) in enumerate(pairwise((0.0, *levels))):
        if not low < level <= 1.0:
            raise ProfileError("levels do not rise from 0 to 1", f"quantile_levels[{i}]", level,
                               f"a number > {low!r}, at most 1")
    return levels
