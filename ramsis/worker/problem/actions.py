"""Actions of a worker: which are admissible in a state, and their outcomes.

An action runs a model on the first ``batch`` of n queued requests, or drops the first one. In a
policy's table it is one whole number,

    model + M·(n − batch)     a batch, so that a batch of the whole queue is its model's number;
    DROP = −1                 the head of the queue is dropped, and the worker decides again.

An action in slack bin j is described by the distribution of its service time, the probability that
the head is in time, and the expected number of its requests that are in time. Where service times
are fixed, a batch that is in time for the head is in time for all, and all requests of one that is
late for the head count as late. Where they are drawn, requests are counted one by one
(:mod:`ramsis.worker.problem.waiting_slack`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.reprs import dataclass

DROP = -1
"""Entry of a policy's table: drop the head of the queue."""


class LateRule(StrEnum):
    """Rule for a request that no model can answer in time."""

    SERVE = "serve"
    """The fastest model serves the whole queue (EuroSys '24, §4.3.1)."""
    DROP = "drop"
    """It is dropped; other requests may be dropped as well, in favour of those behind them."""


class Batching(StrEnum):
    """Which part of the queue a batch takes."""

    MAXIMAL = "maximal"
    """All of it."""
    VARIABLE = "variable"
    """Any number of requests from its head."""

    @property
    def partial(self) -> bool:
        """Whether a batch may leave some of the queue."""
        return self is not Batching.MAXIMAL

    def parts(self, queued: int) -> Iterable[int]:
        """Return the sizes of batches that leave part of a queue, rising.

        >>> list(Batching.VARIABLE.parts(3)), list(Batching.MAXIMAL.parts(3))
        ([1, 2], [])
        """
        return range(1, queued) if self.partial else ()


@dataclass(frozen=True, eq=False)
class Action:
    """An action with n queued requests, in a range of slack bins."""

    code: int  # its number in a policy's table
    model: int  # row of the latency table; −1 for a drop
    batch: int  # requests that it takes from the queue
    service: int  # row of the queue's service distributions; −1 for a drop, which takes no time
    # first_bin, stop_bin: admissible at first_bin <= j < stop_bin
    first_bin: int
    stop_bin: int
    # in_time, head_in_time: by bin from first_bin on: expected number of its requests answered in
    # time, and probability that the head is
    in_time: FloatArray
    head_in_time: FloatArray

    @property
    def bins(self) -> slice:
        """Slack bins at which the action is admissible."""
        return slice(self.first_bin, self.stop_bin)

    @property
    def drops(self) -> bool:
        """Whether the action drops the head of the queue."""
        return self.code == DROP


class Outcome(NamedTuple):
    """Outcome of a policy in every state; arrays of shape (N+1, D+1), the full state last."""

    # model, batch, service: as of :class:`Action`
    model: IntArray
    batch: IntArray
    service: IntArray
    in_time: FloatArray
    head_in_time: FloatArray


@dataclass(frozen=True, eq=False)
class ActionSet:
    """Admissible actions of each state, as records and as arrays."""

    # shape (N,): those with n = 1 … N queued, and last those of the full state
    by_queue: tuple[tuple[Action, ...], ...]
    bins: int  # D+1, the number of slack values

    @cached_property
    def listed(self) -> tuple[Action, ...]:
        """Actions of all queue lengths in one flat list, shortest queue first."""
        return tuple(action for actions in self.by_queue for action in actions)

    @cached_property
    def first(self) -> IntArray:
        """Index into ``listed`` of the first action of each queue; shape (N+1,)."""
        return np.searchsorted(self.row, np.arange(len(self.by_queue)))

    @cached_property
    def row(self) -> IntArray:
        """Index in ``by_queue`` (n − 1) of each action; shape (A,)."""
        sizes = [len(actions) for actions in self.by_queue]
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def code(self) -> IntArray:
        """Return the codes of all actions; shape (A,)."""
        return np.array([action.code for action in self.listed])

    @cached_property
    def admissible(self) -> BoolArray:
        """Mask of the slack bins at which each action is admissible; shape (A, D+1)."""
        first, stop = np.array([(action.first_bin, action.stop_bin)
                                for action in self.listed]).T[..., None]
        j = np.arange(self.bins)
        return np.asarray((first <= j) & (j < stop))

    @cached_property
    def _indices(self) -> IntArray:
        """Index into ``listed`` by [n − 1, code + 1, j], −1 where there is no such action."""
        indices = np.full((len(self.by_queue), self.code.max() + 2, self.bins), -1, dtype=np.int64)
        index, j = np.nonzero(self.admissible)
        indices[self.row[index], self.code[index] + 1, j] = index
        return indices

    @cached_property
    def arrays(self) -> Outcome:
        """Attributes of all actions as columns (A, 1); those that depend on slack (A, D+1)."""
        model, batch, service = np.array(
            [(action.model, action.batch, action.service) for action in self.listed]).T[..., None]
        in_time, head_in_time = np.zeros((2, len(self.listed), self.bins))
        for i, action in enumerate(self.listed):
            in_time[i, action.bins] = action.in_time
            head_in_time[i, action.bins] = action.head_in_time
        return Outcome(model, batch, service, in_time, head_in_time)

    def index_of(self, codes: IntArray) -> IntArray:
        """Return the index in ``listed`` of each state's code, (N+1, D+1); −1 if inadmissible."""
        admissible = (codes >= DROP) & (codes < self._indices.shape[1] - 1)
        at = np.where(admissible, codes + 1, 0)[:, None]
        return np.where(admissible, np.take_along_axis(self._indices, at, axis=1)[:, 0], -1)

    def outcome_of(self, index: IntArray) -> Outcome:
        """Return the outcome in all states of indices into ``listed``, (N+1, D+1)."""
        j = np.arange(self.bins)
        model, batch, service, in_time, head_in_time = self.arrays
        return Outcome(model[index, 0], batch[index, 0], service[index, 0], in_time[index, j],
                       head_in_time[index, j])
