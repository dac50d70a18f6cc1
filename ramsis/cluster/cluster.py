"""Clusters: workers of some types, and the SLO classes of the requests that they answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ramsis.cluster.service_times import ServiceTimes, default_service
from ramsis.errors import (
    ABOVE_ZERO,
    POSITIVE,
    InfeasibleError,
    InvalidValueError,
    check_number_of,
    check_positive,
)
from ramsis.profiles.model import ProfileSet
from ramsis.profiles.values import MOST_MS
from ramsis.reprs import dataclass
from ramsis.runtime.policy_set import ALL_WORKERS
from ramsis.settings import Checked, setting

LONGEST_SLO_MS = MOST_MS

_ROUNDING = 1e-9

_FASTEST = "the fastest model's batch of 1"

MAX_WORKERS = 10_000_000
"""Most workers of a type, so that arrays by worker fit into memory."""


@dataclass(frozen=True, eq=False)
class Cluster:
    """Workers of several types, and SLO classes of the requests.

    Each level of a policy set states the stations that answer them
    (:class:`ramsis.runtime.policy_set.Station`).
    """

    worker_types: tuple[WorkerType, ...]  # one or more of distinct names, each with a count
    classes: tuple[SloClass, ...]  # by rising SLO; their shares sum to 1

    def __post_init__(self) -> None:
        check_names(self.worker_types, "workers")
        for worker_type in self.worker_types:
            name = worker_type.name
            where = "workers" if name == ALL_WORKERS else f"workers: {name}"
            check_number_of("workers", worker_type.count, where=where, most=MAX_WORKERS)
        object.__setattr__(self, "classes", merged_classes(self.classes))

    def _summary(self) -> str:
        types = " + ".join(f"{each.count} × {each.profile.name}" for each in self.worker_types)
        return f"of {types}: SLO {', '.join(f'{each.slo_ms:g}' for each in self.classes)} ms"

    @classmethod
    def of(cls, profile: ProfileSet, *, workers: int, slo_ms: float) -> Cluster:
        """Create a cluster of identical workers, with one SLO in ms for all requests."""
        check_number_of("workers", workers, most=MAX_WORKERS)
        return cls((WorkerType(ALL_WORKERS, profile, workers),), (SloClass(float(slo_ms)),))

    @property
    def simple(self) -> bool:
        """Whether there is a single worker type, without a name, and a single SLO."""
        names = [worker_type.name for worker_type in self.worker_types]
        return names == [ALL_WORKERS] and len(self.classes) == 1

    @property
    def default_service(self) -> str:
        """Kind of service times that is used for its worker types by default."""
        return default_service(*(worker_type.profile for worker_type in self.worker_types))

    @property
    def workers(self) -> int:
        """Return the number of workers of all types."""
        return sum(worker_type.count or 0 for worker_type in self.worker_types)

    @property
    def slo_ms(self) -> float:
        """The longest SLO of the classes."""
        return self.classes[-1].slo_ms


@dataclass(frozen=True, eq=False)
class WorkerType(Checked):
    """Workers of one type; number and cost are checked where they are used."""

    name: str
    profile: ProfileSet  # models that they run, with latencies at speed 1
    count: int | None = None  # number of workers, >= 1; None for an unlimited number
    cost: float = 1.0  # of one worker for a unit of time, > 0
    speed: float = setting(1.0, "Latencies of the profile are divided by it.", rule=POSITIVE)

    def service_times(self, service: str, max_batch: int) -> ServiceTimes:
        """Return the service times of batches 1 … ``max_batch``; see :meth:`ServiceTimes.of`."""
        times = ServiceTimes.of(self.profile, service, max_batch)
        return times if self.speed == 1.0 else times.scaled(1.0 / self.speed)


def check_names(types: Sequence[WorkerType], where: str) -> None:
    """Refuse an empty list of worker types, or a name twice."""
    names = [worker_type.name for worker_type in types]
    if not types or len(set(names)) < len(names):
        raise InvalidValueError("not worker types of different names", where=where, value=names,
                                allowed="one or more")


def below_every_latency(
    slo_ms: float, lowest_ms: float, *, whose: str = "SLO", fastest: str = _FASTEST
) -> InfeasibleError:
    """Return the error for an SLO below ``lowest_ms``, the shortest time of any batch."""
    return InfeasibleError(f"{whose} is below every latency", where="slo_ms", value=slo_ms,
                           allowed=f"at least {lowest_ms:g} ms, {fastest}")


def check_reachable(
    times: Sequence[ServiceTimes], classes: Sequence[SloClass], *, fastest: str = _FASTEST
) -> None:
    """Refuse a class that no worker type can ever answer in time."""
    lowest = min(time.lowest_ms for time in times)
    for slo_class in classes:
        if slo_class.slo_ms < lowest:
            raise below_every_latency(slo_class.slo_ms, lowest, fastest=fastest,
                                      whose="SLO" if len(classes) == 1 else "SLO of a class")


def numbered_alike(times: Sequence[ServiceTimes]) -> list[int]:
    """Number the worker types from 0, with the same number for types of equal service times.

    These run the same models equally fast.
    """
    distinct: list[ServiceTimes] = []
    numbers = []
    for service_times in times:
        same = (k for k, other in enumerate(distinct) if service_times.same_as(other))
        numbers.append(next(same, len(distinct)))
        if numbers[-1] == len(distinct):
            distinct.append(service_times)
    return numbers


@dataclass(frozen=True, slots=True, order=True)
class SloClass:
    """A share of the requests and the time in which they want an answer."""

    slo_ms: float  # deadline after arrival, > 0, up to :data:`LONGEST_SLO_MS`
    share: float = 1.0  # of all requests, in (0, 1]

    def __post_init__(self) -> None:
        check_positive(slo_ms=self.slo_ms)
        if self.slo_ms > LONGEST_SLO_MS:
            raise InvalidValueError("longer than any deadline", where="slo_ms", value=self.slo_ms,
                                    allowed=f"up to {LONGEST_SLO_MS:g} ms")
        ABOVE_ZERO.required(f"class of {self.slo_ms:g} ms", self.share,
                            "not a share of the requests")

    @property
    def label(self) -> str:
        """The SLO with its unit, as in file names.

        >>> SloClass(62.5, 0.3).label
        '62.5ms'
        """
        return f"{self.slo_ms:g}ms"


def classes_of(slo_ms: float | Sequence[SloClass]) -> tuple[SloClass, ...]:
    """Return merged SLO classes from an SLO in ms, or from classes.

    >>> classes_of(100.0)
    (SloClass(slo_ms=100.0, share=1.0),)
    """
    return merged_classes([SloClass(slo_ms)] if isinstance(slo_ms, (int, float)) else slo_ms)


def merged_classes(classes: Sequence[SloClass]) -> tuple[SloClass, ...]:
    """Return the classes by rising SLO, equal SLOs merged, with shares that sum to 1.

    >>> merged_classes([SloClass(150.0, 0.5), SloClass(100.0, 0.25), SloClass(100.0, 0.25)])
    (SloClass(slo_ms=100.0, share=0.5), SloClass(slo_ms=150.0, share=0.5))
    """
    total = math.fsum(slo_class.share for slo_class in classes)
    if abs(total - 1.0) > _ROUNDING:
        raise InvalidValueError("shares of the SLO classes do not sum to 1", where="slo_ms",
                                value=round(total, 9), allowed="1")
    levels = sorted({float(slo_class.slo_ms) for slo_class in classes})
    if len(levels) == 1:
        return (SloClass(levels[0]),)
    shares = [math.fsum(slo_class.share for slo_class in classes if slo_class.slo_ms == slo)
              for slo in levels]
    return tuple(SloClass(slo, min(share, 1.0))
                 for slo, share in zip(levels, shares, strict=True))
