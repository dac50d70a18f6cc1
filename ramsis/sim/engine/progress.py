"""Batches that slow each other down, and requests that join and leave a batch.

The *work* of a batch is the time in ms that it would take alone. At speed s a batch does s ms of
its work in a ms. Speeds depend on the batches that run on the worker. Whenever a batch starts or
ends there, the work done so far is subtracted from all running batches, their speeds are computed
again, and their ends are rescheduled if they change. Between two events speeds are constant, so
the computation is exact. Outdated ends stay in the heap of events; their number (``version``)
shows that they are void.

A speed is the product of two factors:

- a *slow-down*: any function of the batches that run on a worker;
- *continuous batching*: each of n requests that run together on a model gets one token in a step.
  A step takes the time of a batch of n, so each request has the speed step(1) / step(n). If the
  step time is proportional to n, that is processor sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush
from math import inf

from ramsis.errors import InvalidValueError
from ramsis.reprs import dataclass


@dataclass(slots=True)
class Running:
    """A batch that runs, or one request of a continuous batch."""

    batch: int
    worker: int
    model: int
    size: int
    group: int  # number of its continuous batch, or its own number
    share: float | None  # share of the worker that the scheduler gave it
    steps_ms: Sequence[float] | None  # step time of a continuous batch by its number of requests
    left_ms: float  # work left at ``at_ms``
    at_ms: float
    speed: float = 0.0  # from ``at_ms`` on
    version: int = 0  # rises whenever the end changes; ends of earlier versions are ignored


Slowdown = Callable[[int, Sequence[Running]], Sequence[float]]
"""Function of a worker and the batches that run on it; returns the speed of each, > 0."""


class WorkInProgress:
    """Work left in the batches that run, and their speeds.

    Ends are pushed to ``ends``, the engine's heap of events, and written to ``finish_ms``, its
    record of ends by batch.
    """

    def __init__(
        self, slowdown: Slowdown | None, ends: list[tuple[float, int, int, int, int]],
        finish_ms: dict[int, float],
    ) -> None:
        self._slowdown, self._ends, self._finish_ms = slowdown, ends, finish_ms
        self._on: dict[int, list[Running]] = {}
        self.of: dict[int, Running] = {}  # by batch
        self.groups: dict[int, int] = {}  # number of batches that run in each group
        self.held_by: dict[int, Running] = {}  # a member of each group, for its worker and model

    def start(self, new: Sequence[Running], now_ms: float) -> None:
        """Start batches on one worker at the same time."""
        worker = new[0].worker
        self._advance(worker, now_ms)
        running = self._on.setdefault(worker, [])
        for batch in new:
            running.append(batch)
            self.of[batch.batch] = batch
            self.groups[batch.group] = self.groups.get(batch.group, 0) + 1
            self.held_by[batch.group] = batch
        self._set_speeds(worker, now_ms)

    def is_stale(self, batch: int, version: int) -> bool:
        """Return whether an end of this ``version`` is void, as the batch ends at another time."""
        running = self.of.get(batch)
        return running is None or running.version != version

    def end(self, batch: int, now_ms: float) -> bool:
        """End a batch; return whether its lane is free now: the whole group has ended."""
        ended = self.of.pop(batch)
        self._advance(ended.worker, now_ms)
        self._on[ended.worker].remove(ended)
        self._set_speeds(ended.worker, now_ms)
        self.groups[ended.group] -= 1
        if self.groups[ended.group]:
            return False
        del self.groups[ended.group], self.held_by[ended.group]
        return True

    def _advance(self, worker: int, now_ms: float) -> None:
        """Subtract the work done since the last event from all batches on a worker."""
        for batch in self._on.get(worker, ()):
            batch.left_ms = max(batch.left_ms - batch.speed * (now_ms - batch.at_ms), 0.0)
            batch.at_ms = now_ms

    def _set_speeds(self, worker: int, now_ms: float) -> None:
        """Ask for the speeds of a worker's batches, and reschedule the ends that change."""
        running = self._on[worker]
        speeds = ([1.0] * len(running) if self._slowdown is None or not running
                  else self._slowdown(worker, running))
        together: dict[int, int] = {}
        for batch in running:
            together[batch.group] = together.get(batch.group, 0) + 1
        for batch, speed_alone in zip(running, speeds, strict=True):
            speed = speed_alone
            if batch.steps_ms is not None:
                speed *= batch.steps_ms[0] / batch.steps_ms[together[batch.group] - 1]
            if not 0 < speed < inf:
                raise InvalidValueError("not a speed", where="slow-down", value=speed,
                                        allowed="a finite number > 0")
            if speed != batch.speed:
                batch.speed = speed
                batch.version += 1
                finish_ms = now_ms + batch.left_ms / speed
                self._finish_ms[batch.batch] = finish_ms
                heappush(self._ends, (finish_ms, 0, batch.batch, batch.version, worker))
