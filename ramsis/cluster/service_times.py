"""Service times of a batch of b on model m: fixed at a statistic, or random.

One array holds both: Q quantiles for each (m, b) at Q rising levels in (0, 1], with Q = 1 where
the time is fixed. The quantile function is linear between two levels and constant outside the
first and the last, so its mean is the sum of the quantiles weighted by
:func:`ramsis.profiles.sketch.hat_weights` of the levels. Times are sampled by inversion of the
distribution function; :mod:`ramsis.cluster._kernels` has the same functions for compiled loops.

*From a profile.* All batches have the same levels, which are dense towards 1. The values of a
sketch of samples (:mod:`ramsis.profiles.sketch`) are used unchanged: they have exactly the mean of
the samples, and end at the largest sample. A batch may instead have a sketch without a tail, or no
sketch; in the latter case its quantile function is piecewise linear through min, p50, p90, p95 and
p99. Then the tail follows from the mean, maximum and number of samples that the profile states.

An entry of the p95 table that is padded has the distribution of the batch to which it is padded;
an entry whose p95 was smoothed keeps its own distribution. Between measured batches quantiles are
interpolated. Beyond the largest measured batch, its quantiles are scaled by the ratio of the
table's p95.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, cast

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import InvalidValueError
from ramsis.profiles.batch import STATISTICS, BatchProfile, Statistic
from ramsis.profiles.model import ProfileSet
from ramsis.profiles.pareto import prune
from ramsis.profiles.sketch import averaged, hat_weights, midpoint_levels, sketch_levels, with_tail
from ramsis.profiles.table import LatencyTable
from ramsis.profiles.tails import Deviations, Tails, tails_of
from ramsis.reprs import dataclass

_CELLS = 256

DISTRIBUTION = "distribution"
"""Value of ``service`` for times drawn from the measured distribution; others are statistics."""
FIXED = "p95"
"""Default statistic if a profile lacks the distribution."""
DEFAULT_SERVICE = f"{DISTRIBUTION} where the profile has quantiles, else {FIXED}, or the only one"
"""In help texts: what :func:`default_service` returns."""

_COARSE = 200  # parts of the levels for a distribution of which only statistics are known
_NO_SAMPLES = 1000  # assumed number of samples if the profile does not state any
_SAME_MEAN = 1e-9  # relative difference of means that counts as equal


@dataclass(frozen=True, eq=False)
class ServiceTimes:
    """Service times of models by batch size, with the models' accuracy."""

    models: tuple[str, ...]  # shape (M,)
    accuracy: FloatArray  # fractions, shape (M,)
    # shape (M, B, Q): ``quantiles_ms[m, b-1]`` are the rising quantiles of a batch of b on model
    # m, infinite for a batch that is not to be run
    quantiles_ms: FloatArray
    service: str  # a statistic (then Q = 1), or ``distribution``
    # shape (Q,): levels of the quantiles, rising, in (0, 1]; by default the midpoints of Q equal
    # parts
    levels: FloatArray = field(default_factory=lambda: np.empty(0))
    # shape (M, B): number of samples behind a distribution; 0 if unknown, or if times are fixed
    samples: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    # shape (M, B): the (padded) size at which each batch is run, whose times these are; by default
    # its own size
    run_as: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    # tails pooled over the measured batches of the profile, including models that were left out
    tails: Tails | None = None

    def __post_init__(self) -> None:
        shape = self.quantiles_ms.shape
        if not len(self.levels):
            object.__setattr__(self, "levels", midpoint_levels(shape[2]))
        if not self.samples.size:
            object.__setattr__(self, "samples", np.zeros(shape[:2], dtype=np.int64))
        if not self.run_as.size:
            sizes = np.broadcast_to(1 + np.arange(shape[1]), shape[:2])
            object.__setattr__(self, "run_as", sizes)

    @classmethod
    def of(cls, profile: ProfileSet, service: str, max_batch: int) -> ServiceTimes:
        """Create the times of a profile's models at batches 1 … ``max_batch``, fastest first.

        With a statistic, models that another model beats at every batch size are left out.
        """
        table = seen_table(profile, service, max_batch)
        if service != DISTRIBUTION:
            return cls.of_table(prune(table))
        times = cls.of_all(profile, service, max_batch)
        return times.select(np.lexsort((-times.accuracy, times.mean_ms[:, 0])))

    @classmethod
    def of_all(cls, profile: ProfileSet, service: str, max_batch: int) -> ServiceTimes:
        """Return the times of all models of a profile, dominated ones included, in its order."""
        table = seen_table(profile, service, max_batch)
        if service != DISTRIBUTION:
            return cls.of_table(table)
        levels, times, samples = profile.once(
            ("service times", max_batch),
            lambda: (*service_quantiles(profile, table), _samples_behind(profile, table)))
        return cls(table.models, table.accuracy, times, service, levels, samples, table.run_as,
                   profile.once(("tails",), lambda: _tails(profile)))

    @classmethod
    def of_table(cls, table: LatencyTable) -> ServiceTimes:
        """Return times fixed at the latencies of a table, with its models in the same order."""
        return cls(table.models, table.accuracy, table.latency_ms[:, :, None], table.statistic,
                   run_as=table.run_as)

    def select(self, rows: IntArray) -> ServiceTimes:
        """Return the times of the models at the indices ``rows``, in this order."""
        return replace(self, models=tuple(self.models[m] for m in rows.tolist()),
                       accuracy=self.accuracy[rows], quantiles_ms=self.quantiles_ms[rows],
                       samples=self.samples[rows], run_as=self.run_as[rows])

    @property
    def max_batch(self) -> int:
        """Largest batch size B with a service time."""
        return int(self.quantiles_ms.shape[1])

    @property
    def distributed(self) -> bool:
        """Whether service times are random."""
        return int(self.quantiles_ms.shape[2]) > 1

    @property
    def weights(self) -> FloatArray:
        """Weight of each quantile in the mean, shape (Q,)."""
        return hat_weights(self.levels)

    @property
    def mean_ms(self) -> FloatArray:
        """Mean service times, shape (M, B)."""
        return self.quantiles_ms @ self.weights

    @property
    def lowest_ms(self) -> float:
        """Shortest time of any batch."""
        return float(self.quantiles_ms[:, :, 0].min())

    def cdf(self, time_ms: float) -> FloatArray:
        """Return the probability that a batch takes at most ``time_ms``, shape (M, B)."""
        return cdf(self.quantiles_ms, self.levels, time_ms)

    def quantile(self, level: float) -> FloatArray:
        """Return the quantile at a level in [0, 1] of each batch that is run, shape (M, B)."""
        with np.errstate(invalid="ignore"):
            times = quantile(np.moveaxis(self.quantiles_ms, 2, 0), self.levels, level)
        return np.where(np.isfinite(self.quantiles_ms[:, :, 0]), times, np.inf)

    def without_late(self, slo_ms: float) -> ServiceTimes:
        """Return the times without batches that are never within an SLO.

        Models without a batch within the SLO are left out; if no model has one, the times are
        returned unchanged.
        """
        in_time = self.quantiles_ms[:, :, 0] <= slo_ms
        keep = in_time.any(axis=1)
        if not keep.any():
            return self
        last = self.max_batch - in_time[:, ::-1].argmax(axis=1)
        beyond = np.arange(self.max_batch) >= last[:, None]
        times = np.where(beyond[:, :, None], np.inf, self.quantiles_ms)
        usable = replace(self, quantiles_ms=times).select(np.flatnonzero(keep))
        return usable.up_to(int(last[keep].max()))

    def up_to(self, max_batch: int) -> ServiceTimes:
        """Return the service times of batches of 1, 2, …, ``max_batch``."""
        return replace(self, quantiles_ms=self.quantiles_ms[:, :max_batch],
                       samples=self.samples[:, :max_batch], run_as=self.run_as[:, :max_batch])

    def scaled(self, factor: float) -> ServiceTimes:
        """Return all times multiplied by a factor > 0."""
        return replace(self, quantiles_ms=self.quantiles_ms * factor)

    def shorter(self) -> ServiceTimes:
        """Return the times shorter by the standard error of their mean, if samples are known.

        The mean of a batch does not fall below the batch's shortest time.
        """
        mean_ms, factor = self.mean_ms, np.ones(self.samples.shape)
        sampled = (self.samples > 0) & np.isfinite(mean_ms)
        times_ms, known_ms = self.quantiles_ms[sampled], mean_ms[sampled]
        deviation_ms = np.sqrt((times_ms - known_ms[:, None])**2 @ self.weights)
        low_ms = known_ms - deviation_ms / np.sqrt(self.samples[sampled])
        factor[sampled] = np.maximum(low_ms, times_ms[:, 0]) / known_ms
        return replace(self, quantiles_ms=self.quantiles_ms * factor[:, :, None])

    def same_as(self, other: ServiceTimes) -> bool:
        """Return whether both have the same models and take equally long."""
        return (self.models == other.models and np.array_equal(self.accuracy, other.accuracy)
                and np.array_equal(self.quantiles_ms, other.quantiles_ms)
                and np.array_equal(self.levels, other.levels)
                and np.array_equal(self.run_as, other.run_as))


def seen_table(profile: ProfileSet, service: str, max_batch: int) -> LatencyTable:
    """Return the latencies that schedulers plan with: fixed times, or p95 of drawn ones."""
    if service != DISTRIBUTION and service not in STATISTICS:
        raise InvalidValueError("unknown service times", where="service", value=service,
                                allowed=", ".join((*STATISTICS, DISTRIBUTION)))
    statistic = FIXED if service == DISTRIBUTION else service
    return profile.latency_table(cast(Statistic, statistic), max_batch)


def carries_quantiles(profile: ProfileSet) -> bool:
    """Return whether every measured batch of a profile has a quantile sketch."""
    return all(item.quantiles_ms is not None
               for model in profile.models for item in model.batches)


def default_service(*profiles: ProfileSet) -> str:
    """Return the default service times of every command and function.

    Times are drawn if all profiles have quantiles of every batch. Otherwise they are fixed at p95,
    or at the only statistic that all profiles have.
    """
    if all(map(carries_quantiles, profiles)):
        return DISTRIBUTION
    shared = set(STATISTICS).intersection(*(item.statistics for item in profiles))
    return shared.pop() if len(shared) == 1 else FIXED


def service_quantiles(
    profile: ProfileSet, table: LatencyTable
) -> tuple[FloatArray, FloatArray]:
    """Return levels, (Q,), and quantiles, (M, B, Q), of every (model, batch) of a p95 table.

    The table is that of the profile, with all models in the profile's order; the rules are those
    of this module.
    """
    levels, measured = _measured_quantiles(profile)
    result = np.empty((*table.latency_ms.shape, len(levels)))
    for m, (model, quantiles) in enumerate(zip(profile.models, measured, strict=True)):
        sizes = np.array([item.batch for item in model.batches])
        last_ms = model.statistic_by_batch("p95")[1][-1]
        for column in range(table.max_batch):
            result[m, column] = _row(int(table.run_as[m, column]), sizes, quantiles,
                                     float(table.latency_ms[m, column] / last_ms))
    return levels, result


def _measured_quantiles(profile: ProfileSet) -> tuple[FloatArray, list[FloatArray]]:
    """Return levels, and each model's quantiles of its measured batches at these, (B, Q)."""
    def work_out() -> tuple[FloatArray, list[FloatArray]]:
        levels = _shared_levels(profile)
        return levels, [np.array([_at_levels(item, levels) for item in model.batches])
                        for model in profile.models]

    return profile.once(("measured quantiles",), work_out)


def _shared_levels(profile: ProfileSet) -> FloatArray:
    """Return quantile levels for every batch of a profile: its sketches' levels where possible.

    The levels of a sketch of fewer samples are among those of a sketch of more samples.
    """
    items = [item for model in profile.models for item in model.batches]
    finest = max((item.levels for item in items if item.quantiles_ms is not None),
                 key=len, default=np.empty(0))
    if all(_is_whole(item) and np.isin(item.levels, finest).all() for item in items):
        return finest
    size = max(_COARSE if item.quantiles_ms is None else int((item.levels < 0.9).sum() / 0.9)
               for item in items)
    samples = max(item.n or 0 for item in items)
    return sketch_levels(max(size, 2), samples or _NO_SAMPLES)


def _is_whole(item: BatchProfile) -> bool:
    """Return whether a batch's sketch determines mean and maximum as well as its statistics."""
    if item.quantiles_ms is None or item.mean_ms is None:
        return False
    if item.quantile_levels is not None:
        return True
    mean = float(hat_weights(item.levels) @ np.array(item.quantiles_ms))
    return (abs(mean - item.mean_ms) <= _SAME_MEAN * mean
            and (item.max_ms is None or item.max_ms <= item.quantiles_ms[-1]))


def _at_levels(item: BatchProfile, levels: FloatArray) -> FloatArray:
    """Return the quantiles of a batch at some levels."""
    if _is_whole(item) and np.isin(item.levels, levels).all():
        return np.asarray(np.interp(levels, item.levels, np.array(item.quantiles_ms)))
    levels_of_knots, values = _knots(item)
    points, mass = with_tail(levels_of_knots, values, mean=item.mean_ms, largest=item.max_ms,
                             samples=item.n)
    return averaged(points, mass, levels)


def _knots(item: BatchProfile) -> tuple[FloatArray, FloatArray]:
    """Return levels and values of a batch's quantile function."""
    if item.quantiles_ms is not None:
        return item.levels, np.array(item.quantiles_ms)
    quantiles = ((0.0, item.min_ms), (0.5, item.p50_ms), (0.9, item.p90_ms), (0.95, item.p95_ms),
             (0.99, item.p99_ms))
    level, value = zip(*((at, ms) for at, ms in quantiles if ms is not None), strict=True)
    return np.array(level), np.maximum.accumulate(np.array(value))


def _samples_behind(profile: ProfileSet, table: LatencyTable) -> IntArray:
    """Return the number of samples behind each entry of a table, (M, B); 0 where unknown.

    An entry between two measured batches gets the smaller of their numbers.
    """
    result = np.zeros(table.latency_ms.shape, dtype=np.int64)
    for m, model in enumerate(profile.models):
        sizes = np.array([item.batch for item in model.batches])
        number = np.array([item.n or 0 for item in model.batches])
        for column, size in enumerate(table.run_as[m].tolist()):
            right = int(np.searchsorted(sizes, size))
            left = right if right < len(sizes) and sizes[right] == size else right - 1
            result[m, column] = number[left : right + 1].min()
    return result


def _tails(profile: ProfileSet) -> Tails | None:
    """Return the pooled tails of the batches with a known number of samples; None without any."""
    levels, measured = _measured_quantiles(profile)
    weights = hat_weights(levels)
    deviations = dict[str, list[Deviations]]()
    for model, quantiles_ms in zip(profile.models, measured, strict=True):
        for item, quantiles in zip(model.batches, quantiles_ms, strict=True):
            if item.n:
                deviations.setdefault(model.name, []).append(
                    Deviations.of(quantiles, weights, item.n))
    return tails_of(deviations)


def _row(
    size: int, sizes: IntArray, own: FloatArray, stretch: float
) -> FloatArray:
    """Return the quantiles of a batch size, interpolated between the measured ``sizes``.

    ``own`` (P, Q) are the quantiles of these sizes. Beyond the largest measured size, its
    quantiles are multiplied by ``stretch``.
    """
    right = int(np.searchsorted(sizes, size))
    if right == len(sizes):
        return cast(FloatArray, own[-1] * stretch)
    if sizes[right] == size:
        return cast(FloatArray, own[right])
    share = (size - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
    return cast(FloatArray, (1 - share) * own[right - 1] + share * own[right])


def quantile(
    values: Sequence[Any] | FloatArray, levels: Sequence[float] | FloatArray, level: float
) -> Any:
    """Return the quantile at a level in [0, 1]; at a uniform random level it is a sample.

    ``values`` are quantiles at the rising ``levels``, length Q, rising along the first axis. For
    an array of shape (Q, ...) the result has the other axes.
    """
    above = bisect_right(levels, level)
    if above == 0 or above == len(values):
        return values[min(above, len(values) - 1)]
    low, start = values[above - 1], levels[above - 1]
    return low + (level - start) / (levels[above] - start) * (values[above] - low)


def cdf(values: FloatArray, levels: FloatArray, time_ms: float) -> FloatArray:
    """Return the probability that a time is at most ``time_ms``, shape (...).

    ``values``, (..., Q), are quantiles at the rising ``levels``, rising along the last axis; they
    may be infinite.

    >>> cdf(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.125, 0.375, 0.625, 0.875]), 2.5).item()
    0.5
    """
    size = values.shape[-1]
    if size == 1:
        return (values[..., 0] <= time_ms).astype(float)
    below = (values <= time_ms).sum(axis=-1)
    at = np.clip(below, 1, size - 1)
    low = np.take_along_axis(values, at[..., None] - 1, axis=-1)[..., 0]
    high = np.take_along_axis(values, at[..., None], axis=-1)[..., 0]
    with np.errstate(invalid="ignore"):  # infinite values
        share = np.clip((time_ms - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    inner = levels[at - 1] + share * (levels[at] - levels[at - 1])
    return cast(FloatArray, np.where(below == 0, 0.0, np.where(below == size, 1.0, inner)))


def near_levels(levels: FloatArray) -> IntArray:
    """Return the indices from which compiled loops search for a level, shape (256,).

    Entry i is for levels in [i / 256, (i + 1) / 256): the index of the last level at or below
    i / 256, or 0 if there is none. It is at most the index of the second last level.
    """
    begins = np.arange(_CELLS) / _CELLS
    return np.clip(np.searchsorted(levels, begins, side="right") - 1, 0, max(len(levels) - 2, 0))
