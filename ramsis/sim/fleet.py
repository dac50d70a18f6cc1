"""Like workers, with the models that they hold.

How long batches take, fixed at a statistic or drawn, is said in
:mod:`ramsis.cluster.service_times`. What schemes see of it is the latency table, at p95 where
times are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster.checks import below_every_latency
from ramsis.cluster.service_times import FIXED, ServiceTimes, default_service, seen_table
from ramsis.cluster.slo_class import SloClass
from ramsis.errors import InvalidValueError, check_number_of, check_positive, describe
from ramsis.profiles import LatencyTable, ProfileSet

__all__ = ["MAX_BATCH", "SERVICES", "Fleet", "check_delay", "measured_sizes",
           "times_as_they_are"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SERVICES = ("p95", "distribution", "p99", "p90", "p50", "mean")
"""What service times can be."""
MAX_BATCH = 33
"""Largest batch that a fleet runs unless more is asked for; the answer of a policy file with a
table of 32 rows to a longer queue."""


@dataclass(frozen=True, eq=False)
class Fleet:
    """K equal workers, the models that each holds, and the deadline of a query.

    Attributes
    ----------
    table : LatencyTable
        What schemes see: accuracy (M,), latency_ms (M, B).
    quantiles_ms : ndarray, shape (M, B, Q)
        Quantiles of what a batch takes, run at the size of the table; Q = 1 where it is fixed.
    workers : int
    slo_ms : float
        Deadline after arrival; with SLO classes the longest.
    network_ms : float
        Added to each batch before it runs; the worker counts as busy.
    service : str
        One of :data:`SERVICES`.
    classes : tuple of SloClass
        Two or more by rising SLO, or none: one deadline for all.
    levels : ndarray, shape (Q,), or empty
        Of the quantiles; empty for the midpoints of Q equal parts.
    own_ms : ndarray, shape (M, S, Q), or empty
        What batches of each size take that are run as they are. Empty where that is not known:
        then what schemes say of the size to run is taken to be what ``quantiles_ms`` are for.
    measured : tuple of frozenset of int
        Measured batch sizes of each model; none where they are not known.
    """

    table: LatencyTable
    quantiles_ms: FloatArray
    workers: int
    slo_ms: float
    network_ms: float = 0.0
    service: str = FIXED
    classes: tuple[SloClass, ...] = ()
    levels: FloatArray = field(default_factory=lambda: np.empty(0))
    own_ms: FloatArray = field(default_factory=lambda: np.empty((0, 0, 0)))
    measured: tuple[frozenset[int], ...] = ()

    @classmethod
    def of(
        cls,
        profile: ProfileSet,
        *,
        workers: int,
        slo_ms: float,
        service: str | None = None,
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
        service : str, optional
            One of :data:`SERVICES`; by default that of :func:`ramsis.cluster.default_service`.
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
        check_number_of("workers", workers)
        check_positive(slo_ms=slo_ms)
        check_delay(network_ms)
        service = service or default_service(profile)
        table = seen_table(profile, service, max_batch)
        lowest = float(table.latency_ms[:, 0].min())
        if lowest > slo_ms:
            raise below_every_latency(slo_ms, lowest)
        times = ServiceTimes.of_all(profile, service, max_batch)
        return cls(table, np.ascontiguousarray(times.quantiles_ms), workers, float(slo_ms),
                   float(network_ms), service, levels=times.levels,
                   own_ms=times_as_they_are(profile, times), measured=measured_sizes(profile))

    def running(self, run_as: IntArray | None) -> FloatArray:
        """Quantiles of what batches take when they are run at other sizes than the table's.

        Parameters
        ----------
        run_as : ndarray of int, shape (M, B), or None
            Size to run for each batch; None for the table's.
        """
        if run_as is None or not self.own_ms.size:
            return self.quantiles_ms
        return np.take_along_axis(self.own_ms, run_as[:, :, None] - 1, axis=1)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models; schemes and results speak of their indices."""
        return self.table.models

    @property
    def max_batch(self) -> int:
        """Largest batch B."""
        return self.table.max_batch

    @cached_property
    def service_times(self) -> ServiceTimes:
        """What batches take, as all other packages know it."""
        return ServiceTimes(self.models, self.table.accuracy, self.quantiles_ms, self.service,
                            self.levels, run_as=self.table.run_as, padding=self.table.padding)

    @property
    def draws(self) -> bool:
        """Whether service times are drawn."""
        return self.service_times.distributed

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
        within = np.flatnonzero(self.table.latency_ms[model] <= limit_ms)
        return int(within[-1]) + 1 if len(within) else 0


def times_as_they_are(profile: ProfileSet, times: ServiceTimes) -> FloatArray:
    """What batches of every size take that are run as they are; up to the largest that is run.

    Parameters
    ----------
    times : ServiceTimes
        Of all models of the profile, as its latency table has them.
    """
    largest = int(times.run_as.max())
    if (times.run_as == 1 + np.arange(times.max_batch)).all():
        return np.ascontiguousarray(times.quantiles_ms)
    own = ServiceTimes.of_all(profile.with_padding(False), times.service, largest)
    return np.ascontiguousarray(own.quantiles_ms)


def measured_sizes(profile: ProfileSet) -> tuple[frozenset[int], ...]:
    """Measured batch sizes of each model."""
    return tuple(frozenset(item.batch for item in model.batches) for model in profile.models)


def check_delay(network_ms: float) -> None:
    """Refuse a delay that is not one."""
    if not (math.isfinite(network_ms) and network_ms >= 0):
        raise InvalidValueError(describe("not a delay", where="network_ms", value=network_ms,
                                         allowed="a finite number >= 0"))
