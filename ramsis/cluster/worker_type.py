"""Worker types and variants: what workers there are, and what they can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InvalidValueError, check_positive, describe
from ramsis.profiles.model import ProfileSet

__all__ = ["Variant", "WorkerType", "check_names"]


@dataclass(frozen=True, eq=False)
class WorkerType:
    """Workers that are alike.

    Attributes
    ----------
    name : str
    profile : ProfileSet
        What they run, and how fast at a speed of 1.
    count : int or None
        How many there are, >= 1; None where there are as many as are wanted.
    cost : float
        Of one worker for a unit of time, > 0.
    speed : float
        Batches take what the profile says, divided by this; > 0.
    memory_mb : float or None
        Of one worker for variants, > 0; None where it does not matter.
    cores : int or None
        Of one worker, >= 1; None where they do not matter.

    Raises
    ------
    InvalidValueError
        A speed or a memory out of range. Counts and costs are checked where they are used.
    """

    name: str
    profile: ProfileSet
    count: int | None = None
    cost: float = 1.0
    speed: float = 1.0
    memory_mb: float | None = None
    cores: int | None = None

    def __post_init__(self) -> None:
        check_positive(speed=self.speed)
        if self.memory_mb is not None:
            check_positive(memory_mb=self.memory_mb)

    def service_times(self, service: str, max_batch: int) -> ServiceTimes:
        """What batches of 1 … ``max_batch`` take; see :meth:`ServiceTimes.of`."""
        times = ServiceTimes.of(self.profile, service, max_batch)
        return times if self.speed == 1.0 else times.scaled(1.0 / self.speed)


@dataclass(frozen=True, eq=False)
class Variant:
    """A trained model.

    Attributes
    ----------
    name : str
    family : str
        The task: queries of a family can be answered by any of its variants.
    accuracy : float
        Fraction.
    memory_mb : float
        That it takes once loaded, > 0.
    load_ms : float
        Time to load it onto a worker, >= 0.
    times_ms : mapping of str to ndarray, shape (B, Q)
        By the name of a worker type: quantiles of the time of each batch, as of
        :class:`ServiceTimes`.
    """

    name: str
    family: str
    accuracy: float
    memory_mb: float
    load_ms: float = 0.0
    times_ms: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)

    @staticmethod
    def service_times(
        variants: Sequence[Variant], worker_type: str, service: str
    ) -> ServiceTimes:
        """What batches of some variants take on a worker type, of those that run there."""
        there = [one for one in variants if worker_type in one.times_ms]
        if not there:
            raise InvalidValueError(describe("no variant runs on this worker type",
                                             where="worker type", value=worker_type))
        return ServiceTimes.of_batches([one.name for one in there],
                                       [one.accuracy for one in there],
                                       [one.times_ms[worker_type] for one in there], service)


def check_names(types: Sequence[WorkerType], where: str) -> None:
    """Refuse no worker types, or a name twice."""
    names = [one.name for one in types]
    if not types or len(set(names)) < len(names):
        raise InvalidValueError(describe("not worker types of different names", where=where,
                                         value=names, allowed="one or more"))
