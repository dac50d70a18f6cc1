"""Batch arrivals: several requests at one instant, and their effect on round robin.

A process with independent increments that is not Poisson has batch arrivals. Let f be the
distribution of the batch size X (the limit of PF(k, h)/P(N(h) >= 1) for short h).

*The start of a busy period.* Let d central arrivals remain until the worker's next request when it
becomes idle. Batches arrive until one of them passes d. With u(a) the probability that some number
of batches adds up to exactly a arrivals, c arrivals of the last batch follow the worker's with
probability  Σ_{a<d} u(a)·f(d + c − a), and the busy period starts with n' = 1 + ⌊c/K⌋ requests at
slack SLO.

*The phase.* The worker's first request of a batch is followed by c arrivals of the same batch with
probability  o(c) ∝ P(c < X <= c + K): its place among the first K of the batch is uniform. The
central arrivals since the head are then c plus those of the time since.

The first is exact, given d. The second takes the place in the batch as it is for the worker's
batches on average, whatever else the state tells of it. For orderly arrivals f(1) = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import ArrivalProcess, is_orderly
from ramsis.errors import InvalidValueError
from ramsis.worker.problem.queue import WorkerQueue

_INSTANT = 1e-9  # mean arrivals of an interval short enough to hold one batch
_NEGLIGIBLE = 1e-15
_LARGEST = 1_000_000


@dataclass(frozen=True, eq=False)
class BusyPeriodStart:
    """The queue with which a busy period starts."""

    queued: IntArray  # the numbers n' of requests that may come at once, shape (L,)
    # shape (K, L): ``distribution[d-1, i]`` = P(queued[i] requests | d central arrivals
    # remained)
    distribution: FloatArray

    def after(self, before: FloatArray) -> FloatArray:
        """Return P(no new request in a service, then queued[i] requests | r), shape (L, K).

        Parameters
        ----------
        before : ndarray, shape (K,)
            P(a central arrivals in the service), a = 0 … K−1.
        """
        workers = len(before)
        return np.array([np.convolve(before, column)[:workers]
                         for column in self.distribution.T])


def batch_size_distribution(process: ArrivalProcess) -> FloatArray:
    """Return P(X = 0, 1, 2, …) of the number of requests per arrival instant."""
    if is_orderly(process):
        return np.array([0.0, 1.0])
    instant = np.array([_INSTANT / process.rate_per_ms])
    some = -np.expm1(process.log_pf(np.array([0]), instant))
    size = 64
    while size <= _LARGEST:
        probability = np.exp(process.log_pf(np.arange(size + 1), instant)) / some
        probability[0] = 0.0
        tail = np.cumsum(probability[::-1])[::-1]
        if tail[size // 2] < _NEGLIGIBLE:
            probability = probability[: int(np.count_nonzero(tail > _NEGLIGIBLE))]
            return np.asarray(probability / probability.sum())
        size *= 2
    raise InvalidValueError("batch arrivals are too large", where="arrivals",
                            allowed=f"batches of at most {_LARGEST} requests")


def arrivals_behind_own(batch_size: FloatArray, workers: int) -> FloatArray:
    """Return o(c), P(c arrivals of a batch behind the worker's first request); sums to 1."""
    beyond = _survival(batch_size)
    padded = np.append(beyond, np.zeros(workers))
    weight = beyond[:-1] - padded[workers : workers + len(beyond) - 1]
    return np.asarray(weight / weight.sum())


def busy_period_start(queue: WorkerQueue) -> BusyPeriodStart:
    """Return the queue with which a busy period starts, by the number of remaining arrivals."""
    batch_size, workers = batch_size_distribution(queue.arrivals), queue.workers
    reach = np.zeros(workers)  # u(a)
    reach[0] = 1.0
    for a in range(1, workers):
        size = min(a, len(batch_size) - 1)
        reach[a] = batch_size[1 : size + 1] @ reach[a - size : a][::-1]
    most = 1 + (len(batch_size) - 2) // workers
    beyond = np.append(_survival(batch_size), np.zeros(most * workers + 1))
    lowest = np.arange(workers)  # d − 1
    columns = []
    for n in range(most):
        start = lowest + n * workers
        end = np.minimum(start + workers, len(beyond) - 1)
        columns.append(np.convolve(reach, beyond[start] - beyond[end])[:workers])
    full = np.maximum(np.array(columns).T, 0.0)
    kept = np.flatnonzero(full.max(axis=0) > _NEGLIGIBLE)
    return BusyPeriodStart(1 + kept, full[:, kept])


def _survival(batch_size: FloatArray) -> FloatArray:
    """Return P(X > y) for y = 0 … the largest batch."""
    return np.append(np.cumsum(batch_size[::-1])[::-1][1:], 0.0)
