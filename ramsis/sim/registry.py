"""Schedulers by name, with parameters: one registry and one grammar for whatever is simulated.

    greedy                             a scheduler of this project
    clockwork:ahead_ms=10,margin_ms=1  with parameters
    policies:files=DIR                 policies of files
    own.py:Mine                        a class in a file
    package.module:Mine:alpha=2        a class in a module, with a parameter

There are two sorts. A :class:`~ramsis.sim.engine.Scheduler` is created for each run and called at
its events. A :class:`~ramsis.sim.plan.FleetScheduler`, for equal workers that hold all models, is
prepared for a fleet first. Both sorts serve fleets and scenarios where possible: the first serves
a fleet of one worker type like a scenario, the second a scenario whose workers are a fleet.

A module or file of the user's own is imported only when the user names it here.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from ramsis.errors import InputFileError, InvalidValueError, RamsisError
from ramsis.plugins import blamed, own, source_of
from ramsis.reprs import dataclass
from ramsis.runtime import LoadMonitor
from ramsis.settings import parse
from ramsis.sim.engine import Engine, Scheduler
from ramsis.sim.fleet import Fleet, Fleets
from ramsis.sim.plan import ClusterPlan, FleetScheduler, Plan
from ramsis.sim.run import Run
from ramsis.sim.schedulers import FLEET_SCHEDULERS, Policies

GROUP = "ramsis.schedulers"
"""Entry points by which installed packages offer schedulers; the project's studies do so, too."""

_Kind = Callable[..., Any]


class Schedulers(Mapping[str, _Kind]):
    """Schedulers by name: shipped ones, and those that installed packages offer.

    Schedulers of packages are imported when they are looked up. Parameters of a scheduler are
    those of its constructor.
    """

    def __init__(self, shipped: Mapping[str, _Kind | EntryPoint]) -> None:
        self._shipped = dict(shipped)

    def also(self, further: Mapping[str, _Kind]) -> Schedulers:
        """Return the registry with further schedulers, which replace those of the same name."""
        return Schedulers({**self._shipped, **further})

    def __getitem__(self, name: str) -> _Kind:
        """Return a scheduler by its name; import it if an installed package offers it."""
        kind = self._shipped.get(name) or _offered()[name]
        if not isinstance(kind, EntryPoint):
            return kind
        try:
            loaded = kind.load()
        except Exception as error:  # anything that a foreign package may raise
            raise InputFileError(f"cannot be imported ({error})", where=f"scheduler {name}",
                                 value=kind.value) from error
        return _is_scheduler(loaded, kind.value)

    def __contains__(self, name: object) -> bool:
        return name in self._shipped or name in _offered()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._shipped, *_offered()}))

    def __len__(self) -> int:
        return len({*self._shipped, *_offered()})


@cache
def _offered() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _policies(files: str) -> Policies:
    """Load the policies of a file or a folder."""
    return Policies.load(files)


_LAZY = {  # modules that take long to import
    "clockwork": "clockwork:Clockwork", "lru": "least_recently_used:LeastRecentlyUsed",
    "planned": "planned:Planned", "random": "random:RandomScheduler",
}
SCHEDULERS = Schedulers({
    **FLEET_SCHEDULERS, "policies": _policies,
    **{name: EntryPoint(name, f"ramsis.sim.schedulers.loading.{place}", GROUP)
       for name, place in _LAZY.items()},
})
"""Schedulers that ``--scheduler`` may name."""

_NEAR = 3  # similar names that a message suggests
_KINDS = {"float": float, "int": int, "bool": bool}


@dataclass(frozen=True)
class SchedulerSpec:
    """Scheduler and its parameters, for any fleet and scenario that it can serve.

    Called with an engine, it creates the scheduler of a run. A subclass of ``Scheduler`` serves a
    fleet, too: all workers of one type.
    """

    text: str  # the text that named it
    # a subclass of Scheduler, or a constructor of a :class:`~ramsis.sim.plan.FleetScheduler`
    kind: _Kind
    parameters: Mapping[str, Any]
    own: str | None = None  # ``file.py:Class`` or ``package.module:Class`` of the user's own

    @property
    def name(self) -> str:
        """Name of the scheduler without its parameters."""
        return self.own or self.text.partition(":")[0]

    @cached_property
    def of_fleets(self) -> FleetScheduler:
        """The scheduler in the form that is prepared for fleets."""
        if _is_class(self.kind):
            return self
        fleet_scheduler: FleetScheduler = self.kind(**self.parameters)
        return fleet_scheduler

    @property
    def max_batch(self) -> int:
        """Largest batch that the scheduler needs the workers to be able to run."""
        return 1 if self.of_fleets is self else self.of_fleets.max_batch

    def on_cluster(self, fleets: Fleets) -> ClusterPlan:
        """Return the stations of a cluster, and how requests are routed to them."""
        if self.of_fleets is not self:
            return self.of_fleets.on_cluster(fleets)
        if len(fleets.fleets) > 1:
            raise InvalidValueError(
                "decides about workers of one type", where=f"scheduler {self.name}",
                value=", ".join(fleets.worker_types),
                allowed="one of them, or a scenario file that says what each can run")
        return ClusterPlan.of_one(self.prepare(fleets.fleets[0]), fleets)

    def prepare(self, fleet: Fleet) -> Plan:
        """Return the plan of a fleet that all runs share; errors are those of the scheduler."""
        if self.of_fleets is not self:
            return self.of_fleets.prepare(fleet)
        return Plan(self.name, partial(self.kind, **self.parameters), own=self.own)

    def document(self) -> dict[str, Any]:
        """Return everything that results depend on, with a digest of a user's source file."""
        source = None if self.own is None else source_of(self.own)
        code = None if source is None else hashlib.sha256(source.read_bytes()).hexdigest()
        return {"name": self.name, **self.parameters, "code": code}

    def __call__(self, engine: Engine) -> Scheduler[Any]:
        """Return the scheduler of a run on a scenario."""
        if _is_class(self.kind):
            if not _declared(self.kind, Engine):
                engine.monitor = LoadMonitor()  # the scheduler may ask for the load
            return cast("Scheduler[Any]", self.kind(engine, **self.parameters))
        plan = self.of_fleets.prepare(engine.fleet)
        engine.monitor = LoadMonitor()
        # A fleet's scheduler uses the engine as a ``WorkerGroup`` only.
        return plan.start(engine)

    def serve(self, engine: Engine) -> Run:
        """Create the scheduler, and serve all requests of an engine by it."""
        if self.own is None:
            return engine.serve(self)
        with blamed(f"scheduler {self.own} failed"):
            return engine.serve(self)


def scheduler(
    text: str, known: Mapping[str, _Kind] = SCHEDULERS, *,
    error: type[RamsisError] = InputFileError,
) -> SchedulerSpec:
    """Return the scheduler that a text names; the module docstring gives the syntax.

    >>> scheduler("clockwork:ahead_ms=10").parameters
    {'ahead_ms': 10.0}
    >>> scheduler("jellyfish-plus:headroom=1.05").of_fleets
    JellyfishPlus(headroom=1.05)
    """
    name, _, parameters = text.partition(":")
    place = None
    if name in known:
        kind = known[name]
    elif parameters:
        attribute, _, parameters = parameters.partition(":")
        place = name = f"{name}:{attribute}"
        kind = _is_scheduler(own(name, "scheduler", option="--scheduler", error=error), name)
    else:
        longer = (other for other in known if name and other.startswith(name))
        near = [*dict.fromkeys((*longer, *get_close_matches(name, known, _NEAR)))] or list(known)
        raise error("unknown scheduler", where="scheduler", value=name,
                    allowed=f"{', '.join(near)}, or FILE.py:CLASS or MODULE:CLASS of your own")
    takes = dict(inspect.signature(kind).parameters)
    if _is_class(kind):
        takes.pop(next(iter(takes)))  # the engine
    spec = SchedulerSpec(text, kind, read_parameters(name, parameters, takes, error), place)
    if not _is_class(kind):
        _ = spec.of_fleets  # what is out of range is refused now
    return spec


def read_parameters(
    name: str, text: str, takes: Mapping[str, inspect.Parameter], error: type[RamsisError]
) -> dict[str, Any]:
    """Parse ``key=value,…`` by the parameters ``takes`` of a constructor, or raise ``error``."""
    takes = {key: parameter for key, parameter in takes.items()
             if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)}
    values: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if key not in takes or not equals or key in values:
            near = get_close_matches(key, takes, _NEAR) or list(takes)
            raise error("not a parameter of the scheduler", where=f"scheduler {name}",
                        value=part,
                        allowed=", ".join(f"{other}={_word(takes[other])}" for other in near)
                        or "none")
        word = _word(takes[key])
        try:
            values[key] = parse(_KINDS.get(word.removesuffix(" | None"), str), value)
        except ValueError:
            raise error("not a value of the parameter", where=f"scheduler {name}: {key}",
                        value=value, allowed=f"a {word}") from None
    for key, parameter in takes.items():
        if parameter.default is parameter.empty and key not in values:
            raise error("parameter is missing", where=f"scheduler {name}",
                        value=f"{name}:{text}" if text else name, allowed=f"{name}:{key}=…")
    return values


def _is_class(kind: object) -> bool:
    """Return whether ``kind`` is a subclass of :class:`Scheduler`."""
    return isinstance(kind, type) and issubclass(kind, Scheduler)


def _declared(kind: _Kind, engine: type) -> bool:
    """Return whether a class declares itself a ``Scheduler[…]`` of an engine."""
    bases = (base for parent in cast("type", kind).__mro__
             for base in vars(parent).get("__orig_bases__", ()))
    return any(engine in getattr(base, "__args__", ()) for base in bases)


def _is_scheduler(named: object, text: str) -> type[Scheduler[Any]]:
    """Return the object ``named`` by a text; refuse objects that are no schedulers."""
    if not (isinstance(named, type) and issubclass(named, Scheduler)):
        raise InputFileError("not a scheduler", where="scheduler", value=text,
                             allowed="a subclass of ramsis.sim.Scheduler")
    return named


def _word(parameter: inspect.Parameter) -> str:
    """Return the type of a parameter's values as a word for messages."""
    kind = parameter.annotation
    if kind is parameter.empty:
        kind = type(parameter.default) if parameter.default is not parameter.empty else str
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
