"""The workers of a cluster in a simulation: those that run alike are one fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster import Cluster, ServiceTimes, SloClass, WorkerType
from ramsis.cluster.checks import below_every_latency, numbered_alike
from ramsis.cluster.service_times import seen_table
from ramsis.runtime.policy_set import ALL_WORKERS
from ramsis.sim.fleet import MAX_BATCH, Fleet, check_delay, measured_sizes, times_as_they_are

__all__ = ["Fleets", "drawn_slos"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fleets:
    """The fleets of a cluster; their workers are numbered through.

    Attributes
    ----------
    fleets : tuple of Fleet
        With the SLO classes of the cluster; the SLO is the longest.
    worker_types : mapping of str to int
        Workers by name of the type.
    fleet_of : mapping of str to int
        Index of each type's fleet.
    classes : tuple of SloClass
        By rising SLO.
    """

    fleets: tuple[Fleet, ...]
    worker_types: Mapping[str, int]
    fleet_of: Mapping[str, int]
    classes: tuple[SloClass, ...]

    @classmethod
    def of(
        cls, cluster: Cluster, *, service: str | None = None, network_ms: float = 0.0,
        max_batch: int = MAX_BATCH,
    ) -> Fleets:
        """The fleets of a cluster.

        Parameters
        ----------
        service, network_ms, max_batch
            As of :meth:`ramsis.sim.Fleet.of`.

        Raises
        ------
        InvalidValueError
            A number out of range, or a statistic that a profile lacks.
        InfeasibleError
            An SLO that no worker type can keep.
        """
        check_delay(network_ms)
        types, classes = cluster.worker_types, cluster.classes
        service = service or cluster.default_service
        several = classes if len(classes) > 1 else ()
        made = [_fleet(one, cluster.slo_ms, several, service, network_ms, max_batch)
                for one in types]
        lowest = min(float(one.table.latency_ms[:, 0].min()) for one in made)
        if lowest > classes[0].slo_ms:
            raise below_every_latency(classes[0].slo_ms, lowest,
                                      whose="SLO of a class" if several else "SLO")
        alike = numbered_alike([one.service_times for one in made])
        fleets = tuple(
            replace(made[alike.index(kind)], workers=sum(
                one.workers for one, own in zip(made, alike, strict=True) if own == kind))
            for kind in range(max(alike) + 1))
        return cls(fleets, {one.name: own.workers for one, own in zip(types, made, strict=True)},
                   {one.name: kind for one, kind in zip(types, alike, strict=True)}, classes)

    @classmethod
    def of_one(cls, fleet: Fleet) -> Fleets:
        """A single fleet."""
        return cls((fleet,), {ALL_WORKERS: fleet.workers}, {ALL_WORKERS: 0},
                   fleet.classes or (SloClass(fleet.slo_ms),))

    @property
    def workers(self) -> int:
        """Of all fleets."""
        return sum(fleet.workers for fleet in self.fleets)

    @property
    def first_workers(self) -> tuple[int, ...]:
        """Number of each fleet's first worker."""
        return (0, *accumulate(fleet.workers for fleet in self.fleets[:-1]))

    @property
    def capacity_qps(self) -> float:
        """Largest load that can be answered within the longest SLO."""
        return sum(fleet.capacity_qps for fleet in self.fleets)

    def drawn_slos(self, queries: int, rng: np.random.Generator) -> FloatArray | None:
        """The SLO of each query, its class drawn by the shares; None with one SLO for all."""
        return drawn_slos(self.classes, queries, rng)


def drawn_slos(
    classes: Sequence[SloClass], queries: int, rng: np.random.Generator
) -> FloatArray | None:
    """The SLO of each of some queries, shape (n,); None with one SLO for all."""
    if len(classes) == 1:
        return None
    upto = np.cumsum([one.share for one in classes])
    place = np.searchsorted(upto[:-1], rng.random(queries), side="right")
    slos: FloatArray = np.array([one.slo_ms for one in classes])[place]
    return slos


def _fleet(
    one: WorkerType, slo_ms: float, classes: tuple[SloClass, ...], service: str,
    network_ms: float, max_batch: int,
) -> Fleet:
    """All workers of a type."""
    table = seen_table(one.profile, service, max_batch)
    times = ServiceTimes.of_all(one.profile, service, max_batch)
    own_ms = times_as_they_are(one.profile, times) / one.speed
    if one.speed != 1.0:
        table = replace(table, latency_ms=table.latency_ms / one.speed)
        times = times.scaled(1.0 / one.speed)
    return Fleet(table, np.ascontiguousarray(times.quantiles_ms), one.count or 0, float(slo_ms),
                 float(network_ms), service, classes, times.levels, own_ms,
                 measured_sizes(one.profile))
