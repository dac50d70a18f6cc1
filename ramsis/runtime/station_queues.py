"""The queues of one station while it serves: who waits, who is idle, and what its table says.

The rules are those of ``docs/lookup.md``: requests stand by deadline; the table is asked after
each event, and again after each batch or drop; a worker with a queue of its own asks only while it
is idle. What the table says is told to a :class:`Player`: the dispatcher, whose requests are
tickets, or a simulation, whose requests are numbers. Standard library only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ramsis.runtime.decisions import Decision, Drop
from ramsis.runtime.routing import DISPATCHES
from ramsis.runtime.selector import Selector, wake_slack

R = TypeVar("R")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


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
        Uniform random number that routes the request to a station.
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
    """A batch to start now."""

    worker: int  # that has been idle longest
    tickets: tuple[Ticket[R], ...]  # earliest deadlines first
    # model, run_as: what to run, and as a batch of which size; what is beyond the tickets is
    # padding
    model: str
    run_as: int
    slack_ms: float  # of the first ticket, as the table was asked
    # idle, queued: as the table was asked
    idle: int
    queued: int
    second: bool = False  # whether these are second opinions

    @property
    def requests(self) -> list[R]:
        """Return the requests of the caller."""
        return [ticket.request for ticket in self.tickets]


class Orders(NamedTuple, Generic[R]):
    """Orders after an event: batches to start, and requests to drop or answer."""

    starts: list[Start[R]]
    drops: list[Ticket[R]]
    answers: list[Ticket[R]]  # whose first answer stands, and is to be sent now

    def start(
        self, worker: int, answer: Decision, tickets: Sequence[Ticket[R]], slack_ms: float,
        idle: int, queued: int,
    ) -> None:
        """Note a batch."""
        self.starts.append(Start(worker, tuple(tickets), answer.model, answer.run_as, slack_ms,
                                 idle, queued, answer.second))

    def keep(self, ticket: Ticket[R]) -> None:
        """Note that a first answer is to be sent."""
        self.answers.append(ticket)

    def drop(self, ticket: Ticket[R]) -> None:
        """Record a dropped request."""
        self.drops.append(ticket)


class Player(Protocol[T_contra]):
    """Interface that carries out decisions; it must not change the queues."""

    def start(
        self, worker: int, answer: Decision, requests: Sequence[T_contra], slack_ms: float,
        idle: int, queued: int, /,
    ) -> None:
        """Start a batch.

        Parameters
        ----------
        worker
            That has been idle longest.
        answer
            Model and batch.
        requests
            Earliest deadlines first.
        slack_ms, idle, queued
            As the table was asked.
        """
        ...

    def drop(self, request: T_contra, /) -> None:
        """Give a request up."""
        ...


class QueueState(Generic[T]):
    """One queue, and the workers that take from it.

    Attributes
    ----------
    waiting
        A heap of (deadline, number, request).
    late
        A heap of those past their deadline that still want an answer: the time until which they
        do, number, request, deadline.
    unsure
        A heap like ``waiting`` of those that wait for a second opinion.
    idle
        Workers, the one that has been idle longest first.
    up
        How many of the queue's workers are up, idle or busy.
    wake_ms, wake_slack, unsure_wake_slack
        When to ask again though nothing happens, and with which slack at most of both heads.
    """

    __slots__ = ("idle", "late", "number", "unsure", "unsure_wake_slack", "up", "waiting",
                 "wake_ms", "wake_slack")

    def __init__(self, number: int, up: int) -> None:
        self.number, self.up = number, up
        self.waiting: list[tuple[float, int, T]] = []
        self.late: list[tuple[float, int, T, float]] = []
        self.unsure: list[tuple[float, int, T]] = []
        self.idle = deque[int]()
        self.wake_ms = self.wake_slack = self.unsure_wake_slack = inf


class StationQueues(Generic[T]):
    """The queues of a station.

    Parameters
    ----------
    dispatch
        One of :data:`~ramsis.runtime.routing.DISPATCHES`.
    workers
        Their numbers.
    idle
        Workers of the server that are idle, the one that has been so longest first.
    serving
        Requests that each worker of the server serves now, by its number.
    up
        Whether each worker of the server is up, by its number.
    overhead_ms
        Taken from every slack.
    late_until_ms
        Until when an answer to a request that is given up is still of use, ``-inf`` if it is not;
        by default it is for none.
    held_as_ms
        The deadline as which a request is held that could still wait for company, where that is
        earlier than its own; by default its own.

    Attributes
    ----------
    overhead_ms
        Taken from every slack from now on.
    slowness
        Batches take so many times as long as the table counts on, 1 at first; see
        :meth:`~ramsis.runtime.selector.Selector.when_slow`.
    early_ms
        How long before the deadline a first answer is sent that waits for a second, 0 at first.
    """

    def __init__(
        self, dispatch: str, workers: Sequence[int], idle: Sequence[int], serving: Sequence[int],
        up: Sequence[bool], overhead_ms: float,
        late_until_ms: Callable[[T], float] | None = None,
        held_as_ms: Callable[[T], float] | None = None,
    ) -> None:
        rule = DISPATCHES[dispatch]
        self.slowness, self.early_ms = 1.0, 0.0
        self.own, self.workers, self.overhead_ms = rule.own_queues, tuple(workers), overhead_ms
        groups = [[worker] for worker in workers] if self.own else [list(workers)]
        self.queues: list[QueueState[T]] = [QueueState(k, sum(up[w] for w in group))
                                            for k, group in enumerate(groups)]
        self.queue_of = {w: self.queues[k] for k, group in enumerate(groups) for w in group}
        for worker in idle:
            if worker in self.queue_of:
                self.queue_of[worker].idle.append(worker)
        self.in_system = [sum(serving[w] for w in group) for group in groups]
        self.route = rule.routing(len(groups))
        self._late_until_ms, self._held_as_ms = late_until_ms, held_as_ms

    def join(self, deadline_ms: float, number: int, request: T) -> QueueState[T]:
        """Put a request in the queue that the dispatch rule names.

        While no worker of that queue is up, the rule is asked again as if it were the longest,
        until it names one that has a worker; where none has, it is the first that was named.

        Parameters
        ----------
        number
            Of equal deadlines the lower number is first.
        """
        chosen = self.route(self.in_system)
        queue = self.queues[chosen]
        if not queue.up and any(queue.up for queue in self.queues):
            lengths = [n if queue.up else inf
                       for n, queue in zip(self.in_system, self.queues, strict=True)]
            while not queue.up:
                chosen = self.route(lengths)
                queue = self.queues[chosen]
        self.in_system[chosen] += 1
        heappush(queue.waiting, (deadline_ms, number, request))
        return queue

    def join_unsure(self, deadline_ms: float, number: int, request: T) -> QueueState[T]:
        """Put a request with a first answer in the only queue, to wait for a second opinion."""
        (queue,) = self.queues
        self.in_system[queue.number] += 1
        heappush(queue.unsure, (deadline_ms, number, request))
        return queue

    def left_alone(self, queue: QueueState[T]) -> list[T]:
        """Take out what waits in a queue without a worker, where other queues have one."""
        if queue.up or not any(queue.up for queue in self.queues):
            return []
        requests = [entry[2] for entry in sorted(queue.waiting)]
        queue.waiting.clear()
        self.in_system[queue.number] -= len(requests)
        return requests

    def leave(self, numbers: Container[int]) -> dict[QueueState[T], list[T]]:
        """Remove waiting requests by number; return them by queue."""
        by_queue: dict[QueueState[T], list[T]] = {}
        for queue in self.queues:
            gone = _taken(queue.waiting, numbers) + _taken(queue.unsure, numbers)
            self.in_system[queue.number] -= len(gone)
            gone += _taken(queue.late, numbers)
            if gone:
                by_queue[queue] = gone
        return by_queue

    def ended(self, worker: int, requests: int) -> QueueState[T]:
        """Subtract a worker's finished requests from its queue, and return the queue."""
        queue = self.queue_of[worker]
        self.in_system[queue.number] -= requests
        return queue

    def act(
        self, queue: QueueState[T], selector: Selector, now_ms: float, player: Player[T],
        at_most_ms: float = inf,
    ) -> None:
        """Carry out decisions of the table until it says to wait.

        Parameters
        ----------
        at_most_ms
            The slack is taken as no more than this: how a wait ends.
        """
        queue.wake_ms = inf
        waiting, idle = queue.waiting, queue.idle
        while waiting and (idle or not self.own):
            deadline_ms = waiting[0][0]
            slack_ms = (deadline_ms - now_ms - self.overhead_ms) / self.slowness
            if at_most_ms < slack_ms:
                slack_ms = at_most_ms
            at_most_ms = inf
            queued, free = len(waiting), len(idle)
            answer = (selector(queued, slack_ms, free) if self.slowness == 1.0
                      else selector.when_slow(self.slowness, queued, slack_ms, free))
            if isinstance(answer, Decision):
                batch = answer.batch
                requests = ([heappop(waiting)[2]] if batch == 1  # without a loop: speed counts
                            else [heappop(waiting)[2] for _ in range(batch)])
                player.start(idle.popleft(), answer, requests, slack_ms, free, queued)
            elif isinstance(answer, Drop):
                self.give_up(queue, now_ms, player)
            else:
                wake = wake_slack(answer)
                if wake is not None:
                    queue.wake_ms = max(
                        self.held_ms(waiting[0]) - self.overhead_ms - wake * self.slowness, now_ms)
                    queue.wake_slack = wake
                break
        self.end_act(queue, selector, now_ms, player)

    def held_ms(self, entry: tuple[float, int, T]) -> float:
        """Return the deadline by which a wait of a queue's head is timed."""
        return entry[0] if self._held_as_ms is None else self._held_as_ms(entry[2])

    def end_act(
        self, queue: QueueState[T], selector: Selector, now_ms: float, player: Player[T]
    ) -> None:
        """Drop what is overdue while no worker is up, and answer late with spare capacity."""
        if not queue.up:
            self._expire(queue, now_ms, player)
        if queue.late:
            self._answer_late(queue, selector, now_ms, player)

    def give_up(self, queue: QueueState[T], now_ms: float, player: Player[T]) -> None:
        """Take out the head, which may still want a late answer."""
        deadline_ms, number, request = heappop(queue.waiting)
        self.in_system[queue.number] -= 1
        until_ms = -inf if self._late_until_ms is None else self._late_until_ms(request)
        if until_ms > now_ms:
            heappush(queue.late, (until_ms, number, request, deadline_ms))
        else:
            player.drop(request)

    def _expire(self, queue: QueueState[T], now_ms: float, player: Player[T]) -> None:
        """Drop overdue requests while no worker is up."""
        waiting = queue.waiting
        while waiting and waiting[0][0] <= now_ms:
            self.give_up(queue, now_ms, player)
        if waiting:
            queue.wake_ms, queue.wake_slack = waiting[0][0], inf

    def _answer_late(
        self, queue: QueueState[T], selector: Selector, now_ms: float, player: Player[T]
    ) -> None:
        """Answer late what still wants an answer, with capacity that nobody else needs."""
        late, idle = queue.late, queue.idle
        while late and late[0][0] <= now_ms:
            player.drop(heappop(late)[2])
        while late:
            free = len(idle)
            answer = selector.late_answer(free, len(queue.waiting) + len(queue.unsure))
            if answer is None:
                break
            _, _, request, deadline_ms = heappop(late)
            self.in_system[queue.number] += 1
            player.start(idle.popleft(), answer, [request],
                         (deadline_ms - now_ms - self.overhead_ms) / self.slowness, free, 0)
        if late and late[0][0] < queue.wake_ms:
            queue.wake_ms, queue.wake_slack = late[0][0], inf


def _taken(heap: list[Any], numbers: Container[int]) -> list[Any]:
    """Remove the requests with these numbers from a heap."""
    gone = [entry[2] for entry in heap if entry[1] in numbers]
    if gone:
        heap[:] = [entry for entry in heap if entry[1] not in numbers]
        heapify(heap)
    return gone
