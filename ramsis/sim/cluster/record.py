"""What happened in a run of a cluster: requests, batches, loads and workers, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.scenario import Scenario
from ramsis.sim.cluster.requests import AT_MACHINE, TO_PROCESS, WAITING, RequestState

__all__ = ["ClusterRun", "Recorder"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROUNDING_MS = 1e-3


@dataclass(frozen=True, eq=False)
class ClusterRun:
    """Record of one run. Times are in ms; workers and models are numbered as in ``arrays``.

    Attributes
    ----------
    scenario : Scenario
    end_ms : float
        When the last event happened.
    arrival_ms, earliest_ms, deadline_ms : ndarrays, shape (n,)
        Of each request; in the order of arrival but for those that a run has made, which follow.
    model, stream : ndarrays of int, shape (n,)
        The model that each asks for.
    batch_of : ndarray of int, shape (n,)
        The batch that answers it, ``WAITING`` where none does, ``DROPPED``.
    answered_ms : ndarray, shape (n,)
        Infinite for those without an answer.
    start_ms, finish_ms : ndarrays, shape (b,)
        Of each batch; a request of a continuous batch is a batch of its own.
    worker, batch_model, size : ndarrays of int, shape (b,)
    load_start_ms, load_end_ms : ndarrays, shape (l,)
        Of each load.
    load_worker, load_model : ndarrays of int, shape (l,)
    unload_worker, unload_model, unload_ms : ndarrays, shape (u,)
    drop_request, drop_ms : ndarrays, shape (d,)
    scaled_worker, scaled_up, scaled_ms : ndarrays, shape (s,)
        Orders to start and to stop workers.
    figures : dict
        What the scheduler says of itself, by name.
    """

    scenario: Scenario
    end_ms: float
    arrival_ms: FloatArray
    earliest_ms: FloatArray
    deadline_ms: FloatArray
    model: IntArray
    stream: IntArray
    batch_of: IntArray
    answered_ms: FloatArray
    start_ms: FloatArray
    finish_ms: FloatArray
    worker: IntArray
    batch_model: IntArray
    size: IntArray
    load_start_ms: FloatArray
    load_end_ms: FloatArray
    load_worker: IntArray
    load_model: IntArray
    unload_worker: IntArray
    unload_model: IntArray
    unload_ms: FloatArray
    drop_request: IntArray
    drop_ms: FloatArray
    scaled_worker: IntArray
    scaled_up: NDArray[np.bool_]
    scaled_ms: FloatArray
    figures: Mapping[str, float]

    @property
    def requests(self) -> int:
        """Number of requests that arrived."""
        return len(self.arrival_ms)

    @cached_property
    def answered(self) -> NDArray[np.bool_]:
        """Whether a request was answered, in time or not; shape (n,)."""
        return np.isfinite(self.answered_ms)

    @cached_property
    def in_time(self) -> NDArray[np.bool_]:
        """Whether each request was answered by its deadline, and not too early; shape (n,)."""
        room_ms = 2.0 * SLACK_TOLERANCE_MS
        return ((self.answered_ms <= self.deadline_ms + room_ms)
                & (self.answered_ms >= self.earliest_ms - room_ms))

    @cached_property
    def response_ms(self) -> FloatArray:
        """From arrival to answer, shape (n,); infinite without an answer."""
        return self.answered_ms - self.arrival_ms

    @cached_property
    def request_worker(self) -> IntArray:
        """The worker that answered each request, shape (n,); -1 if none did."""
        return np.append(self.worker, -1)[np.where(self.batch_of >= 0, self.batch_of, -1)]

    @cached_property
    def cold(self) -> NDArray[np.bool_]:
        """Whether each request met a cold start, shape (n,).

        That is, its model was loaded onto the worker that ran it after the request had arrived.
        """
        found = np.zeros(self.requests, dtype=bool)
        ran = np.flatnonzero(self.batch_of >= 0)
        if not len(ran) or not len(self.load_model):
            return found
        models = len(self.scenario.arrays.models)
        load_key = self.load_worker * models + self.load_model
        batch = self.batch_of[ran]
        key = self.worker[batch] * models + self.batch_model[batch]
        # One axis for all pairs of a worker and a model, each with a stretch of its own.
        stretch_ms = self.end_ms + 1.0
        loads = load_key * stretch_ms + self.load_end_ms
        order = np.argsort(loads)
        at = key * stretch_ms + self.start_ms[batch] + _ROUNDING_MS
        last = order[np.maximum(np.searchsorted(loads[order], at, side="right") - 1, 0)]
        found[ran] = ((load_key[last] == key) & (loads[last] <= at)
                      & (self.load_end_ms[last] > self.arrival_ms[ran]))
        return found

    def active_ms(self) -> FloatArray:
        """For how long each worker was active or starting, shape (W,), to the run's end."""
        arrays = self.scenario.arrays
        since = np.where(arrays.active, 0.0, np.nan)
        total = np.zeros(len(arrays.workers))
        for worker, up, at_ms in zip(self.scaled_worker, self.scaled_up, self.scaled_ms,
                                     strict=True):
            if up:
                since[worker] = at_ms
            else:
                total[worker] += at_ms - since[worker]
                since[worker] = np.nan
        return np.asarray(total + np.nan_to_num(self.end_ms - since))


class Recorder:
    """Takes down what happens."""

    def __init__(self) -> None:
        # Start, end, worker, model and size of each batch.
        self.batches: list[tuple[float, float, int, int, int]] = []
        self.finish_ms: dict[int, float] = {}  # of batches whose end was set anew
        self.loads: list[tuple[float, float, int, int]] = []
        self.unloads: list[tuple[int, int, float]] = []
        self.drops: list[tuple[int, float]] = []
        self.scaling: list[tuple[int, bool, float]] = []
        self.answered: dict[int, float] = {}

    def load(self, start_ms: float, end_ms: float, worker: int, model: int) -> None:
        """A load begins."""
        self.loads.append((start_ms, end_ms, worker, model))

    def run(
        self, scenario: Scenario, state: RequestState, end_ms: float,
        figures: Mapping[str, float],
    ) -> ClusterRun:
        """The record of the run."""
        batch_of = np.array(state.batch, dtype=np.int64)
        start, finish, worker, batch_model, size = _columns(self.batches, 5)
        finish_ms = _floats(finish)
        if self.finish_ms:
            finish_ms[list(self.finish_ms)] = list(self.finish_ms.values())
        answered_ms = np.append(finish_ms, np.inf)[np.where(batch_of >= 0, batch_of, -1)]
        if any(state.processed):
            waits = np.array(state.processed)[np.array(state.stream, dtype=np.int64)]
            answered_ms[waits] = np.inf
            answered_ms[list(self.answered)] = list(self.answered.values())
        batch_of[np.isin(batch_of, (TO_PROCESS, AT_MACHINE))] = WAITING
        drop = _columns(self.drops, 2)
        load = _columns(self.loads, 4)
        unload = _columns(self.unloads, 3)
        scaled = _columns(self.scaling, 3)
        return ClusterRun(
            scenario=scenario, end_ms=end_ms,
            arrival_ms=_floats(state.arrival_ms),
            earliest_ms=_floats(state.earliest_ms),
            deadline_ms=_floats(state.deadline_ms),
            model=_ints(state.model), stream=_ints(state.stream),
            batch_of=batch_of, answered_ms=answered_ms,
            start_ms=_floats(start), finish_ms=finish_ms, worker=_ints(worker),
            batch_model=_ints(batch_model), size=_ints(size),
            load_start_ms=_floats(load[0]), load_end_ms=_floats(load[1]),
            load_worker=_ints(load[2]), load_model=_ints(load[3]),
            unload_worker=_ints(unload[0]), unload_model=_ints(unload[1]),
            unload_ms=_floats(unload[2]),
            drop_request=_ints(drop[0]), drop_ms=_floats(drop[1]),
            scaled_worker=_ints(scaled[0]), scaled_up=np.array(scaled[1], dtype=bool),
            scaled_ms=_floats(scaled[2]), figures=figures,
        )


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _floats(values: Sequence[float]) -> FloatArray:
    return np.array(values, dtype=np.float64)


def _ints(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


