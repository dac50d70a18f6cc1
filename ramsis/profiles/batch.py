"""Latency of one model at one batch size: statistics, and optionally a quantile sketch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.errors import ABOVE_ZERO, check_known
from ramsis.fields import Fields
from ramsis.profiles.sketch import hat_weights, midpoint_levels, sketch_quantile, sketch_samples
from ramsis.profiles.values import BatchSize, Latency, ProfileError, ProfileRecord
from ramsis.records import Count, Entries, NonNegative, schema_of
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
class BatchProfile(ProfileRecord):
    """Latency of one model at one batch size, in ms.

    One percentile, the mean or ``quantiles_ms`` is needed at least; statistics that are not
    stated are derived from the quantiles. From the minimum over the percentiles to the maximum
    values do not fall, and mean and quantiles lie between the two (0.1 % aside).
    """

    batch: Annotated[BatchSize, "Batch size."]
    n: Annotated[Count | None, "Number of samples."] = None
    mean_ms: Annotated[Latency | None, "Mean latency."] = None
    std_ms: Annotated[NonNegative | None, "Standard deviation (divisor n)."] = None
    min_ms: Annotated[Latency | None, "Smallest latency."] = None
    p50_ms: Annotated[Latency | None, "Median."] = None
    p90_ms: Annotated[Latency | None, "90th percentile."] = None
    p95_ms: Annotated[
        Latency | None, "95th percentile, the default statistic of all commands."] = None
    p99_ms: Annotated[Latency | None, "99th percentile."] = None
    max_ms: Annotated[Latency | None, "Largest latency."] = None
    quantiles_ms: Annotated[
        tuple[Latency, ...] | None, Entries(2),
        "The distribution: two or more quantiles that do not fall, at the levels (i + 1/2)/q for "
        "i = 0 … q-1, or at quantile_levels; linear between them.",
    ] = None
    relative_error: Annotated[
        NonNegative | None,
        "Half the width of the 95 % interval of the percentile for which the batch was measured, "
        "as a fraction of it.",
    ] = None
    quantile_levels: Annotated[
        tuple[Annotated[float, ABOVE_ZERO], ...] | None, Entries(2),
        "Levels of quantiles_ms, rising, above 0 and up to 1.",
    ] = None

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema, which requires a statistic or quantiles."""
        return {**schema_of(cls), "anyOf": [
            {"required": [name]} for name in (*(f"{name}_ms" for name in STATISTICS),
                                              "quantiles_ms")]}

    def check(self, item: Fields) -> None:
        """Refuse values that contradict each other; derive the statistics that a sketch gives."""
        if self.quantiles_ms is not None:
            item.check_rising("quantiles_ms", self.quantiles_ms, strictly=False)
        if self.quantile_levels is not None:
            if len(self.quantile_levels) != len(self.quantiles_ms or ()):
                raise item.refusal(
                    "quantile_levels", "not a level for each quantile",
                    value=self.quantile_levels,
                    allowed="as many numbers as quantiles_ms, which has to be stated")
            item.check_rising("quantile_levels", self.quantile_levels)
        if self.quantiles_ms is None and not self.statistics:
            raise item.refusal("p95_ms", "missing", allowed="a finite number > 0, another of "
                               f"{', '.join(STATISTICS)}, or quantiles_ms to derive them from")
        self._check_order(item)
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

    def _check_order(self, item: Fields) -> None:
        stated = [(name, value) for name in _ASCENDING
                  if (value := getattr(self, name)) is not None]
        for (lower, low), (upper, high) in pairwise(stated):
            if high < low * (1 - _SLACK):
                raise item.refusal(upper, f"{upper} is below {lower}", value=high,
                                   allowed=f"at least {lower} = {low!r}")
        low, high = self.min_ms or 0.0, self.max_ms or math.inf
        inside = [] if self.mean_ms is None else [("mean_ms", self.mean_ms)]
        if self.quantiles_ms is not None:
            last = len(self.quantiles_ms) - 1
            inside += [("quantiles_ms[0]", self.quantiles_ms[0]),
                       (f"quantiles_ms[{last}]", self.quantiles_ms[last])]
        for name, value in inside:
            if not low * (1 - _SLACK) <= value <= high * (1 + _SLACK):
                raise item.refusal(name, "outside min_ms … max_ms", value=value,
                                   allowed=f"between {self.min_ms!r} and {self.max_ms!r}")

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
