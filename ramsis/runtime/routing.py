"""How requests reach queues: the dispatch rules of a station, and the choice among stations.

A *station* is one queue with the workers that take from it. Under some rules every worker has a
queue of its own, under others all workers of a station share one. Standard library only.
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
    """The queues in turn, from the first.

    >>> route = InTurn(2)
    >>> route([0, 0]), route([1, 0]), route([1, 1])
    (0, 1, 0)
    """

    __slots__ = ("_count", "_next")

    def __init__(self, queues: int) -> None:
        self._count, self._next = queues, 0

    def __call__(self, in_system: Sequence[float]) -> int:
        """Return the next queue, whatever its length."""
        chosen = self._next
        self._next = chosen + 1 if chosen + 1 < self._count else 0
        return chosen


class ShortestQueue:
    """Router to short queues in turn: the one joined longest ago is next.

    A queue is short when it has at most :data:`AS_SHORT` times as many requests, waiting or in
    service, as the shortest one; so where a worker is idle, only idle ones are. A batch counts
    until it ends, so workers that are equally loaded hold now few requests, now several times as
    many, and who holds fewest (JSQ) says little about who is free first. Who was joined longest
    ago says more, and spaces the requests of each worker as evenly as round robin does, which its
    table counts on.

    >>> route = ShortestQueue(3)
    >>> route([1, 0, 0]), route([1, 1, 0]), route([4, 1, 1]), route([5, 1, 1])
    (1, 2, 0, 1)
    """

    __slots__ = ("_turns",)

    def __init__(self, queues: int) -> None:
        self._turns = list(range(queues))  # joined longest ago first

    def __call__(self, in_system: Sequence[float]) -> int:
        """Return, of the queues that count as short, the one joined longest ago."""
        most = AS_SHORT * min(in_system)
        chosen = next(queue for queue in self._turns if in_system[queue] <= most)
        self._turns.remove(chosen)
        self._turns.append(chosen)
        return chosen


class CentralQueue:
    """The only queue."""

    __slots__ = ()

    def __init__(self, queues: int) -> None:
        pass

    def __call__(self, in_system: Sequence[float]) -> int:
        """Return the only queue, 0."""
        return 0


class DispatchRule(NamedTuple):
    """Dispatch rule: how requests reach workers."""

    # whether each worker has a queue of its own, so that its table is for one worker
    own_queues: bool
    routing: Callable[[int], Routing]  # makes the routing for a number of queues
    # whether one of k queues gets exactly every k-th request, whatever their lengths are
    in_turn: bool

    def station_workers(self, workers: int) -> int:
        """Return the number of workers that take from one queue."""
        return 1 if self.own_queues else workers

    def queues(self, workers: int) -> int:
        """Return the number of queues for some workers."""
        return workers if self.own_queues else 1


DISPATCHES: Mapping[str, DispatchRule] = {
    "round-robin": DispatchRule(True, InTurn, in_turn=True),
    "shortest-queue": DispatchRule(True, ShortestQueue, in_turn=False),
    "central-queue": DispatchRule(False, CentralQueue, in_turn=True),
}
"""The dispatch rules by name."""
*_FIRST, _LAST = DISPATCHES
DISPATCH_NAMES = f"{', '.join(_FIRST)} or {_LAST}"
"""All of them in words."""


def by_shares(shares: Sequence[float], uniform: float) -> int:
    """Draw an index by shares, which need not sum to 1.

    Parameters
    ----------
    shares
        One or more, not negative, not all 0.
    uniform
        A number drawn evenly from [0, 1).
    """
    upto = list(accumulate(shares))
    return min(bisect_left(upto, uniform * upto[-1]), len(upto) - 1)
