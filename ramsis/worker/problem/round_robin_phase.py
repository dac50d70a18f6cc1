"""The round-robin phase: how many central arrivals remain until the worker's next request.

The head of n queued requests came T_A = SLO − T_j ago. Since then k central arrivals came, with
(n−1)·K <= k <= n·K − 1, and given n and j their number has the distribution PF(k, T_A) scaled to
add up to 1. The phase is k mod K. The worker's next request is the r-th central arrival from now,
r = K − (k mod K). Where every weight is 0, as for T_A = 0 and n > 1, the limit is taken: phase 0,
r = K.

With batch arrivals, those that came together with the head count as well: the weights are
Σ_c o(c)·PF(k − c, T_A), with o(c) as in :mod:`ramsis.worker.problem.batch_arrivals`.
"""

from __future__ import annotations

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals import is_orderly
from ramsis.arrivals.process import poisson_rate
from ramsis.worker.problem.batch_arrivals import arrivals_behind_own, batch_size_distribution
from ramsis.worker.problem.queue import WorkerQueue


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
    workers, lengths = queue.workers, queue.max_queue + 1
    together = arrivals_behind_own(batch_size_distribution(queue.arrivals), workers)
    count = np.arange(lengths * workers)
    weights = np.empty((lengths, len(waited_ms), workers))
    for j, waited in enumerate(waited_ms.tolist()):
        since = np.exp(queue.arrivals.log_pf(count, np.array([waited])))
        total = np.convolve(since, together)[: len(count)]
        weights[:, j] = _normalised(total.reshape(lengths, workers))
    return weights
