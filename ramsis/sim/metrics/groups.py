"""Figures of a run by groups of its requests, where their time went, and how fair that is.

The time from a request's arrival to its answer has four stages, which add up to it:

- loading: the time before the start of its batch in which its model was being loaded onto the
  worker that ran it;
- waiting: all other time before that start, preparation on a machine included;
- service: from the start of its batch to the end;
- machine: from there to the answer, on a machine and the network; 0 without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.sim.run import DROPPED, Run

STAGES = ("waiting", "loading", "service", "machine")
"""Of the time to an answer, in the order of :attr:`GroupFigures.stage_ms`."""


@dataclass(frozen=True, eq=False)
class GroupFigures:
    """Outcomes of the requests of G groups; arrays have shape (G,) unless another is stated."""

    # requests, in_time, late, dropped, never_answered: the last four add up to the first
    requests: IntArray
    in_time: IntArray
    late: IntArray
    dropped: IntArray
    never_answered: IntArray
    # shape (4, G): time of each of :data:`STAGES` summed over the answered requests
    stage_ms: FloatArray
    # response_p50_ms, response_p99_ms: of the answered requests; NaN without any
    response_p50_ms: FloatArray
    response_p99_ms: FloatArray


def by_group(run: Run, group: IntArray, groups: int) -> GroupFigures:
    """Count the requests of each group.

    Parameters
    ----------
    group : ndarray of int, shape (n,)
        The group of each request, from 0 to ``groups`` - 1.
    groups : int
        G, groups without requests included.
    """
    def count(chosen: BoolArray) -> IntArray:
        return np.bincount(group[chosen], minlength=groups)

    answered = np.flatnonzero(run.answered)
    group_of = group[answered]
    stages = _stages_ms(run, answered)
    response_ms = run.response_ms[answered]
    order = np.lexsort((response_ms, group_of))
    parts = np.split(response_ms[order], np.cumsum(np.bincount(group_of, minlength=groups))[:-1])
    p50, p99 = (np.array([np.quantile(part, level) if len(part) else np.nan for part in parts])
                for level in (0.5, 0.99))
    requests, in_time = np.bincount(group, minlength=groups), count(run.in_time)
    dropped, late = count(run.batch_of == DROPPED), count(run.answered & ~run.in_time)
    return GroupFigures(
        requests, in_time, late, dropped, requests - in_time - late - dropped,
        np.array([np.bincount(group_of, stage, minlength=groups) for stage in stages]), p50, p99)


def jain_index(shares: Sequence[float] | FloatArray) -> float:
    """Return Jain's fairness index: 1 where all shares are equal, 1 / n where one has all.

    It is (Σ x)² / (n Σ x²) (Jain, Chiu and Hawe, 1984), and 1 where all are 0.

    >>> jain_index([1.0, 0.5])
    0.9
    """
    values = np.asarray(shares, dtype=np.float64)
    squares = float((values ** 2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else 1.0


def _stages_ms(run: Run, answered: IntArray) -> tuple[FloatArray, ...]:
    """Return the time of each stage of the answered requests, one array for each stage."""
    batch = run.batch_of[answered]
    start_ms, finish_ms = run.start_ms[batch], run.finish_ms[batch]
    loading_ms = _loading_ms(run, answered)
    return (start_ms - run.arrival_ms[answered] - loading_ms, loading_ms, finish_ms - start_ms,
            run.answered_ms[answered] - finish_ms)


def _loading_ms(run: Run, answered: IntArray) -> FloatArray:
    """Return how long each answered request waited while its model was being loaded."""
    loading_ms = np.zeros(len(answered))
    if not len(run.load_model):
        return loading_ms
    batch, models = run.batch_of[answered], len(run.models)
    came_ms, start_ms = run.arrival_ms[answered], run.start_ms[batch]
    key = run.worker[batch].astype(np.int64) * models + run.model[batch]
    load_key = run.load_worker.astype(np.int64) * models + run.load_model
    order, loads = np.argsort(key, kind="stable"), np.lexsort((run.load_start_ms, load_key))
    keys, first = np.unique(load_key[loads], return_index=True)
    low, high = (np.atleast_1d(np.searchsorted(key[order], keys, side=side))
                 for side in ("left", "right"))
    for i, loads_of_key in enumerate(np.split(loads, first[1:])):
        requests = order[low[i]:high[i]]
        times = run.load_start_ms[loads_of_key], run.load_end_ms[loads_of_key]
        loading_ms[requests] = (_within_ms(*times, start_ms[requests])
                                - _within_ms(*times, came_ms[requests]))
    return loading_ms


def _within_ms(begin_ms: FloatArray, end_ms: FloatArray, at_ms: FloatArray) -> FloatArray:
    """Return how much of successive intervals has passed at each of some times."""
    upto_ms = np.append(0.0, np.cumsum(end_ms - begin_ms))
    last = np.searchsorted(begin_ms, at_ms, side="right")
    to_come_ms = np.where(last > 0, end_ms[last - 1] - at_ms, 0.0)
    return np.asarray(upto_ms[last] - np.maximum(to_come_ms, 0.0))
