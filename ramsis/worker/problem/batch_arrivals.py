"""Batch arrivals: several requests at one instant, and their effect on round robin.

A process with independent increments that is not Poisson has batch arrivals. Let f be the
distribution of the batch size X (the limit of PF(k, h)/P(N(h) >= 1) for short h).

*The start of a busy period.* Let d central arrivals remain until the worker's next request when it
becomes idle. Batches arrive until their arrivals add up to d or more; the d-th is the worker's.
With u(a) the probability that some number of batches adds up to exactly a arrivals, c arrivals of
the last batch follow the worker's with probability  Σ_{a<d} u(a)·f(d + c − a), and the busy period
starts with n' = 1 + ⌊c/K⌋ requests at slack SLO.

*The phase.* The worker's first request of a batch is followed by c arrivals of the same batch with
probability  o(c) ∝ P(c < X <= c + K): its place among the first K of the batch is uniform. The
central arrivals since the head are then c plus those of the time since.

The start of a busy period is exact, given d. The phase uses the mean distribution of the place in
the batch, and ignores what the state tells about this place. For orderly arrivals f(1) = 1.

The head of n queued requests came T_A = SLO − T_j ago. Since then k central arrivals came, with
(n−1)·K <= k <= n·K − 1, and given n and j their number has the distribution PF(k, T_A) scaled to
add up to 1. The phase is k mod K. The worker's next request is the r-th central arrival from now,
r = K − (k mod K). Where every weight is 0, as for T_A = 0 and n > 1, the limit is taken: phase 0,
r = K.

With batch arrivals, the requests that came together with the head count as well: the weights are
Σ_c o(c)·PF(k − c, T_A), with o(c) as above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import ArrivalProcess, is_orderly
from ramsis.arrivals.process import poisson_rate
from ramsis.errors import InvalidValueError
from ramsis.worker.problem.queue import WorkerQueue

_INSTANT = 1e-9  # mean arrivals of an interval short enough to hold one batch
_NEGLIGIBLE = 1e-15
_LARGEST = 1_000_000


@dataclass(frozen=True, eq=False)
class BusyPeriodStart:
    """Distribution of the queue length with which a busy period starts."""

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
    # For n' = n + 1: Σ_a u(a)·P(d − a + n·K <= X < d − a + (n + 1)·K), a convolution over a.
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


def phase_distribution(queue: WorkerQueue) -> FloatArray:
    """Return P(the worker's next request is the r-th central arrival | n, j).

    Returns
    -------
    ndarray, shape (N+1, D+1, K)
        Entry ``[n-1, j, r-1]``; adds up to 1 over r. The last n is the full state.
    """
    workers, lengths = queue.workers, queue.max_queue + 1
    waited_ms = queue.slo_ms - queue.slack_ms
    if not is_orderly(queue.arrivals):
        return _with_batch_arrivals(queue, waited_ms)
    weights = np.empty((lengths, len(waited_ms), workers))
    rate = poisson_rate(queue.arrivals)
    if rate is not None:
        from ramsis.worker.problem._kernels import poisson_phases  # which takes long to load

        poisson_phases(rate * waited_ms, weights)
        return weights
    for n in range(lengths):
        count = np.arange(n * workers, (n + 1) * workers)
        log_weight = queue.arrivals.log_pf(count, waited_ms[:, None])
        peak = log_weight.max(axis=1, keepdims=True)
        log_weight -= np.where(np.isneginf(peak), 0.0, peak)
        weights[n] = _normalised(np.exp(log_weight))
    return weights


def _normalised(weight: FloatArray) -> FloatArray:
    """Return distributions of r = 1 … K from weights of the phases 0 … K−1 (last axis).

    Phase 0 is certain where all weights are 0. The weights are changed in place.
    """
    weight[weight.sum(axis=-1) == 0.0, 0] = 1.0
    scaled: FloatArray = weight / weight.sum(axis=-1, keepdims=True)
    return scaled[..., ::-1]


def _with_batch_arrivals(queue: WorkerQueue, waited_ms: FloatArray) -> FloatArray:
    """Return the phase distribution, (N+1, D+1, K), with arrivals in the head's own batch."""
    workers, lengths = queue.workers, queue.max_queue + 1
    together = arrivals_behind_own(batch_size_distribution(queue.arrivals), workers)
    count = np.arange(lengths * workers)
    weights = np.empty((lengths, len(waited_ms), workers))
    for j, waited in enumerate(waited_ms.tolist()):
        since = np.exp(queue.arrivals.log_pf(count, np.array([waited])))
        total = np.convolve(since, together)[: len(count)]
        weights[:, j] = _normalised(total.reshape(lengths, workers))
    return weights
