"""Worker types: numbers of workers, their profiles, speeds and costs."""

from __future__ import annotations

from collections.abc import Sequence

from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InvalidValueError, check_positive
from ramsis.profiles.model import ProfileSet
from ramsis.reprs import dataclass


@dataclass(frozen=True, eq=False)
class WorkerType:
    """Workers of one type: profile, number, speed and cost.

    Attributes
    ----------
    name : str
    profile : ProfileSet
        Models that they run, with latencies at speed 1.
    count : int or None
        Number of workers, >= 1; None for an unlimited number.
    cost : float
        Of one worker for a unit of time, > 0.
    speed : float
        Latencies of the profile are divided by it; > 0.

    Raises
    ------
    InvalidValueError
        A speed out of range. Counts and costs are checked where they are used.
    """

    name: str
    profile: ProfileSet
    count: int | None = None
    cost: float = 1.0
    speed: float = 1.0

    def __post_init__(self) -> None:
        check_positive(speed=self.speed)

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
