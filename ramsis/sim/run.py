"""Record of one run: every request, batch, load and worker, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.reprs import dataclass
from ramsis.runtime.table import SLACK_TOLERANCE_MS

IntArray = NDArray[np.int32]
_Number = TypeVar("_Number", np.float64, np.int32)

NEVER_ANSWERED = -1
"""In ``batch_of``: the request was still waiting when nothing could happen any more."""
DROPPED = -2
"""In ``batch_of``: the scheduler gave the request up."""

_ROUNDING_MS = 1e-3

_floats = partial(np.empty, 0)


def _ints() -> IntArray:
    return np.empty(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Site:
    """Workers and models of a run, with consecutive numbers."""

    workers: tuple[str, ...]  # names
    worker_type: NDArray[np.int64]  # of each worker, shape (W,)
    active: NDArray[np.bool_]  # whether each worker is active at the start, shape (W,)
    models: tuple[str, ...]  # names; a model that several types hold may occur once for each
    accuracy: FloatArray  # of each model, shape (M,)
    start: Sequence[Sequence[int]]  # the models that each worker holds at the start
    kinds: tuple[str, ...]  # names of the distinct models, of which ``models`` are copies
    kind: NDArray[np.int64]  # index in ``kinds`` of each model, shape (M,)
    one_at_a_time: bool = False  # whether it is certain that workers run one batch at a time


@dataclass(frozen=True, eq=False)
class Run:
    """Record of one run. Requests are numbered, times are in ms."""

    site: Site = field(kw_only=True)  # workers and models
    duration_ms: float = field(kw_only=True)  # when arrivals stop; the queues drain afterwards
    # shape (n,): in the order of arrival; requests that the run created (closed loops) come last
    arrival_ms: FloatArray = field(kw_only=True)
    # deadline after arrival, of each request or of all, shape (n,) or (1,)
    slo_ms: FloatArray = field(kw_only=True)
    # shape (n,): index of the batch that answers a request, or :data:`NEVER_ANSWERED`,
    # :data:`DROPPED`
    batch_of: IntArray = field(kw_only=True)
    # start_ms, finish_ms: shape (b,): of each batch, in no particular order; a request of a
    # continuous batch is a batch of its own
    start_ms: FloatArray = field(kw_only=True)
    finish_ms: FloatArray = field(kw_only=True)
    # worker, model, size: shape (b,)
    worker: IntArray = field(kw_only=True)
    model: IntArray = field(kw_only=True)
    size: IntArray = field(kw_only=True)
    # drop_request, drop_ms: the dropped requests, and when they were given up, shape (d,)
    drop_request: IntArray = field(kw_only=True)
    drop_ms: FloatArray = field(kw_only=True)
    # time before which an answer is too early, shape (n,) or (1,)
    earliest_ms: FloatArray = field(default_factory=lambda: np.array([-np.inf]))
    # asked, stream: shape (n,): the model that each request asks for, and its stream; empty if
    # any model may answer any request
    asked: IntArray = field(default_factory=_ints)
    stream: IntArray = field(default_factory=_ints)
    # shape (n,): when a machine had processed each answer; NaN for requests that need no machine
    processed_ms: FloatArray = field(default_factory=_floats)
    # answer_accuracy, second_opinion: expected accuracy of each answer, and whether it is a second
    # opinion; shape (n,), or empty if the scheduler gives no second opinions
    answer_accuracy: FloatArray = field(default_factory=_floats)
    second_opinion: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))
    last_ms: float = np.nan  # when the last event happened; NaN from compiled loops
    # figures that the scheduler itself reports, by name
    figures: Mapping[str, float] = field(default_factory=dict)
    # shape (b,): length of a batch's queue just before the batch starts; recorded by compiled
    # loops only
    queued: IntArray | None = None
    # shape (d,): length of a dropped request's queue just before the drop, that request included
    drop_queued: IntArray | None = None
    # load_start_ms, load_end_ms, load_worker, load_model: loads of models, shape (l,); empty, as
    # the unloads below, if all workers hold all models
    load_start_ms: FloatArray = field(default_factory=_floats)
    load_end_ms: FloatArray = field(default_factory=_floats)
    load_worker: IntArray = field(default_factory=_ints)
    load_model: IntArray = field(default_factory=_ints)
    # unload_worker, unload_model, unload_ms: shape (u,)
    unload_worker: IntArray = field(default_factory=_ints)
    unload_model: IntArray = field(default_factory=_ints)
    unload_ms: FloatArray = field(default_factory=_floats)
    # scaled_worker, scaled_up, scaled_ms: orders to start and to stop workers, shape (s,)
    scaled_worker: IntArray = field(default_factory=_ints)
    scaled_up: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))
    scaled_ms: FloatArray = field(default_factory=_floats)

    def _summary(self) -> str:
        return (f"of {self.requests:,} requests in {self.duration_ms / 1000:g} s: "
                f"{self.workers} workers, {len(self.start_ms):,} batches")

    @property
    def workers(self) -> int:
        """Number of workers, of all types."""
        return len(self.site.worker_type)

    @property
    def models(self) -> tuple[str, ...]:
        """Name of each model; a model that several worker types hold is listed for each."""
        return self.site.models

    @property
    def accuracy(self) -> FloatArray:
        """Accuracy of each of the run's models."""
        return self.site.accuracy

    @property
    def requests(self) -> int:
        """Number of requests that arrived."""
        return len(self.arrival_ms)

    @property
    def deadline_ms(self) -> FloatArray:
        """When the answer to each request is due, shape (n,)."""
        return self.arrival_ms + self.slo_ms

    @cached_property
    def answered(self) -> NDArray[np.bool_]:
        """Whether a request was answered, in time or not; shape (n,)."""
        return np.isfinite(self.answered_ms) if len(self.processed_ms) else self.batch_of >= 0

    @cached_property
    def answered_ms(self) -> FloatArray:
        """When each request was answered, shape (n,); infinite if it was not."""
        answered_ms = _of_batch(self.finish_ms, self.batch_of, np.inf)
        if len(self.processed_ms):
            answered_ms = np.where(np.isnan(self.processed_ms), answered_ms, self.processed_ms)
        return answered_ms

    @cached_property
    def response_ms(self) -> FloatArray:
        """Time from arrival to answer, shape (n,); infinite without an answer."""
        return self.answered_ms - self.arrival_ms

    @cached_property
    def served_ms(self) -> FloatArray:
        """When each request left the queue, shape (n,); infinite if it never did."""
        left = _of_batch(self.start_ms, self.batch_of, np.inf)
        left[self.drop_request] = self.drop_ms
        return left

    @cached_property
    def in_time(self) -> NDArray[np.bool_]:
        """Whether each request was answered by its deadline, and not too early; shape (n,).

        An answer may be late by twice the tolerance of lookups: a lookup may start a batch that is
        late by one tolerance, and sums of times are rounded.
        """
        return ((self.answered_ms <= self.deadline_ms + 2.0 * SLACK_TOLERANCE_MS)
                & ~self.too_early)

    @cached_property
    def too_early(self) -> NDArray[np.bool_]:
        """Whether each request was answered before its earliest time; shape (n,)."""
        return np.asarray(self.answered_ms < self.earliest_ms - 2.0 * SLACK_TOLERANCE_MS)

    @cached_property
    def model_of(self) -> IntArray:
        """Index of the model that answered each request, shape (n,); -1 if none did."""
        return _of_batch(self.model, self.batch_of, -1)

    @cached_property
    def reward(self) -> FloatArray:
        """Accuracy of each answer in time and 0 for other requests, shape (n,)."""
        of_answer = (self.answer_accuracy if len(self.answer_accuracy)
                     else np.append(self.accuracy, 0.0)[self.model_of])
        return np.where(self.in_time, of_answer, 0.0)

    @cached_property
    def end_ms(self) -> float:
        """Time of the last event of the run, in ms."""
        if not np.isnan(self.last_ms):
            return self.last_ms
        last = (self.arrival_ms, self.finish_ms, self.drop_ms)
        return max(float(times.max(initial=0.0)) for times in last)

    @cached_property
    def cold(self) -> NDArray[np.bool_]:
        """Whether each request met a cold start, shape (n,).

        That is, its model was loaded onto the worker that ran it after the request had arrived.
        """
        cold = np.zeros(self.requests, dtype=bool)
        ran = np.flatnonzero(self.batch_of >= 0)
        if not len(ran) or not len(self.load_model):
            return cold
        models = len(self.models)
        load_key = self.load_worker.astype(np.int64) * models + self.load_model
        batch = self.batch_of[ran]
        key = self.worker[batch].astype(np.int64) * models + self.model[batch]
        # All pairs of worker and model share one time axis, each shifted by its own stretch, so
        # that a single search finds the last load of each batch's pair.
        stretch_ms = self.end_ms + 1.0
        loads = load_key * stretch_ms + self.load_end_ms
        order = np.argsort(loads)
        at = key * stretch_ms + self.start_ms[batch] + _ROUNDING_MS
        last = order[np.maximum(np.searchsorted(loads[order], at, side="right") - 1, 0)]
        cold[ran] = ((load_key[last] == key) & (loads[last] <= at)
                      & (self.load_end_ms[last] > self.arrival_ms[ran]))
        return cold

    def active_ms(self, until_ms: float | None = None) -> FloatArray:
        """Return how long each worker was active or starting, (W,), by default until the end."""
        end_ms = self.end_ms if until_ms is None else until_ms
        since = np.where(self.site.active, 0.0, np.nan)
        total = np.zeros(self.workers)
        for worker, up, at_ms in zip(self.scaled_worker, self.scaled_up,
                                     np.minimum(self.scaled_ms, end_ms), strict=True):
            if up:
                since[worker] = at_ms
            else:
                total[worker] += at_ms - since[worker]
                since[worker] = np.nan
        return np.asarray(total + np.nan_to_num(end_ms - since))


def _of_batch(values: NDArray[_Number], batch_of: IntArray, absent: float) -> NDArray[_Number]:
    """Return the value of each request's batch; ``absent`` for requests without a batch."""
    padded = np.append(values, np.array([absent], dtype=values.dtype))
    return padded[np.where(batch_of >= 0, batch_of, len(values))]
