"""Dispatcher: decides which requests run when, on which worker and model, by a policy set.

It is a state machine around the lookup. Inputs are events: requests arrive, a batch ends, a timer
fires, a worker fails or recovers, policies are exchanged. Each event returns *orders*: batches to
start and requests to drop; :attr:`Dispatcher.wake_ms` is the time at which to call
:meth:`Dispatcher.timer` unless another event comes first. It has no threads and no clock: the
caller passes the time, which must not go back, so that an event loop
(:class:`~ramsis.runtime.fronts.AsyncFront`), threads (:class:`~ramsis.runtime.fronts.ThreadFront`)
and a simulation can all drive it.

Requests are routed to a station of the level for the stated or anticipated load, then to a queue
by the dispatch rule, and are ordered by deadline. If a new level or policy set divides the workers
in another way, all waiting requests are rerouted, and none is lost; a busy worker joins its new
station after its batch. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter
from random import Random
from typing import Generic, NamedTuple, TypeVar

from ramsis.errors import InvalidValueError, check_not_negative, check_positive
from ramsis.reprs import dataclass
from ramsis.runtime.cascade import CascadeRule
from ramsis.runtime.monitor import WINDOW_MS, LoadMonitor
from ramsis.runtime.policy_set import Level, PolicySet
from ramsis.runtime.second_opinions import act, keep_head
from ramsis.runtime.selector import Selector
from ramsis.runtime.station_queues import Orders, QueueState, Start, StationQueues, Ticket
from ramsis.runtime.table import SLACK_TOLERANCE_MS

__all__ = ["DispatchSettings", "Dispatcher", "Orders", "Start", "Ticket"]

R = TypeVar("R")


@dataclass(frozen=True)
class DispatchSettings:
    """Settings of a dispatcher of requests."""

    # time of dispatch and network that service times do not contain, subtracted from every slack
    overhead_ms: float = 0.0
    # resolution of the caller's timers: a wait that ends within this time ends at once
    timer_ms: float = 0.0
    # the load, if known; by default the load monitor anticipates it
    load_qps: float | None = None
    window_ms: float = WINDOW_MS  # window of the load monitor
    # label of the arrival process whose levels are used; required if the set has several
    process: str | None = None
    # generator of uniform random numbers in [0, 1) for the routing among stations; with a fixed
    # seed by default
    uniform: Callable[[], float] | None = None
    # Whether unsure first answers wait for second opinions, if policies have them. The caller must
    # then know confidences, call :meth:`Dispatcher.unsure`, and send ``Orders.answers``.
    second_opinions: bool = False

    def __post_init__(self) -> None:
        check_not_negative("not a length of time", overhead_ms=self.overhead_ms,
                           timer_ms=self.timer_ms)


class DispatcherBase(Generic[R]):
    """State that all dispatchers have: settings, clock, load monitor, and workers by number."""

    def __init__(self, workers: int, settings: DispatchSettings | None) -> None:
        self.settings = settings or DispatchSettings()
        self.slowness = 1.0
        self.monitor = LoadMonitor(self.settings.window_ms)
        self._up, self._busy = [True] * workers, [False] * workers
        self._arrived, self._now_ms = 0, -inf

    @property
    def overhead_ms(self) -> float:
        """Time that is subtracted from every slack; see :meth:`take_overhead`."""
        return self.settings.overhead_ms

    @property
    def workers_up(self) -> int:
        """Number of workers that are up."""
        return sum(self._up)

    def load_qps(self, now_ms: float) -> float:
        """Return the stated load, or else the anticipated one, in requests per second."""
        stated_qps = self.settings.load_qps
        return self.monitor.load_qps(self._clock(now_ms)) if stated_qps is None else stated_qps

    def _clock(self, now_ms: float) -> float:
        """Return the time, or the latest one so far if readings are out of order."""
        self._now_ms = max(now_ms, self._now_ms)
        return self._now_ms

    def _check_busy(self, worker: int) -> None:
        # A worker that is down comes back; it runs nothing.
        if self._up[worker] and not self._busy[worker]:
            raise InvalidValueError("the end of a batch that was not started", where="worker",
                                    value=worker, allowed="a worker that is busy")


def check_deadline(deadline_ms: float) -> None:
    """Refuse a deadline that is no time; an infinite one is."""
    if not (deadline_ms <= inf and deadline_ms > -inf):
        raise InvalidValueError("not a time", where="deadline_ms", value=deadline_ms,
                                allowed="any number but NaN")


class Dispatcher(DispatcherBase[R]):
    """Dispatcher for the workers of a policy set.

    Workers are numbered from 0 through the set's worker types, in their order. Initially all are
    idle. The attribute ``policies`` is the current set, ``slowness`` the present service time as a
    multiple of the profiled one, and ``monitor`` records arrivals.

    Examples
    --------
    >>> from ramsis.runtime import DecisionTable, Selector, set_of_selectors
    >>> table = DecisionTable(
    ...     models=("small",), slo_ms=100.0, load_qps=50.0, workers=1, dispatch="round-robin",
    ...     arrivals="poisson", idle=(0, 1), queued=(0, 1, 2), slack_ms=(0.0,),
    ...     actions=[[0, 1], [0, 2]], rows=[[0, 0], [0, 1]], row_of=[[0, 1]], longer_queue=1)
    >>> dispatcher = Dispatcher(set_of_selectors([Selector(table)]))
    >>> [(start.worker, start.model, start.requests)
    ...  for start in dispatcher.arrive(0.0, ["a"], deadline_ms=100.0).starts]
    [(0, 'small', ['a'])]
    >>> dispatcher.arrive(1.0, ["b", "c"], deadline_ms=101.0).starts
    []
    >>> dispatcher.finished(5.0, worker=0).starts[0].requests
    ['b', 'c']
    """

    def __init__(
        self, policies: PolicySet[Selector], settings: DispatchSettings | None = None
    ) -> None:
        workers = sum(policies.worker_types.values())
        super().__init__(workers, settings)
        self._serve_by(policies)
        self._choice = policies.at(0.0, self.settings.process)
        self._worker_types = dict(policies.worker_types)
        self._uniform = self.settings.uniform or Random(0).random
        self._serving = [0] * workers
        self._idle_since, self._ends = list(range(workers)), workers
        self._due_last_ms = -inf  # upper bound on the deadlines of waiting requests
        # Requests whose second opinion runs, by worker, and the time to send the next first answer
        self._standing: dict[int, list[Ticket[R]]] = {}
        self._standing_ms = inf
        for level in policies.levels:
            self._division(level)
        self._stations: list[StationQueues[Ticket[R]]] = []
        self._open([])

    @property
    def level(self) -> Level[Selector]:
        """Level of the policy set by which requests are served now."""
        return self._choice.level

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self._up)

    @property
    def unasked(self) -> bool:
        """Whether some events have not been dispatched yet; see :meth:`ask`."""
        return bool(self._unasked)

    @property
    def queued(self) -> int:
        """Number of waiting requests, those for second opinions included."""
        return sum(len(queue.waiting) + len(queue.unsure) for queue in self._queues)

    @property
    def wake_ms(self) -> float:
        """Time at which to call :meth:`timer`, infinite if never; it changes with every call."""
        wake_ms = min([queue.wake_ms for queue in self._queues])
        return wake_ms if wake_ms < self._standing_ms else self._standing_ms

    def slo_class(self, slo_ms: float) -> float:
        """Return the longest SLO class that is at most the request's SLO, or else the shortest."""
        return self._classes[max(bisect_right(self._classes, slo_ms) - 1, 0)]

    def arrive(
        self, now_ms: float, requests: Sequence[R], deadline_ms: float,
        slo_ms: float | None = None, *, ask: bool = True,
    ) -> Orders[R]:
        """Queue arriving requests with the same deadline, then dispatch.

        Parameters
        ----------
        requests
            One or more objects of any type.
        deadline_ms
            Deadline of their answers.
        slo_ms
            SLO class; by default that of the time to the deadline, see :meth:`slo_class`.
        ask
            False to defer the dispatch to :meth:`ask`, if more events follow at once.
        """
        check_deadline(deadline_ms)
        now_ms = self._clock(now_ms)
        if slo_ms is None:
            slo_ms = self.slo_class(deadline_ms - now_ms)
        # Record first: the level is chosen by a load that includes these requests.
        if self.settings.load_qps is None:
            self.monitor.record(now_ms, len(requests))
        if deadline_ms > self._due_last_ms:
            self._due_last_ms = deadline_ms
        tickets = []
        for request in requests:
            tickets.append(Ticket(request, self._arrived, now_ms, deadline_ms, slo_ms,
                                  self._uniform() if self._routed else 0.0))
            self._arrived += 1
        orders: Orders[R] = Orders([], [], [])
        if not self._divided_anew(now_ms, orders, tickets):
            self._join(tickets)
            if ask:
                self._ask(now_ms, orders)
        return orders

    def unsure(
        self, now_ms: float, start: Start[R], confidences: Sequence[float]
    ) -> list[Ticket[R]]:
        """Return the requests of an ending batch whose first answers are unsure.

        ``confidences`` are those of its answers, in the order of its tickets. Pass the requests to
        :meth:`finished`, and send the other answers. Second opinions are never unsure, nor is any
        answer without ``second_opinions`` in the settings and in the policy.
        """
        due_ms = self._clock(now_ms) + self.overhead_ms
        for station in self._stations:
            rule = self._rule(station)
            if (start.worker in station.queue_of and rule is not None and not start.second
                    and self._up[start.worker]):
                queue = station.queue_of[start.worker]
                level = rule.level(int(len(queue.waiting) * station.slowness), len(queue.unsure))
                return [ticket for ticket, confidence in zip(start.tickets, confidences,
                                                             strict=True)
                        if ticket.deadline_ms > due_ms
                        and rule.unsure(level, start.model, confidence)]
        return []

    def finished(
        self, now_ms: float, worker: int, unsure: Sequence[Ticket[R]] = (), *, ask: bool = True
    ) -> Orders[R]:
        """Record that a worker has finished its batch and is idle.

        Its ``unsure`` requests, by :meth:`unsure`, wait for a second opinion. If a second opinion
        failed, the caller sends the first answer. ``ask`` is as for :meth:`arrive`; but if the
        largest batch waits for the worker, it is dispatched in any case, as further arrivals could
        not make it larger.
        """
        self._check_busy(worker)
        now_ms = self._clock(now_ms)
        self._end(worker)
        self._up[worker] = True
        orders: Orders[R] = Orders([], [], [])
        if not self._divided_anew(now_ms, orders, unsure=unsure):
            self._join_unsure(unsure, orders, worker)
            for station in self._stations:
                if worker in station.queue_of:
                    queue = station.queue_of[worker]
                    queue.idle.append(worker)
                    self._unasked[queue] = station
                    if not ask and len(queue.waiting) >= self._selector(station).largest_batch:
                        del self._unasked[queue]
                        self._act(station, queue, now_ms, orders)
            if ask:
                self._ask(now_ms, orders)
        return orders

    def ask(self, now_ms: float) -> Orders[R]:
        """Look up the table for the queues whose events were only recorded before."""
        now_ms = self._clock(now_ms)
        orders: Orders[R] = Orders([], [], [])
        self._ask(now_ms, orders)
        return orders

    def down(self, now_ms: float, worker: int, again: Start[R] | None = None) -> Orders[R]:
        """Take a worker out of service after it failed, idle or within a batch.

        Requests in its own queue are rerouted. While all workers are down, requests are dropped at
        their deadline. To let a worker leave, call this during its batch, too, but do not call
        :meth:`finished` at its end. ``again`` is the batch that it ran, to queue its requests
        again; for second opinions, the first answers are sent instead.
        """
        now_ms = self._clock(now_ms)
        orders: Orders[R] = Orders([], [], self._standing.get(worker, []))
        if self._up[worker]:
            self._leaves(worker)
        if again is not None and not again.second:
            self._join(again.tickets)
        self._ask(now_ms, orders)
        return orders

    def _leaves(self, worker: int) -> None:
        """Take a worker out of service, and reroute the requests in its own queue."""
        idle = not self._busy[worker]
        self._end(worker)
        self._up[worker] = False
        for station in self._stations:
            if worker in station.queue_of:
                queue = station.queue_of[worker]
                queue.up -= 1
                if idle:
                    queue.idle.remove(worker)
                self._join(station.left_alone(queue))
                if not queue.up:
                    self._unasked[queue] = station

    def up(self, now_ms: float, worker: int) -> Orders[R]:
        """Record that a failed worker serves again.

        Requests that arrived while all were down, and wait for workers still down, go to it.
        """
        if self._up[worker]:
            return Orders([], [], [])
        stranded: list[Ticket[R]] = []
        for station in self._stations:
            if worker in station.queue_of:
                station.queue_of[worker].up += 1
                stranded += [request for queue in station.queues
                             for request in station.left_alone(queue)]
        orders = self.finished(now_ms, worker)
        self._join(stranded)
        self._ask(self._now_ms, orders)
        return orders

    def timer(self, now_ms: float) -> Orders[R]:
        """Dispatch at the end of a wait; call it at :attr:`wake_ms` or later."""
        now_ms = self._clock(now_ms)
        orders: Orders[R] = Orders([], [], [])
        if not self._divided_anew(now_ms, orders):
            due_ms = now_ms + self.settings.timer_ms
            for station in self._stations:
                for queue in station.queues:
                    if queue.wake_ms <= due_ms:
                        self._act(station, queue, now_ms, orders, queue.wake_slack,
                                  queue.unsure_wake_slack)
        if self._standing_ms <= now_ms + self.settings.timer_ms:
            self._send_standing(now_ms + self.settings.timer_ms, orders)
        return orders

    def swap(
        self, now_ms: float, policies: PolicySet[Selector], slowness: float | None = None
    ) -> Orders[R]:
        """Exchange the policy set; waiting and running requests are kept.

        ``slowness`` is the service time as a multiple of the one of the *new* policies' profile;
        unchanged by default.
        """
        now_ms = self._clock(now_ms)
        if slowness is not None:
            check_positive(slowness=slowness)
        if dict(policies.worker_types) != self._worker_types:
            raise InvalidValueError("policies for other workers", where="worker_types",
                                    value=dict(policies.worker_types),
                                    allowed=str(self._worker_types))
        policies.loads(self.settings.process)
        for level in policies.levels:
            self._division(level)
        self._serve_by(policies)
        self.slowness = slowness or self.slowness
        orders: Orders[R] = Orders([], [], [])
        return orders if self._divided_anew(now_ms, orders) else self._all_asked(now_ms)

    def take_overhead(self, now_ms: float, overhead_ms: float) -> Orders[R]:
        """Set the time that is subtracted from every slack, also for waiting requests."""
        self.settings = replace(self.settings, overhead_ms=overhead_ms)
        for station in self._stations:
            station.overhead_ms = overhead_ms
        return self._all_asked(self._clock(now_ms))

    def take_slowness(self, now_ms: float, slowness: float) -> Orders[R]:
        """Set the service time of batches as a multiple of the profiled one, and dispatch.

        :meth:`PolicySet.at` chooses the policies for this slowness. Above the largest slowness of
        the set, lookups divide the slack by the remaining factor.
        """
        check_positive(slowness=slowness)
        self.slowness = slowness
        orders: Orders[R] = Orders([], [], [])
        now_ms = self._clock(now_ms)
        return orders if self._divided_anew(now_ms, orders) else self._all_asked(now_ms)

    def _all_asked(self, now_ms: float) -> Orders[R]:
        """Look up the table for every queue, and return all orders."""
        orders: Orders[R] = Orders([], [], [])
        for station in self._stations:
            for queue in station.queues:
                self._act(station, queue, now_ms, orders)
        return orders

    def leave(self, now_ms: float, requests: Iterable[R]) -> Orders[R]:
        """Drop cancelled requests that still wait; they are recognised by identity."""
        gone = set(map(id, requests))
        return self._given_up(now_ms, [entry for entry in [*self._waiting(), *self._all_unsure()]
                                       if id(entry.request) in gone])

    def make_room(self, now_ms: float, count: int, deadline_ms: float) -> Orders[R]:
        """Drop ``count`` waiting requests, to make room for ones that are due at ``deadline_ms``.

        Requests that wait for a second opinion go first: their first answers are sent. Then those
        with the latest deadlines are dropped. None is dropped unless ``count`` wait for a second
        opinion, or are due after the new ones.
        """
        later: list[Ticket[R]] = []
        if self._due_last_ms > deadline_ms:  # otherwise no waiting request is due later
            waiting = [entry[2] for queue in self._queues for entry in queue.waiting]
            waiting.sort(key=attrgetter("deadline_ms"))
            self._due_last_ms = waiting[-1].deadline_ms if waiting else -inf
            later = [entry for entry in reversed(waiting) if entry.deadline_ms > deadline_ms]
        unsure = sorted(self._all_unsure(), key=attrgetter("deadline_ms"))[-count:]
        if len(unsure) + len(later) < count:
            return self._given_up(now_ms, [])
        return self._given_up(now_ms, later[:count - len(unsure)], unsure)

    def abandon(self) -> Orders[R]:
        """Empty the queues: drop what waits, and send all first answers."""
        abandoned: Orders[R] = Orders([], self._waiting(), self._all_unsure())
        self._send_standing(inf, abandoned)
        for queue in self._queues:
            queue.waiting.clear()
            queue.unsure.clear()
            queue.wake_ms = inf
        for station in self._stations:
            station.in_system = [sum(self._serving[w] for w in station.workers
                                     if station.queue_of[w] is queue) for queue in station.queues]
        return abandoned

    def _waiting(self) -> list[Ticket[R]]:
        """Return all waiting requests in order of arrival."""
        entries = [entry[2] for queue in self._queues for entry in queue.waiting]
        return sorted(entries, key=attrgetter("number"))

    def _all_unsure(self) -> list[Ticket[R]]:
        """Return all requests that wait for a second opinion."""
        return [entry[2] for queue in self._queues for entry in queue.unsure]

    def _given_up(
        self, now_ms: float, tickets: Sequence[Ticket[R]], answered: Sequence[Ticket[R]] = ()
    ) -> Orders[R]:
        """Remove requests from their queues, to drop ``tickets`` and to answer ``answered``."""
        now_ms, sent = self._clock(now_ms), {ticket.number for ticket in answered}
        numbers = sent | {ticket.number for ticket in tickets}
        orders: Orders[R] = Orders([], [], [])
        for station in self._stations if numbers else ():
            for queue, gone in station.leave(numbers).items():
                for ticket in gone:
                    (orders.answers if ticket.number in sent else orders.drops).append(ticket)
                self._act(station, queue, now_ms, orders)
        return orders

    def _serve_by(self, policies: PolicySet[Selector]) -> None:
        self.policies, self._classes = policies, sorted(policies.slo_classes)
        self._routed = len(policies.worker_types) * len(self._classes) > 1

    def _division(self, level: Level[Selector]) -> list[_StationWorkers]:
        """Assign the workers to the stations of a level, both in their order."""
        free: dict[str, list[int]] = {}
        first = 0
        for name, count in self._worker_types.items():
            free[name] = list(range(first, first + count))
            first += count
        stations = []
        for station in level.stations:
            workers: list[int] = []
            for name in station.worker_types:
                missing = station.workers - len(workers)
                workers, free[name] = workers + free[name][:missing], free[name][missing:]
            if len(workers) < station.workers:
                raise InvalidValueError("more workers than there are", value=station.workers,
                                        where=f"station {station.name} at {level.load_qps:g} QPS",
                                        allowed=str(len(workers)))
            stations.append(_StationWorkers(station.policy.table.dispatch, workers,
                                            sorted(station.share)))
        return stations

    def _divided_anew(
        self, now_ms: float, orders: Orders[R], newcomers: Sequence[Ticket[R]] = (),
        unsure: Sequence[Ticket[R]] = (),
    ) -> bool:
        """Set the level for the load; if it divides the workers anew, reroute and return True."""
        stated_qps = self.settings.load_qps
        choice = self.policies.at(self.monitor.load_qps(now_ms) if stated_qps is None
                                  else stated_qps,
                                  self.settings.process, self.slowness)
        before, self._choice = self._choice, choice
        if choice.slowness != before.slowness:
            self._take_slowness_of_choice()
        if (choice.level is before.level
                or self._division(before.level) == self._division(choice.level)):
            return False
        self._open([*self._waiting(), *newcomers], now_ms, orders,
                   [*self._all_unsure(), *unsure])
        return True

    def _open(
        self, tickets: Sequence[Ticket[R]], now_ms: float = -inf, orders: Orders[R] | None = None,
        unsure: Sequence[Ticket[R]] = (),
    ) -> None:
        """Activate the level's stations and route all waiting requests to them."""
        self._unasked: dict[QueueState[Ticket[R]], StationQueues[Ticket[R]]] = {}
        idle = sorted((w for w in range(self.workers) if self._up[w] and not self._busy[w]),
                      key=self._idle_since.__getitem__)
        self._stations = [
            StationQueues(dispatch, workers, idle, self._serving, self._up,
                          self.overhead_ms, _held_as_ms)
            for dispatch, workers, _ in self._division(self.level)]
        for station in self._stations:
            station.early_ms = self.settings.timer_ms
        self._take_slowness_of_choice()
        self._queues = [queue for station in self._stations for queue in station.queues]
        for ticket in tickets:
            _joined(self._station_of(ticket), ticket)
        if orders is not None:
            self._join_unsure(unsure, orders)
            for station in self._stations:
                for queue in station.queues:
                    self._act(station, queue, now_ms, orders)

    def _take_slowness_of_choice(self) -> None:
        for station in self._stations:
            station.slowness = self._choice.slowness

    def _station_of(self, ticket: Ticket[R]) -> StationQueues[Ticket[R]]:
        if len(self._stations) == 1:
            return self._stations[0]
        chosen = self.level.route(self.slo_class(ticket.slo_ms), ticket.uniform)
        return next(station for station, station_level in zip(self._stations, self.level.stations,
                                                              strict=True)
                    if station_level is chosen)

    def _join(self, tickets: Sequence[Ticket[R]]) -> None:
        """Route requests to queues, and mark these for dispatch."""
        for ticket in tickets:
            station = self._station_of(ticket)
            self._unasked[_joined(station, ticket)] = station

    def _join_unsure(
        self, tickets: Sequence[Ticket[R]], orders: Orders[R], worker: int | None = None
    ) -> None:
        """Queue requests for second opinions; send their first answers at stations without.

        ``worker`` gave the first answers; the dispatch rule routes requests without one.
        """
        for ticket in tickets:
            station = self._station_of(ticket)
            if self._rule(station) is None:
                orders.keep(ticket)
            else:
                queue = station.join_unsure(ticket.deadline_ms, ticket.number, ticket, worker)
                self._unasked[queue] = station

    def _ask(self, now_ms: float, orders: Orders[R]) -> None:
        """Look up the table for each queue that has changed, and collect the orders."""
        unasked, self._unasked = self._unasked, {}
        for queue, station in unasked.items():
            self._act(station, queue, now_ms, orders)

    def _act(
        self, station: StationQueues[Ticket[R]], queue: QueueState[Ticket[R]], now_ms: float,
        orders: Orders[R], at_most_ms: float = inf, unsure_at_most_ms: float = inf,
    ) -> None:
        """Dispatch a queue, and mark the workers that start as busy."""
        first, selector = len(orders.starts), self._selector(station)
        rule = selector.cascade if self.settings.second_opinions else None
        if rule is None:
            while queue.unsure:  # left by an earlier policy with second opinions
                keep_head(station, queue, orders)
            station.act(queue, selector, now_ms, orders, at_most_ms)
        else:
            act(station, queue, selector, rule, now_ms, orders, at_most_ms, unsure_at_most_ms)
        for start in orders.starts[first:]:
            self._busy[start.worker] = True
            self._serving[start.worker] = len(start.tickets)
            if start.second:
                self._standing[start.worker] = list(start.tickets)
                self._time_standing()

    def _selector(self, station: StationQueues[Ticket[R]]) -> Selector:
        return self.level.stations[self._stations.index(station)].policy

    def _rule(self, station: StationQueues[Ticket[R]]) -> CascadeRule | None:
        """Return the second opinions of a station, or None."""
        return self._selector(station).cascade if self.settings.second_opinions else None

    def _time_standing(self) -> None:
        """Set the time at which to send the next first answer whose second opinion still runs."""
        # A second opinion that ends at the deadline is in time, up to rounding.
        self._standing_ms = SLACK_TOLERANCE_MS - self.settings.timer_ms + min(
            [ticket.deadline_ms for tickets in self._standing.values() for ticket in tickets],
            default=inf)

    def _send_standing(self, until_ms: float, orders: Orders[R]) -> None:
        """Send the first answers that are due although their second opinions still run."""
        due_ms = until_ms + self.settings.timer_ms - SLACK_TOLERANCE_MS
        for worker, tickets in self._standing.items():
            orders.answers.extend(ticket for ticket in tickets if ticket.deadline_ms <= due_ms)
            self._standing[worker] = [ticket for ticket in tickets if ticket.deadline_ms > due_ms]
        self._time_standing()

    def _end(self, worker: int) -> None:
        """Clear the batch of a worker, and mark the worker as idle."""
        for station in self._stations:
            if worker in station.queue_of:
                station.ended(worker, self._serving[worker])
        self._serving[worker], self._busy[worker] = 0, False
        if self._standing.pop(worker, None) is not None:
            self._time_standing()
        self._idle_since[worker] = self._ends = self._ends + 1


class _StationWorkers(NamedTuple):
    """Dispatch rule of a station, the numbers of its workers, and its SLO classes, increasing."""

    dispatch: str
    workers: list[int]
    slo_ms: list[float]


def _joined(station: StationQueues[Ticket[R]], ticket: Ticket[R]) -> QueueState[Ticket[R]]:
    """Add a ticket to a queue and return the queue."""
    return station.join(ticket.deadline_ms, ticket.number, ticket)


def _held_as_ms(ticket: Ticket[R]) -> float:
    """Return the deadline that limits a wait for more requests: at most that of the SLO class.

    So a request with a deadline of a minute does not wait for a minute beside an idle worker.
    """
    return min(ticket.deadline_ms, ticket.arrival_ms + ticket.slo_ms)
