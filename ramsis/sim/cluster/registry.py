"""Schedulers by name, with parameters: one way for the command line, scripts and Python.

    clockwork                          a scheduler of this project
    clockwork:ahead_ms=10              with a parameter
    own.py:Mine                        a class in a file
    package.module:Mine:alpha=2        a class in a module, with a parameter

A module or file of the user's own is imported only when the user names it here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ramsis.errors import InputFileError, describe
from ramsis.plugins import blamed, own
from ramsis.sim.cluster.engine import ClusterEngine
from ramsis.sim.cluster.record import ClusterRun
from ramsis.sim.cluster.scheduler import Scheduler
from ramsis.sim.cluster.schedulers.autoscale import Autoscale
from ramsis.sim.cluster.schedulers.baseline import Baseline
from ramsis.sim.cluster.schedulers.clockwork import Clockwork
from ramsis.sim.cluster.schedulers.clockwork_adjusted import ClockworkAdjusted
from ramsis.sim.cluster.schedulers.least_recently_used import LeastRecentlyUsed
from ramsis.sim.cluster.schedulers.modified_baseline import ModifiedBaseline
from ramsis.sim.cluster.schedulers.planned import Planned
from ramsis.sim.cluster.schedulers.planned_loading import PlannedLoading
from ramsis.sim.cluster.schedulers.random import RandomScheduler
from ramsis.sim.cluster.schedulers.rl import RLScheduler
from ramsis.sim.cluster.schedulers.round_robin import RoundRobin
from ramsis.sim.cluster.schedulers.scheme import SchemeScheduler
from ramsis.sim.cluster.schedulers.sigmaos import SigmaOS
from ramsis.sim.cluster.schedulers.sigmaos_colocation import (
    SigmaOSColocation,
    SigmaOSColocationQueue,
)
from ramsis.sim.cluster.schedulers.sigmaos_dynamic import SigmaOSDynamic
from ramsis.sim.cluster.schedulers.sigmaos_registry import SigmaOSRegistry

__all__ = ["SCHEDULERS", "SchedulerSpec", "scheduler"]

SCHEDULERS: Mapping[str, type[Scheduler]] = {
    "autoscale": Autoscale,
    "baseline": Baseline,
    "clockwork": Clockwork,
    "clockwork-adjusted": ClockworkAdjusted,
    "lru": LeastRecentlyUsed,
    "modified-baseline": ModifiedBaseline,
    "planned": Planned,
    "planned-loading": PlannedLoading,
    "random": RandomScheduler,
    "rl": RLScheduler,
    "round-robin": RoundRobin,
    "scheme": SchemeScheduler,
    "sigmaos": SigmaOS,
    "sigmaos-colocation": SigmaOSColocation,
    "sigmaos-colocation-queue": SigmaOSColocationQueue,
    "sigmaos-dynamic": SigmaOSDynamic,
    "sigmaos-registry": SigmaOSRegistry,
}
"""What ``--scheduler`` names; parameters are those of the constructor."""

_NEAR = 3


@dataclass(frozen=True)
class SchedulerSpec:
    """A scheduler and its parameters; called with an engine, it makes the scheduler of a run.

    Attributes
    ----------
    text : str
        As it was named.
    kind : type of Scheduler
    parameters : dict
    own : str or None
        ``file.py:Class`` or ``package.module:Class`` of the user's own.
    """

    text: str
    kind: Callable[..., Scheduler]
    parameters: Mapping[str, Any]
    own: str | None = None

    def __call__(self, engine: ClusterEngine) -> Scheduler:
        """The scheduler of a run."""
        return self.kind(engine, **self.parameters)

    def serve(self, engine: ClusterEngine) -> ClusterRun:
        """Serve the requests of an engine.

        Raises
        ------
        SchedulerError
            It did what cannot be done.
        InputFileError
            The user's own scheduler raised something else; in one line, with file and line.
        """
        if self.own is None:
            return engine.serve(self)
        with blamed(f"scheduler {self.own} failed"):
            return engine.serve(self)


def scheduler(
    text: str, known: Mapping[str, type[Scheduler]] = SCHEDULERS
) -> SchedulerSpec:
    """The scheduler that a text names; see the module's description.

    >>> scheduler("clockwork:ahead_ms=10").parameters
    {'ahead_ms': 10.0}

    Raises
    ------
    InputFileError
        An unknown name or parameter, a value of the wrong kind, or a class that cannot be
        imported or is no scheduler.
    """
    name, _, rest = text.partition(":")
    own = None
    if name in known:
        kind: type[Scheduler] = known[name]
    elif rest:
        attribute, _, rest = rest.partition(":")
        own = name = f"{name}:{attribute}"
        kind = _own(name)
    else:
        near = get_close_matches(name, known, _NEAR) or list(known)
        raise InputFileError(describe(
            "unknown scheduler", where="scheduler", value=name,
            allowed=f"{', '.join(near)}, or FILE.py:CLASS or MODULE:CLASS of your own"))
    behind = list(inspect.signature(kind).parameters.items())[1:]  # the engine is the first
    takes = {key: one for key, one in behind
             if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)}
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if key not in takes or not equals or key in given:
            near = get_close_matches(key, takes, _NEAR) or list(takes)
            raise InputFileError(describe("not a parameter of the scheduler",
                                          where=f"scheduler {name}", value=part,
                                          allowed=", ".join(f"{one}=…" for one in near) or "none"))
        given[key] = _value(takes[key], value, f"scheduler {name}: {key}")
    for key, one in takes.items():
        if one.default is one.empty and key not in given:
            raise InputFileError(describe("parameter is missing", where=f"scheduler {name}",
                                          value=text, allowed=f"{name}:{key}=…"))
    return SchedulerSpec(text, kind, given, own)


def _own(text: str) -> type[Scheduler]:
    """The class ``package.module:Class`` or ``file.py:Class`` of the user."""
    found = own(text, "scheduler", option="--scheduler")
    if not (isinstance(found, type) and issubclass(found, Scheduler)):
        raise InputFileError(describe("not a scheduler", where="scheduler", value=text,
                                      allowed="a subclass of ramsis.sim.cluster.Scheduler"))
    return found


def _flag(value: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False,
            "0": False}[value.lower()]


_MAKERS: Mapping[str, Callable[[str], Any]] = {
    "float": float, "int": int, "bool": _flag, "str": str, "float | None": float,
    "int | None": int, "str | None": str,
}


def _value(parameter: inspect.Parameter, value: str, where: str) -> Any:
    kind = parameter.annotation
    if kind is parameter.empty:
        kind = type(parameter.default) if parameter.default is not parameter.empty else str
    word = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    try:
        return _MAKERS.get(word, str)(value)
    except (ValueError, KeyError):
        raise InputFileError(describe("not a value of the parameter", where=where, value=value,
                                      allowed=f"a {word}")) from None
