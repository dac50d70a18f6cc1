"""Stations: some like workers, one queue, one decision table; and the cluster that they make up.

A station is a queue with the workers that take from it, not these workers themselves: two stations
may take turns on the same workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ramsis.cluster.service_times import default_service
from ramsis.cluster.slo_class import SloClass, merged_classes
from ramsis.cluster.worker_type import WorkerType, check_names
from ramsis.errors import InvalidValueError, check_number_of, describe
from ramsis.profiles.model import ProfileSet
from ramsis.runtime.policy_set import ALL_WORKERS

__all__ = ["Cluster", "Station"]

MAX_WORKERS = 10_000_000
"""Most workers of a type: what an array of a number for each still holds."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Station:
    """Some like workers with one queue.

    Attributes
    ----------
    name : str
    worker_types : tuple of str
        Names of the types that the workers are of; types that run alike count as one.
    workers : int
        How many take from the queue, >= 1.
    share : mapping of float to float
        By SLO in ms: share of this class's queries that comes here, in (0, 1]; to all stations
        of this kind together.
    multiplicity : int
        How many such stations there are, each with a queue of its own, >= 1.

    Raises
    ------
    InvalidValueError
        A number out of range, or no share.
    """

    name: str
    worker_types: tuple[str, ...]
    workers: int
    share: Mapping[float, float]
    multiplicity: int = 1

    def __post_init__(self) -> None:
        check_number_of("workers", self.workers, where=f"station {self.name}",
                        most=MAX_WORKERS)
        check_number_of("stations", self.multiplicity, where=f"station {self.name}")
        for slo_ms, share in self.share.items():
            SloClass(slo_ms, share)
        if not self.share:
            raise InvalidValueError(describe("no queries come here",
                                             where=f"station {self.name}", value={},
                                             allowed="a share of one SLO class or more"))

    @property
    def all_workers(self) -> int:
        """The workers of all like stations."""
        return self.workers * self.multiplicity

    def query_share(self, classes: Sequence[SloClass]) -> float:
        """Share of all queries that comes here, to all like stations together."""
        return math.fsum(one.share * self.share.get(one.slo_ms, 0.0) for one in classes)

    def own_classes(self, classes: Sequence[SloClass]) -> tuple[SloClass, ...]:
        """The classes of the queries that come here, by rising SLO; shares of these queries."""
        total = self.query_share(classes)
        return merged_classes([SloClass(one.slo_ms, one.share * self.share[one.slo_ms] / total)
                               for one in classes if one.slo_ms in self.share])


@dataclass(frozen=True, eq=False)
class Cluster:
    """Workers of some types, queries of some SLO classes, and the stations that answer them.

    Attributes
    ----------
    worker_types : tuple of WorkerType
        One or more, of different names, each with a count.
    classes : tuple of SloClass
        By rising SLO; their shares sum to 1.
    stations : tuple of Station
        None, where it is still to be decided; else every class goes to some of them whole.

    Raises
    ------
    InvalidValueError
        A name twice, a number out of range, or shares that do not sum to 1.
    """

    worker_types: tuple[WorkerType, ...]
    classes: tuple[SloClass, ...]
    stations: tuple[Station, ...] = ()

    def __post_init__(self) -> None:
        check_names(self.worker_types, "workers")
        for one in self.worker_types:
            check_number_of("workers", one.count, where=f"type {one.name}",
                            most=MAX_WORKERS)
        object.__setattr__(self, "classes", merged_classes(self.classes))
        if self.stations:
            self._check_stations()

    @classmethod
    def of(cls, profile: ProfileSet, *, workers: int, slo_ms: float) -> Cluster:
        """Like workers, and one SLO for all queries.

        Parameters
        ----------
        profile : ProfileSet
        workers : int
            >= 1.
        slo_ms : float
            Deadline after arrival, > 0.

        Raises
        ------
        InvalidValueError
            A number out of range.
        """
        check_number_of("workers", workers, most=MAX_WORKERS)
        return cls((WorkerType(ALL_WORKERS, profile, workers),), (SloClass(float(slo_ms)),))

    @property
    def simple(self) -> bool:
        """Whether there are one worker type, not named, and one SLO."""
        return [one.name for one in self.worker_types] == [ALL_WORKERS] and len(self.classes) == 1

    @property
    def default_service(self) -> str:
        """The service times of all its workers where none are named."""
        return default_service(*(one.profile for one in self.worker_types))

    def _check_stations(self) -> None:
        names = {one.name for one in self.worker_types}
        for station in self.stations:
            for name in station.worker_types:
                if name not in names:
                    raise InvalidValueError(describe("unknown worker type",
                                                     where=f"station {station.name}", value=name,
                                                     allowed=", ".join(sorted(names))))
        for one in self.classes:
            total = math.fsum(station.share.get(one.slo_ms, 0.0) for station in self.stations)
            if abs(total - 1.0) > _ROUNDING:
                raise InvalidValueError(describe("shares of the stations do not sum to 1",
                                                 where=f"class of {one.label}",
                                                 value=round(total, 9), allowed="1"))

    @property
    def workers(self) -> int:
        """Of all types."""
        return sum(one.count or 0 for one in self.worker_types)

    @property
    def slo_ms(self) -> float:
        """The longest."""
        return self.classes[-1].slo_ms
