"""The dispatcher of requests with a size: events in, batches and drops out.

:class:`SizedDispatcher` has the interface of :class:`~ramsis.runtime.dispatcher.Dispatcher`, so
the same fronts drive it. All workers share one queue. Whenever a worker is idle and requests wait,
the rule of :mod:`ramsis.runtime.sized` takes a batch out of the queue, and drops the requests that
can no longer be in time. A cancelled request stays in the rule's queue until the rule takes it,
and is then left out of the batch. Standard library only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, TypeVar

from ramsis.errors import InvalidValueError, check_positive
from ramsis.runtime.dispatcher import DispatcherBase, DispatchSettings, check_deadline
from ramsis.runtime.policy_set import Level
from ramsis.runtime.sized import SizedQueue, SizedRule, SizedTables
from ramsis.runtime.sized_plan import PlannedQueue
from ramsis.runtime.station_queues import Orders, Start, Ticket

R = TypeVar("R")


class SizedDispatcher(DispatcherBase[R]):
    """Dispatcher of requests with a size, from one queue to its workers, by a policy.

    ``size_of`` returns the size of a request. The setting for second opinions has no effect.
    ``level`` is the policy as the only level of a set, for callers that ask which level serves.
    """

    unasked = False  # every event is acted on at once

    def __init__(
        self, tables: SizedTables, size_of: Callable[[R], int],
        settings: DispatchSettings | None = None, level: Level[Any] | None = None,
    ) -> None:
        super().__init__(tables.workers, settings)
        self.tables, self._size_of, self._level = tables, size_of, level
        rule = SizedRule(tables)
        self._queue: SizedQueue[Ticket[R]] | PlannedQueue[Ticket[R]] = (
            SizedQueue(rule) if tables.plan is None else PlannedQueue(rule))
        self._waiting: dict[int, Ticket[R]] = {}  # by number, in the order of arrival
        self._ends_ms = [inf] * tables.workers  # when a batch ends, by the tables
        self._idle = deque(range(tables.workers))  # the one that has been idle longest first
        self._last_ms = -inf

    @property
    def level(self) -> Level[Any]:
        """Policy set level of the policy, the only one."""
        assert self._level is not None
        return self._level

    @property
    def queued(self) -> int:
        """Number of waiting requests."""
        return len(self._waiting)

    @property
    def wake_ms(self) -> float:
        """Time at which to call :meth:`timer`: the next deadline while all workers are down."""
        if any(self._up) or not self._waiting:
            return inf
        return min(ticket.deadline_ms for ticket in self._waiting.values())

    def slo_class(self, slo_ms: float) -> float:
        """Return the SLO of the policy, which has a single class."""
        return self.tables.slo_ms

    def arrive(
        self, now_ms: float, requests: Sequence[R], deadline_ms: float,
        slo_ms: float | None = None, *, ask: bool = True,
    ) -> Orders[R]:
        """Queue arriving requests with the same deadline, then dispatch.

        The rule expects deadlines in the order of arrival. So if a request is due before an
        earlier arrival, the rule uses the deadline of the earlier arrival for it.
        """
        check_deadline(deadline_ms)
        now_ms = self._clock(now_ms)
        self.monitor.record(now_ms, len(requests))
        tickets = []
        for request in requests:
            tickets.append(Ticket(request, self._arrived, now_ms, deadline_ms,
                                  self.tables.slo_ms))
            self._arrived += 1
        self._join(tickets)
        return self._ask(now_ms)

    def unsure(
        self, now_ms: float, start: Start[R], confidences: Sequence[float]
    ) -> list[Ticket[R]]:
        """Return no requests, as these policies give no second opinions."""
        return []

    def finished(
        self, now_ms: float, worker: int, unsure: Sequence[Ticket[R]] = (), *, ask: bool = True
    ) -> Orders[R]:
        """Record that a worker has finished its batch, or is up again, and is idle."""
        self._check_busy(worker)
        self._up[worker], self._busy[worker] = True, False
        self._ends_ms[worker] = inf
        self._idle.append(worker)
        return self._ask(self._clock(now_ms))

    def ask(self, now_ms: float) -> Orders[R]:
        """Decide for the idle workers; return the batches to start and requests to drop."""
        return self._ask(self._clock(now_ms))

    def down(self, now_ms: float, worker: int, again: Start[R] | None = None) -> Orders[R]:
        """Take a worker out of service; ``again`` is its batch, if it has to be queued again."""
        if worker in self._idle:
            self._idle.remove(worker)
        self._up[worker], self._busy[worker] = False, False
        self._ends_ms[worker] = inf
        if again is not None:
            self._join(again.tickets)
        return self._ask(self._clock(now_ms))

    def up(self, now_ms: float, worker: int) -> Orders[R]:
        """Record that a failed worker serves again."""
        return Orders([], [], []) if self._up[worker] else self.finished(now_ms, worker)

    def timer(self, now_ms: float) -> Orders[R]:
        """Drop the requests that are due while all workers are down."""
        now_ms = self._clock(now_ms)
        if any(self._up):
            return self._ask(now_ms)
        due_ms = now_ms + self.settings.timer_ms
        return self._given_up([ticket for ticket in self._waiting.values()
                               if ticket.deadline_ms <= due_ms])

    def swap(self, now_ms: float, policies: Any, slowness: float | None = None) -> Orders[R]:
        """Refuse to exchange the policies, which only other dispatchers can."""
        raise InvalidValueError("policies for requests with a size are not exchanged while they "
                                "serve", where="swap", allowed="a new start")

    def take_overhead(self, now_ms: float, overhead_ms: float) -> Orders[R]:
        """Subtract another overhead from the slack of requests that arrive from now on."""
        self.settings = replace(self.settings, overhead_ms=overhead_ms)
        return Orders([], [], [])

    def take_slowness(self, now_ms: float, slowness: float) -> Orders[R]:
        """Decide from now on for batches that take ``slowness`` times as long as profiled.

        The rule divides slacks by ``slowness``; a value below 1 counts as 1. Running batches are
        not affected.
        """
        check_positive(slowness=slowness)
        self.slowness = slowness
        self._queue.take_slowness(max(1.0, slowness))
        return self._ask(self._clock(now_ms))

    def leave(self, now_ms: float, requests: Iterable[R]) -> Orders[R]:
        """Drop cancelled requests that still wait; they are recognised by identity."""
        self._clock(now_ms)
        gone = set(map(id, requests))
        return self._given_up([ticket for ticket in self._waiting.values()
                               if id(ticket.request) in gone])

    def make_room(self, now_ms: float, count: int, deadline_ms: float) -> Orders[R]:
        """Drop the ``count`` requests due last, if that many are due after the new ones."""
        self._clock(now_ms)
        later = sorted((ticket for ticket in self._waiting.values()
                        if ticket.deadline_ms > deadline_ms),
                       key=lambda ticket: -ticket.deadline_ms)
        return self._given_up(later[:count] if len(later) >= count else [])

    def abandon(self) -> Orders[R]:
        """Drop all waiting requests, and return the orders that say so."""
        return self._given_up(list(self._waiting.values()))

    def _join(self, tickets: Iterable[Ticket[R]]) -> None:
        for ticket in tickets:
            self._waiting[ticket.number] = ticket
            # The tables end at the SLO: what is due later is as urgent as what has just come.
            arrival_ms = ticket.deadline_ms - self.tables.slo_ms - self.overhead_ms
            self._last_ms = max(self._last_ms, min(arrival_ms, self._now_ms))
            self._queue.add(ticket, self._size_of(ticket.request), self._last_ms)

    def _may_be_in_time(self, ticket: Ticket[R], now_ms: float) -> bool:
        """Return whether the rule could still answer a request in time, in a batch of its own."""
        alone_ms = self._queue.alone_ms(self._size_of(ticket.request))
        left_ms = ticket.deadline_ms - self.overhead_ms - now_ms
        return min(left_ms, self.tables.slo_ms) >= alone_ms

    def _given_up(self, tickets: Sequence[Ticket[R]]) -> Orders[R]:
        for ticket in tickets:
            del self._waiting[ticket.number]
        return Orders([], list(tickets), [])

    def _ask(self, now_ms: float) -> Orders[R]:
        """Start batches on idle workers while the rule returns batches."""
        orders: Orders[R] = Orders([], [], [])
        joined_again: set[int] = set()  # numbers
        while self._idle and self._waiting:
            idle, queued = len(self._idle), len(self._waiting)
            free_ms = 0.0 if idle > 1 else max(min(self._ends_ms) - now_ms, 0.0)
            batch = self._queue.decide(now_ms, free_ms)
            hopeless = [ticket for ticket in batch.dropped
                        if self._waiting.pop(ticket.number, None) is not None]
            # The rule knows no deadline beyond the SLO: what is due later waits on.
            patient = [ticket for ticket in hopeless if ticket.number not in joined_again
                       and self._may_be_in_time(ticket, now_ms)]
            self._join(patient)
            joined_again.update(ticket.number for ticket in patient)
            orders.drops.extend(ticket for ticket in hopeless
                                if ticket.number not in self._waiting)
            members = tuple(ticket for ticket in batch.members
                            if self._waiting.pop(ticket.number, None) is not None)
            if members:
                worker = self._idle.popleft()
                self._busy[worker] = True
                self._ends_ms[worker] = now_ms + batch.time_ms * self._queue.slowness
                slack_ms = min(ticket.deadline_ms for ticket in members) - now_ms
                orders.starts.append(Start(
                    worker, members, self.tables.models[batch.model], len(members),
                    slack_ms - self.overhead_ms, idle, queued))
            elif not batch.members and batch.model < 0 and not patient:
                break
        return orders
