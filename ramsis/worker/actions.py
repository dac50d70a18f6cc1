"""What a worker may do in a state, and what comes of it.

A *choice* runs a model on the first ``batch`` of n queued requests, or drops the first one. In a
policy's table it stands as one whole number,

    model + M·(n − batch)     a batch, so that a batch of the whole queue stands as its model;
    DROP = −1                 the earliest request is given up, and the worker looks again.

Of a choice in bin j the model needs the law of its service time, the chance that the earliest
deadline is met, and the expected number of its queries that are in time. Where service times are
fixed, a batch that meets the earliest deadline meets all. A batch that is late for its first query
may be in time for those behind it; the rule ``serve`` with fixed times counts every query of it as
late, everything else counts them one by one (:mod:`ramsis.worker.behind`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DROP", "Batching", "Choice", "ChoiceSet", "LateRule", "Outcome"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DROP = -1
"""Entry of a policy's table: drop the earliest request."""


class LateRule(StrEnum):
    """What becomes of a request that nothing can answer in time."""

    SERVE = "serve"
    """The fastest model serves the whole queue (EuroSys '24, §4.3.1)."""
    DROP = "drop"
    """It is dropped; and so may any request be, for the good of those behind it."""
    FREE = "free"
    """Any model may serve it."""


class Batching(StrEnum):
    """Which part of the queue a batch takes."""

    MAXIMAL = "maximal"
    """All of it."""
    VARIABLE = "variable"
    """Any number of requests from its head."""


@dataclass(frozen=True, eq=False)
class Choice:
    """One thing to do with n queued requests, in a range of slack bins.

    Attributes
    ----------
    code : int
        How it stands in a policy's table.
    model : int
        Row of the latency table; −1 to drop.
    batch : int
        Requests that it takes from the queue.
    service : int
        Row of the problem's laws of service times; −1 to drop, which takes no time.
    first_bin, stop_bin : int
        It may be chosen at the slack bins first_bin <= j < stop_bin.
    in_time : ndarray, shape (stop_bin − first_bin,)
        Expected number of its queries answered in time, from first_bin on.
    met : ndarray, shape (stop_bin − first_bin,)
        Probability that the earliest deadline is met.
    """

    code: int
    model: int
    batch: int
    service: int
    first_bin: int
    stop_bin: int
    in_time: FloatArray
    met: FloatArray

    @property
    def bins(self) -> slice:
        """Where it may be chosen."""
        return slice(self.first_bin, self.stop_bin)

    @property
    def drops(self) -> bool:
        """Whether it drops the earliest request."""
        return self.code == DROP


class Outcome(NamedTuple):
    """What a policy does in every state; arrays of shape (N+1, D+1), the full state last.

    Attributes
    ----------
    model, batch, service : ndarrays of int
        As of :class:`Choice`.
    in_time, met : ndarrays
    """

    model: IntArray
    batch: IntArray
    service: IntArray
    in_time: FloatArray
    met: FloatArray


@dataclass(frozen=True, eq=False)
class ChoiceSet:
    """The choices of each state: a row for n = 1 … N, and last one for the full state.

    Attributes
    ----------
    rows : tuple of tuples of Choice, length N+1
    bins : int
        D+1, the number of slack values.
    """

    rows: tuple[tuple[Choice, ...], ...]
    bins: int

    @cached_property
    def flat(self) -> tuple[Choice, ...]:
        """All choices, row after row."""
        return tuple(choice for row in self.rows for choice in row)

    @cached_property
    def _places(self) -> IntArray:
        """Index into ``flat`` by [n − 1, code, j], −1 where there is no such choice."""
        codes = 2 + max(choice.code for choice in self.flat)
        places = np.full((len(self.rows), codes, self.bins), -1, dtype=np.int64)
        index = 0
        for row, choices in zip(places, self.rows, strict=True):
            for choice in choices:
                row[choice.code, choice.bins] = index
                index += 1
        return places

    @cached_property
    def _arrays(self) -> Outcome:
        """The attributes of all choices, shape (C,), and by slack, shape (C, D+1)."""
        model, batch, service = (
            np.array([getattr(c, name) for c in self.flat])
            for name in ("model", "batch", "service")
        )
        in_time, met = np.zeros((2, len(self.flat), self.bins))
        for i, choice in enumerate(self.flat):
            in_time[i, choice.bins] = choice.in_time
            met[i, choice.bins] = choice.met
        return Outcome(model, batch, service, in_time, met)

    def place(self, codes: IntArray) -> IntArray:
        """Index into ``flat`` for the codes of all states, (N+1, D+1); −1 where there is none."""
        n, j = np.ogrid[: len(self.rows), : self.bins]
        known = (codes >= DROP) & (codes < self._places.shape[1] - 1)
        found = self._places[n, np.where(known, codes, DROP), j]
        return np.where(known, found, -1)

    def outcome(self, codes: IntArray) -> Outcome:
        """What the choices of all states, (N+1, D+1), come to; each must be there."""
        place, j = self.place(codes), np.arange(self.bins)
        model, batch, service, in_time, met = self._arrays
        return Outcome(model[place], batch[place], service[place], in_time[place, j],
                       met[place, j])
