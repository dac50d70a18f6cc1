"""The workers of a cluster for simulation: workers with the same service times are one fleet.

Batches take the service times of :mod:`ramsis.cluster.service_times`: fixed at a statistic, or
drawn. Schedulers see a latency table; where times are drawn, it holds their p95.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.cluster import Cluster, ServiceTimes, SloClass, WorkerType
from ramsis.cluster.cluster import below_every_latency, numbered_alike
from ramsis.cluster.service_times import seen_table
from ramsis.errors import check_positive
from ramsis.profiles import Confidences, LatencyTable, ProfileSet
from ramsis.profiles.values import DELAY_MS
from ramsis.reprs import dataclass
from ramsis.runtime.policy_set import ALL_WORKERS
from ramsis.scenario import Requests
from ramsis.sim.run import Site
from ramsis.sim.workload import Workload

MAX_BATCH = 33
"""Default of the largest batch that a fleet runs: the batch with which a policy file with a table
of 32 rows answers a longer queue."""


@dataclass(frozen=True, eq=False)
class Fleet:
    """K workers of one type, the models that each holds, and the deadline of a request."""

    # what schedulers see: accuracy (M,), latency_ms (M, B), scaled by the slowness they are told
    table: LatencyTable
    service_times: ServiceTimes  # true service times of batches
    workers: int
    slo_ms: float  # deadline after arrival; with SLO classes the longest
    network_ms: float = 0.0  # added to each batch before it runs; the worker counts as busy
    classes: tuple[SloClass, ...] = ()  # two or more by rising SLO, or none: one deadline for all
    # service time as a multiple of the profiled one, as schedulers are told
    slowness: float = 1.0
    confidences: Confidences | None = None  # of the profile, for schedulers with second opinions

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
        """Return a fleet that serves with the models of a profile; see :meth:`Fleets.of`."""
        cluster = Cluster.of(profile, workers=workers, slo_ms=slo_ms)
        (fleet,) = Fleets.of(cluster, service=service, network_ms=network_ms,
                             max_batch=max_batch).fleets
        return fleet

    @classmethod
    def from_worker_type(
        cls, worker_type: WorkerType, cluster: Cluster, service: str, max_batch: int
    ) -> Fleet:
        """Return the workers of one type of a cluster."""
        table = seen_table(worker_type.profile, service, max_batch)
        times = ServiceTimes.of_all(worker_type.profile, service, max_batch)
        if worker_type.speed != 1.0:
            table = replace(table, latency_ms=table.latency_ms / worker_type.speed)
            times = times.scaled(1.0 / worker_type.speed)
        return cls(table, times, worker_type.count or 0, float(cluster.slo_ms),
                   classes=cluster.classes if len(cluster.classes) > 1 else (),
                   confidences=worker_type.profile.confidences)

    def slower(self, slowness: float, told: float) -> Fleet:
        """Return a copy whose batches take longer by the factor ``slowness``.

        In the latency table that schedulers see they take longer by the factor ``told``.
        """
        return replace(
            self, slowness=told,
            table=replace(self.table, latency_ms=told * self.table.latency_ms),
            service_times=self.service_times.scaled(slowness))

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models; schedulers and results use indices into this tuple."""
        return self.table.models

    @property
    def max_batch(self) -> int:
        """Largest batch B."""
        return self.table.max_batch

    @property
    def draws(self) -> bool:
        """Whether service times are drawn."""
        return self.service_times.distributed

    def requests(
        self, arrival_ms: FloatArray, *, slo_ms: FloatArray | None = None,
        rng: np.random.Generator | None = None,
    ) -> Requests:
        """Return the requests that arrive at ``arrival_ms``, shape (n,).

        Their deadlines after arrival are ``slo_ms``, (n,), by default that of the fleet. ``rng``
        draws the numbers that draw service times, if these are random.
        """
        count = len(arrival_ms) if rng is not None and self.draws else 0
        return Requests(
            arrival_ms, np.array([self.slo_ms]) if slo_ms is None else slo_ms,
            uniform=np.empty(0) if rng is None else rng.random(count))

    @cached_property
    def site(self) -> Site:
        """Workers and models in the form of a run's record."""
        return site_of([self])

    @cached_property
    def by_accuracy(self) -> tuple[int, ...]:
        """Models by falling accuracy; equally accurate ones by rising batch-1 latency."""
        order = np.lexsort((self.table.latency_ms[:, 0], -self.table.accuracy))
        return tuple(order.tolist())

    @cached_property
    def capacity_qps(self) -> float:
        """Largest load that can be answered in time: K · max b / l(m, b), over l(m, b) <= SLO.

        K is the number of workers, l(m, b) the latency of a batch of b requests on model m.
        """
        batch = np.arange(1, self.max_batch + 1)
        rate = np.where(self.table.latency_ms <= self.slo_ms, batch / self.table.latency_ms, 0.0)
        return float(1000.0 * self.workers * rate.max())

    def largest_batch(self, model: int, limit_ms: float) -> int:
        """Return the largest batch of a model that takes at most ``limit_ms``; 0 if none does."""
        within = np.flatnonzero(self.table.latency_ms[model] <= limit_ms)
        return int(within[-1]) + 1 if len(within) else 0


@dataclass(frozen=True, eq=False)
class Fleets:
    """The fleets of a cluster; workers are numbered from 0 through all fleets in their order."""

    fleets: tuple[Fleet, ...]  # with the SLO classes of the cluster; the SLO is the longest
    worker_types: Mapping[str, int]  # workers by name of the type
    fleet_of: Mapping[str, int]  # index of each type's fleet
    classes: tuple[SloClass, ...]  # by rising SLO

    @classmethod
    def of(
        cls, cluster: Cluster, *, service: str | None = None, network_ms: float = 0.0,
        max_batch: int = MAX_BATCH, slowness: float = 1.0, told_slowness: float | None = None,
    ) -> Fleets:
        """Return the fleets of a cluster, one for each worker type.

        ``service`` is one of :data:`ramsis.policy.SERVICES`, by default that of
        :func:`ramsis.cluster.default_service`. ``network_ms`` >= 0 is added to each batch.
        ``slowness`` > 0 is the true service time as a multiple of the profiled one;
        ``told_slowness`` is the multiple that schedulers are told, by default the true one.
        """
        DELAY_MS.check("not a delay", network_ms=network_ms)
        told_factor = slowness if told_slowness is None else told_slowness
        check_positive(slowness=slowness, told_slowness=told_factor)
        types, classes = cluster.worker_types, cluster.classes
        service = service or cluster.default_service
        by_type = [replace(Fleet.from_worker_type(worker_type, cluster, service, max_batch)
                           .slower(slowness, told_factor), network_ms=float(network_ms))
                   for worker_type in types]
        lowest = min(float(fleet.table.latency_ms[:, 0].min()) for fleet in by_type)
        if lowest > classes[0].slo_ms:
            raise below_every_latency(classes[0].slo_ms, lowest,
                                      whose="SLO of a class" if len(classes) > 1 else "SLO")
        # Types of equal service times become one fleet, with the workers of all of them.
        alike = numbered_alike([fleet.service_times for fleet in by_type])
        fleets = tuple(
            replace(by_type[alike.index(kind)], workers=sum(
                fleet.workers for fleet, number in zip(by_type, alike, strict=True)
                if number == kind))
            for kind in range(max(alike) + 1))
        names = [worker_type.name for worker_type in types]
        workers = [fleet.workers for fleet in by_type]
        return cls(fleets, dict(zip(names, workers, strict=True)),
                   dict(zip(names, alike, strict=True)), classes)

    @classmethod
    def of_one(cls, fleet: Fleet) -> Fleets:
        """Return a cluster that is a single fleet."""
        return cls((fleet,), {ALL_WORKERS: fleet.workers}, {ALL_WORKERS: 0},
                   fleet.classes or (SloClass(fleet.slo_ms),))

    def draw(
        self, workload: Workload, arrivals: np.random.Generator, classes: np.random.Generator,
        service: np.random.Generator | None = None,
    ) -> Requests:
        """Draw the requests of a workload; ``service`` draws their numbers for service times."""
        arrival_ms = workload.arrivals_ms(arrivals)
        return self.fleets[0].requests(
            arrival_ms, slo_ms=drawn_slos(self.classes, len(arrival_ms), classes), rng=service)

    @property
    def workers(self) -> int:
        """Number of workers of all fleets."""
        return sum(fleet.workers for fleet in self.fleets)

    @property
    def first_workers(self) -> tuple[int, ...]:
        """Index of the first worker of each fleet; workers are counted through all fleets."""
        return (0, *accumulate(fleet.workers for fleet in self.fleets[:-1]))

    @property
    def capacity_qps(self) -> float:
        """Largest load that can be answered within the longest SLO."""
        return sum(fleet.capacity_qps for fleet in self.fleets)


def site_of(fleets: Sequence[Fleet]) -> Site:
    """Return the workers of all fleets, numbered through; each holds all models of its fleet.

    A model that several fleets hold occurs once for each.
    """
    types = np.repeat(np.arange(len(fleets)), [fleet.workers for fleet in fleets])
    models = tuple(name for fleet in fleets for name in fleet.models)
    first = [0, *accumulate(len(fleet.models) for fleet in fleets)]
    return Site(
        tuple(f"worker {worker}" for worker in range(len(types))), types,
        np.ones(len(types), dtype=bool), models,
        np.concatenate([fleet.table.accuracy for fleet in fleets]),
        [range(first[kind], first[kind + 1]) for kind in types.tolist()], models,
        np.arange(len(models)), one_at_a_time=True)


def drawn_slos(
    classes: Sequence[SloClass], requests: int, rng: np.random.Generator
) -> FloatArray | None:
    """Draw the SLO of each request by the shares of the classes, (n,); None with one class."""
    if len(classes) == 1:
        return None
    upto = np.cumsum([slo_class.share for slo_class in classes])
    place = np.searchsorted(upto[:-1], rng.random(requests), side="right")
    slos: FloatArray = np.array([slo_class.slo_ms for slo_class in classes])[place]
    return slos
