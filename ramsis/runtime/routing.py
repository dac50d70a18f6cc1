"""Dispatch rules of a station's queues, and the routing of requests among stations.

With round robin and shortest queue every worker of a station has its own queue; with a central
queue all share one. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

Routing = Callable[[Sequence[float]], int]
"""The queue that the next request joins, given the requests waiting or in service at each."""


AS_SHORT = 4
"""Queues with at most so many times the requests of the shortest one count as short."""


class InTurn:
    """Round-robin router to queues, from the first.

    >>> route = InTurn(2)
    >>> route([0, 0]), route([1, 0]), route([1, 1])
    (0, 1, 0)
    """

    __slots__ = ("_count", "_next")

    def __init__(self, queues: int) -> None:
        self._count, self._next = queues, 0

    def __call__(self, in_system: Sequence[float]) -> int:
        """Return the next queue in turn, whatever the queue lengths."""
        chosen = self._next
        self._next = chosen + 1 if chosen + 1 < self._count else 0
        return chosen


class ShortestQueue:
    """Router to short queues in turn: the one joined longest ago is next.

    A queue is short if it has at most :data:`AS_SHORT` times as many requests, waiting or in
    service, as the shortest one; so if a worker is idle, only idle ones are short. A batch counts
    until it ends, so equally loaded workers hold varying numbers of requests, and the shortest
    queue (JSQ) says little about which worker is free first. The time since a queue was joined
    says more, and spaces the requests of each worker as evenly as round robin, as policies assume.

    >>> route = ShortestQueue(3)
    >>> route([1, 0, 0]), route([1, 1, 0]), route([4, 1, 1]), route([5, 1, 1])
    (1, 2, 0, 1)
    """

    __slots__ = ("_turns",)

    def __init__(self, queues: int) -> None:
        self._turns = list(range(queues))  # least recently joined first

    def __call__(self, in_system: Sequence[float]) -> int:
        """Return the short queue that was joined longest ago."""
        most = AS_SHORT * min(in_system)
        chosen = next(queue for queue in self._turns if in_system[queue] <= most)
        self._turns.remove(chosen)
        self._turns.append(chosen)
        return chosen


class CentralQueue:
    """Router of requests to the only queue of a station."""

    __slots__ = ()

    def __init__(self, queues: int) -> None:
        pass

    def __call__(self, in_system: Sequence[float]) -> int:
        """Return the only queue, 0."""
        return 0


class DispatchRule(NamedTuple):
    """Dispatch rule of a station: its queues, and the routing of requests to them."""

    # whether each worker has its own queue, so that a policy's table is for one worker
    own_queues: bool
    routing: Callable[[int], Routing]  # creates the router for a number of queues
    # whether each of k queues gets exactly every k-th request, independent of queue lengths
    in_turn: bool

    def station_workers(self, workers: int) -> int:
        """Return the number of workers that take from one queue."""
        return 1 if self.own_queues else workers

    def queues(self, workers: int) -> int:
        """Return the number of queues for a number of workers."""
        return workers if self.own_queues else 1


DISPATCHES: Mapping[str, DispatchRule] = {
    "round-robin": DispatchRule(True, InTurn, in_turn=True),
    "shortest-queue": DispatchRule(True, ShortestQueue, in_turn=False),
    "central-queue": DispatchRule(False, CentralQueue, in_turn=True),
}
"""The dispatch rules by name."""
*_FIRST, _LAST = DISPATCHES
DISPATCH_NAMES = f"{', '.join(_FIRST)} or {_LAST}"
"""The dispatch rules as text."""


def by_shares(shares: Sequence[float], uniform: float) -> int:
    """Draw an index by shares, which are not negative, not all 0, and need not sum to 1.

    ``uniform`` is a uniform random number in [0, 1).
    """
    upto = list(accumulate(shares))
    return min(bisect_left(upto, uniform * upto[-1]), len(upto) - 1)
