"""A scheduler, prepared for the workers that it decides about.

A scheduler serves one *station*: a group of equal workers and the requests routed to them. On a
cluster of several worker types each type is a station, and requests are routed at random in
proportion to the types' capacity within the shortest SLO. Policy sets define their own stations
instead. With several SLO classes a scheduler's rules use the shortest SLO.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Protocol, runtime_checkable

from ramsis.reprs import dataclass
from ramsis.runtime.policy_set import ALL_WORKERS, Level, PolicySet, Station
from ramsis.sim import engine
from ramsis.sim.fleet import Fleet, Fleets
from ramsis.sim.tables import Compiled


class ClusterScheduler(Protocol):
    """Interface of a scheduler that can be simulated on a cluster."""

    @property
    def name(self) -> str:
        """Return the scheduler's name in tables of results."""
        ...

    @property
    def max_batch(self) -> int:
        """Largest batch that the scheduler needs the workers to be able to run."""
        ...

    def on_cluster(self, fleets: Fleets) -> ClusterPlan:
        """Return the stations of a cluster, and how requests are routed to them."""
        ...


@runtime_checkable
class FleetScheduler(ClusterScheduler, Protocol):
    """Interface of a scheduler with parameters that can be prepared for any fleet."""

    def prepare(self, fleet: Fleet) -> Plan:
        """Check the parameters against a fleet, and return the plan that all runs share."""
        ...


class PerType:
    """Base class of schedulers that have a station for each worker type."""

    @property
    def max_batch(self) -> int:
        """1: the scheduler is content with whatever batches the workers run."""
        return 1

    def on_cluster(self: FleetScheduler, fleets: Fleets) -> ClusterPlan:
        """Return a station for each worker type, with shares by capacity."""
        return ClusterPlan.by_capacity(self, fleets)


@dataclass(frozen=True, eq=False)
class Plan(PerType):
    """Scheduler that is prepared for a fleet, from which runs are started.

    A scheduler of one's own needs no more than a name and its class: ``Plan("mine", Mine)``.
    """

    name: str
    # makes the :class:`~ramsis.sim.engine.Scheduler` of one run
    start: Callable[[engine.WorkerGroup], engine.Scheduler[engine.WorkerGroup]]
    # the scheduler's decisions as tables, if they depend only on load, queue length and slack
    compiled: Compiled | None = None
    max_batch: int = 1  # largest batch that the scheduler needs the fleet to run
    own: str | None = None  # name of the user's own code that decides, as the user gave it

    @property
    def cascades(self) -> bool:
        """Whether some requests may get a second opinion."""
        return self.compiled is not None and any(
            cascade is not None for cascade in self.compiled.cascades)

    def prepare(self, fleet: Fleet) -> Plan:
        """Return the plan itself: it is already prepared for its fleet."""
        return self


@dataclass(frozen=True, eq=False)
class StationPlan:
    """Station of a run: its workers and the scheduler that serves there."""

    number: int  # index among the stations of the level
    fleet: Fleet  # the station's workers, with the SLO for which the scheduler was prepared
    workers: range  # numbers of these workers in the run
    plan: Plan  # prepared for the fleet
    load_share: float = 1.0  # share of the load of the cluster that the scheduler is told


@dataclass(frozen=True, eq=False)
class ClusterPlan:
    """Scheduler prepared for a cluster: its stations at each load level, and their shares."""

    name: str
    fleets: Fleets
    levels: PolicySet[StationPlan]

    @property
    def max_batch(self) -> int:
        """Largest batch that any of its stations needs."""
        return max(station.policy.plan.max_batch for level in self.levels.levels
                   for station in level.stations)

    @property
    def cascades(self) -> bool:
        """Whether a station may give second opinions."""
        return any(station.policy.plan.cascades for level in self.levels.levels
                   for station in level.stations)

    def on_cluster(self, fleets: Fleets) -> ClusterPlan:
        """Return the plan itself: it is already prepared for its cluster."""
        return self

    @classmethod
    def of_one(cls, plan: Plan, fleets: Fleets, fleet: Fleet | None = None) -> ClusterPlan:
        """Return a plan with one station of all workers of a type.

        ``fleet`` is the one that ``plan`` was prepared for, by default the only one of ``fleets``.
        """
        fleet = fleet or fleets.fleets[0]
        return _one_level(plan.name, fleets, [
            (1.0, StationPlan(0, fleet, range(fleet.workers), plan))])

    @classmethod
    def by_capacity(cls, spec: FleetScheduler, fleets: Fleets) -> ClusterPlan:
        """Return a plan with a station for each worker type, with shares by in-time capacity."""
        slo_ms = fleets.classes[0].slo_ms
        within = [replace(fleet, slo_ms=slo_ms) if fleet.slo_ms != slo_ms else fleet
                  for fleet in fleets.fleets]
        if len(within) == 1:
            return cls.of_one(spec.prepare(within[0]), fleets, within[0])
        total = sum(fleet.capacity_qps for fleet in within)
        stations: list[tuple[float, StationPlan]] = []
        for fleet, first in zip(within, fleets.first_workers, strict=True):
            share = fleet.capacity_qps / total
            if share > 0:
                stations.append((share, StationPlan(
                    len(stations), fleet, range(first, first + fleet.workers),
                    spec.prepare(fleet), share)))
        return _one_level(spec.name, fleets, stations)


def _one_level(
    name: str, fleets: Fleets, stations: list[tuple[float, StationPlan]]
) -> ClusterPlan:
    """Return a plan whose stations serve at every load, with their shares of each class."""
    level = Level(inf, "any", tuple(
        Station(str(plan.number), (ALL_WORKERS,), len(plan.workers), inf,
                {slo_class.slo_ms: share for slo_class in fleets.classes}, plan)
        for share, plan in stations), {})
    shares = {slo_class.slo_ms: slo_class.share for slo_class in fleets.classes}
    return ClusterPlan(name, fleets, PolicySet([level], fleets.worker_types, shares))


def have_kernels(level: Level[StationPlan]) -> bool:
    """Return whether every station of a level has a kernel that handles its SLO classes."""
    return all(station.policy.plan.compiled is not None
               and (len(station.share) == 1 or station.policy.plan.compiled.central)
               for station in level.stations)
