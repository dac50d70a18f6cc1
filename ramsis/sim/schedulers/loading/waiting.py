"""Requests that wait, and for each worker the one that it should run next.

Of the requests for models that a worker holds, that one comes first whose last moment to start,
its deadline less what it takes there, is first. Those whose moment has passed are *late*: they
come when nothing else waits, in the order of their arrival.

Only the first request of a model can be next. So each worker has a heap of the first requests of
the models that it holds; a request that becomes the first of its model is entered in the heaps of
all holders, and entries that are not first any more are passed over when they come up. That costs
the logarithm of a queue, and that of a heap for each copy of the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush


class WaitingRequests:
    """See the module.

    Parameters
    ----------
    deadline_ms, arrival_ms : sequence of float
        Of each request.
    each_ms : sequence of sequence of float
        What a request takes, by worker and model.

    Attributes
    ----------
    holders : list of list of int
        The workers that hold each model.
    """

    def __init__(
        self, deadline_ms: Sequence[float], arrival_ms: Sequence[float],
        each_ms: Sequence[Sequence[float]], models: int,
    ) -> None:
        self._deadline_ms, self._arrival_ms, self._each_ms = deadline_ms, arrival_ms, each_ms
        self._queues: list[list[tuple[float, int]]] = [[] for _ in range(models)]
        self._late: list[deque[int]] = [deque() for _ in range(models)]
        self._heads: list[list[tuple[float, int, int]]] = [[] for _ in each_ms]
        self._late_heads: list[list[tuple[float, int, int]]] = [[] for _ in each_ms]
        self.holders: list[list[int]] = [[] for _ in range(models)]

    def count(self, model: int) -> int:
        """How many wait for a model."""
        return len(self._queues[model]) + len(self._late[model])

    def hold(self, worker: int, model: int) -> None:
        """A worker holds a model from now on."""
        self.holders[model].append(worker)
        if self._queues[model]:
            self._enter(model, (worker,))
        if self._late[model]:
            self._enter_late(model, (worker,))

    def give_up(self, worker: int, model: int) -> None:
        """A worker does not hold a model any more."""
        self.holders[model].remove(worker)

    def add(self, model: int, request: int) -> None:
        """A request waits."""
        queue = self._queues[model]
        heappush(queue, (self._deadline_ms[request], request))
        if queue[0][1] == request:
            self._enter(model, self.holders[model])

    def take(self, worker: int, now_ms: float) -> tuple[int, int] | None:
        """Model and number of the request that a worker should run next, taken out."""
        heads, queues = self._heads[worker], self._queues
        while heads:
            latest_ms, model, request = heappop(heads)
            queue = queues[model]
            if not queue or queue[0][1] != request or worker not in self.holders[model]:
                continue
            heappop(queue)
            if queue:
                self._enter(model, self.holders[model])
            if latest_ms >= now_ms:
                return model, request
            late = self._late[model]
            late.append(request)
            if len(late) == 1:
                self._enter_late(model, self.holders[model])
        return self._take_late(worker)

    def _take_late(self, worker: int) -> tuple[int, int] | None:
        heads = self._late_heads[worker]
        while heads:
            _, model, request = heappop(heads)
            late = self._late[model]
            if not late or late[0] != request or worker not in self.holders[model]:
                continue
            late.popleft()
            if late:
                self._enter_late(model, self.holders[model])
            return model, request
        return None

    def _enter(self, model: int, workers: Sequence[int]) -> None:
        deadline_ms, request = self._queues[model][0]
        for worker in workers:
            heappush(self._heads[worker],
                     (deadline_ms - self._each_ms[worker][model], model, request))

    def _enter_late(self, model: int, workers: Sequence[int]) -> None:
        request = self._late[model][0]
        for worker in workers:
            heappush(self._late_heads[worker], (self._arrival_ms[request], model, request))
