"""Calls to the server in progress, and the queries of which each consists."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import RamsisError
from ramsis.serving.protocol import Answer

Tell = Callable[[Answer | RamsisError], object]
Rows = Mapping[str, NDArray[Any]]


class OverloadedError(RamsisError):
    """Error for a query that cannot be answered in time, or exceeds the server's capacity."""


class FailedError(RamsisError):
    """Error for a query whose model or worker failed."""


class Served(NamedTuple):
    """Record of how a query was served; times on the front end's clock."""

    variant: str
    batch: int
    run_as: int
    worker: int
    start_ms: float
    finish_ms: float
    stage: str = ""  # ``first`` or ``second`` answer; empty without second opinions


class Query:
    """Query of a call: one row of its inputs."""

    __slots__ = ("again", "call", "first", "length", "row", "size", "slot", "tries")

    def __init__(self, call: Call, row: int, slot: int) -> None:
        self.call = call
        self.row = row  # in the call's tensors
        self.slot = slot  # of the shared memory, which holds its inputs
        self.tries = 0  # how often it was started
        # first answer, kept until the second opinion is ready: outputs, row, and how it was served
        self.first: tuple[Rows, int, Served] | None = None
        self.again = False  # whether its last start was for a second opinion
        self.size = 0  # size of the request; 0 without sizes
        self.length = 0  # length of its inputs along the dimension of the size


class Call:
    """Call to the server: a request of n queries with one deadline.

    The inputs of its queries are in the ``slots`` of the shared memory; times are on the front
    end's clock. ``tell`` is called once, with the answer or with an error.
    """

    __slots__ = ("_finish_ms", "_left", "_rows", "_served", "_tell", "arrival_ms", "deadline_ms",
                 "queries")

    def __init__(
        self, slots: Sequence[int], arrival_ms: float, deadline_ms: float, tell: Tell
    ) -> None:
        self.arrival_ms, self.deadline_ms = arrival_ms, deadline_ms
        # Cleared at the end, to break the reference cycle with the queries.
        self.queries = [Query(self, row, slot) for row, slot in enumerate(slots)]
        self._tell: Tell | None = tell
        self._left, self._finish_ms = len(slots), -math.inf
        self._rows: list[Rows] = [{}] * len(slots)
        self._served: list[Served | None] = [None] * len(slots)

    def answer(
        self, query: Query, outputs: Rows, row: int, served: Served, now_ms: float
    ) -> None:
        """Answer a query by a row of its batch's outputs; the last query ends the call."""
        self._finish_ms = max(self._finish_ms, now_ms)
        self._rows[query.row] = {name: array[row:row + 1] for name, array in outputs.items()}
        self._served[query.row] = served
        self._left -= 1
        if not self._left:
            self._end(self._whole())

    def fail(self, error: RamsisError) -> None:
        """End the call with an error, regardless of its other queries."""
        self._end(error)

    def forget(self) -> None:
        """Report nothing any more, as the client has disconnected."""
        self._tell, self.queries = None, []

    def _end(self, result: Answer | RamsisError) -> None:
        tell = self._tell
        self.forget()
        if tell is not None:
            tell(result)

    def _whole(self) -> Answer:
        """Return the answer of a call whose queries are all answered, with joined parameters."""
        finish_ms = self._finish_ms
        in_time = {"in_time": finish_ms <= self.deadline_ms}
        first, *others = [self._parameters(query) for query in self._served if query is not None]
        if not others:
            return Answer(self._rows[0], in_time | first, finish_ms)
        # The protocol has no lists as parameters, so values of several queries are joined.
        joined = {name: ",".join(str(query[name]) for query in (first, *others)) for name in first}
        return Answer({name: np.concatenate([rows[name] for rows in self._rows])
                       for name in self._rows[0]}, in_time | joined, finish_ms)

    def _parameters(self, query: Served) -> dict[str, Any]:
        stage = {"stage": query.stage} if query.stage else {}
        return {"variant": query.variant, "batch": query.batch, "run_as": query.run_as,
                "worker": query.worker,
                "waiting_ms": round(query.start_ms - self.arrival_ms, 3),
                "service_ms": round(query.finish_ms - query.start_ms, 3), **stage}
