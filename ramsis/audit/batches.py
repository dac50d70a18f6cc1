"""The batches of a request log, with the time of each, and the causes of its violations.

The cause of a violation is the first of these that applies to the request, so shares add up:

- *failed*: the answer was an error.
- *overload*: so many requests arrived shortly before that no scheduler could have answered all of
  them in time. With c the least worker time of an answer, K workers answer at most K·(τ + SLO)/c
  of the requests that arrive within τ ms. It is overload if more requests arrived in the last τ ms
  up to this one, for some τ.
- *service*: the batch took longer than the profile's 95th percentile, with which the request would
  have been in time.
- *batching*: when the batch started, the fastest model could still have answered this request
  alone in time: the batch or the model was too large.
- *given up*: the request was dropped while the fastest model could still have answered it in time.
- *queueing*: the request had waited too long for even the fastest model to answer in time.
- *unexplained*: the log does not state when the request left the queue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.audit.request_log import RequestLog
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InputFileError

CAUSES = ("failed", "overload", "service", "batching", "given up", "queueing", "unexplained")
_SPANS = 2.0 ** np.arange(-1, 20)  # times before a deadline, in units of the SLO
_TYPICAL = 0.95  # level of the service time above which a batch is slower than profiled

_TOUCHING_S = 1e-3  # overlap allowed between batches of a worker, as answers are sent after a run


@dataclass(frozen=True, eq=False)
class LoggedBatches:
    """Batches of a request log whose start and end are known; arrays of shape (b,)."""

    of: IntArray  # shape (n,): the batch of each request of the log; -1 where unknown
    model: IntArray  # index of the model
    size: IntArray  # number of requests
    start_s: FloatArray
    finish_s: FloatArray
    # worker time of the batch; the overlap of two batches of a worker (answers are sent after a
    # run) counts for the earlier one
    busy_ms: FloatArray


def batches_of(log: RequestLog, model: IntArray, workers: int, where: str) -> LoggedBatches:
    """Return the batches of a log, which messages call ``where``.

    Requests with the same worker, model, start and finish are one batch. If the log does not name
    workers, such requests may be several batches; their number follows from the stated batch size.
    ``model``, shape (n,), is the index of the model of each request, -1 for none.
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


def causes_of(
    log: RequestLog, batches: LoggedBatches, times: ServiceTimes, workers: int
) -> NDArray[np.object_]:
    """Return the cause of each violation, shape (n,); empty for requests in time.

    ``times`` are the service times of the profile.
    """
    typical_ms = times.quantile(_TYPICAL)
    fastest_ms = float(typical_ms[:, 0].min())
    left_s = np.where(log.answered, log.start_s, log.finish_s)
    waited_ms = 1000.0 * (left_s - log.arrival_s)
    planned_ms = np.full(len(log), np.inf)
    has_batch = batches.of >= 0
    planned_ms[has_batch] = typical_ms[batches.model, batches.size - 1][batches.of[has_batch]]
    reachable = waited_ms + fastest_ms <= log.deadline_ms
    late, dropped = log.outcome == "late", log.outcome == "dropped"
    rules = (
        ("failed", log.outcome == "failed"),
        ("overload", overloaded(log, times, workers)),
        ("service", late & (waited_ms + planned_ms <= log.deadline_ms)),
        ("batching", late & reachable),
        ("given up", dropped & reachable),
        ("queueing", np.isfinite(waited_ms)),
        ("unexplained", np.ones(len(log), dtype=bool)),
    )
    names = [name for name, _ in rules]
    first = np.argmax(np.stack([holds for _, holds in rules]), axis=0)
    cause: NDArray[np.object_] = np.array(names, dtype=object)[first]
    cause[log.in_time] = ""
    return cause


def overloaded(log: RequestLog, times: ServiceTimes, workers: int) -> NDArray[np.bool_]:
    """Return for each request whether more arrived shortly before than could be in time."""
    slo_ms = float(log.deadline_ms.max())
    able = times.cdf(slo_ms) > 0
    fastest = np.where(able, times.mean_ms, np.inf) / np.arange(1, times.max_batch + 1)
    arrival_ms = 1000.0 * log.arrival_s
    upto = np.arange(1, len(log) + 1)
    is_overloaded = np.zeros(len(log), dtype=bool)
    for span_ms in slo_ms * _SPANS:
        came = upto - np.searchsorted(arrival_ms, arrival_ms - span_ms)
        is_overloaded |= came > workers * (span_ms + slo_ms) / float(fastest.min())
        if span_ms > arrival_ms[-1] - arrival_ms[0]:
            break
    return is_overloaded
