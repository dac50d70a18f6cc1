"""Schedulers by name, with parameters: one way for the command line, scripts and Python.

    clockwork                          a scheduler of this project
    clockwork:ahead_ms=10              with a parameter
    own.py:Mine                        a class in a file
    package.module:Mine:alpha=2        a class in a module, with a parameter

A module or file of the user's own is imported only when the user names it here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ramsis.errors import InputFileError, describe
from ramsis.plugins import blamed, own
from ramsis.sim.cluster.schedulers.clockwork import Clockwork
from ramsis.sim.cluster.schedulers.least_recently_used import LeastRecentlyUsed
from ramsis.sim.cluster.schedulers.planned import Planned
from ramsis.sim.cluster.schedulers.planned_loading import PlannedLoading
from ramsis.sim.cluster.schedulers.random import RandomScheduler
from ramsis.sim.cluster.schedulers.scheme import SchemeScheduler
from ramsis.sim.engine import ClusterEngine, Scheduler
from ramsis.sim.run import Run

__all__ = ["GROUP", "SCHEDULERS", "SchedulerSpec", "Schedulers", "scheduler"]

GROUP = "ramsis.schedulers"
"""Entry points by which installed packages offer schedulers; the project's studies do so, too."""


class Schedulers(Mapping[str, type[Scheduler[Any]]]):
    """Schedulers by name: some that are at hand, and those that installed packages offer.

    What a package offers is imported when it is asked for. Parameters of a scheduler are those of
    its constructor.
    """

    def __init__(self, own: Mapping[str, type[Scheduler[Any]]]) -> None:
        self._own = dict(own)

    def also(self, own: Mapping[str, type[Scheduler[Any]]]) -> Schedulers:
        """The same with others at hand, which take the place of those of their name."""
        return Schedulers({**self._own, **own})

    def __getitem__(self, name: str) -> type[Scheduler[Any]]:
        """A scheduler by its name.

        Raises
        ------
        KeyError
            There is none.
        InputFileError
            What a package offers cannot be imported, or is none.
        """
        if name in self._own:
            return self._own[name]
        offered = _offered()[name]
        try:
            found = offered.load()
        except Exception as error:  # of a package of others
            raise InputFileError(describe(f"cannot be imported ({error})",
                                          where=f"scheduler {name}",
                                          value=offered.value)) from error
        return _is_scheduler(found, offered.value)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in _offered()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._own, *_offered()}))

    def __len__(self) -> int:
        return len({*self._own, *_offered()})


@cache
def _offered() -> Mapping[str, EntryPoint]:
    return {one.name: one for one in entry_points(group=GROUP)}


SCHEDULERS = Schedulers({
    "clockwork": Clockwork,
    "lru": LeastRecentlyUsed,
    "planned": Planned,
    "planned-loading": PlannedLoading,
    "random": RandomScheduler,
    "scheme": SchemeScheduler,
})
"""What ``--scheduler`` names."""

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
    kind: Callable[..., Scheduler[Any]]
    parameters: Mapping[str, Any]
    own: str | None = None

    def __call__(self, engine: ClusterEngine) -> Scheduler[Any]:
        """The scheduler of a run."""
        return self.kind(engine, **self.parameters)

    def serve(self, engine: ClusterEngine) -> Run:
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
    text: str, known: Mapping[str, type[Scheduler[Any]]] = SCHEDULERS
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
        kind: type[Scheduler[Any]] = known[name]
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


def _own(text: str) -> type[Scheduler[Any]]:
    """The class ``package.module:Class`` or ``file.py:Class`` of the user."""
    return _is_scheduler(own(text, "scheduler", option="--scheduler"), text)


def _is_scheduler(found: object, text: str) -> type[Scheduler[Any]]:
    """What a text names, which has to be a scheduler."""
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
