"""The queues of one station while it serves: who waits, who is idle, and what its table says.

The rules are those of ``docs/lookup.md``: requests stand by deadline; the table is asked after
each event, and again after each batch or drop; a worker with a queue of its own asks only while it
is idle. Standard library only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, NamedTuple, TypeVar

from ramsis.runtime.routing import DISPATCHES
from ramsis.runtime.selector import Decision, Drop, Selector, wake_slack

__all__ = ["Orders", "QueueState", "Start", "StationQueues", "Ticket"]

R = TypeVar("R")


class Ticket(Generic[R]):
    """A request that waits.

    Attributes
    ----------
    request
        Whatever the caller handed in.
    number
        Rises with each request; of equal deadlines the lower number is first.
    arrival_ms, deadline_ms
        On the caller's clock.
    slo_ms
        Its SLO class.
    late_until_ms
        Until when an answer after the deadline is still of use; ``-inf`` where it is not.
    uniform
        By which it is routed among stations.
    """

    __slots__ = ("arrival_ms", "deadline_ms", "late_until_ms", "number", "request", "slo_ms",
                 "uniform")

    def __init__(
        self, request: R, number: int, arrival_ms: float, deadline_ms: float, slo_ms: float,
        late_until_ms: float = -inf, uniform: float = 0.0,
    ) -> None:
        self.request, self.number, self.arrival_ms = request, number, arrival_ms
        self.deadline_ms, self.slo_ms = deadline_ms, slo_ms
        self.late_until_ms, self.uniform = late_until_ms, uniform


class Start(NamedTuple, Generic[R]):
    """A batch to start now.

    Attributes
    ----------
    worker
        That has been idle longest.
    tickets
        Earliest deadlines first.
    model, run_as
        What to run, and as a batch of which size; what is beyond the tickets is padding.
    slack_ms
        Of the first ticket, as the table was asked.
    idle, queued
        As the table was asked.
    """

    worker: int
    tickets: tuple[Ticket[R], ...]
    model: str
    run_as: int
    slack_ms: float
    idle: int
    queued: int

    @property
    def requests(self) -> list[R]:
        """What the caller handed in."""
        return [ticket.request for ticket in self.tickets]


class Orders(NamedTuple, Generic[R]):
    """What is to be done after an event: batches to start, and requests that are given up."""

    starts: list[Start[R]]
    drops: list[Ticket[R]]


class QueueState(Generic[R]):
    """One queue, and the workers that take from it.

    Attributes
    ----------
    waiting, late
        Heaps of (deadline, number, ticket), and of those past their deadline that still want an
        answer, by the time until which they do.
    idle
        Workers, the one that has been idle longest first.
    up
        How many of the queue's workers are up, idle or busy.
    wake_ms, wake_slack
        When to ask again though nothing happens, and with which slack at most.
    """

    __slots__ = ("idle", "late", "number", "up", "waiting", "wake_ms", "wake_slack")

    def __init__(self, number: int, idle: Iterable[int], up: int) -> None:
        self.number = number
        self.waiting: list[tuple[float, int, Ticket[R]]] = []
        self.late: list[tuple[float, int, Ticket[R]]] = []
        self.idle = deque(idle)
        self.up = up
        self.wake_ms, self.wake_slack = inf, inf


class StationQueues(Generic[R]):
    """The queues of a station.

    Parameters
    ----------
    dispatch
        One of :data:`~ramsis.runtime.routing.DISPATCHES`.
    workers
        Their numbers.
    idle
        Those that are idle, the one that has been so longest first.
    serving
        Requests that each worker of the server serves now, by its number.
    up
        Whether each worker of the server is up, by its number.
    overhead_ms
        Taken from every slack.
    """

    def __init__(
        self, dispatch: str, workers: Sequence[int], idle: Sequence[int], serving: Sequence[int],
        up: Sequence[bool], overhead_ms: float,
    ) -> None:
        rule = DISPATCHES[dispatch]
        self.own, self.workers, self.overhead_ms = rule.own_queues, tuple(workers), overhead_ms
        groups = [[worker] for worker in workers] if self.own else [list(workers)]
        self.queues: list[QueueState[R]] = [
            QueueState(k, [w for w in idle if w in group], sum(up[w] for w in group))
            for k, group in enumerate(groups)]
        self.queue_of = {w: self.queues[k] for k, group in enumerate(groups) for w in group}
        self.in_system = [sum(serving[w] for w in group) for group in groups]
        self.route = rule.routing(len(groups))

    def join(self, ticket: Ticket[R]) -> QueueState[R]:
        """Put a request in the queue that the dispatch rule names.

        While no worker of that queue is up, the rule is asked again as if it were the longest,
        until it names one that has a worker; where none has, it is the first that was named.
        """
        chosen = self.route(self.in_system)
        if not self.queues[chosen].up and any(queue.up for queue in self.queues):
            lengths = [n if queue.up else inf
                       for n, queue in zip(self.in_system, self.queues, strict=True)]
            while not self.queues[chosen].up:
                chosen = self.route(lengths)
        self.in_system[chosen] += 1
        queue = self.queues[chosen]
        heappush(queue.waiting, (ticket.deadline_ms, ticket.number, ticket))
        return queue

    def left_alone(self, queue: QueueState[R]) -> list[Ticket[R]]:
        """Take out what waits in a queue without a worker, where other queues have one."""
        if queue.up or not any(one.up for one in self.queues):
            return []
        found = [entry[2] for entry in sorted(queue.waiting)]
        queue.waiting.clear()
        self.in_system[queue.number] -= len(found)
        return found

    def leave(self, numbers: Container[int]) -> dict[QueueState[R], list[Ticket[R]]]:
        """Take out the requests of these numbers that wait, by the queue that they waited in."""
        found: dict[QueueState[R], list[Ticket[R]]] = {}
        for queue in self.queues:
            for heap in (queue.waiting, queue.late):
                gone = [entry[2] for entry in heap if entry[1] in numbers]
                if gone:
                    heap[:] = [entry for entry in heap if entry[1] not in numbers]
                    heapify(heap)
                    found.setdefault(queue, []).extend(gone)
                    if heap is queue.waiting:
                        self.in_system[queue.number] -= len(gone)
        return found

    def ended(self, worker: int, requests: int) -> QueueState[R]:
        """A worker no longer serves so many requests."""
        queue = self.queue_of[worker]
        self.in_system[queue.number] -= requests
        return queue

    def act(
        self, queue: QueueState[R], selector: Selector, now_ms: float, orders: Orders[R],
        at_most_ms: float = inf,
    ) -> None:
        """Do what the table says until it says to wait.

        Parameters
        ----------
        at_most_ms
            The slack is taken as no more than this: how a wait ends.
        """
        queue.wake_ms = inf
        waiting, idle = queue.waiting, queue.idle
        while waiting and (idle or not self.own):
            deadline_ms, _, ticket = waiting[0]
            slack_ms = min(deadline_ms - now_ms - self.overhead_ms, at_most_ms)
            at_most_ms = inf
            answer = selector(len(waiting), slack_ms, len(idle))
            if isinstance(answer, Decision):
                self._start(queue, answer, slack_ms, orders)
            elif isinstance(answer, Drop):
                heappop(waiting)
                self._give_up(queue, ticket, now_ms, orders)
            else:
                wake = wake_slack(answer)
                if wake is not None:
                    queue.wake_ms = max(deadline_ms - self.overhead_ms - wake, now_ms)
                    queue.wake_slack = wake
                break
        if not queue.up:
            self._expire(queue, now_ms, orders)
        if queue.late:
            self._answer_late(queue, selector, now_ms, orders)

    def _start(
        self, queue: QueueState[R], answer: Decision, slack_ms: float, orders: Orders[R]
    ) -> None:
        waiting, idle = queue.waiting, queue.idle
        queued, free = len(waiting), len(idle)
        tickets = tuple([heappop(waiting)[2] for _ in range(answer.batch)])
        orders.starts.append(Start(idle.popleft(), tickets, answer.model, answer.run_as, slack_ms,
                                   free, queued))

    def _give_up(
        self, queue: QueueState[R], ticket: Ticket[R], now_ms: float, orders: Orders[R]
    ) -> None:
        self.in_system[queue.number] -= 1
        if ticket.late_until_ms > now_ms:
            heappush(queue.late, (ticket.late_until_ms, ticket.number, ticket))
        else:
            orders.drops.append(ticket)

    def _expire(self, queue: QueueState[R], now_ms: float, orders: Orders[R]) -> None:
        """While no worker is up, what is due is given up."""
        waiting = queue.waiting
        while waiting and waiting[0][0] <= now_ms:
            self._give_up(queue, heappop(waiting)[2], now_ms, orders)
        if waiting:
            queue.wake_ms, queue.wake_slack = waiting[0][0], inf

    def _answer_late(
        self, queue: QueueState[R], selector: Selector, now_ms: float, orders: Orders[R]
    ) -> None:
        """Answer late what still wants an answer, with capacity that nobody else needs."""
        late, idle = queue.late, queue.idle
        while late and late[0][0] <= now_ms:
            orders.drops.append(heappop(late)[2])
        while late:
            answer = selector.late_answer(len(idle), len(queue.waiting))
            if answer is None:
                break
            ticket = heappop(late)[2]
            self.in_system[queue.number] += 1
            orders.starts.append(Start(idle.popleft(), (ticket,), answer.model, answer.run_as,
                                       ticket.deadline_ms - now_ms - self.overhead_ms,
                                       len(idle) + 1, 0))
        if late and late[0][0] < queue.wake_ms:
            queue.wake_ms, queue.wake_slack = late[0][0], inf
