"""The workers of a simulation: what they can run, how long it takes, and the deadline.

Service times come from the profile in one of two ways:

- *a statistic* (``p95`` as in the paper's simulation, ``p99``, ``mean``): every batch of b on
  model m takes l(m, b) of the latency table;
- *the distribution*: a quantile sketch for each (m, b), at equal-probability midpoints
  (:mod:`ramsis.cluster.service_times`), from which a batch's time is drawn by inversion.

What schemes see of latencies is the latency table, at p95 where times are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster.checks import below_every_latency
from ramsis.cluster.service_times import ServiceTimes, service_quantiles
from ramsis.cluster.slo_class import SloClass
from ramsis.errors import InvalidValueError, check_number_of, check_positive, describe
from ramsis.profiles import STATISTICS, LatencyTable, ProfileSet, Statistic

__all__ = ["MAX_BATCH", "SERVICES", "Fleet"]

FloatArray = NDArray[np.float64]

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
        What a batch takes, at Q equal-probability midpoints; Q = 1 where it is fixed.
    workers : int
    slo_ms : float
        Deadline after arrival; with SLO classes the longest.
    network_ms : float
        Added to each batch before it runs; the worker counts as busy.
    service : str
        One of :data:`SERVICES`.
    classes : tuple of SloClass
        Two or more by rising SLO, or none: one deadline for all.
    """

    table: LatencyTable
    quantiles_ms: FloatArray
    workers: int
    slo_ms: float
    network_ms: float = 0.0
    service: str = "p95"
    classes: tuple[SloClass, ...] = ()

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
        check_number_of("workers", workers)
        check_positive(slo_ms=slo_ms)
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
            raise below_every_latency(slo_ms, lowest)
        fixed = service in STATISTICS
        quantiles = table.latency_ms[:, :, None] if fixed else service_quantiles(profile, table)
        return cls(table, np.ascontiguousarray(quantiles), workers, float(slo_ms),
                   float(network_ms), service)

    def drawn_slos(self, queries: int, rng: np.random.Generator) -> FloatArray | None:
        """The SLO of each query, its class drawn by the shares; None with one deadline for all."""
        if not self.classes:
            return None
        upto = np.cumsum([one.share for one in self.classes])
        place = np.searchsorted(upto[:-1], rng.random(queries), side="right")
        slos: FloatArray = np.array([one.slo_ms for one in self.classes])[place]
        return slos

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
        return ServiceTimes(self.models, self.table.accuracy, self.quantiles_ms, self.service)

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
        return int(np.searchsorted(self.table.latency_ms[model], limit_ms, side="right"))

