"""All schedulers by name: those of the simulation, and those that plan with other parts."""

from __future__ import annotations

from ramsis.errors import InputFileError
from ramsis.planning.planned import PlannedByFile
from ramsis.policy import DISPATCHES
from ramsis.sim.cluster import SCHEDULERS as SIMULATED
from ramsis.sim.cluster import SchedulerSpec, scheduler

SCHEDULERS = SIMULATED.also({"planned": PlannedByFile})
"""What ``--scheduler`` names on scenarios."""


def scheduler_named(text: str) -> SchedulerSpec:
    """The scheduler that a text names, as :func:`ramsis.sim.cluster.scheduler` reads it.

    Raises
    ------
    InputFileError
        An unknown name or parameter, or a class of one's own that cannot be imported; policies
        that would have to be made.
    """
    name = text.partition(":")[0]
    if name in DISPATCHES and name not in SCHEDULERS:
        raise InputFileError("policies are made for the load of a fleet, and not for a scenario",
                             where="scheduler", value=text,
                             allowed="policies:files=DIR, that `ramsis generate` makes")
    return scheduler(text, SCHEDULERS)
