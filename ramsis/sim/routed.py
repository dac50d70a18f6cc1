"""Schedulers that route requests to stations, each with its workers and scheduler.

A routing rule sends each request to a station when it arrives; the request stays there. The
scheduler of a station gets a view of the engine (:class:`StationView`) in which the station's
workers are numbered from 0 and the load is the station's part of the stated or anticipated load.
So a scheduler written for one fleet of equal workers can serve a station of a heterogeneous
cluster.

The stations may change with the load (:class:`RoutedByLevel`). If a new load level divides the
workers among stations as the previous level did, only routing shares and decision tables change.
Otherwise all stations are replaced: each waiting request is routed anew by its uniform number, and
a busy worker serves its new station once its batch has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ramsis.runtime.policy_set import Level
from ramsis.sim.engine import Engine, Scheduler, WorkerGroup
from ramsis.sim.plan import ClusterPlan, StationPlan


class Routed(Scheduler[Engine]):
    """Scheduler that routes requests to stations at arrival; each station has a scheduler.

    ``stations`` are numbered by their place; ``route`` returns the number of a request's station,
    and is called once for each request, at its arrival.
    """

    def __init__(
        self, engine: Engine, stations: Sequence[StationPlan], route: Callable[[int], int]
    ) -> None:
        super().__init__(engine)
        self.whole, self.route = engine, route
        self.opened = 0  # how often stations have been opened; timers of earlier ones are void
        self.ends = len(engine.workers)
        self.idle_since = list(range(self.ends))  # a number that rises with each end of a batch
        self.open(stations)

    def open(self, stations: Sequence[StationPlan]) -> None:
        """Replace the present stations by ``stations``, each with a new scheduler."""
        self.opened += 1
        self.station_of = [-1] * len(self.whole.workers)
        self.first, self.schedulers = list[int](), list[Scheduler[WorkerGroup]]()
        for station in stations:
            self.first.append(station.workers.start)
            for worker in station.workers:
                self.station_of[worker] = station.number
            self.schedulers.append(station.plan.start(StationView(self, station)))

    def on_arrival(self, request: int) -> None:
        """Route a request to its station."""
        self.schedulers[self.route(request)].on_arrival(request)

    def on_end(self, worker: int, batch: int) -> None:
        """Notify the station of the worker whose batch has ended."""
        self.note_idle(worker)
        station = self.station_of[worker]
        if station >= 0:
            self.schedulers[station].on_end(worker - self.first[station], batch)

    def on_timer(self, token: object) -> None:
        """Notify the station that set the timer, unless the stations were replaced since."""
        assert isinstance(token, _Token)
        if token.opened == self.opened:
            self.schedulers[token.station].on_timer(token.token)

    def note_idle(self, worker: int) -> None:
        """Record that a worker has become idle, later than all others."""
        self.idle_since[worker] = self.ends = self.ends + 1


class RoutedByLevel(Routed):
    """Scheduler that routes requests by the level of the stated or anticipated load.

    ``uniform`` returns the number in [0, 1) of a request, which draws its station.
    """

    def __init__(
        self, engine: Engine, plan: ClusterPlan, uniform: Callable[[int], float]
    ) -> None:
        self.levels, self.uniform = plan.levels, uniform
        self.slos_ms = [stream.slo_ms for stream in engine.world.streams]
        self.stream = engine.requests.stream
        self.changes = engine.monitored and len(plan.levels.levels) > 1
        self.level = self.levels.at(engine.load_qps()).level
        super().__init__(engine, _stations(self.level), self.station)

    def station(self, request: int) -> int:
        """Return the station of a request by the level's shares, as the runtime routes it."""
        slo_ms = self.slos_ms[self.stream[request]]
        return self.level.route(slo_ms, self.uniform(request)).policy.number

    def on_arrival(self, request: int) -> None:
        """Route a request; if a new level divides the workers otherwise, route all that wait."""
        if not self.divided_anew():
            super().on_arrival(request)

    def on_end(self, worker: int, batch: int) -> None:
        """Notify the worker's station, or change the level."""
        if not self.changes:
            super().on_end(worker, batch)
            return
        self.note_idle(worker)
        if not self.divided_anew():
            super().on_end(worker, batch)

    def on_timer(self, token: object) -> None:
        """Notify the station that set the timer, or change the level."""
        if not self.divided_anew():
            super().on_timer(token)

    def divided_anew(self) -> bool:
        """Switch to the level of the present load; return whether workers change stations.

        If so, all waiting requests are routed to the new stations.
        """
        if not self.changes:
            return False
        level = self.levels.at(self.whole.load_qps()).level
        if level is self.level:
            return False
        before, self.level = self.level, level
        if division(before) == division(level):
            return False
        self.open(_stations(level))
        waiting: list[list[int]] = [[] for _ in level.stations]
        for request in self.whole.waiting():
            waiting[self.station(request)].append(request)
        for scheduler, requests in zip(self.schedulers, waiting, strict=True):
            scheduler.on_arrivals(requests)
        return True


def division(level: Level[StationPlan]) -> list[tuple[range, float, tuple[float, ...]]]:
    """Return the workers, SLO in ms and SLO classes of each station of a level."""
    return [(station.policy.workers, station.policy.fleet.slo_ms, tuple(sorted(station.share)))
            for station in level.stations]


def _stations(level: Level[StationPlan]) -> list[StationPlan]:
    return [station.policy for station in level.stations]


@dataclass(frozen=True, eq=False)
class _Token:
    """Token of a timer, with the station that set it."""

    opened: int
    station: int
    token: object


class StationView:
    """View of the engine for the scheduler of one station."""

    def __init__(self, routed: Routed, station: StationPlan) -> None:
        self._routed, self._engine, self._opened = routed, routed.whole, routed.opened
        self._station, self._load_share = station.number, station.load_share
        self._first, self.fleet = station.workers.start, station.fleet
        held = self._engine.workers.loaded[self._first] if station.workers else ()
        self._first_model = min(held, default=0)

    @property
    def now_ms(self) -> float:
        """Present time of the simulation, in ms."""
        return self._engine.now_ms

    @property
    def monitored(self) -> bool:
        """Whether the load is anticipated by the monitor and so changes during the run."""
        return self._engine.monitored

    def load_qps(self) -> float:
        """Return the station's part of the stated or anticipated load, in requests per second."""
        return self._load_share * self._engine.load_qps()

    def is_idle(self, worker: int) -> bool:
        """Return whether a worker can start a batch now."""
        return self._engine.is_idle(self._first + worker)

    def idle_workers(self) -> list[int]:
        """Return the idle workers, the one that has been idle longest first."""
        idle = [worker for worker in range(self.fleet.workers) if self.is_idle(worker)]
        return sorted(idle, key=lambda worker: self._routed.idle_since[self._first + worker])

    def in_service(self) -> list[int]:
        """Return the number of requests in each worker's batch."""
        return self._engine.in_service()[self._first:self._first + self.fleet.workers]

    def deadline_ms(self, request: int) -> float:
        """Return when the answer to a request is due."""
        return self._engine.deadline_ms(request)

    def run(self, worker: int, model: int, requests: Sequence[int]) -> int:
        """Start a batch on an idle worker of the station; errors as of the engine."""
        exists = 0 <= worker < self.fleet.workers
        return self._engine.run(self._first + worker if exists else -1, self._first_model + model,
                                requests)

    def drop(self, request: int) -> None:
        """Give up a waiting request; errors as of the engine."""
        self._engine.drop(request)

    def wake_at(self, at_ms: float, token: object = None) -> None:
        """Set a timer for the station's scheduler; errors as of the engine."""
        self._engine.wake_at(at_ms, _Token(self._opened, self._station, token))
