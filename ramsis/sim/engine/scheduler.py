"""What decides in a run: a scheduler.

A scheduler is a class. The engine makes one for each run and tells it what happens; it acts
through ``self.engine``. What it does takes no time. One that serves a whole cluster sees the
:class:`~ramsis.sim.engine.ClusterEngine`; one that serves like workers, which hold all models,
sees no more than a :class:`WorkerGroup`. Parameters of the constructor after ``engine``, with
``int``, ``float``, ``bool`` or ``str`` as their type, can be given on the command line
(``NAME:key=value``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from ramsis.errors import InputFileError, InvalidValueError, at_least
from ramsis.sim.fleet import Fleet

E = TypeVar("E")


class SchedulerError(InvalidValueError):
    """A scheduler did what cannot be done; the message names time and event."""


class Scheduler(Generic[E]):
    """The decisions of one run. Subclass it; an event that a subclass does not take up is ignored.

    Parameters
    ----------
    engine : Engine or WorkerGroup
        Just about to start.
    """

    def __init__(self, engine: E) -> None:
        self.engine = engine

    def on_start(self) -> None:
        """The run begins."""

    def on_arrival(self, request: int) -> None:
        """A request has arrived."""

    def on_arrivals(self, requests: Sequence[int]) -> None:
        """Requests have come that waited elsewhere; by default they come one by one."""
        for request in requests:
            self.on_arrival(request)

    def on_end(self, worker: int, batch: int) -> None:
        """A batch has ended; of a continuous batch, one request has left it."""

    def on_loaded(self, worker: int, model: int) -> None:
        """A model has been loaded."""

    def on_ready(self, request: int) -> None:
        """A request that a machine has prepared waits for inference now."""

    def on_processed(self, request: int) -> None:
        """A request has left its machine, answered."""

    def on_scaled(self, worker: int) -> None:
        """A worker that was started is active."""

    def on_timer(self, token: object) -> None:
        """A time asked for has come."""

    def figures(self) -> dict[str, float]:
        """Return further figures at the end of the run; they become columns of its row."""
        return {}


class WorkerGroup(Protocol):
    """Like workers that hold all models: a :class:`FleetEngine`, or a part of one.

    Workers and models are numbered from 0.
    """

    @property
    def fleet(self) -> Fleet:
        """The workers that the scheduler decides about; with their models and the SLO."""
        ...

    @property
    def now_ms(self) -> float:
        """The present time."""
        ...

    @property
    def monitored(self) -> bool:
        """Whether the load is anticipated by the monitor and so changes during the run."""
        ...

    def load_qps(self) -> float:
        """The load, as stated or as the monitor anticipates it."""
        ...

    def is_idle(self, worker: int) -> bool:
        """Whether a worker can start a batch now."""
        ...

    def idle_workers(self) -> list[int]:
        """The idle workers as a scheduler starts, the one that has been idle longest first."""
        ...

    def in_service(self) -> list[int]:
        """Requests in each worker's batch as a scheduler starts."""
        ...

    def deadline_ms(self, request: int) -> float:
        """When the answer to a request is due."""
        ...

    def run(self, worker: int, model: int, requests: Sequence[int]) -> int:
        """Start a batch on an idle worker."""
        ...

    def drop(self, request: int) -> None:
        """Give a waiting request up."""
        ...

    def wake_at(self, at_ms: float, token: object = None) -> None:
        """Have the scheduler's ``on_timer`` called with ``token`` at a time."""
        ...


def check_at_least(least: float, where: str, **parameters: float) -> None:
    """Refuse parameters of a scheduler that are smaller, not numbers or not finite."""
    for name, value in parameters.items():
        at_least(least).required(f"{where}: {name}", value, "parameter out of range",
                                 InputFileError)
