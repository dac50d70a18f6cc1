"""Streams of requests for the stations of a placement, and the simulation of all stations at once.

A stream is a Poisson process. Each of its requests is routed to a target (a use of a station) at
random by the targets' shares. If the shares add up to less than 1, some requests are routed to no
target: they are not sent, and nothing answers them. Every stream has its own random numbers, so
its requests and their stations do not depend on the other streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Protocol

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.sim import Requests
from ramsis.sim.engine import Engine, Scheduler, WorkerGroup
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan, StationPlan
from ramsis.sim.routed import Routed
from ramsis.sim.run import DROPPED, NEVER_ANSWERED, Run
from ramsis.sim.workload import ConstantLoad

NOT_SENT = -1
"""Station number of a request that is routed to no station."""


@dataclass(frozen=True, slots=True)
class Target:
    """Share of a stream's requests that is routed to one use of a station."""

    station: int
    use: int
    share: float


@dataclass(frozen=True, slots=True)
class QueryStream:
    """Stream of the requests of one application."""

    load_qps: float  # of all its requests, > 0
    slo_ms: float  # deadline of each after its arrival
    targets: tuple[Target, ...]  # shares that add up to 1 at most


class StationStarter(Protocol):
    """Constructor of a station's scheduler; ``use_of`` returns the use of a request's target."""

    def __call__(
        self, engine: WorkerGroup, use_of: Callable[[int], int]
    ) -> Scheduler[WorkerGroup]:
        """Return the scheduler of a station for one run."""
        ...


@dataclass(frozen=True, eq=False)
class StreamStation:
    """Workers of a station, and the constructor of its scheduler."""

    fleet: Fleet
    start: StationStarter


@dataclass(frozen=True, eq=False)
class RoutedRequests:
    """Requests of all streams in the order of their arrival, arrays of shape (n,)."""

    arrival_ms: FloatArray
    slo_ms: FloatArray
    # stream, station, use: ``station`` is :data:`NOT_SENT` for requests that are routed to none
    stream: IntArray
    station: IntArray
    use: IntArray

    def only(self, chosen: BoolArray | IntArray) -> RoutedRequests:
        """Return the requests that ``chosen`` (a mask, or indices in a new order) selects."""
        return RoutedRequests(self.arrival_ms[chosen], self.slo_ms[chosen], self.stream[chosen],
                              self.station[chosen], self.use[chosen])

    @property
    def sent(self) -> RoutedRequests:
        """Requests that are routed to a station."""
        return self.only(self.station != NOT_SENT)


def requests_of(streams: Sequence[QueryStream], duration_ms: float, seed: int) -> RoutedRequests:
    """Draw the requests of a run, with the station and the use that each request is routed to."""
    drawn = [_drawn(stream, i, duration_ms, np.random.SeedSequence((seed, i)))
             for i, stream in enumerate(streams)]
    together = RoutedRequests(*(np.concatenate([getattr(requests, name) for requests in drawn])
                                for name in ("arrival_ms", "slo_ms", "stream", "station", "use")))
    return together.only(np.argsort(together.arrival_ms, kind="stable"))


def _drawn(
    stream: QueryStream, index: int, duration_ms: float, seed: np.random.SeedSequence
) -> RoutedRequests:
    """Draw the requests of one stream, each with a random target by the shares."""
    arrivals, routing = (np.random.default_rng(part) for part in seed.spawn(2))
    times = ConstantLoad(stream.load_qps, duration_ms).arrivals_ms(arrivals)
    shares = np.cumsum([target.share for target in stream.targets])
    if len(shares) and abs(shares[-1] - 1.0) < 1e-6:  # as far as loads in a file add up
        shares[-1] = 1.0
    place = np.searchsorted(shares, routing.random(len(times)), side="right")
    station = np.array([*(target.station for target in stream.targets), NOT_SENT])[place]
    use = np.array([*(target.use for target in stream.targets), 0])[place]
    return RoutedRequests(times, np.full(len(times), stream.slo_ms),
                          np.full(len(times), index), station, use)


def run_streams(
    stations: Sequence[StreamStation], requests: RoutedRequests, duration_ms: float
) -> Run:
    """Simulate all stations on the plain engine; each request must be routed to a station.

    Service times must be fixed: random draws of a station would depend on the other stations.
    """
    route, use = requests.station.tolist(), requests.use.tolist()
    requests_sent = len(route)
    counts = np.bincount(requests.station, minlength=len(stations))
    firsts = accumulate((station.fleet.workers for station in stations), initial=0)
    plans = [StationPlan(i, station.fleet, range(first, first + station.fleet.workers),
                         Plan(str(i), partial(station.start, use_of=use.__getitem__)),
                         float(count) / max(requests_sent, 1))
             for i, (station, first, count) in enumerate(
                 zip(stations, firsts, counts, strict=False))]
    load_qps = 1000.0 * requests_sent / duration_ms
    engine = Engine.of_fleets(
        [station.fleet for station in stations], Requests(requests.arrival_ms, requests.slo_ms),
        duration_ms, np.random.default_rng(0), load_qps)
    return engine.serve(lambda whole: Routed(whole, plans, route.__getitem__))


@dataclass(frozen=True, slots=True)
class Figures:
    """Outcomes of a set of requests; rates are fractions, ``None`` if the set is empty."""

    queries: int  # all requests: in_time + late + dropped + never_answered + not_sent
    in_time: int
    late: int
    dropped: int
    never_answered: int
    not_sent: int
    accuracy: float | None  # mean of the requests in time
    violation_rate: float | None  # share of the requests that are not in time
    effective_accuracy: float | None  # mean over all requests: the accuracy if in time, else 0
    response_p99_ms: float | None  # of the requests that were answered


def figures(run: Run, chosen: BoolArray, not_sent: int = 0) -> Figures:
    """Return the figures of the requests of a run in the mask ``chosen``, shape (n,).

    ``not_sent`` is the number of further requests that count but were routed to no station.
    """
    in_time = int(run.in_time[chosen].sum())
    answered = chosen & run.answered
    sent = int(chosen.sum())
    queries = sent + not_sent
    reward = float(run.reward[chosen].sum())
    response = (run.answered_ms - run.arrival_ms)[answered]
    return Figures(
        queries=queries, in_time=in_time, late=int(answered.sum()) - in_time,
        dropped=int((run.batch_of[chosen] == DROPPED).sum()),
        never_answered=int((run.batch_of[chosen] == NEVER_ANSWERED).sum()), not_sent=not_sent,
        accuracy=reward / in_time if in_time else None,
        violation_rate=1.0 - in_time / queries if queries else None,
        effective_accuracy=reward / queries if queries else None,
        response_p99_ms=float(np.quantile(response, 0.99)) if len(response) else None,
    )
