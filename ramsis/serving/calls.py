"""Requests on their way through the server: a call, and its queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import RamsisError
from ramsis.serving.protocol import Answer

Tell = Callable[[Answer | RamsisError], object]
Rows = Mapping[str, NDArray[Any]]


class OverloadedError(RamsisError):
    """A query is not answered, since it could not be in time, or there is no room for it."""


class FailedError(RamsisError):
    """A model or a worker failed."""


class Served(NamedTuple):
    """How a query was served; times on the front end's clock."""

    variant: str
    batch: int
    run_as: int
    worker: int
    start_ms: float
    finish_ms: float


class Query:
    """One of the queries of a call.

    Attributes
    ----------
    call
        That it belongs to.
    place
        Its row in the call's tensors.
    slot
        Where its inputs are.
    tries
        How often it was started.
    """

    __slots__ = ("call", "place", "slot", "tries")

    def __init__(self, call: Call, place: int, slot: int) -> None:
        self.call, self.place, self.slot, self.tries = call, place, slot, 0


class Call:
    """A request of n queries with one deadline.

    Parameters
    ----------
    slots
        Where the inputs of its queries are.
    arrival_ms, deadline_ms
        On the front end's clock.
    tell
        Called once, with the answer or with the reason that there is none.

    Attributes
    ----------
    queries
        Until it is over; they know the call, and it would never be let go of else.
    """

    __slots__ = ("_left", "_rows", "_served", "_tell", "arrival_ms", "deadline_ms", "queries")

    def __init__(
        self, slots: Sequence[int], arrival_ms: float, deadline_ms: float, tell: Tell
    ) -> None:
        self.arrival_ms, self.deadline_ms = arrival_ms, deadline_ms
        self.queries = [Query(self, place, slot) for place, slot in enumerate(slots)]
        self._tell: Tell | None = tell
        self._left = len(slots)
        self._rows: list[Rows] = [{}] * len(slots)
        self._served: list[Served | None] = [None] * len(slots)

    def answer(self, place: int, outputs: Rows, row: int, served: Served) -> None:
        """A query is answered by a row of its batch's outputs; with the last one the call is."""
        self._rows[place] = {name: array[row:row + 1] for name, array in outputs.items()}
        self._served[place] = served
        self._left -= 1
        if not self._left:
            self._end(self._whole())

    def fail(self, error: RamsisError) -> None:
        """The call is not answered, whatever becomes of its other queries."""
        self._end(error)

    def forget(self) -> None:
        """Forget the client, who has left."""
        self._tell, self.queries = None, []

    def _end(self, result: Answer | RamsisError) -> None:
        tell = self._tell
        self.forget()
        if tell is not None:
            tell(result)

    def _whole(self) -> Answer:
        served = [one for one in self._served if one is not None]
        first = served[0]
        if len(served) == 1:
            return Answer(self._rows[0], {
                "in_time": first.finish_ms <= self.deadline_ms, "variant": first.variant,
                "batch": first.batch, "run_as": first.run_as, "worker": first.worker,
                "waiting_ms": round(first.start_ms - self.arrival_ms, 3),
                "service_ms": round(first.finish_ms - first.start_ms, 3)}, first.finish_ms)
        finish_ms = max(one.finish_ms for one in served)
        # Parameters of the protocol hold no lists, so values of several queries are one text.
        said: dict[str, Any] = {"in_time": finish_ms <= self.deadline_ms}
        for name, values in (
            ("variant", [one.variant for one in served]),
            ("batch", [one.batch for one in served]),
            ("run_as", [one.run_as for one in served]),
            ("worker", [one.worker for one in served]),
            ("waiting_ms", [round(one.start_ms - self.arrival_ms, 3) for one in served]),
            ("service_ms", [round(one.finish_ms - one.start_ms, 3) for one in served]),
        ):
            said[name] = ",".join(map(str, values))
        return Answer({name: np.concatenate([rows[name] for rows in self._rows])
                       for name in self._rows[0]}, said, finish_ms)
