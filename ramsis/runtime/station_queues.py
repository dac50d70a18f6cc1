"""Queues and idle workers of one station at run time, dispatched by its decision table.

The rules are those of ``docs/lookup.md``: requests are ordered by deadline; the table is looked up
after each event, and again after each batch or drop; if each worker has its own queue, only while
the worker is idle. A :class:`Player` carries out decisions: the dispatcher, whose requests are
tickets, or a simulation, whose requests are numbers. Standard library only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ramsis.runtime.decisions import Decision, Drop
from ramsis.runtime.routing import DISPATCHES
from ramsis.runtime.selector import Selector, wake_slack

R = TypeVar("R")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(slots=True, eq=False)
class Ticket(Generic[R]):
    """Waiting request with its deadline and SLO class."""

    request: R  # the caller's object
    number: int  # increases; of equal deadlines the lower number is served first
    # times on the caller's clock
    arrival_ms: float
    deadline_ms: float
    slo_ms: float  # SLO class
    uniform: float = 0.0  # uniform random number that routes the request to a station


class Start(NamedTuple, Generic[R]):
    """Order to start a batch on a worker."""

    worker: int  # worker that has been idle longest
    tickets: tuple[Ticket[R], ...]  # earliest deadlines first
    # model to run, and batch size to run, padded if larger than the number of tickets
    model: str
    run_as: int
    slack_ms: float  # slack of the first ticket in the lookup
    # numbers of idle workers and queued requests in the lookup
    idle: int
    queued: int
    second: bool = False  # whether these are second opinions

    @property
    def requests(self) -> list[R]:
        """Return the batch's requests, as the caller passed them."""
        return [ticket.request for ticket in self.tickets]


class Orders(NamedTuple, Generic[R]):
    """Orders after an event: batches to start, and requests to drop or to answer."""

    starts: list[Start[R]]
    drops: list[Ticket[R]]
    answers: list[Ticket[R]]  # requests whose first answer is final, to be sent now

    def start(
        self, worker: int, answer: Decision, tickets: Sequence[Ticket[R]], slack_ms: float,
        idle: int, queued: int,
    ) -> None:
        """Record a batch to start."""
        self.starts.append(Start(worker, tuple(tickets), answer.model, answer.run_as, slack_ms,
                                 idle, queued, answer.second))

    def keep(self, ticket: Ticket[R]) -> None:
        """Record a request whose first answer is to be sent."""
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
        """Start a batch of ``requests``, earliest deadlines first, on the longest idle worker.

        ``slack_ms``, ``idle`` and ``queued`` are the arguments of the lookup.
        """
        ...

    def drop(self, request: T_contra, /) -> None:
        """Drop a request."""
        ...


class QueueState(Generic[T]):
    """State of one queue and of the workers that take from it."""

    __slots__ = ("idle", "number", "unsure", "unsure_wake_slack", "up", "waiting", "wake_ms",
                 "wake_slack")

    def __init__(self, number: int, up: int) -> None:
        self.number = number
        self.up = up  # number of its workers that are up, idle or busy
        self.waiting: list[tuple[float, int, T]] = []  # heap of (deadline, number, request)
        # Heap like ``waiting`` of requests that wait for a second opinion.
        self.unsure: list[tuple[float, int, T]] = []
        self.idle = deque[int]()  # idle workers, the one that has been idle longest first
        # Time of the next lookup without an event, and upper limits on the slacks of both heads.
        self.wake_ms = self.wake_slack = self.unsure_wake_slack = inf


class StationQueues(Generic[T]):
    """Queues of a station, with routing of requests and lookups of decisions.

    Parameters
    ----------
    dispatch
        One of :data:`~ramsis.runtime.routing.DISPATCHES`.
    workers
        Numbers of the station's workers.
    idle
        Idle workers of the server, the one that has been idle longest first.
    serving, up
        By worker number of the server: requests in the batch, and whether the worker is up.
    overhead_ms
        Time subtracted from every slack.
    held_as_ms
        Function of a request: deadline that limits a wait for more requests; by default the
        request's deadline.
    """

    def __init__(
        self, dispatch: str, workers: Sequence[int], idle: Sequence[int], serving: Sequence[int],
        up: Sequence[bool], overhead_ms: float, held_as_ms: Callable[[T], float] | None = None,
    ) -> None:
        rule = DISPATCHES[dispatch]
        # Service time as a multiple of the one that the table assumes; see Selector.when_slow.
        self.slowness = 1.0
        # Time before the deadline at which a first answer is sent that waits for a second opinion.
        self.early_ms = 0.0
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
        self._held_as_ms = held_as_ms

    def join(self, deadline_ms: float, number: int, request: T) -> QueueState[T]:
        """Put a request in the queue that the dispatch rule selects.

        A queue without a worker that is up counts as the longest, and the rule selects again. If
        no queue has such a worker, the first selected one is taken.
        Of equal deadlines the lower ``number`` is served first.
        """
        queue = self._routed()
        self.in_system[queue.number] += 1
        heappush(queue.waiting, (deadline_ms, number, request))
        return queue

    def join_unsure(
        self, deadline_ms: float, number: int, request: T, worker: int | None
    ) -> QueueState[T]:
        """Queue a request with a first answer, to wait for a second opinion.

        It joins the queue of the ``worker`` that gave the first answer; if that is None, or of
        another station, the dispatch rule selects the queue.
        """
        queue = self._routed() if worker not in self.queue_of else self.queue_of[worker]
        self.in_system[queue.number] += 1
        heappush(queue.unsure, (deadline_ms, number, request))
        return queue

    def _routed(self) -> QueueState[T]:
        """Return the queue that the dispatch rule selects; see :meth:`join`."""
        queue = self.queues[self.route(self.in_system)]
        if not queue.up and any(queue.up for queue in self.queues):
            lengths = [n if queue.up else inf
                       for n, queue in zip(self.in_system, self.queues, strict=True)]
            while not queue.up:
                queue = self.queues[self.route(lengths)]
        return queue

    def left_alone(self, queue: QueueState[T]) -> list[T]:
        """Remove the requests in a queue without workers, if other queues have workers."""
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
        """Carry out decisions of the table until it decides to wait, or no worker is idle.

        ``at_most_ms`` is an upper limit on the slack of the lookup, at the end of a wait.
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
                requests = ([heappop(waiting)[2]] if batch == 1  # faster than a loop, and common
                            else [heappop(waiting)[2] for _ in range(batch)])
                player.start(idle.popleft(), answer, requests, slack_ms, free, queued)
            elif isinstance(answer, Drop):
                self.drop_head(queue, player)
            else:
                wake = wake_slack(answer)
                if wake is not None:
                    queue.wake_ms = max(
                        self.held_ms(waiting[0]) - self.overhead_ms - wake * self.slowness, now_ms)
                    queue.wake_slack = wake
                break
        if not queue.up:
            self.expire(queue, now_ms, player)

    def held_ms(self, entry: tuple[float, int, T]) -> float:
        """Return the deadline that limits a wait of a queue's head for more requests."""
        return entry[0] if self._held_as_ms is None else self._held_as_ms(entry[2])

    def drop_head(self, queue: QueueState[T], player: Player[T]) -> None:
        """Drop the request at the queue's head."""
        self.in_system[queue.number] -= 1
        player.drop(heappop(queue.waiting)[2])

    def expire(self, queue: QueueState[T], now_ms: float, player: Player[T]) -> None:
        """Drop overdue requests of a queue without workers, and set the timer for the next."""
        waiting = queue.waiting
        while waiting and waiting[0][0] <= now_ms:
            self.drop_head(queue, player)
        if waiting:
            queue.wake_ms, queue.wake_slack = waiting[0][0], inf


def _taken(heap: list[Any], numbers: Container[int]) -> list[Any]:
    """Remove the requests with these numbers from a heap, and return them."""
    gone = [entry[2] for entry in heap if entry[1] in numbers]
    if gone:
        heap[:] = [entry for entry in heap if entry[1] not in numbers]
        heapify(heap)
    return gone
