"""Policy sets: policies by load level, for one or several stations (EuroSys '24, §3.2.2).

The set is generic in the type of its policies: a :class:`~ramsis.runtime.selector.Selector` for
serving, a full policy for synthesis, simulation and verification. A simple set has one station at
each level.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from ramsis.errors import InvalidValueError, check_positive
from ramsis.reprs import brief, figure_of
from ramsis.runtime.routing import by_shares
from ramsis.runtime.selector import Selector
from ramsis.tables import Column, html_table

_COLUMNS = (
    Column("load_qps", "load (queries/s)", "g"), Column("slowness", "slowness", "g"),
    Column("arrivals", "arrivals"),
    Column("expected_accuracy", "accuracy", ".4f"),
    Column("expected_violation_rate", "violations", ".4%"),
    Column("expected_effective_accuracy", "effective acc.", ".4f"),
    Column("upper_bound", "upper bound", ".4f"),
)

P = TypeVar("P")
Q = TypeVar("Q")

ALL_WORKERS = "all"
"""Name of the worker type where there is only one."""


def types_in_words(worker_types: Mapping[str, int]) -> str:
    """Format worker types for ``--workers``; a single unnamed type as its number.

    >>> types_in_words({"old": 3, "new": 1})
    'old=3,new=1'
    >>> types_in_words({ALL_WORKERS: 4})
    '4'
    """
    return ",".join(str(count) if name == ALL_WORKERS else f"{name}={count}"
                    for name, count in worker_types.items())


class Station(NamedTuple, Generic[P]):
    """Station: workers of one type, with their queues and policy.

    Attributes
    ----------
    name
        Unique at its level.
    worker_types
        Names of the worker type; several if their service times are equal.
    workers
        Number of workers.
    load_qps
        Requests per second that are routed to the station, as its policy assumes.
    share
        By SLO in ms, the share of the class's requests that is routed to the station.
    policy
        A policy, or its selector.
    """

    name: str
    worker_types: tuple[str, ...]
    workers: int
    load_qps: float
    share: Mapping[float, float]
    policy: P

    def __repr__(self) -> str:
        return brief(self)

    @property
    def selector(self) -> P:
        """Selector of the station: its ``policy`` in a set of selectors."""
        return self.policy


class Level(NamedTuple, Generic[P]):
    """Level of a policy set: its stations for one load, slowness and arrival process.

    Attributes
    ----------
    load_qps
        Total load of all stations.
    arrivals
        Label of the arrival process.
    stations
        One or more.
    expected
        Promised figures of all stations together, as JSON values by the manifest's names.
    slowness
        Service time that the policies assume, as a multiple of the profiled one.
    """

    load_qps: float
    arrivals: str
    stations: tuple[Station[P], ...]
    expected: Mapping[str, Any]
    slowness: float = 1.0

    def __repr__(self) -> str:
        return brief(self)

    @property
    def words(self) -> str:
        """Text of the load, and of the slowness unless it is 1, for messages."""
        slower = "" if self.slowness == 1 else f", slowness {self.slowness:g}"
        return f"{self.load_qps:g} QPS{slower}"

    @property
    def policy(self) -> P:
        """Policy of the only station; an error if there are several."""
        if len(self.stations) > 1:
            names = ", ".join(station.name for station in self.stations)
            raise InvalidValueError(
                "several stations serve at this level: ask for one by its SLO class",
                where=self.words, value=names, allowed="route(slo_ms, uniform)")
        return self.stations[0].policy

    def route(self, slo_ms: float, uniform: float) -> Station[P]:
        """Return the station for a request, drawn by the shares of its SLO class.

        Parameters
        ----------
        slo_ms
            SLO of the request's class.
        uniform
            Uniform random number in [0, 1) of the request, as by ``random.random()``. Random
            routing makes arrivals at a station as irregular as its policy assumes.
        """
        stations = [station for station in self.stations if slo_ms in station.share]
        if not stations:
            slos = sorted({slo for station in self.stations for slo in station.share})
            raise InvalidValueError("no class of this SLO", where="slo_ms", value=slo_ms,
                                    allowed=", ".join(f"{slo:g}" for slo in slos))
        return stations[by_shares([station.share[slo_ms] for station in stations], uniform)]


class Choice(NamedTuple, Generic[P]):
    """Level that was chosen for an anticipated load and slowness.

    Attributes
    ----------
    level
    above_highest
        Whether the load exceeds every level, so that the policies' promises do not hold.
    slowness
        Service time as a multiple of the one that the level's policies assume, 1 or more; see
        :meth:`~ramsis.runtime.selector.Selector.when_slow`.
    """

    level: Level[P]
    above_highest: bool
    slowness: float = 1.0

    def __repr__(self) -> str:
        return brief(self)

    @property
    def level_qps(self) -> float:
        """Load of the level, for which its policies were made."""
        return self.level.load_qps

    @property
    def policy(self) -> P:
        """Policy of the level's only station; see :attr:`Level.policy`."""
        return self.level.policy

    @property
    def selector(self) -> P:
        """Selector of the level's only station, in a set of selectors."""
        return self.level.policy


class _Process(Generic[P]):
    """Levels of one arrival process, by increasing slowness, then load."""

    __slots__ = ("above", "choices", "loads", "slownesses")

    def __init__(self, levels: list[Level[P]]) -> None:
        self.slownesses = sorted({level.slowness for level in levels})
        self.loads: list[list[float]] = []
        self.choices: list[list[Choice[P]]] = []  # and the highest once more, for loads above it
        for slowness in self.slownesses:
            chosen = sorted((level for level in levels if level.slowness == slowness),
                            key=lambda level: level.load_qps)
            self.loads.append([level.load_qps for level in chosen])
            self.choices.append([*(Choice(level, False) for level in chosen),
                                 Choice(chosen[-1], True)])
        self.above = False


class PolicySet(Generic[P]):
    """Policies for several loads, and for one or more arrival processes.

    Parameters
    ----------
    levels
        One for each load, slowness and arrival process.
    worker_types
        Number of workers by name of the type.
    slo_classes
        Share of the requests in each class, by its SLO in ms.
    on_above_highest
        Called with the anticipated load when it rises above the highest level, and again only
        after it has fallen below it. It may request a policy for this load. Its exceptions reach
        the caller of :meth:`at`.
    """

    __repr__ = brief

    def __init__(
        self,
        levels: Iterable[Level[P]],
        worker_types: Mapping[str, int],
        slo_classes: Mapping[float, float],
        *,
        on_above_highest: Callable[[float], object] | None = None,
    ) -> None:
        self.levels = tuple(levels)
        self.worker_types, self.slo_classes = dict(worker_types), dict(slo_classes)
        groups: dict[str, dict[tuple[float, float], Level[P]]] = {}
        for level in self.levels:
            group = groups.setdefault(level.arrivals, {})
            key = level.slowness, level.load_qps
            if key in group:
                raise InvalidValueError("two policies for one load and arrival process",
                                        value=f"{level.words}, {level.arrivals}")
            group[key] = level
        if not groups:
            raise InvalidValueError("a policy set needs at least one policy")
        self._by_process: dict[str, _Process[P]] = {
            label: _Process(list(group.values())) for label, group in groups.items()
        }
        only = list(self._by_process.values())
        self._only = only[0] if len(only) == 1 else None
        self._on_above_highest = on_above_highest

    def map(
        self, change: Callable[[P], Q], *,
        on_above_highest: Callable[[float], object] | None = None,
    ) -> PolicySet[Q]:
        """Return the set with the policy of each station replaced."""
        levels = [Level(level.load_qps, level.arrivals,
                        tuple(Station(*station[:-1], change(station.policy))
                              for station in level.stations), level.expected, level.slowness)
                  for level in self.levels]
        return PolicySet(levels, self.worker_types, self.slo_classes,
                         on_above_highest=on_above_highest)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each level with its promised figures, by process, slowness and load."""
        levels = sorted(self.levels, key=lambda level: (level.arrivals, level.slowness,
                                                        level.load_qps))
        return [{"load_qps": level.load_qps, "slowness": level.slowness,
                 "arrivals": level.arrivals,
                 "stations": len(level.stations), **level.expected} for level in levels]

    def _summary(self) -> str:
        loads = [level.load_qps for level in self.levels]
        return (f"for {min(loads):g} to {max(loads):g} queries/s: {len(loads)} levels, arrivals "
                f"{', '.join(self.processes)}")

    def plot(self) -> Any:
        """Plot the promised figures by load (:class:`matplotlib.figure.Figure`)."""
        return figure_of("policy_set", self)

    def _repr_html_(self) -> str:
        """Return the levels as an HTML table for notebooks."""
        usual = all(level.slowness == 1.0 for level in self.levels)
        return html_table([column for column in _COLUMNS if column.key != "slowness" or not usual],
                          self.rows(), caption="Policy set")

    @property
    def processes(self) -> tuple[str, ...]:
        """Labels of the arrival processes, sorted."""
        return tuple(sorted(self._by_process))

    def loads(self, process: str | None = None) -> tuple[float, ...]:
        """Return the loads of the levels in requests per second, increasing."""
        return tuple(sorted({load for loads in self._group(process).loads for load in loads}))

    def at(
        self, load_qps: float, process: str | None = None, slowness: float = 1.0
    ) -> Choice[P]:
        """Return the lowest level at or above the anticipated load, at a slowness.

        The policies are those for the lowest slowness that is at least the present one. If there
        are none, those for the highest slowness are used, and lookups take the remaining factor
        into account (:meth:`~ramsis.runtime.selector.Selector.when_slow`).

        Parameters
        ----------
        load_qps
            Anticipated load in requests per second, 0 or more. A load above every level gets
            the highest one, flagged in the answer.
        process
            Label of the arrival process; optional if the set has only one.
        slowness
            Service time as a multiple of the profiled one, > 0.
        """
        if not load_qps >= 0:
            raise InvalidValueError("not a load", where="load_qps", value=load_qps,
                                    allowed="0 or more")
        group, remaining = self._group(process), 1.0
        place = 0
        if slowness != 1.0 or len(group.slownesses) > 1:
            check_positive(slowness=slowness)
            place = bisect_left(group.slownesses, slowness)
            if place == len(group.slownesses):
                place -= 1
                remaining = slowness / group.slownesses[place]
        choice = group.choices[place][bisect_left(group.loads[place], load_qps)]
        if choice.above_highest != group.above:
            group.above = choice.above_highest
            if group.above and self._on_above_highest is not None:
                self._on_above_highest(load_qps)
        return (choice if remaining == 1.0
                else Choice(choice.level, choice.above_highest, remaining))

    def _group(self, process: str | None) -> _Process[P]:
        if process is None and self._only is not None:
            return self._only
        if process in self._by_process:
            return self._by_process[process]
        fault = "no policy for this process" if process else "the set has several processes"
        raise InvalidValueError(fault, where="process", value=process,
                                allowed=", ".join(self.processes))


def set_of_selectors(
    selectors: Iterable[Selector], *,
    on_above_highest: Callable[[float], object] | None = None,
) -> PolicySet[Selector]:
    """Create a policy set from selectors for equal workers and SLO, one level each."""
    levels = []
    types, classes = dict[str, int](), dict[float, float]()
    for selector in selectors:
        table = selector.table
        types, classes = {ALL_WORKERS: table.workers}, {table.slo_ms: 1.0}
        station = Station(ALL_WORKERS, (ALL_WORKERS,), table.workers, table.load_qps, classes,
                          selector)
        levels.append(Level(table.load_qps, table.arrivals, (station,), {}, table.slowness))
    return PolicySet(levels, types, classes, on_above_highest=on_above_highest)
