"""Batches that slow each other down, and requests that join and leave a batch.

A batch that is started has a time that it would take alone: its *work*, in ms. At speed s it does
s ms of its work in a ms. Speeds depend on what runs on the worker: whenever a batch starts or
ends there, the work done so far is taken off all that run, the speeds are asked for again, and
the ends that change are set anew. Between two events speeds are constant, so no work is lost or
made. An end that was set before is known by its number (``version``) and passed over.

Two things set speeds, and are multiplied:

- a *slow-down*: any function of the batches that run on a worker;
- *continuous batching*: n requests that run together on a model each get, in a step, a token; a
  step takes what a batch of n takes, so each has the speed step(1) / step(n). With steps
  proportional to n that is processor sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappush
from math import inf

from ramsis.errors import InvalidValueError


@dataclass(slots=True)
class Running:
    """A batch that runs, or one request of a continuous batch."""

    # batch, worker, model, size, group: ``group`` is the number of the continuous batch, else
    # that of the batch
    batch: int
    worker: int
    model: int
    size: int
    group: int
    share: float | None  # share of the worker that it was started with
    steps_ms: Sequence[float] | None
    left_ms: float  # work that is left, as of ``at_ms``
    at_ms: float
    speed: float = 0.0  # since then
    version: int = 0


Slowdown = Callable[[int, Sequence[Running]], Sequence[float]]
"""From a worker and the batches that run on it to their speeds, each in (0, 1] or more."""


class WorkInProgress:
    """The work of the batches that run.

    Parameters
    ----------
    ends : list
        The engine's heap of events, which ends are pushed to.
    finish_ms : dict
        The engine's record of ends, by batch.

    Attributes
    ----------
    of : dict
        By batch, what runs.
    groups : dict
        How many requests are in each continuous batch, or 1 for others.
    held_by : dict
        One request of each group, which says where it runs, and how.
    """

    def __init__(
        self, slowdown: Slowdown | None, ends: list[tuple[float, int, int, int, int]],
        finish_ms: dict[int, float],
    ) -> None:
        self._slowdown, self._ends, self._finish_ms = slowdown, ends, finish_ms
        self._on: dict[int, list[Running]] = {}
        self.of: dict[int, Running] = {}
        self.groups: dict[int, int] = {}
        self.held_by: dict[int, Running] = {}

    def start(self, new: Sequence[Running], now_ms: float) -> None:
        """Batches start on one worker at the same time."""
        worker = new[0].worker
        self._advance(worker, now_ms)
        running = self._on.setdefault(worker, [])
        for one in new:
            running.append(one)
            self.of[one.batch] = one
            self.groups[one.group] = self.groups.get(one.group, 0) + 1
            self.held_by[one.group] = one
        self._set_speeds(worker, now_ms)

    def is_stale(self, batch: int, version: int) -> bool:
        """Whether an end has been set anew since."""
        one = self.of.get(batch)
        return one is None or one.version != version

    def end(self, batch: int, now_ms: float) -> bool:
        """A batch ends; whether its lane is free now."""
        one = self.of.pop(batch)
        self._advance(one.worker, now_ms)
        self._on[one.worker].remove(one)
        self._set_speeds(one.worker, now_ms)
        self.groups[one.group] -= 1
        if self.groups[one.group]:
            return False
        del self.groups[one.group], self.held_by[one.group]
        return True

    def _advance(self, worker: int, now_ms: float) -> None:
        for one in self._on.get(worker, ()):
            one.left_ms = max(one.left_ms - one.speed * (now_ms - one.at_ms), 0.0)
            one.at_ms = now_ms

    def _set_speeds(self, worker: int, now_ms: float) -> None:
        running = self._on[worker]
        speeds = ([1.0] * len(running) if self._slowdown is None or not running
                  else self._slowdown(worker, running))
        together: dict[int, int] = {}
        for one in running:
            together[one.group] = together.get(one.group, 0) + 1
        for one, given in zip(running, speeds, strict=True):
            speed = given
            if one.steps_ms is not None:
                speed *= one.steps_ms[0] / one.steps_ms[together[one.group] - 1]
            if not 0 < speed < inf:
                raise InvalidValueError("not a speed", where="slow-down", value=speed,
                                        allowed="a finite number > 0")
            if speed != one.speed:
                one.speed = speed
                one.version += 1
                finish_ms = now_ms + one.left_ms / speed
                self._finish_ms[one.batch] = finish_ms
                heappush(self._ends, (finish_ms, 0, one.batch, one.version, worker))
