"""All schedulers by name: those of the simulation, and those that plan with other parts."""

from __future__ import annotations

from ramsis.planning.planned import PlannedByFile
from ramsis.sim.cluster import SCHEDULERS as SIMULATED
from ramsis.sim.cluster import SchedulerSpec, scheduler

__all__ = ["SCHEDULERS", "scheduler_named"]

SCHEDULERS = SIMULATED.also({"planned": PlannedByFile})
"""What ``ramsis cluster --scheduler`` names."""


def scheduler_named(text: str) -> SchedulerSpec:
    """The scheduler that a text names, as :func:`ramsis.sim.cluster.scheduler` reads it.

    Raises
    ------
    InputFileError
        An unknown name or parameter, or a class of one's own that cannot be imported.
    """
    return scheduler(text, SCHEDULERS)
