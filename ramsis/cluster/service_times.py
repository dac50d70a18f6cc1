"""Service times: what a batch of b on model m takes, fixed at a statistic or distributed.

One array holds both: Q quantiles for each (m, b) as in :mod:`ramsis.cluster.quantiles`, with Q = 1
where the time is fixed. A time is drawn by inversion: the quantile function at a uniform number.

*From a profile.* Where it has no sketch for a batch the quantile function is piecewise linear
through min, p50, p90, p95 and p99 and constant above. A padded entry of the p95 table has the
distribution of the batch that it is padded to; between measured batches the quantiles are
interpolated, beyond the last one they are stretched as the table's p95 is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster.quantiles import cdf, quantile
from ramsis.errors import InvalidValueError, describe
from ramsis.profiles.batch import STATISTICS, BatchProfile, Statistic
from ramsis.profiles.model import ProfileSet
from ramsis.profiles.pareto import prune
from ramsis.profiles.sketch import midpoint_levels
from ramsis.profiles.table import LatencyTable, Origin

__all__ = ["DISTRIBUTION", "ServiceTimes", "carries_quantiles", "seen_table", "service_quantiles"]

FloatArray = NDArray[np.float64]

DISTRIBUTION = "distribution"
"""Service times drawn from the measured distribution, where others are a statistic's name."""

_COARSE = 200  # quantiles that stand for a distribution of which only statistics are known


@dataclass(frozen=True, eq=False)
class ServiceTimes:
    """How long batches take, and how accurate their answers are.

    Attributes
    ----------
    models : tuple of str, length M
    accuracy : ndarray, shape (M,)
        Fractions.
    quantiles_ms : ndarray, shape (M, B, Q)
        ``quantiles_ms[m, b-1]`` rises: the distribution of a batch of b on model m. Infinite for
        a batch that is not to be run.
    service : str
        A statistic (then Q = 1), or ``distribution``.
    """

    models: tuple[str, ...]
    accuracy: FloatArray
    quantiles_ms: FloatArray
    service: str

    @classmethod
    def of(cls, profile: ProfileSet, service: str, max_batch: int) -> ServiceTimes:
        """The times of a profile's models at batches 1 … ``max_batch``, fastest model first.

        Under a statistic, models that another one beats at every batch size are left out.

        Raises
        ------
        InvalidValueError
            An unknown service, a batch below 1, or a statistic that the profile lacks.
        """
        table = seen_table(profile, service, max_batch)
        if service != DISTRIBUTION:
            table = prune(table)
            return cls(table.models, table.accuracy, table.latency_ms[:, :, None], service)
        times = service_quantiles(profile, table)
        order = np.lexsort((-table.accuracy, times[:, 0].mean(axis=1)))
        return cls(tuple(table.models[m] for m in order), table.accuracy[order], times[order],
                   service)

    @classmethod
    def of_all(cls, profile: ProfileSet, service: str, max_batch: int) -> ServiceTimes:
        """As :meth:`of`, with all models in the order of the profile."""
        table = seen_table(profile, service, max_batch)
        if service != DISTRIBUTION:
            return cls.of_table(table)
        return cls(table.models, table.accuracy, service_quantiles(profile, table), service)

    @classmethod
    def of_table(cls, table: LatencyTable) -> ServiceTimes:
        """Times fixed at those of a latency table, all its models in its order."""
        return cls(table.models, table.accuracy, table.latency_ms[:, :, None], table.statistic)

    @classmethod
    def of_batches(
        cls, models: Sequence[str], accuracy: Sequence[float],
        quantiles_ms: Sequence[Sequence[Sequence[float]]], service: str,
    ) -> ServiceTimes:
        """The times of batches 1, 2, … of each model, not all up to the same one.

        Parameters
        ----------
        quantiles_ms : nested sequences
            Of each model, of each batch, Q quantiles. Batches that a model lacks are not run.
        """
        longest = max(len(batches) for batches in quantiles_ms)
        times = np.full((len(models), longest, len(quantiles_ms[0][0])), np.inf)
        for own, batches in zip(times, quantiles_ms, strict=True):
            own[: len(batches)] = batches
        return cls(tuple(models), np.array(accuracy), times, service)

    @property
    def max_batch(self) -> int:
        """Largest batch B."""
        return int(self.quantiles_ms.shape[1])

    @property
    def distributed(self) -> bool:
        """Whether times are drawn."""
        return int(self.quantiles_ms.shape[2]) > 1

    @property
    def mean_ms(self) -> FloatArray:
        """Mean service times, shape (M, B)."""
        return cast(FloatArray, self.quantiles_ms.mean(axis=2))

    @property
    def lowest_ms(self) -> float:
        """The shortest time that any batch can take."""
        return float(self.quantiles_ms[:, :, 0].min())

    def cdf(self, time_ms: float) -> FloatArray:
        """Probability that a batch takes at most ``time_ms``, shape (M, B)."""
        return cdf(self.quantiles_ms, time_ms)

    def quantile(self, level: float) -> FloatArray:
        """Quantile at a level in [0, 1] of each batch that is run, shape (M, B)."""
        with np.errstate(invalid="ignore"):
            found = quantile(np.moveaxis(self.quantiles_ms, 2, 0), level)
        return np.where(np.isfinite(self.quantiles_ms[:, :, 0]), found, np.inf)

    def draw_ms(self, model: int, batch: int, uniform: float) -> float:
        """The time of a batch of ``batch``, drawn by inversion of a uniform number."""
        return float(quantile(self.quantiles_ms[model, batch - 1], uniform))

    def without_late(self, slo_ms: float) -> ServiceTimes:
        """The times without batches that are never within an SLO: these are not run.

        Models without any other batch are left out, unless that leaves none.
        """
        in_time = self.quantiles_ms[:, :, 0] <= slo_ms
        keep = in_time.any(axis=1)
        if not keep.any():
            return self
        last = self.max_batch - in_time[:, ::-1].argmax(axis=1)
        beyond = np.arange(self.max_batch) >= last[:, None]
        times = np.where(beyond[:, :, None], np.inf, self.quantiles_ms)
        return ServiceTimes(tuple(self.models[m] for m in np.flatnonzero(keep)),
                            self.accuracy[keep], times[keep, : int(last[keep].max())],
                            self.service)

    def scaled(self, factor: float) -> ServiceTimes:
        """All times multiplied by a factor > 0."""
        return replace(self, quantiles_ms=self.quantiles_ms * factor)

    def same_as(self, other: ServiceTimes) -> bool:
        """Whether both have the same models and take equally long."""
        return (self.models == other.models and np.array_equal(self.accuracy, other.accuracy)
                and np.array_equal(self.quantiles_ms, other.quantiles_ms))


def seen_table(profile: ProfileSet, service: str, max_batch: int) -> LatencyTable:
    """The latency table of a statistic; that of the p95 where times are drawn.

    Raises
    ------
    InvalidValueError
        As :meth:`ServiceTimes.of`.
    """
    if service != DISTRIBUTION and service not in STATISTICS:
        raise InvalidValueError(describe("unknown service times", where="service", value=service,
                                         allowed=", ".join((*STATISTICS, DISTRIBUTION))))
    statistic = "p95" if service == DISTRIBUTION else service
    return profile.latency_table(cast(Statistic, statistic), max_batch)


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
