"""Service times as laws: what a batch of b on model m takes, fixed or drawn.

One array holds both: Q quantiles at equal-probability midpoints for each (m, b), with Q = 1 where
the time is fixed at a statistic. A time is drawn by inversion, linear between the midpoints and
constant outside, so that its mean is the mean of the quantiles.

Where a profile has no sketch for a batch its quantile function is piecewise linear through min,
p50, p90, p95 and p99 and constant above. A padded entry of the p95 table has the law of the batch
that it is padded to; between measured batches the quantiles are interpolated, beyond the last one
they are stretched as the table's p95 is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError, describe
from ramsis.profiles.batch import STATISTICS, BatchProfile, Statistic
from ramsis.profiles.model import ProfileSet
from ramsis.profiles.pareto import prune
from ramsis.profiles.sketch import midpoint_levels
from ramsis.profiles.table import LatencyTable, Origin

__all__ = ["DISTRIBUTION", "ServiceLaw", "carries_quantiles", "service_quantiles"]

FloatArray = NDArray[np.float64]

DISTRIBUTION = "distribution"
"""Service times drawn from the measured distribution, where others are a statistic's name."""

_COARSE = 200  # quantiles that stand for a distribution of which only statistics are known


@dataclass(frozen=True, eq=False)
class ServiceLaw:
    """How long batches take, and how accurate their answers are.

    Attributes
    ----------
    models : tuple of str, length M
    accuracy : ndarray, shape (M,)
        Fractions.
    quantiles_ms : ndarray, shape (M, B, Q)
        ``quantiles_ms[m, b-1]`` rises: the law of a batch of b on model m.
    service : str
        A statistic (then Q = 1), or ``distribution``.
    """

    models: tuple[str, ...]
    accuracy: FloatArray
    quantiles_ms: FloatArray
    service: str

    @classmethod
    def of(cls, profile: ProfileSet, service: str, max_batch: int) -> ServiceLaw:
        """The law of a profile's models at batches 1 … ``max_batch``, fastest model first.

        Under a statistic, models that another one beats at every batch size are left out.

        Raises
        ------
        InvalidValueError
            An unknown service, a batch below 1, or a statistic that the profile lacks.
        """
        if service != DISTRIBUTION and service not in STATISTICS:
            raise InvalidValueError(describe("unknown service times", where="service",
                                             value=service,
                                             allowed=", ".join((*STATISTICS, DISTRIBUTION))))
        statistic = "p95" if service == DISTRIBUTION else service
        table = profile.latency_table(cast(Statistic, statistic), max_batch)
        if service != DISTRIBUTION:
            table = prune(table)
            return cls(table.models, table.accuracy, table.latency_ms[:, :, None], service)
        quantiles = service_quantiles(profile, table)
        order = np.lexsort((-table.accuracy, quantiles[:, 0].mean(axis=1)))
        return cls(tuple(table.models[m] for m in order), table.accuracy[order],
                   quantiles[order], service)

    @property
    def max_batch(self) -> int:
        """Largest batch B."""
        return int(self.quantiles_ms.shape[1])

    @property
    def mean_ms(self) -> FloatArray:
        """Mean service times, shape (M, B)."""
        return cast(FloatArray, self.quantiles_ms.mean(axis=2))

    def usable(self, slo_ms: float) -> ServiceLaw:
        """The law without batches that are never in time: they take for ever.

        Models without any other batch are left out, unless that leaves none.
        """
        in_time = self.quantiles_ms[:, :, 0] <= slo_ms
        keep = in_time.any(axis=1)
        if not keep.any():
            return self
        last = self.max_batch - in_time[:, ::-1].argmax(axis=1)
        beyond = np.arange(self.max_batch) >= last[:, None]
        quantiles = np.where(beyond[:, :, None], np.inf, self.quantiles_ms)
        return ServiceLaw(tuple(self.models[m] for m in np.flatnonzero(keep)),
                          self.accuracy[keep], quantiles[keep, : int(last[keep].max())],
                          self.service)

    def within(self, slack_ms: float) -> FloatArray:
        """Probability that a batch takes at most ``slack_ms``, shape (M, B)."""
        quantiles, size = self.quantiles_ms, self.quantiles_ms.shape[2]
        below = (quantiles <= slack_ms).sum(axis=2)
        at = np.clip(below, 1, size - 1 if size > 1 else 1)
        low = np.take_along_axis(quantiles, at[:, :, None] - 1, axis=2)[:, :, 0]
        high = np.take_along_axis(quantiles, np.minimum(at, size - 1)[:, :, None], axis=2)[:, :, 0]
        with np.errstate(invalid="ignore"):  # of batches that take for ever
            share = np.clip((slack_ms - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
        inner = (at - 0.5 + share) / size
        return np.where(below == 0, 0.0, np.where(below == size, 1.0, inner))


def carries_quantiles(profile: ProfileSet) -> bool:
    """Whether every measured batch of a profile has a quantile sketch."""
    return all(item.quantiles_ms is not None
               for model in profile.models for item in model.batches)


def service_quantiles(profile: ProfileSet, table: LatencyTable) -> FloatArray:
    """Quantiles of every (model, batch) of a p95 table, by the rules of this module.

    Parameters
    ----------
    profile : ProfileSet
    table : LatencyTable
        The profile's own, all models in order.

    Returns
    -------
    ndarray, shape (M, B, Q)
    """
    measured = [[_knots(item) for item in model.batches] for model in profile.models]
    size = max(len(level) if sketched else _COARSE
               for row in measured for level, _, sketched in row)
    midpoint = midpoint_levels(size)
    result = np.empty((*table.latency_ms.shape, size))
    for m, (model, row) in enumerate(zip(profile.models, measured, strict=True)):
        own = np.array([np.interp(midpoint, level, value) for level, value, _ in row])
        sizes = np.array([item.batch for item in model.batches])
        p95 = np.array([item.statistic_ms("p95") for item in model.batches])
        for column in range(table.max_batch):
            result[m, column] = _row(column + 1, sizes, p95, own, Origin(table.origin[m, column]),
                                     float(table.latency_ms[m, column]))
    return result


def _knots(item: BatchProfile) -> tuple[FloatArray, FloatArray, bool]:
    """Levels and values of a batch's quantile function, and whether they are a sketch."""
    if item.quantiles_ms is not None:
        return midpoint_levels(len(item.quantiles_ms)), np.array(item.quantiles_ms), True
    known = ((0.0, item.min_ms), (0.5, item.p50_ms), (0.9, item.p90_ms), (0.95, item.p95_ms),
             (0.99, item.p99_ms))
    level, value = zip(*((at, ms) for at, ms in known if ms is not None), strict=True)
    return np.array(level), np.maximum.accumulate(np.array(value)), False


def _row(
    batch: int, sizes: NDArray[np.int64], p95_ms: FloatArray, own: FloatArray, origin: Origin,
    latency_ms: float,
) -> FloatArray:
    """Quantiles of one batch size, from those of the measured ones."""
    if origin is Origin.MEASURED:
        result = own[int(np.searchsorted(sizes, batch))]
    elif origin is Origin.PADDED:
        larger = np.flatnonzero(sizes > batch)
        result = own[larger[int(np.argmin(p95_ms[larger]))]]
    elif origin is Origin.EXTRAPOLATED:
        result = own[-1] * (latency_ms / p95_ms[-1])
    else:
        right = int(np.searchsorted(sizes, batch))
        share = (batch - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
        result = (1 - share) * own[right - 1] + share * own[right]
    return cast(FloatArray, result)
