"""Requests on their way through the server: a call, and its queries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import RamsisError
from ramsis.serving.protocol import Answer

__all__ = ["Call", "FailedError", "OverloadedError", "Query", "Served"]


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
    """A request of n queries with one deadline; its future has the answer."""

    __slots__ = ("arrival_ms", "deadline_ms", "done", "left", "rows", "served")

    def __init__(self, queries: int, arrival_ms: float, deadline_ms: float) -> None:
        self.arrival_ms, self.deadline_ms = arrival_ms, deadline_ms
        self.done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.left = queries
        self.rows: list[Mapping[str, NDArray[Any]] | None] = [None] * queries
        self.served: list[Served | None] = [None] * queries

    def answer(self, place: int, row: Mapping[str, NDArray[Any]], served: Served) -> None:
        """A query is answered; with the last one the call is."""
        self.rows[place], self.served[place] = row, served
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(self._whole())

    def fail(self, error: RamsisError) -> None:
        """The call is not answered, whatever becomes of its other queries."""
        if not self.done.done():
            self.done.set_exception(error)

    def _whole(self) -> Answer:
        rows = [row for row in self.rows if row is not None]
        served = [one for one in self.served if one is not None]
        outputs = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        waits = [one.start_ms - self.arrival_ms for one in served]
        runs = [one.finish_ms - one.start_ms for one in served]
        in_time = all(one.finish_ms <= self.deadline_ms for one in served)
        parameters: dict[str, Any] = {"in_time": in_time}
        for name, values in (
            ("variant", [one.variant for one in served]),
            ("batch", [one.batch for one in served]),
            ("run_as", [one.run_as for one in served]),
            ("worker", [one.worker for one in served]),
            ("waiting_ms", [round(ms, 3) for ms in waits]),
            ("service_ms", [round(ms, 3) for ms in runs]),
        ):
            parameters[name] = values[0] if len(values) == 1 else ",".join(map(str, values))
        return Answer(outputs, parameters, max(one.finish_ms for one in served))
