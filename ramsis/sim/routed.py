"""Stations side by side in one run, each with workers and a scheme of its own.

A request goes to a station when it arrives, by a routing rule, and stays there. A scheme sees its
station as it would see a whole engine: the station's workers numbered from 0, and of the load that
is stated or anticipated the part that is routed to it. So any scheme that serves like workers can
serve a station of a heterogeneous cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import overload

from ramsis.sim.engine import Engine, Scheme, StationEngine
from ramsis.sim.fleet import Fleet

__all__ = ["Routed", "StationStart", "StationView"]


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
