"""All schedulers by name: those of the simulation, and those that plan with other parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ramsis.errors import InvalidValueError, describe
from ramsis.planning.planned import PlannedByFile
from ramsis.sim.cluster import SCHEDULERS as SIMULATED
from ramsis.sim.cluster import Scheduler, SchedulerSpec, scheduler

__all__ = ["SCHEDULERS", "check_trusted_scheduler", "scheduler_named"]

SCHEDULERS: Mapping[str, type[Scheduler]] = {**SIMULATED, "planned": PlannedByFile}
"""What ``ramsis cluster --scheduler`` names."""


def scheduler_named(text: str) -> SchedulerSpec:
    """The scheduler that a text names, as :func:`ramsis.sim.cluster.scheduler` reads it.

    Raises
    ------
    InputFileError
        An unknown name or parameter, or a class of one's own that cannot be imported.
    """
    return scheduler(text, SCHEDULERS)


def check_trusted_scheduler(text: str, own: Collection[str] = ()) -> None:
    """Refuse a text of a file that names a scheduler of someone's own, unless the user did, too.

    Parameters
    ----------
    text : str
        As :func:`scheduler_named` takes it.
    own : collection of str
        ``file.py:Class`` or ``package.module:Class`` that the user trusts.

    Raises
    ------
    InvalidValueError
        When the text names another class.
    """
    place, colon, rest = text.partition(":")
    named = f"{place}:{rest.partition(':')[0]}"
    if colon and place not in SCHEDULERS and named not in own:
        raise InvalidValueError(
            describe("a scheduler of its maker's own is not imported on a file's word",
                     where="scheduler", value=text,
                     allowed=f"--scheduler {named}, where you trust that code"))
