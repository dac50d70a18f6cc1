"""Engines of jobs: this process, several processes of this machine, or a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from ramsis.errors import InvalidValueError, check_known, check_number_of
from ramsis.sweep.pool import Runner, process_runner


@dataclass(frozen=True)
class Engine:
    """Engine that runs jobs.

    Attributes
    ----------
    name : str
        One of :data:`ENGINES`.
    workers : int
        Processes, >= 1; with ``address`` the cluster's own.
    address : str or None
        Of a Ray cluster, as ``ray.init`` takes it; ``None`` starts one on this machine.

    Raises
    ------
    InvalidValueError
        No such engine, not a number of workers, or an address without Ray.
    """

    name: str = "processes"
    workers: int = 1
    address: str | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether jobs run in other processes."""
        return self.workers > 1 or self.name != "processes"

    def __post_init__(self) -> None:
        check_known("unknown engine", self.name, ENGINES, "engine")
        check_number_of("processes", self.workers)
        if self.address is not None and self.name != "ray":
            raise InvalidValueError("an address is of a Ray cluster", where="address",
                                    value=self.address, allowed="engine ray")


def runner(engine: Engine, jobs: int) -> AbstractContextManager[Runner]:
    """Return a runner for a number of jobs; leaving the block early ends them at once."""
    return ENGINES[engine.name](replace(engine, workers=min(engine.workers, max(1, jobs))))


@contextmanager
def _processes(engine: Engine) -> Iterator[Runner]:
    with process_runner(engine.workers) as run:
        yield run


@contextmanager
def _ray(engine: Engine) -> Iterator[Runner]:
    from ramsis.sweep.ray_engine import ray_runner

    with ray_runner(engine.workers, engine.address) as run:
        yield run


ENGINES: dict[str, Callable[[Engine], AbstractContextManager[Runner]]] = {
    "processes": _processes, "ray": _ray,
}
