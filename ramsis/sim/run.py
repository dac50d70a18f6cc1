"""What happened in one run: every query and every batch, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim.fleet import Fleet

__all__ = ["DROPPED", "NEVER_ANSWERED", "Run"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
_Number = TypeVar("_Number", np.float64, np.int32)

NEVER_ANSWERED = -1
"""In ``batch_of``: the query was still waiting when nothing could happen any more."""
DROPPED = -2
"""In ``batch_of``: the scheme gave the query up."""


@dataclass(frozen=True, eq=False)
class Run:
    """Record of one run. Queries are numbered in order of arrival, times are in ms.

    Attributes
    ----------
    fleets : tuple of Fleet
        One for each type of workers; workers and models are numbered through.
    duration_ms : float
        When arrivals stop; the queues drain afterwards.
    arrival_ms : ndarray, shape (n,)
        Not falling.
    batch_of : ndarray of int32, shape (n,)
        Index of the batch that answers a query, or :data:`NEVER_ANSWERED`, :data:`DROPPED`.
    start_ms, finish_ms : ndarrays, shape (b,)
        Of each batch. Batches are in no particular order.
    worker, model, size : ndarrays of int32, shape (b,)
    drop_query, drop_ms : ndarrays, shape (d,)
        The dropped queries, and when they were given up.
    slo_ms : ndarray, shape (n,), optional
        Deadline of each query after its arrival, where the fleet has SLO classes.
    queued : ndarray of int32, shape (b,), optional
        Queries in the queue that a batch is taken from, just before; from compiled loops only.
    drop_queued : ndarray of int32, shape (d,), optional
        The same of each drop, the dropped query included.
    """

    fleets: tuple[Fleet, ...]
    duration_ms: float
    arrival_ms: FloatArray
    batch_of: IntArray
    start_ms: FloatArray
    finish_ms: FloatArray
    worker: IntArray
    model: IntArray
    size: IntArray
    drop_query: IntArray
    drop_ms: FloatArray
    slo_ms: FloatArray | None = None
    queued: IntArray | None = None
    drop_queued: IntArray | None = None

    @property
    def workers(self) -> int:
        """Number of workers, of all types."""
        return sum(fleet.workers for fleet in self.fleets)

    @property
    def models(self) -> tuple[str, ...]:
        """Name of each model; one that several types hold is there for each."""
        return tuple(name for fleet in self.fleets for name in fleet.models)

    @cached_property
    def accuracy(self) -> FloatArray:
        """Accuracy of each of ``models``."""
        return np.concatenate([fleet.table.accuracy for fleet in self.fleets])

    @property
    def queries(self) -> int:
        """Number of queries that arrived."""
        return len(self.arrival_ms)

    @cached_property
    def answered(self) -> NDArray[np.bool_]:
        """Whether a query was answered, in time or late; shape (n,)."""
        return self.batch_of >= 0

    @cached_property
    def answered_ms(self) -> FloatArray:
        """When each query was answered, shape (n,); infinite if it was not."""
        return _of_batch(self.finish_ms, self.batch_of, np.inf)

    @cached_property
    def served_ms(self) -> FloatArray:
        """When each query left the queue, shape (n,); infinite if it never did."""
        left = _of_batch(self.start_ms, self.batch_of, np.inf)
        left[self.drop_query] = self.drop_ms
        return left

    @cached_property
    def in_time(self) -> NDArray[np.bool_]:
        """Whether each query was answered by its deadline, shape (n,).

        Up to twice the tolerance of the lookup: a batch is started that much late, and sums of
        times are rounded.
        """
        slo_ms = self.fleets[0].slo_ms if self.slo_ms is None else self.slo_ms
        return self.answered_ms <= self.arrival_ms + slo_ms + 2.0 * SLACK_TOLERANCE_MS

    @cached_property
    def model_of(self) -> IntArray:
        """Index of the model that answered each query, shape (n,); -1 if none did."""
        return _of_batch(self.model, self.batch_of, -1)

    @cached_property
    def reward(self) -> FloatArray:
        """Accuracy of each query answered in time and 0 for the others, shape (n,)."""
        return np.where(self.in_time, np.append(self.accuracy, 0.0)[self.model_of], 0.0)


def _of_batch(values: NDArray[_Number], batch_of: IntArray, absent: float) -> NDArray[_Number]:
    """A batch's value for each of its queries, and ``absent`` for queries without a batch."""
    padded = np.append(values, np.array([absent], dtype=values.dtype))
    return padded[np.where(batch_of >= 0, batch_of, len(values))]
