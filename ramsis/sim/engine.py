"""The plain engine: any scheme, one event after the other.

Events happen in the order of their times. At one instant batches finish first, in the order in
which they were dispatched; then queries arrive, in their order; then timers ring, in the order in
which they were set. After each event the scheme is told, before the next one happens; what it does
takes no time. So a run is a function of arrivals, service draws and scheme alone.

A batch's service time is drawn with the uniform number of its first query. Numbers belong to
queries and come from a stream of their own, so schemes that are compared meet the same arrivals
and the same luck, and the order in which workers are simulated changes nothing.

Workers may be of several types: a fleet is a number of like workers with the models that they
hold, and the workers of all fleets are numbered through. A model is named to
:meth:`Engine.dispatch` by its index in the fleet of the worker. One scheme may decide about all
workers, or each fleet may have a scheme of its own (:mod:`ramsis.sim.routed`).

A scheme keeps its own queues. What it may do (:meth:`Engine.dispatch`, :meth:`Engine.drop`,
:meth:`Engine.wake_at`) is checked; what it may not do ends the run with a :class:`SchemeError`
that names the event. The run ends when nothing more can happen; a query that still waits then is
counted as never answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster.quantiles import quantile
from ramsis.errors import InvalidValueError, describe
from ramsis.runtime import LoadMonitor
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.sim.fleet import Fleet
from ramsis.sim.run import DROPPED, NEVER_ANSWERED, Run
from ramsis.sim.slow_spells import NO_SPELLS, DrawnSpells

if TYPE_CHECKING:
    from ramsis.sim.workload import ClosedLoop

__all__ = ["Engine", "Scheme", "SchemeError", "StationEngine", "coins"]

_BLOCK = 4096  # uniform numbers drawn at a time
_MOST = 200_000  # timers in a row, or drops at one instant of users who do not think


def coins(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Uniform numbers for answers that are drawn, from a stream apart from the service draws'."""
    return rng.spawn(1)[0].random(count)


class _Held(NamedTuple):
    """What a worker's fleet holds: quantiles by model and batch, and the first model's number.

    ``own_ms`` are those of batches run as they are, where they are known.
    """

    service_ms: list[list[list[float]]]
    own_ms: list[list[list[float]]]
    levels: list[float]
    draws: bool
    first_model: int


def _held(fleets: Sequence[Fleet]) -> list[_Held]:
    """For each worker."""
    found: list[_Held] = []
    first = 0
    for fleet in fleets:
        times = fleet.service_times
        service_ms = times.quantiles_ms.tolist()
        padded = fleet.own_ms.shape == times.quantiles_ms.shape and (
            fleet.own_ms == times.quantiles_ms).all()
        own_ms = service_ms if padded else fleet.own_ms.tolist()
        found += [_Held(service_ms, own_ms, times.levels.tolist(), times.distributed,
                        first)] * fleet.workers
        first += len(fleet.models)
    return found


class SchemeError(InvalidValueError):
    """A scheme did what cannot be done; the message names the event that it did it at."""


class StationEngine(Protocol):
    """What a scheme sees of the engine, and may do: an :class:`Engine`, or one station's view."""

    @property
    def fleet(self) -> Fleet:
        """The workers that the scheme decides about; with their models and the SLO."""
        ...

    @property
    def idle(self) -> Sequence[bool]:
        """Whether each worker is idle; not to be written to."""
        ...

    @property
    def now_ms(self) -> float:
        """The present time."""
        ...

    @property
    def coins(self) -> list[float]:
        """Uniform numbers for schemes that draw answers."""
        ...

    @property
    def monitored(self) -> bool:
        """Whether the load is anticipated by the monitor and so changes during the run."""
        ...

    def load_qps(self) -> float:
        """The load, as stated or as the monitor anticipates it."""
        ...

    def idle_workers(self) -> list[int]:
        """The idle workers as a scheme starts, the one that has been idle longest first."""
        ...

    def in_service(self) -> list[int]:
        """Queries in each worker's batch as a scheme starts."""
        ...

    def deadline_ms(self, query: int) -> float:
        """When the answer to a query is due."""
        ...

    def dispatch(
        self, worker: int, queries: Sequence[int], model: int, run_as: int | None = None
    ) -> None:
        """Start a batch of queries on an idle worker, run at a size: by default the table's."""
        ...

    def drop(self, query: int) -> None:
        """Give a waiting query up."""
        ...

    def wake_at(self, at_ms: float, token: object = None) -> None:
        """Have the scheme's ``on_timer`` called with ``token`` at a time."""
        ...


class Scheme:
    """The decisions of one run. Subclass it, and act through ``self.engine``.

    An event that a subclass does not take up is ignored.

    Parameters
    ----------
    engine : StationEngine
        Just about to start.
    """

    def __init__(self, engine: StationEngine) -> None:
        self.engine = engine

    def on_arrival(self, query: int) -> None:
        """A query has arrived."""

    def on_arrivals(self, queries: Sequence[int]) -> None:
        """Queries have come that waited elsewhere; by default they come one by one."""
        for query in queries:
            self.on_arrival(query)

    def on_idle(self, worker: int) -> None:
        """A worker has finished its batch."""

    def on_timer(self, token: object) -> None:
        """A time asked for has come."""


class Engine:
    """One run of the plain engine.

    Parameters
    ----------
    fleets : sequence of Fleet
        One for each type of workers. SLO and network delay are those of the first.
    arrivals : ndarray of arrival times in ms, not falling, or ClosedLoop
    duration_ms : float
        When arrivals stop.
    rng : Generator
        For service draws.
    load_qps : float or None
        The load that schemes are told; ``None``: what the load monitor anticipates.
    monitor_ms : float
        The monitor's window.
    query_slo_ms : ndarray, shape (n,), optional
        Deadline of each query after its arrival; by default the fleet's for all.
    spells : DrawnSpells
        When workers are slow; by default never.

    Attributes
    ----------
    now_ms : float
        The present time.
    idle : list of bool
        Whether each worker is idle; not to be written to.
    fleet : Fleet
        The first fleet; with one type of workers, all of them.
    fleets : tuple of Fleet
    """

    def __init__(
        self,
        fleets: Sequence[Fleet],
        arrivals: NDArray[np.float64] | ClosedLoop,
        duration_ms: float,
        rng: np.random.Generator,
        load_qps: float | None,
        monitor_ms: float = WINDOW_MS,
        query_slo_ms: NDArray[np.float64] | None = None,
        spells: DrawnSpells = NO_SPELLS,
    ) -> None:
        self.fleets = tuple(fleets)
        self.fleet = fleet = self.fleets[0]
        self.now_ms = 0.0
        self.idle = [True] * sum(one.workers for one in self.fleets)
        self._duration_ms = duration_ms
        self._known_qps = load_qps
        self._monitor = LoadMonitor(monitor_ms)
        self._event = "start"
        self._about: int | object = 0
        self._slo_ms, self._network_ms = fleet.slo_ms, fleet.network_ms
        self._query_slo_ms = query_slo_ms
        self._slos: list[float] | None = None if query_slo_ms is None else query_slo_ms.tolist()
        self._held: list[_Held] = _held(self.fleets)
        self._spells = spells
        self._rng, self._uniform, self._coins = rng, list[float](), list[float]()
        self._arrival_ms: list[float] = []
        self._batch_of: list[int] = []
        self._starts: list[float] = []
        self._finishes: list[float] = []
        self._workers: list[int] = []
        self._models: list[int] = []
        self._sizes: list[int] = []
        self._dropped: list[tuple[int, float]] = []
        self._running: list[tuple[float, int]] = []
        self._timers: list[tuple[float, int, object]] = []
        self._timers_set = 0
        self._waiting = self._oldest = 0
        self._loop = None if isinstance(arrivals, np.ndarray) else arrivals
        self._coming: deque[float] | list[float] = (
            deque(arrivals.tolist()) if isinstance(arrivals, np.ndarray)
            else [0.0] * arrivals.users
        )

    def deadline_ms(self, query: int) -> float:
        """When the answer to a query is due."""
        slo_ms = self._slo_ms if self._slos is None else self._slos[query]
        return self._arrival_ms[query] + slo_ms

    @property
    def coins(self) -> list[float]:
        """Uniform numbers for schemes that draw answers; one for each arrival that is given."""
        if not self._coins:
            count = len(self._arrival_ms) + len(self._coming) if self._loop is None else _BLOCK
            self._coins = coins(self._rng, count).tolist()
        return self._coins

    @property
    def monitored(self) -> bool:
        """Whether the load is anticipated by the monitor and so changes during the run."""
        return self._known_qps is None

    def load_qps(self) -> float:
        """The anticipated load: known, or the monitor's moving average."""
        if self._known_qps is None:
            return self._monitor.load_qps(self.now_ms)
        return self._known_qps

    def idle_workers(self) -> list[int]:
        """The idle workers, in the order of their numbers."""
        return [worker for worker, free in enumerate(self.idle) if free]

    def in_service(self) -> list[int]:
        """Queries in each worker's batch."""
        sizes = [0] * len(self.idle)
        for _, batch in self._running:
            sizes[self._workers[batch]] = self._sizes[batch]
        return sizes

    def waiting(self) -> list[int]:
        """The queries that wait, in the order of arrival."""
        batch_of = self._batch_of
        while self._oldest < len(batch_of) and batch_of[self._oldest] != NEVER_ANSWERED:
            self._oldest += 1
        return [query for query in range(self._oldest, len(batch_of))
                if batch_of[query] == NEVER_ANSWERED]

    def dispatch(
        self, worker: int, queries: Sequence[int], model: int, run_as: int | None = None
    ) -> None:
        """Start a batch of queries on an idle worker, run at a size: by default the table's.

        Raises
        ------
        SchemeError
            The worker is busy or does not exist, a query has not arrived or is no longer
            waiting, or there is no such model or batch size.
        """
        size = len(queries)
        if not (0 <= worker < len(self.idle) and self.idle[worker]):
            raise self._refusal("dispatch to a worker that is not idle", worker,
                                "an idle worker")
        service_ms, own_ms, levels, draws, first_model = self._held[worker]
        if not (0 <= model < len(service_ms) and 0 < size <= len(service_ms[model])):
            raise self._refusal("no such batch", f"model {model}, {size} queries",
                                f"models 0 to {len(service_ms) - 1}, batches of 1 to "
                                f"{len(service_ms[0])}")
        batch_of, batch = self._batch_of, len(self._starts)
        for query in queries:
            if not (0 <= query < len(batch_of) and batch_of[query] == NEVER_ANSWERED):
                raise self._refusal("dispatch of a query that does not wait", query,
                                    "queries that have arrived, each once")
            batch_of[query] = batch
        as_it_is = run_as is not None and len(own_ms) > 0
        row = own_ms[model][(run_as or size) - 1] if as_it_is else service_ms[model][size - 1]
        busy_ms = self._drawn(row, levels, queries[0]) if draws else row[0]
        busy_ms *= self._spells.factor_at(worker, self.now_ms)
        finish_ms = self.now_ms + self._network_ms + busy_ms
        self.idle[worker] = False
        self._starts.append(self.now_ms)
        self._finishes.append(finish_ms)
        self._workers.append(worker)
        self._models.append(first_model + model)
        self._sizes.append(size)
        self._waiting -= size
        heappush(self._running, (finish_ms, batch))

    def drop(self, query: int) -> None:
        """Give a waiting query up.

        Raises
        ------
        SchemeError
            The query has not arrived or is no longer waiting.
        """
        if not (0 <= query < len(self._batch_of) and self._batch_of[query] == NEVER_ANSWERED):
            raise self._refusal("drop of a query that does not wait", query,
                                "queries that have arrived, each once")
        self._batch_of[query] = DROPPED
        self._dropped.append((query, self.now_ms))
        self._waiting -= 1
        if self._loop is not None:
            if len(self._dropped) > _MOST and self._dropped[-_MOST][1] == self.now_ms:
                raise self._refusal("queries are dropped without end", query,
                                    f"{_MOST} at one instant")
            self._again(1)

    def wake_at(self, at_ms: float, token: object = None) -> None:
        """Have the scheme's ``on_timer`` called with ``token`` at a time.

        Raises
        ------
        SchemeError
            The time is past, or not finite.
        """
        if not self.now_ms <= at_ms < inf:
            raise self._refusal("timer for a time that does not come", at_ms,
                                f"a finite time >= {self.now_ms}")
        self._timers_set += 1
        heappush(self._timers, (at_ms, self._timers_set, token))

    def run(self, start: Callable[[Engine], Scheme]) -> Run:
        """Let a scheme serve the arrivals to the end."""
        scheme = start(self)
        on_arrival, on_idle = scheme.on_arrival, scheme.on_idle
        running, timers, coming, idle = self._running, self._timers, self._coming, self.idle
        arrival_ms, batch_of = self._arrival_ms, self._batch_of
        record = self._monitor.record if self.monitored else None
        in_a_row = 0
        while True:
            next_ms = coming[0] if coming else inf
            finish_ms = running[0][0] if running else inf
            if timers and timers[0][0] < min(next_ms, finish_ms):
                if not (coming or running or self._waiting):
                    break
                self.now_ms, _, token = heappop(timers)
                self._event, self._about = "timer", token
                in_a_row += 1
                if in_a_row > _MOST:
                    raise self._refusal("timers ring without end", in_a_row,
                                        f"{_MOST} with nothing between")
                scheme.on_timer(token)
                continue
            in_a_row = 0
            if finish_ms <= next_ms:
                if not running:
                    break
                self.now_ms, batch = heappop(running)
                worker = self._workers[batch]
                idle[worker] = True
                self._event, self._about = "end of a batch on worker", worker
                if self._loop is not None:
                    self._again(self._sizes[batch])
                on_idle(worker)
            else:
                self.now_ms = heappop(coming) if isinstance(coming, list) else coming.popleft()
                query = len(arrival_ms)
                arrival_ms.append(self.now_ms)
                batch_of.append(NEVER_ANSWERED)
                self._waiting += 1
                self._event, self._about = "arrival of query", query
                if record is not None:
                    record(self.now_ms)
                on_arrival(query)
        return self._record()

    def _again(self, users: int) -> None:
        """Let users of a closed loop who have got their answers come back."""
        assert self._loop is not None
        assert isinstance(self._coming, list)
        back_ms = self.now_ms + self._loop.think_ms
        if back_ms < self._duration_ms:
            for _ in range(users):
                heappush(self._coming, back_ms)

    def _drawn(self, quantiles: list[float], levels: list[float], query: int) -> float:
        """The quantile function of a batch at the uniform number of its first query."""
        while query >= len(self._uniform):
            self._uniform += self._rng.random(_BLOCK).tolist()
        drawn: float = quantile(quantiles, levels, self._uniform[query])
        return drawn

    def _refusal(self, what: str, value: object, allowed: str) -> SchemeError:
        where = f"at {self.now_ms:g} ms, {self._event}"
        if self._event != "start":
            where += f" {self._about}"
        return SchemeError(describe(what, where=where, value=value, allowed=allowed))

    def _record(self) -> Run:
        query, when = zip(*self._dropped, strict=True) if self._dropped else ((), ())
        return Run(
            fleets=self.fleets,
            duration_ms=self._duration_ms,
            arrival_ms=np.array(self._arrival_ms, dtype=np.float64),
            batch_of=np.array(self._batch_of, dtype=np.int32),
            start_ms=np.array(self._starts, dtype=np.float64),
            finish_ms=np.array(self._finishes, dtype=np.float64),
            worker=np.array(self._workers, dtype=np.int32),
            model=np.array(self._models, dtype=np.int32),
            size=np.array(self._sizes, dtype=np.int32),
            drop_query=np.array(query, dtype=np.int32),
            drop_ms=np.array(when, dtype=np.float64),
            slo_ms=self._query_slo_ms,
        )
