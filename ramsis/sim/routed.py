"""Stations side by side in one run, each with workers and a scheme of its own.

A request goes to a station when it arrives, by a routing rule, and stays there. A scheme sees its
station as it would see a whole engine: the station's workers numbered from 0, and of the load that
is stated or anticipated the part that is routed to it. So any scheme that serves like workers can
serve a station of a heterogeneous cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import overload

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster.slo_class import SloClass
from ramsis.sim.compiled import Given, replay
from ramsis.sim.engine import Engine, Scheme, StationEngine
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.run import NEVER_ANSWERED, Run

__all__ = ["Routed", "RoutedPlan", "StationPlan", "StationStart", "StationView", "replay_routed"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StationStart:
    """How a station of a run is started.

    Attributes
    ----------
    start : callable
        Makes the scheme of the station's workers.
    load_share : float
        Share of all requests that is routed to the station, in [0, 1].
    """

    start: Callable[[StationEngine], Scheme]
    load_share: float


class Routed(Scheme):
    """Routes each request to a station when it arrives; the station's scheme decides the rest.

    Parameters
    ----------
    engine : Engine
        With a fleet for each station, in the same order.
    stations : sequence of StationStart
    route : callable
        The index of a request's station. It is called once for each request, at its arrival.
    """

    def __init__(
        self, engine: Engine, stations: Sequence[StationStart], route: Callable[[int], int]
    ) -> None:
        super().__init__(engine)
        first = [0, *accumulate(fleet.workers for fleet in engine.fleets)]
        views = [StationView(engine, i, low, one.load_share)
                 for i, (one, low) in enumerate(zip(stations, first, strict=False))]
        self.first = first
        self.schemes = [one.start(view) for one, view in zip(stations, views, strict=True)]
        self.station_of = [i for i, fleet in enumerate(engine.fleets)
                           for _ in range(fleet.workers)]
        self.route = route

    def on_arrival(self, query: int) -> None:
        """Route the request."""
        self.schemes[self.route(query)].on_arrival(query)

    def on_idle(self, worker: int) -> None:
        """Tell the worker's station."""
        station = self.station_of[worker]
        self.schemes[station].on_idle(worker - self.first[station])

    def on_timer(self, token: object) -> None:
        """Tell the station that set the timer."""
        assert isinstance(token, _Token)
        self.schemes[token.station].on_timer(token.token)


@dataclass(frozen=True, eq=False)
class _Token:
    """A timer's token, and the station that set it."""

    station: int
    token: object


class _Idle(Sequence[bool]):
    """Whether each worker of a station is idle."""

    def __init__(self, idle: Sequence[bool], first: int, workers: int) -> None:
        self._idle, self._first, self._workers = idle, first, workers

    @overload
    def __getitem__(self, worker: int) -> bool: ...
    @overload
    def __getitem__(self, worker: slice) -> list[bool]: ...
    def __getitem__(self, worker: int | slice) -> bool | list[bool]:
        within = range(self._first, self._first + self._workers)[worker]
        if isinstance(within, range):
            return [self._idle[i] for i in within]
        return self._idle[within]

    def __len__(self) -> int:
        return self._workers

    def __iter__(self) -> Iterator[bool]:
        return iter(self[:])


class StationView:
    """What the scheme of one station sees of the engine, and does through it.

    Parameters
    ----------
    engine : Engine
    station : int
        Index of the station and of its fleet.
    first : int
        Number of its first worker.
    load_share : float
        Share of all requests that is routed to it.
    """

    def __init__(self, engine: Engine, station: int, first: int, load_share: float) -> None:
        self._engine, self._station, self._first = engine, station, first
        self._load_share = load_share
        self.fleet: Fleet = engine.fleets[station]
        self.idle: Sequence[bool] = _Idle(engine.idle, first, self.fleet.workers)

    @property
    def now_ms(self) -> float:
        """The present time."""
        return self._engine.now_ms

    @property
    def coins(self) -> list[float]:
        """As of the engine."""
        return self._engine.coins

    @property
    def monitored(self) -> bool:
        """As of the engine."""
        return self._engine.monitored

    def load_qps(self) -> float:
        """The station's part of the stated or anticipated load."""
        return self._load_share * self._engine.load_qps()

    def deadline_ms(self, query: int) -> float:
        """When the answer to a request is due."""
        return self._engine.deadline_ms(query)

    def dispatch(self, worker: int, queries: Sequence[int], model: int) -> None:
        """Start a batch on an idle worker of the station; errors as of the engine."""
        known = 0 <= worker < self.fleet.workers
        self._engine.dispatch(self._first + worker if known else -1, queries, model)

    def drop(self, query: int) -> None:
        """Give a waiting request up; errors as of the engine."""
        self._engine.drop(query)

    def wake_at(self, at_ms: float, token: object = None) -> None:
        """Have the station's scheme woken at a time; errors as of the engine."""
        self._engine.wake_at(at_ms, _Token(self._station, token))


@dataclass(frozen=True, eq=False)
class StationPlan:
    """A station of a cluster: its workers, its scheme, and what comes to it.

    Attributes
    ----------
    fleet : Fleet
    plan : Plan
        Prepared for the fleet.
    share : mapping of float to float
        By SLO in ms, the share of the class's queries that is routed here.
    """

    fleet: Fleet
    plan: Plan
    share: Mapping[float, float]


@dataclass(frozen=True, eq=False)
class RoutedPlan:
    """Stations side by side, to which queries are routed at random by the shares of their class.

    Attributes
    ----------
    name : str
        As in results.
    stations : tuple of StationPlan
    classes : tuple of SloClass
        By rising SLO.
    """

    name: str
    stations: tuple[StationPlan, ...]
    classes: tuple[SloClass, ...]

    def load_share(self, station: StationPlan) -> float:
        """Share of all queries that is routed to a station."""
        return math.fsum(one.share * station.share.get(one.slo_ms, 0.0) for one in self.classes)

    def routes(self, query_slo_ms: FloatArray, uniform: FloatArray) -> NDArray[np.int64]:
        """The station of each query, by its SLO and a uniform number of its own; shape (n,)."""
        found = np.empty(len(uniform), dtype=np.int64)
        for one in self.classes:
            upto = np.cumsum([station.share.get(one.slo_ms, 0.0) for station in self.stations])
            mine = query_slo_ms == one.slo_ms
            found[mine] = np.minimum(
                np.searchsorted(upto, uniform[mine] * upto[-1], side="right"), len(upto) - 1)
        return found

    def start(self, routes: NDArray[np.int64]) -> Callable[[Engine], Scheme]:
        """What the plain engine runs, given the station of each query."""
        starts = [StationStart(one.plan.start, self.load_share(one)) for one in self.stations]
        stations = routes.tolist()
        return lambda engine: Routed(engine, starts, stations.__getitem__)


def replay_routed(
    plan: RoutedPlan, given: Given, routes: NDArray[np.int64], load_qps: float
) -> Run | None:
    """The same run as the plain engine's, each station by its kernel; None where one has none.

    Parameters
    ----------
    plan : RoutedPlan
    given : Given
        With a deadline for each query.
    routes : ndarray, shape (n,)
        The station of each query.
    load_qps : float
        The stated load of all stations.
    """
    runs = []
    for i, one in enumerate(plan.stations):
        compiled = one.plan.compiled
        if compiled is None or (len(one.share) > 1 and compiled.kernel != "central-queue"):
            return None  # other kernels know one deadline for all
        mine = np.flatnonzero(routes == i)
        part = given.part(mine, coins_in_turn=compiled.kernel == "central-queue")
        runs.append((mine, replay(one.fleet, compiled, part, load_qps * plan.load_share(one))))
    return _joined(given, runs)


def _joined(given: Given, runs: Sequence[tuple[NDArray[np.int64], Run]]) -> Run:
    """One record of the runs of all stations, each with the numbers of its queries."""
    batch_of = np.full(len(given.arrival_ms), NEVER_ANSWERED, dtype=np.int32)
    batches = workers = models = 0
    worker, model, dropped = [], [], []
    for queries, run in runs:
        batch_of[queries] = np.where(run.batch_of >= 0, run.batch_of + batches, run.batch_of)
        worker.append(run.worker + workers)
        model.append(run.model + models)
        dropped.append(queries[run.drop_query])
        batches, workers = batches + len(run.size), workers + run.workers
        models += len(run.models)
    records = [run for _, run in runs]
    return Run(
        fleets=tuple(fleet for run in records for fleet in run.fleets),
        duration_ms=given.duration_ms,
        arrival_ms=given.arrival_ms,
        batch_of=batch_of,
        start_ms=np.concatenate([run.start_ms for run in records]),
        finish_ms=np.concatenate([run.finish_ms for run in records]),
        worker=np.concatenate(worker).astype(np.int32),
        model=np.concatenate(model).astype(np.int32),
        size=np.concatenate([run.size for run in records]),
        drop_query=np.concatenate(dropped).astype(np.int32),
        drop_ms=np.concatenate([run.drop_ms for run in records]),
        slo_ms=given.slo_ms,
    )
