"""Simulation of a fleet whose workers start, serve, drain and stop by a scaling rule.

Requests are served as in :mod:`ramsis.sim`: from a central queue, or by round robin over one queue
per worker, by the policy for the number of active workers and the load that the load monitor
anticipates. In addition:

- The rule decides at the end of every interval. At that instant, start-ups and failures of workers
  come first, then the decision, then all other events.
- A worker costs from the decision to start it, and is active ``startup_s`` later. To scale down,
  starting workers are cancelled first, the latest first.
- Active workers are then removed at once. On a central queue these are idle ones; if there are
  too few, the next workers that end a batch leave. With one queue per worker, those with the
  fewest requests leave, the highest slot first. They get no new requests, serve their queue, and
  cost until their last batch ends. A leaving worker is never called back.
- On a change of the number of active workers, the central queue's table is looked up again.
- If the worker whose round-robin turn it is leaves, the turn passes to the next one.
- A failure hits an active worker, each equally likely. The requests of its batch are lost, and
  those in its own queue.
- Without an active worker, requests wait in the central queue; round robin drops them.
- Costs count until the duration ends. Requests in the fleet at this time are still served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.arrays import FloatArray, IntArray, six_digits
from ramsis.cluster.service_times import near_levels
from ramsis.compiling import uniform
from ramsis.errors import NON_NEGATIVE, InvalidValueError, check_positive, out_of_range
from ramsis.policy import Policy, PolicySet
from ramsis.reprs import dataclass
from ramsis.runtime.monitor import SHORTEST_SPAN, WINDOW_MS
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.scaling import _kernels as kernels
from ramsis.scaling.levels import Forecast
from ramsis.scaling.rule import Observation, ScalingRule
from ramsis.sim import _kernels as central
from ramsis.sim._kernels import RunTerms
from ramsis.sim.compiled import lines_of
from ramsis.sim.schedulers import Policies
from ramsis.sim.tables import Tables, level_of, stack

PolicyLevels = PolicySet[Policy] | Iterable[Policy]
_TablesFor = Callable[[int], Tables]
"""Function that returns the tables for a number of active workers."""

NEVER_ANSWERED, DROPPED, LOST = -1, -2, -3
"""Codes in place of a request's model: it waited at the end, was dropped, or was in the batch or
the queue of a worker that failed."""

_MOST_PLACES = 300  # largest number of points of a series over time
_ROUNDING = 1e-9  # tolerance of a number of intervals before it is rounded up
_DISPATCHES = ("central-queue", "round-robin")


@dataclass(frozen=True, eq=False)
class DecisionTables:
    """Decision tables of a fleet by number of active workers, and their service times.

    The service times are those that the policies are made for.
    """

    dispatch: str  # ``central-queue`` or ``round-robin``
    models: tuple[str, ...]  # shape (M,)
    accuracy: FloatArray  # shape (M,)
    levels: FloatArray  # probability levels of the quantiles, shape (Q,)
    tables: Mapping[int, Tables]  # by number of active workers
    quantiles_ms: FloatArray  # service times, shape (M, B, Q); Q = 1 for fixed service times

    @classmethod
    def of(cls, policies: Mapping[int, PolicyLevels]) -> DecisionTables:
        """Build the tables from policies by number of active workers, for one or several loads."""
        if not policies or min(policies) < 1:
            raise InvalidValueError("not numbers of workers with policies", where="tables",
                                    value=", ".join(map(str, policies)),
                                    allowed="one or more, each 1 or more")
        by_workers = {workers: Policies(levels).policies for workers, levels in policies.items()}
        every = [policy for levels in by_workers.values() for policy in levels]
        dispatches = sorted({policy.dispatch for policy in every})
        if len(dispatches) > 1 or dispatches[0] not in _DISPATCHES:
            raise InvalidValueError("fleets that scale are not simulated with this dispatch",
                                    where="dispatch", value=", ".join(dispatches),
                                    allowed="one of " + ", ".join(_DISPATCHES))
        if any(policy.slo_classes for policy in every):
            raise InvalidValueError("fleets that scale have one SLO", where="SLO classes",
                                    allowed="one")
        # Policies may cover different models and batch sizes: take each model's service times
        # from the policy with the largest batch.
        largest: dict[str, tuple[Policy, int]] = {}
        for policy in every:
            for row, model in enumerate(policy.models):
                if (model.name not in largest
                        or policy.max_batch > largest[model.name][0].max_batch):
                    largest[model.name] = policy, row
        names = tuple(largest)
        times = [policy.service_ms[row] for policy, row in largest.values()]
        widths = {len(row[0]) for row in times}
        if len(widths) > 1:
            raise InvalidValueError("policies for different service times", where="tables",
                                    allowed="one service for all")
        quantiles_ms = np.full((len(names), max(map(len, times)), widths.pop()), np.inf)
        for row_ms, batches_ms in zip(quantiles_ms, times, strict=True):
            row_ms[: len(batches_ms)] = batches_ms
        place = {name: at for at, name in enumerate(names)}
        compiled = {}
        for workers, levels in by_workers.items():
            placed = [(policy, [place[model.name] for model in policy.models])
                      for policy in levels]
            compiled[workers] = stack(level_of(*pair) for pair in placed)
        accuracy = np.array([policy.models[row].accuracy for policy, row in largest.values()])
        return cls(dispatches[0], names, accuracy, every[0].levels, compiled, quantiles_ms)

    @cached_property
    def workers(self) -> tuple[int, ...]:
        """Numbers of active workers with a table, in increasing order."""
        return tuple(sorted(self.tables))

    @property
    def draws(self) -> bool:
        """Whether service times are drawn."""
        return len(self.levels) > 1

    def size(self, active: int) -> int:
        """Return the largest number of workers with a table that is at most ``active``.

        If all are larger, return the smallest.
        """
        return max((size for size in self.workers if size <= active), default=self.workers[0])


@dataclass(frozen=True, eq=False)
class ScaledRun:
    """Result of a simulated fleet; series have shape (T,), one entry per interval."""

    # total time of all workers, starting and leaving ones included, until the duration ends
    worker_s: float
    # As in :mod:`ramsis.sim.metrics`: share of requests not answered in time, and mean accuracy
    # over all requests, 0 for one that was not answered in time
    violation_rate: float
    effective_accuracy: float
    # numbers of requests that arrived, that a policy dropped, and that failed with their worker
    requests: int
    dropped: int
    lost: int
    time_s: FloatArray  # start of each interval
    load_qps: FloatArray  # arrival rate in the interval
    # numbers of workers wanted, active and starting at the start of the interval
    wanted: IntArray
    active: IntArray
    starting: IntArray
    violations: IntArray  # requests that arrived in the interval and were not answered in time
    accuracy: FloatArray  # mean accuracy of the answers in time; NaN if there are none
    # shape (n,), by request: time of its answer, infinite without one; index of its model, or
    # :data:`NEVER_ANSWERED`, :data:`DROPPED` or :data:`LOST`
    finish_ms: FloatArray = field(repr=False)
    model: NDArray[np.int16] = field(repr=False)

    @property
    def reversals(self) -> int:
        """Number of switches between scaling up and scaling down."""
        ways = np.sign(np.diff(self.wanted))
        ways = ways[ways != 0]
        return int(np.count_nonzero(ways[1:] != ways[:-1]))

    @property
    def changes(self) -> int:
        """Number of intervals after which the number of wanted workers changes."""
        return int(np.count_nonzero(np.diff(self.wanted)))

    @property
    def starts(self) -> int:
        """Number of workers started after the first interval, replacements of failures aside.

        The start-up time of each is paid for.
        """
        return int(np.maximum(np.diff(self.wanted), 0).sum())

    def over_time(self) -> dict[str, list[float | None]]:
        """Return the series, averaged to at most 300 points.

        ``workers`` counts active and starting ones; ``violation_rate`` is the share of the
        requests that arrived.
        """
        at = np.arange(0, len(self.time_s), math.ceil(len(self.time_s) / _MOST_PLACES))

        def total(values: NDArray[Any]) -> FloatArray:
            sums: FloatArray = np.add.reduceat(values, at, dtype=float)
            return sums

        seconds = np.diff(self.time_s, append=2 * self.time_s[-1] - self.time_s[-2:][0])
        arrived, count = self.load_qps * seconds, total(np.ones_like(self.time_s))
        in_time = arrived - self.violations
        with np.errstate(invalid="ignore", divide="ignore"):
            return six_digits({
                "time_s": self.time_s[at], "load_qps": total(self.load_qps) / count,
                "wanted": total(self.wanted) / count,
                "workers": total(self.active + self.starting) / count,
                "active": total(self.active) / count,
                "accuracy": total(np.nan_to_num(self.accuracy) * in_time) / total(in_time),
                "violation_rate": total(self.violations) / total(arrived)})


@dataclass(frozen=True)
class ScaledFleet:
    """Limits and times of a fleet whose number of workers changes."""

    slo_ms: float  # deadline of each request after its arrival, > 0
    startup_s: float  # start-up time of a worker, >= 0
    # time between decisions, > 0. The first decision is at the end of the first interval.
    interval_s: float
    # limits of the number of workers, 1 <= least <= most
    least: int
    most: int


@dataclass(frozen=True)
class FleetTerms(ScaledFleet):
    """Settings of one simulated run of a fleet whose workers change."""

    start: int  # number of workers at time 0, all active; least <= start <= most
    # end of arrivals and of costs, > 0; by default the end of the interval of the last
    duration_s: float | None = None
    seed: int = 0  # seed of service times and of the choice of failing workers
    window_ms: float = WINDOW_MS  # window of the load monitor that selects policies, > 0
    forecast: Forecast | None = None  # load forecast that the rule observes
    failures: Sequence[float] = ()  # times in seconds, >= 0, at which an active worker fails

    def __post_init__(self) -> None:
        check_positive("out of range", slo_ms=self.slo_ms, interval_s=self.interval_s,
                       window_ms=self.window_ms)
        check_positive("out of range", optional=True, duration_s=self.duration_s)
        for where, values in (("startup_s", [self.startup_s]), ("failures", self.failures)):
            for value in values:
                NON_NEGATIVE.required(where, value)
        if not 1 <= self.least <= self.start <= self.most:
            raise out_of_range("least, start, most", f"{self.least}, {self.start}, {self.most}",
                               "1 <= least <= start <= most")

    def edges_ms(self, arrival_ms: FloatArray) -> FloatArray:
        """Return the starts of all intervals and the end of the run, shape (T+1,)."""
        interval_ms = 1000.0 * self.interval_s
        last_ms = float(arrival_ms[-1]) if len(arrival_ms) else 0.0
        end_ms = last_ms if self.duration_s is None else 1000.0 * self.duration_s
        begun = max(math.ceil(end_ms / interval_ms - _ROUNDING), 1)
        if self.duration_s is None:
            end_ms = max(begun * interval_ms, last_ms)
        return np.append(np.arange(begun) * interval_ms, end_ms)


def play(
    arrival_ms: ArrayLike, tables: DecisionTables, rule: ScalingRule, fleet: FleetTerms
) -> ScaledRun:
    """Simulate a fleet under a scaling rule.

    ``arrival_ms``, (n,), is non-decreasing, in [0, duration]. The rule is a new instance, as rules
    keep state.
    """
    arrivals = np.ascontiguousarray(arrival_ms, dtype=float)
    if arrivals.ndim != 1 or not np.isfinite(arrivals).all() or (np.diff(arrivals) < 0).any():
        raise out_of_range("arrival_ms", "times", "finite numbers, non-decreasing")
    edge_ms = fleet.edges_ms(arrivals)
    duration_ms = float(edge_ms[-1])
    if len(arrivals) and not 0 <= arrivals[0] <= arrivals[-1] <= duration_ms:
        raise out_of_range("arrival_ms", f"{arrivals[0]:g} to {arrivals[-1]:g}",
                           f"0 to {duration_ms:g}, the duration")
    rng = np.random.default_rng(fleet.seed)
    draws = rng.random(len(arrivals) if tables.draws else 0)
    window_ms = float(fleet.window_ms)
    terms = uniform(RunTerms(
        slo_ms=float(fleet.slo_ms), network_ms=0.0, workers=0, level=-1, window_ms=window_ms,
        shortest_ms=SHORTEST_SPAN * window_ms, quantiles_ms=tables.quantiles_ms,
        quantile_levels=tables.levels, near_level=near_levels(tables.levels), uniform=draws))
    compiled = {size: uniform(known) for size, known in tables.tables.items()}
    station = _STATIONS[tables.dispatch](
        arrivals, terms, lambda active: compiled[tables.size(active)], fleet.start)
    workers = _Workers(station, fleet, rng.spawn(1)[0])
    decisions = np.zeros((len(edge_ms) - 1, 3), np.int64)  # wanted, active, starting
    decisions[0] = fleet.start, fleet.start, 0
    before = arrived = 0
    for at in range(1, len(decisions)):
        now_ms = float(edge_ms[at])
        utilisation = workers.run_until(now_ms)
        before, arrived = arrived, int(np.searchsorted(arrivals, now_ms))
        ahead = () if fleet.forecast is None else fleet.forecast.told(
            now_ms / 1000.0, fleet.startup_s + fleet.interval_s)
        wanted = workers.want(now_ms, rule.wanted(Observation(
            now_ms / 1000.0, (arrived - before) / fleet.interval_s, station.active,
            len(workers.starting), *station.held(now_ms), utilisation, *ahead)))
        decisions[at] = wanted, station.active, len(workers.starting)
    workers.run_until(duration_ms)
    worker_s = workers.worker_ms / 1000.0
    workers.run_until(math.inf)
    accuracy = np.array(tables.accuracy, dtype=float)  # numba would compile read-only ones anew
    out = station.out
    counted = kernels.figures(
        arrivals, out, accuracy, float(fleet.slo_ms), 2.0 * SLACK_TOLERANCE_MS, edge_ms)
    return _run(out, counted, edge_ms, worker_s, decisions)


def _run(
    out: kernels.Outcomes, counted: tuple[IntArray, IntArray, FloatArray], edge_ms: FloatArray,
    worker_s: float, decisions: IntArray,
) -> ScaledRun:
    """Compute the figures of a run from the outcome of each request."""
    arrived, in_time, reward = counted
    requests = len(out.model)
    with np.errstate(invalid="ignore"):
        mean = np.where(in_time > 0, reward / in_time, np.nan)
    wanted, active, starting = np.ascontiguousarray(decisions.T)
    return ScaledRun(
        worker_s=worker_s,
        violation_rate=float((arrived - in_time).sum()) / max(requests, 1),
        effective_accuracy=float(reward.sum()) / max(requests, 1),
        requests=requests,
        dropped=int(np.count_nonzero(out.model == DROPPED)),
        lost=int(np.count_nonzero(out.model == LOST)),
        time_s=edge_ms[:-1] / 1000.0,
        load_qps=1000.0 * arrived / np.diff(edge_ms),
        wanted=wanted, active=active, starting=starting,
        violations=arrived - in_time, accuracy=mean,
        finish_ms=out.finish_ms, model=out.model,
    )


class _Workers:
    """Number of workers over time, with pending start-ups and failures, and the cost so far."""

    def __init__(
        self, station: _Central | _OwnQueues, fleet: FleetTerms, rng: np.random.Generator
    ) -> None:
        self.station, self.least, self.most = station, fleet.least, fleet.most
        self.startup_ms, self.rng = 1000.0 * fleet.startup_s, rng
        self.failures_ms = [1000.0 * time_s for time_s in sorted(fleet.failures)]
        self.starting: list[float] = []  # ends of the start-ups, in increasing order
        self.now_ms = self._active_ms = self._starting_ms = 0.0
        self._busy_ms = self._serving_ms = 0.0

    @property
    def worker_ms(self) -> float:
        """Total time of all workers so far, starting and leaving ones included."""
        return self._starting_ms + self._active_ms + self.station.leaving_ms(self.now_ms)

    def run_until(self, until_ms: float) -> float:
        """Process events and worker changes up to a time; return the utilisation since then.

        The interval begins at the previous call. Return 0 for an infinite time, which empties
        all queues.
        """
        while True:
            next_ms = min(self.starting[0] if self.starting else math.inf,
                          self.failures_ms[0] if self.failures_ms else math.inf)
            if next_ms > until_ms or math.isinf(next_ms):
                break
            self._pass(next_ms)
            if self.starting and self.starting[0] == next_ms:
                self.starting.pop(0)
                self.station.add(next_ms)
            else:
                self.failures_ms.pop(0)
                if self.station.active:
                    self.station.fail(next_ms, self.rng.random())
        self._pass(until_ms)
        if math.isinf(until_ms):
            return 0.0
        busy_ms = self.station.busy_ms(until_ms)
        serving_ms = self._active_ms + self.station.leaving_ms(until_ms)
        share = (busy_ms - self._busy_ms) / max(serving_ms - self._serving_ms, 1e-9)
        self._busy_ms, self._serving_ms = busy_ms, serving_ms
        return float(min(max(share, 0.0), 1.0))

    def want(self, now_ms: float, wanted: int) -> int:
        """Start or stop workers to reach a number, clipped to the limits; return that number."""
        wanted = min(max(int(wanted), self.least), self.most)
        more = wanted - self.station.active - len(self.starting)
        if more > 0:
            if self.startup_ms > 0:
                self.starting += [now_ms + self.startup_ms] * more
            else:
                for _ in range(more):
                    self.station.add(now_ms)
        elif more < 0:
            given_up = min(len(self.starting), -more)
            del self.starting[len(self.starting) - given_up:]
            if -more > given_up:
                self.station.remove(-more - given_up, now_ms)
        return wanted

    def _pass(self, until_ms: float) -> None:
        self.station.run_until(until_ms)
        if math.isfinite(until_ms):
            self._active_ms += self.station.active * (until_ms - self.now_ms)
            self._starting_ms += len(self.starting) * (until_ms - self.now_ms)
            self.now_ms = until_ms


class _Central:
    """Workers that share a central queue."""

    def __init__(
        self, arrival_ms: FloatArray, terms: RunTerms, tables: _TablesFor, active: int
    ) -> None:
        self.arrival_ms, self.terms, self.tables = arrival_ms, terms, tables
        self.active, self.changed_ms = active, -math.inf
        self.lines = lines_of(len(arrival_ms), np.array([terms.slo_ms]))
        self.room = central.DecisionRoom.of(len(arrival_ms))
        self.drop_ms = np.empty(len(arrival_ms))
        self.state = central.CentralState.of(active)
        self.numbered = active  # workers so far; a new one gets the next number
        # time of the first ``worked`` batches, less what failures have cut off
        self.work_ms, self.worked = 0.0, 0

    @property
    def out(self) -> kernels.Outcomes:
        """Time of the answer and model of each request so far."""
        room, count = self.room, int(self.state.counts[central.BATCHES])
        served = room.batch_of >= 0
        batch = np.where(served, room.batch_of, count)
        model = np.where(served, np.append(room.model[:count], 0)[batch], room.batch_of)
        return kernels.Outcomes(np.append(room.finish_ms[:count], np.inf)[batch],
                                model.astype(np.int16))

    def run_until(self, until_ms: float) -> None:
        """Process all events before a time."""
        if until_ms <= self.changed_ms:
            return
        central.central_queue(until_ms, self.changed_ms, self.arrival_ms, self.lines,
                              self.tables(self.active), self.terms, self.state, self.room,
                              self.drop_ms)
        self.changed_ms = -math.inf

    def add(self, now_ms: float) -> None:
        """Add an active worker."""
        self.active += 1
        self.changed_ms = now_ms
        self._make_room()
        counts, idle = self.state.counts, self.state.idle
        idle[(counts[central.FIRST_IDLE] + counts[central.IDLE]) & (len(idle) - 1)] = self.numbered
        counts[central.IDLE] += 1
        self.numbered += 1

    def remove(self, count: int, now_ms: float) -> None:
        """Let active workers leave, idle ones at once and busy ones after their batch."""
        counts = self.state.counts
        idle = min(count, int(counts[central.IDLE]))
        counts[central.FIRST_IDLE] += idle
        counts[central.IDLE] -= idle
        counts[central.LEAVING] += count - idle
        self.state.times[central.LEFT] -= (count - idle) * now_ms
        self.active -= count
        self.changed_ms = now_ms

    def fail(self, now_ms: float, chance: float) -> None:
        """Remove the active worker that a uniform number selects, with its batch."""
        counts, state = self.state.counts, self.state
        idle, leaving = int(counts[central.IDLE]), int(counts[central.LEAVING])
        # Number the active workers: idle ones first, then busy ones by the end of their batch. The
        # first ``leaving`` batches of the ring belong to workers that are no longer active.
        failed = int(chance * self.active)
        if failed < idle:
            counts[central.FIRST_IDLE] += 1
            counts[central.IDLE] -= 1
        else:
            at, place = leaving + failed - idle, self._ring()
            number = state.batch[state.busy[place[at]]]
            self.room.batch_of[self.room.batch_of == number] = LOST
            self._work_ms()
            self.work_ms -= float(state.finish_ms[place[at]]) - now_ms
            for column in (state.finish_ms, state.busy):
                column[place[at:-1]] = column[place[at + 1:]]
            counts[central.BUSY] -= 1
        self.active -= 1
        self.changed_ms = now_ms

    def held(self, now_ms: float) -> tuple[int, int]:
        """Return the numbers of waiting requests and of requests in batches."""
        running = self.state.batch[self.state.busy[self._ring()]]
        return int(self.state.counts[central.QUEUED]), int(self.room.size[running].sum())

    def busy_ms(self, now_ms: float) -> float:
        """Return the busy time of all workers so far."""
        ahead_ms = self.state.finish_ms[self._ring()] - now_ms
        return float(self._work_ms() - ahead_ms.sum())

    def leaving_ms(self, now_ms: float) -> float:
        """Return the time that all workers have spent leaving so far."""
        return float(self.state.times[central.LEFT]
                     + self.state.counts[central.LEAVING] * now_ms)

    def _work_ms(self) -> float:
        """Return the time of all batches so far, less what failures have cut off."""
        new = slice(self.worked, int(self.state.counts[central.BATCHES]))
        took_ms = self.room.finish_ms[new] - self.room.start_ms[new]
        self.work_ms = float(np.append(self.work_ms, took_ms).cumsum()[-1])
        self.worked = new.stop
        return self.work_ms

    def _ring(self) -> IntArray:
        """Return the slots of running batches by finish time."""
        first, busy = self.state.counts[central.FIRST], self.state.counts[central.BUSY]
        place: IntArray = np.arange(first, first + busy) & (len(self.state.finish_ms) - 1)
        return place

    def _make_room(self) -> None:
        """Grow the rings so that they hold all workers, leaving ones included."""
        counts, former = self.state.counts, self.state
        workers = self.active + int(counts[central.LEAVING])
        batch = former.batch
        if self.numbered >= len(batch):
            batch = np.append(batch, np.zeros_like(batch))
            self.state = former._replace(batch=batch)
        if workers < len(former.finish_ms):
            return
        place, state = self._ring(), central.CentralState.of(2 * workers)
        first, idle = counts[central.FIRST_IDLE], int(counts[central.IDLE])
        state.finish_ms[:len(place)] = former.finish_ms[place]
        state.busy[:len(place)] = former.busy[place]
        state.idle[:idle] = former.idle[np.arange(first, first + idle) & (len(former.idle) - 1)]
        counts[[central.FIRST, central.FIRST_IDLE]] = 0
        self.state = state._replace(counts=counts, times=former.times, batch=batch)


class _OwnQueues:
    """Workers with one queue each, in numbered slots, under round-robin dispatch."""

    def __init__(
        self, arrival_ms: FloatArray, terms: RunTerms, tables: _TablesFor, active: int
    ) -> None:
        self.arrival_ms, self.terms, self.tables = arrival_ms, terms, tables
        requests = len(arrival_ms)
        self.out = kernels.Outcomes(np.full(requests, np.inf),
                                    np.full(requests, NEVER_ANSWERED, dtype=np.int16))
        self.slots = np.arange(active)
        self.leaving = dict[int, float]()  # time of removal by slot
        self._left_ms = 0.0
        none = np.zeros(0, np.int64)
        self.state = kernels.OwnState(
            np.zeros(2, np.int64), np.zeros(1), np.empty(requests, np.int32),
            none, none, none, none, none, np.zeros(0), none, none, none, none)
        self._make_room(active)

    @property
    def active(self) -> int:
        """Number of active workers."""
        return len(self.slots)

    def run_until(self, until_ms: float) -> None:
        """Process all events before a time."""
        serving = np.concatenate([self.slots, np.array(sorted(self.leaving), dtype=np.int64)])
        kernels.round_robin(until_ms, self.slots, serving, self.arrival_ms,
                            self.tables(self.active), self.terms, self.state, self.out)
        for slot, since_ms in list(self.leaving.items()):
            if not self.state.waiting[slot] and self.state.free_ms[slot] < until_ms:
                self._left_ms += max(float(self.state.free_ms[slot]) - since_ms, 0.0)
                del self.leaving[slot]

    def add(self, now_ms: float) -> None:
        """Add an active worker."""
        used = {*self.slots.tolist(), *self.leaving}
        slot = next(slot for slot in range(len(used) + 1) if slot not in used)
        self._make_room(slot + 1)
        self.state.free_ms[slot] = -np.inf
        self._among(np.sort(np.append(self.slots, slot)))

    def remove(self, count: int, now_ms: float) -> None:
        """Let active workers leave once their queue is empty, those with the fewest requests."""
        held = self.state.waiting[self.slots] + self._in_batches(self.slots, now_ms)
        order = np.lexsort((-self.slots, held))
        for slot in self.slots[order[:count]].tolist():
            if self.state.waiting[slot] or self.state.free_ms[slot] >= now_ms:
                self.leaving[slot] = now_ms
        self._among(np.sort(self.slots[order[count:]]))

    def fail(self, now_ms: float, chance: float) -> None:
        """Remove the active worker that a uniform number selects, with its queue."""
        slot, state = int(self.slots[int(chance * self.active)]), self.state
        lost = [(int(state.head[slot]), int(state.waiting[slot]))]
        if state.free_ms[slot] >= now_ms:
            lost.append((int(state.batch[slot]), int(state.size[slot])))
            state.work_ms[0] -= state.free_ms[slot] - now_ms
        # A queue and a batch are linked lists of requests, each given by its head and length.
        for request, count in lost:
            for _ in range(count):
                self.out.model[request], self.out.finish_ms[request] = LOST, np.inf
                request = int(state.following[request])
        state.waiting[slot] = state.queued[slot] = 0
        state.free_ms[slot] = -np.inf
        self._among(self.slots[self.slots != slot])

    def held(self, now_ms: float) -> tuple[int, int]:
        """Return the numbers of waiting requests and of requests in batches."""
        serving = np.array([*self.slots.tolist(), *self.leaving], dtype=np.int64)
        return (int(self.state.waiting[serving].sum()),
                int(self._in_batches(serving, now_ms).sum()))

    def busy_ms(self, now_ms: float) -> float:
        """Return the busy time of all workers so far."""
        serving = np.array([*self.slots.tolist(), *self.leaving], dtype=np.int64)
        ahead_ms = np.maximum(self.state.free_ms[serving] - now_ms, 0.0)
        return float(self.state.work_ms[0] - ahead_ms.sum())

    def leaving_ms(self, now_ms: float) -> float:
        """Return the time that all workers have spent leaving so far."""
        return self._left_ms + sum(now_ms - since_ms for since_ms in self.leaving.values())

    def _in_batches(self, slots: IntArray, now_ms: float) -> IntArray:
        return np.where(self.state.free_ms[slots] >= now_ms, self.state.size[slots], 0)

    def _among(self, slots: IntArray) -> None:
        """Set the active slots; the round-robin turn stays, or passes to the next active slot."""
        turn = int(self.state.counts[kernels.TURN])
        following = self.slots[turn] if turn < len(self.slots) else 0
        self.slots = slots
        after = int(np.searchsorted(slots, following))
        self.state.counts[kernels.TURN] = after if after < len(slots) else 0

    def _make_room(self, slots: int) -> None:
        more = slots - len(self.state.head)
        if more <= 0:
            return
        none, idle = np.full(more, -1, np.int64), np.full(more, -np.inf)
        zero = np.zeros(more, np.int64)
        added = {"head": none, "tail": none, "last": none, "free_ms": idle}
        self.state = self.state._replace(**{
            name: np.append(getattr(self.state, name), added.get(name, zero))
            for name in self.state._fields[3:]})


_STATIONS: Mapping[str, type[_Central] | type[_OwnQueues]] = {
    "central-queue": _Central, "round-robin": _OwnQueues}
