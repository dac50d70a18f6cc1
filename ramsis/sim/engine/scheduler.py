"""Interface of schedulers, which make the decisions of a run.

A scheduler is a class. The engine creates an instance for each run and calls its methods ``on_…``
at events; the scheduler acts through ``self.engine``. Decisions take no time. A scheduler that
serves a whole cluster gets the :class:`~ramsis.sim.engine.Engine`; a scheduler of equal workers
that hold all models gets only a :class:`WorkerGroup`. Parameters of the constructor after
``engine``, with ``int``, ``float``, ``bool`` or ``str`` as their type, can be given on the command
line (``NAME:key=value``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from ramsis.errors import InputFileError, InvalidValueError, at_least
from ramsis.sim.fleet import Fleet

E = TypeVar("E")


class SchedulerError(InvalidValueError):
    """Impossible action of a scheduler; the message names the time and the event."""


class Scheduler(Generic[E]):
    """Base class of schedulers, which decide in one run; events not overridden are ignored.

    Parameters
    ----------
    engine : Engine or WorkerGroup
        Engine of a run that has not started.
    """

    _passed_as = 'of a class of your own, Plan("name", Class)'  # where a scheduler is expected

    def __init__(self, engine: E) -> None:
        self.engine = engine

    def on_start(self) -> None:
        """Handle the start of the run."""

    def on_arrival(self, request: int) -> None:
        """Handle the arrival of a request."""

    def on_arrivals(self, requests: Sequence[int]) -> None:
        """Queue requests that are rerouted from other stations; by default each as an arrival."""
        for request in requests:
            self.on_arrival(request)

    def on_end(self, worker: int, batch: int) -> None:
        """Handle the end of a batch; of a continuous batch, that of one request."""

    def on_loaded(self, worker: int, model: int) -> None:
        """Handle the end of loading a model onto a worker."""

    def on_ready(self, request: int) -> None:
        """Handle a request that a machine has prepared: it waits for inference now."""

    def on_processed(self, request: int) -> None:
        """Handle a request that has left its machine, answered."""

    def on_scaled(self, worker: int) -> None:
        """Handle the start of a worker: it is active now."""

    def on_timer(self, token: object) -> None:
        """Handle a timer that the scheduler set by ``wake_at``."""

    def figures(self) -> dict[str, float]:
        """Return further figures by name at the end of the run; rows of results include them."""
        return {}


class WorkerGroup(Protocol):
    """Workers that hold all models: an :class:`Engine`, or a part of one.

    Workers and models are numbered from 0.
    """

    @property
    def fleet(self) -> Fleet:
        """Workers that the scheduler decides about, with their models and the SLO."""
        ...

    @property
    def now_ms(self) -> float:
        """Present time of the simulation, in ms."""
        ...

    @property
    def monitored(self) -> bool:
        """Whether the load is anticipated by the monitor and so changes during the run."""
        ...

    def load_qps(self) -> float:
        """Return the load in requests per second, stated or anticipated by the monitor."""
        ...

    def is_idle(self, worker: int) -> bool:
        """Return whether a worker can start a batch now."""
        ...

    def idle_workers(self) -> list[int]:
        """Return the idle workers as a scheduler starts, the one idle longest first."""
        ...

    def in_service(self) -> list[int]:
        """Return the number of requests in each worker's batch as a scheduler starts."""
        ...

    def deadline_ms(self, request: int) -> float:
        """Return when the answer to a request is due."""
        ...

    def run(self, worker: int, model: int, requests: Sequence[int]) -> int:
        """Start a batch on an idle worker."""
        ...

    def drop(self, request: int) -> None:
        """Give up a waiting request."""
        ...

    def wake_at(self, at_ms: float, token: object = None) -> None:
        """Have the scheduler's ``on_timer`` called with ``token`` at a time."""
        ...


def check_at_least(least: float, where: str, **parameters: float) -> None:
    """Refuse parameters of a scheduler that are smaller, not numbers or not finite."""
    for name, value in parameters.items():
        at_least(least).required(f"{where}: {name}", value, "parameter out of range",
                                 InputFileError)
