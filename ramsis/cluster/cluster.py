"""Clusters: workers of some types, and the SLO classes of the requests that they answer."""

from __future__ import annotations

from ramsis.cluster.service_times import default_service
from ramsis.cluster.slo_class import SloClass, merged_classes
from ramsis.cluster.worker_type import WorkerType, check_names
from ramsis.errors import check_number_of
from ramsis.profiles.model import ProfileSet
from ramsis.reprs import dataclass
from ramsis.runtime.policy_set import ALL_WORKERS

MAX_WORKERS = 10_000_000
"""Most workers of a type, so that arrays by worker fit into memory."""


@dataclass(frozen=True, eq=False)
class Cluster:
    """Workers of several types, and SLO classes of the requests.

    Each level of a policy set states the stations that answer them
    (:class:`ramsis.runtime.policy_set.Station`).

    Attributes
    ----------
    worker_types : tuple of WorkerType
        One or more, with distinct names, each with a count.
    classes : tuple of SloClass
        By rising SLO; their shares sum to 1.

    Raises
    ------
    InvalidValueError
        A name twice, a number out of range, or shares that do not sum to 1.
    """

    worker_types: tuple[WorkerType, ...]
    classes: tuple[SloClass, ...]

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
        """Create a cluster of identical workers, with one SLO for all requests.

        Parameters
        ----------
        workers : int
            >= 1.
        slo_ms : float
            Deadline after arrival, > 0.
        """
        check_number_of("workers", workers, most=MAX_WORKERS)
        return cls((WorkerType(ALL_WORKERS, profile, workers),), (SloClass(float(slo_ms)),))

    @property
    def simple(self) -> bool:
        """Whether there is a single worker type, without a name, and a single SLO."""
        names = [worker_type.name for worker_type in self.worker_types]
        return names == [ALL_WORKERS] and len(self.classes) == 1

    @property
    def default_service(self) -> str:
        """The default service times of its worker types."""
        return default_service(*(worker_type.profile for worker_type in self.worker_types))

    @property
    def workers(self) -> int:
        """Return the number of workers of all types."""
        return sum(worker_type.count or 0 for worker_type in self.worker_types)

    @property
    def slo_ms(self) -> float:
        """The longest SLO of the classes."""
        return self.classes[-1].slo_ms
