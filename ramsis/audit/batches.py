"""The batches of a request log: requests that ran together, and the time of each batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.audit.request_log import RequestLog
from ramsis.errors import InputFileError

_TOUCHING_S = 1e-3  # batches of a worker may overlap so far: answers are sent after a run


@dataclass(frozen=True, eq=False)
class LoggedBatches:
    """Batches with known times; arrays of shape (b,)."""

    of: IntArray  # shape (n,): the batch of each request of the log; -1 where unknown
    model: IntArray  # index of the model
    size: IntArray  # its requests
    start_s: FloatArray
    finish_s: FloatArray
    # time of its worker; where a worker's batches overlap, as answers are sent after a run,
    # the earlier one has the common time
    busy_ms: FloatArray


def batches_of(log: RequestLog, model: IntArray, workers: int, where: str) -> LoggedBatches:
    """Return the batches of a log.

    Requests ran together where worker, model, start and finish are the same. Where the log does
    not name workers, as many batches of the stated size are assumed as these requests make.

    Parameters
    ----------
    model : ndarray of int, shape (n,)
        Index of the model of each request; -1 for none.
    where : str
        Name of the log in messages.
    """
    timed = np.flatnonzero(log.answered & np.isfinite(log.start_s) & np.isfinite(log.finish_s))
    beyond = log.worker[timed] >= workers
    if beyond.any():
        raise InputFileError("more workers than stated", where=f"{where}: worker",
                             value=int(log.worker[timed].max()),
                             allowed=f"0 to {workers - 1}, by --workers {workers}")
    keys = np.stack([log.worker[timed].astype(float), model[timed].astype(float),
                     log.start_s[timed], log.finish_s[timed]])
    groups, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    together = np.bincount(group, minlength=groups.shape[1])
    stated = np.zeros(groups.shape[1], dtype=np.int64)
    np.maximum.at(stated, group, log.batch[timed])
    worker, kind, start_s, finish_s = groups
    named = worker >= 0
    copies = np.where(named | (stated == 0), 1, -(-together // np.maximum(stated, 1)))
    of = np.full(len(log), -1)
    first = np.cumsum(copies) - copies
    # Requests are spread evenly, so that the sizes of assumed batches differ by one at most.
    of[timed] = first[group] + _place(group) * copies[group] // together[group]
    group_of = np.repeat(np.arange(len(copies)), copies)
    size = np.bincount(of[timed], minlength=len(group_of))
    _check_workers(start_s[group_of], finish_s[group_of], workers, where)
    busy = _busy_ms(worker[group_of], start_s[group_of], finish_s[group_of])
    return LoggedBatches(of, kind[group_of].astype(np.int64), size, start_s[group_of],
                         finish_s[group_of], busy)


def _place(group: IntArray) -> IntArray:
    """Return the rank of each entry within its group, from 0."""
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group)
    place = np.empty(len(group), dtype=np.int64)
    place[order] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place


def _busy_ms(worker: FloatArray, start_s: FloatArray, finish_s: FloatArray) -> FloatArray:
    """Return the worker time of each batch; overlapping time counts once."""
    busy = finish_s - start_s
    for number in np.unique(worker[worker >= 0]):
        own_batches = np.flatnonzero(worker == number)
        order = own_batches[np.argsort(start_s[own_batches], kind="stable")]
        before = np.maximum.accumulate(np.concatenate([[-np.inf], finish_s[order][:-1]]))
        busy[order] = np.maximum(finish_s[order] - np.maximum(start_s[order], before), 0.0)
    return np.asarray(1000.0 * busy)


def _check_workers(start_s: FloatArray, finish_s: FloatArray, workers: int, where: str) -> None:
    """Refuse more batches at one time than there are workers."""
    ends = np.maximum(finish_s - _TOUCHING_S, start_s)
    at = np.concatenate([start_s, ends])
    change = np.concatenate([np.ones(len(ends)), -np.ones(len(ends))])
    order = np.lexsort((change, at))  # at one instant batches end before others start
    running = np.cumsum(change[order])
    if len(running) and running.max() > workers:
        place = order[int(np.argmax(running > workers))]
        raise InputFileError("more batches at once than workers",
                             where=f"{where}: {at[place]:.6f} s", value=int(running.max()),
                             allowed=f"at most {workers}, by --workers")
