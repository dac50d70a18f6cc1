"""What decides in a run of a cluster: a scheduler.

A scheduler is a class. The engine makes one for each run and tells it what happens
(:class:`~ramsis.sim.cluster.events.Listener`); it acts through ``self.engine``
(:class:`~ramsis.sim.cluster.engine.ClusterEngine`). What it does takes no time. Parameters of the
constructor after ``engine``, with ``int``, ``float``, ``bool`` or ``str`` as their type, can be
given on the command line (``NAME:key=value``).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from ramsis.errors import InputFileError, describe
from ramsis.sim.cluster.engine import ClusterEngine
from ramsis.sim.cluster.events import Listener

__all__ = ["Scheduler", "SchedulerMaker", "check_at_least"]


class Scheduler(Listener):
    """The decisions of one run. Subclass it; an event that a subclass does not take up is ignored.

    Parameters
    ----------
    engine : ClusterEngine
        Just about to start.
    """

    def __init__(self, engine: ClusterEngine) -> None:
        self.engine = engine


def check_at_least(least: float, where: str, **parameters: float) -> None:
    """Refuse parameters of a scheduler that are smaller, not numbers or not finite.

    Raises
    ------
    InputFileError
        Naming the first of them.
    """
    for name, value in parameters.items():
        if not least <= value < inf:
            raise InputFileError(describe("parameter out of range", where=f"{where}: {name}",
                                             value=value, allowed=f"a number >= {least:g}"))


SchedulerMaker = Callable[[ClusterEngine], Listener]
"""Makes the scheduler of a run."""
