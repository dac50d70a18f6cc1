"""The workers of a simulation: what they can run, how long it takes, and the deadline.

Service times come from the profile in one of two ways:

- *a statistic* (``p95`` as in the paper's simulation, ``p99``, ``mean``): every batch of b on
  model m takes l(m, b) of the latency table;
- *the distribution*: a quantile sketch for each (m, b), at equal-probability midpoints, from
  which a batch's time is drawn by inversion: the quantile function at a uniform number, linear
  between the midpoints and constant outside. Where a profile has no sketch it is piecewise linear
  through min, p50, p90, p95 and p99 and constant above. A padded entry of the p95 table has the
  distribution of the batch that it is padded to; between measured batches the quantiles are
  interpolated, beyond the last one they are stretched as the table's p95 is.

What schemes see of latencies is the latency table, at p95 where times are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InfeasibleError, InvalidValueError, describe
from ramsis.profiles import STATISTICS, BatchProfile, LatencyTable, Origin, ProfileSet, Statistic

__all__ = ["MAX_BATCH", "SERVICES", "Fleet"]

FloatArray = NDArray[np.float64]

SERVICES = ("p95", "distribution", "p99", "p90", "p50", "mean")
"""What service times can be."""
MAX_BATCH = 33
"""Largest batch that a fleet runs unless more is asked for; the answer of a policy file with a
table of 32 rows to a longer queue."""

_COARSE = 200  # quantiles that stand for a distribution of which only statistics are known


@dataclass(frozen=True, eq=False)
class Fleet:
    """K equal workers, the models that each holds, and the deadline of a query.

    Attributes
    ----------
    table : LatencyTable
        What schemes see: accuracy (M,), latency_ms (M, B).
    quantiles_ms : ndarray, shape (M, B, Q)
        What a batch takes, at Q equal-probability midpoints; Q = 1 where it is fixed.
    workers : int
    slo_ms : float
        Deadline after arrival.
    network_ms : float
        Added to each batch before it runs; the worker counts as busy.
    service : str
        One of :data:`SERVICES`.
    """

    table: LatencyTable
    quantiles_ms: FloatArray
    workers: int
    slo_ms: float
    network_ms: float = 0.0
    service: str = "p95"

    @classmethod
    def of(
        cls,
        profile: ProfileSet,
        *,
        workers: int,
        slo_ms: float,
        service: str = "p95",
        network_ms: float = 0.0,
        max_batch: int = MAX_BATCH,
    ) -> Fleet:
        """The fleet that serves with a profile's models.

        Parameters
        ----------
        profile : ProfileSet
        workers : int
            >= 1.
        slo_ms : float
            > 0.
        service : str
            One of :data:`SERVICES`.
        network_ms : float
            >= 0.
        max_batch : int
            Largest batch, >= 1.

        Raises
        ------
        InvalidValueError
            A number out of range, or a statistic that the profile lacks.
        InfeasibleError
            An SLO below every latency.
        """
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise InvalidValueError(describe("not a number of workers", where="workers",
                                             value=workers, allowed="a whole number >= 1"))
        if not (math.isfinite(slo_ms) and slo_ms > 0):
            raise InvalidValueError(describe("not positive", where="slo_ms", value=slo_ms,
                                             allowed="a finite number > 0"))
        if not (math.isfinite(network_ms) and network_ms >= 0):
            raise InvalidValueError(describe("not a delay", where="network_ms", value=network_ms,
                                             allowed="a finite number >= 0"))
        if service not in SERVICES:
            raise InvalidValueError(describe("unknown service times", where="service",
                                             value=service, allowed=", ".join(SERVICES)))
        statistic = service if service in STATISTICS else "p95"
        table = profile.latency_table(cast(Statistic, statistic), max_batch)
        lowest = float(table.latency_ms[:, 0].min())
        if lowest > slo_ms:
            raise InfeasibleError(
                describe("SLO is below every latency", where="slo_ms", value=slo_ms,
                         allowed=f"at least {lowest:g} ms, the fastest model's batch of 1")
            )
        fixed = service in STATISTICS
        quantiles = table.latency_ms[:, :, None] if fixed else _quantiles(profile, table)
        return cls(table, np.ascontiguousarray(quantiles), workers, float(slo_ms),
                   float(network_ms), service)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models; schemes and results speak of their indices."""
        return self.table.models

    @property
    def max_batch(self) -> int:
        """Largest batch B."""
        return self.table.max_batch

    @property
    def draws(self) -> bool:
        """Whether service times are drawn."""
        return int(self.quantiles_ms.shape[2]) > 1

    @cached_property
    def by_accuracy(self) -> tuple[int, ...]:
        """Models by falling accuracy; equally accurate ones by rising batch-1 latency."""
        order = np.lexsort((self.table.latency_ms[:, 0], -self.table.accuracy))
        return tuple(order.tolist())

    @cached_property
    def capacity_qps(self) -> float:
        """Largest load that can be answered in time, K·max b / l(m, b) over l(m, b) <= SLO."""
        batch = np.arange(1, self.max_batch + 1)
        rate = np.where(self.table.latency_ms <= self.slo_ms, batch / self.table.latency_ms, 0.0)
        return float(1000.0 * self.workers * rate.max())

    def largest_batch(self, model: int, limit_ms: float) -> int:
        """Largest batch of a model with a latency of at most ``limit_ms``; 0 if none."""
        return int(np.searchsorted(self.table.latency_ms[model], limit_ms, side="right"))


def _quantiles(profile: ProfileSet, table: LatencyTable) -> FloatArray:
    """Quantiles of every (model, batch), shape (M, B, Q), by the rules of this module."""
    measured = [[_knots(item) for item in model.batches] for model in profile.models]
    size = max(len(level) if sketched else _COARSE
               for row in measured for level, _, sketched in row)
    midpoint = (np.arange(size) + 0.5) / size
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
        count = len(item.quantiles_ms)
        return (np.arange(count) + 0.5) / count, np.array(item.quantiles_ms), True
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
