"""A scheme, prepared for a fleet: what :func:`ramsis.sim.simulate` runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ramsis.sim.engine import Scheme, StationEngine
from ramsis.sim.fleet import Fleet
from ramsis.sim.tables import Compiled

__all__ = ["Plan", "SchemeSpec"]


@dataclass(frozen=True, eq=False)
class Plan:
    """How runs of a scheme are started.

    A scheme of one's own needs no more than a name and its class: ``Plan("mine", Mine)``.

    Attributes
    ----------
    name : str
    start : callable
        Makes the :class:`~ramsis.sim.engine.Scheme` of one run.
    compiled : Compiled, optional
        The same decisions as tables, where they are a function of load, queue and slack.
    max_batch : int
        Largest batch that the scheme needs the fleet to run, whatever it runs anyway.
    """

    name: str
    start: Callable[[StationEngine], Scheme]
    compiled: Compiled | None = None
    max_batch: int = 1

    def prepare(self, fleet: Fleet) -> Plan:
        """A plan is prepared already."""
        return self


@runtime_checkable
class SchemeSpec(Protocol):
    """A scheme with its parameters, for any fleet."""

    @property
    def name(self) -> str:
        """As in results."""
        ...

    def prepare(self, fleet: Fleet) -> Plan:
        """Check the parameters against a fleet, and do what can be done before any run."""
        ...
