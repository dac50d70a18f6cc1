"""Runs of policies with second opinions (:mod:`ramsis.policy.cascade`), by a compiled kernel.

Confidence is drawn: the rank of a request's confidence among all requests is uniform in [0, 1),
whichever model answers first. A request in time counts with the accuracy of its first model, plus
the increment of its bin of confidence if it gets a second opinion in time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray
from ramsis.scenario import Requests
from ramsis.sim import _cascade_kernels as kernels
from ramsis.sim._kernels import RunTerms
from ramsis.sim.fleet import Fleet
from ramsis.sim.run import DROPPED, Run
from ramsis.sim.tables import PlacedCascade

_OF_BATCHES = ("start_ms", "finish_ms", "worker", "model", "size", "queued")


class Outcomes(NamedTuple):
    """Outcome of each request of a run, shape (n,)."""

    accuracy: FloatArray  # expected accuracy of the answer, whether it was in time or not
    second_opinion: BoolArray
    answered_ms: FloatArray  # infinite where it was dropped or not answered


def room_for(requests: int) -> kernels.CascadeRoom:
    """Return room for a run of so many requests, with at most two batches each."""
    start_ms, finish_ms = np.empty((2, 2 * requests))
    worker, model, size, queued = np.empty((4, 2 * requests), dtype=np.int32)
    first, second, bin_of = np.empty((3, requests), dtype=np.int32)
    return kernels.CascadeRoom(start_ms, finish_ms, worker, model, size, queued, first, second,
                               bin_of, np.empty(requests))


def served(
    placed: PlacedCascade, fleet: Fleet, requests: Requests, queues: int = 1
) -> tuple[kernels.CascadeRoom, Outcomes]:
    """Serve requests with ranks of their confidence by a cascade.

    ``queues`` is 1, or the number of workers: then requests join the workers' queues in turn.
    """
    room = (_served_by_one_queue(placed, fleet, requests) if queues == 1
            else _served_in_turn(placed, fleet, requests))
    answered = room.first >= 0
    by_model = room.model[np.where(answered, room.first, 0)]
    again = room.second >= 0
    accuracy = np.where(answered, fleet.table.accuracy[by_model], 0.0)
    accuracy[again] += placed.increment[by_model[again], room.bin_of[again]]
    return room, Outcomes(accuracy, again, np.where(answered, room.answered_ms, np.inf))


def _served_by_one_queue(
    placed: PlacedCascade, fleet: Fleet, requests: Requests
) -> kernels.CascadeRoom:
    room = room_for(len(requests))
    terms = RunTerms.of(fleet, requests)
    count = kernels.cascade(np.ascontiguousarray(requests.arrival_ms), requests.sureness,
                            placed.tables, terms, room)
    return room._replace(**{name: getattr(room, name)[:count] for name in _OF_BATCHES})


def _served_in_turn(
    placed: PlacedCascade, fleet: Fleet, requests: Requests
) -> kernels.CascadeRoom:
    """Simulate each worker on its own requests under round robin, and join the records."""
    workers, alone = fleet.workers, replace(fleet, workers=1)
    rooms = [_served_by_one_queue(placed, alone, requests.part(
        np.arange(worker, len(requests), workers))) for worker in range(workers)]
    joined = room_for(len(requests))._replace(**{
        name: np.concatenate([getattr(room, name) for room in rooms]) for name in _OF_BATCHES})
    joined.worker[:] = np.repeat(np.arange(workers), [len(room.size) for room in rooms])
    batches = 0
    for worker, room in enumerate(rooms):
        mine = slice(worker, None, workers)
        for name in ("first", "second"):
            of = getattr(room, name)
            getattr(joined, name)[mine] = np.where(of >= 0, of + batches, of)
        joined.bin_of[mine], joined.answered_ms[mine] = room.bin_of, room.answered_ms
        batches += len(room.size)
    return joined


def replay_cascade(
    placed: PlacedCascade, fleet: Fleet, requests: Requests, duration_ms: float, queues: int = 1
) -> Run:
    """Return the record of requests that a cascade serves; ``queues`` as in :func:`served`."""
    room, outcomes = served(placed, fleet, requests, queues)
    dropped = np.flatnonzero(room.first == DROPPED).astype(np.int32)
    return Run(
        site=replace(fleet.site, one_at_a_time=False), duration_ms=duration_ms,
        arrival_ms=requests.arrival_ms, slo_ms=requests.slo_ms,
        batch_of=np.where(room.second >= 0, room.second, room.first),
        start_ms=room.start_ms, finish_ms=room.finish_ms, worker=room.worker, model=room.model,
        size=room.size, drop_request=dropped, drop_ms=room.answered_ms[dropped],
        processed_ms=outcomes.answered_ms, answer_accuracy=outcomes.accuracy,
        second_opinion=outcomes.second_opinion)
