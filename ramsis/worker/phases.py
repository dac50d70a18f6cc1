"""The round-robin phase: how many central arrivals are still missing to the worker's next one.

The earliest of n queued requests came T_A = SLO − T_j ago. Since then k central arrivals came,
(n−1)·K <= k <= n·K − 1, with weights PF(k, T_A) scaled to sum to 1; the phase is k mod K, and
the worker's next request is the r-th central arrival from now, r = K − (k mod K). Where every
weight is 0, as for T_A = 0 and n > 1, the limit holds: phase 0, r = K.

Where requests come in clumps, those that came with the earliest one count as well: the weights
are Σ_c o(c)·PF(k − c, T_A), with o as in :mod:`ramsis.worker.batch_arrivals`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals import is_orderly
from ramsis.worker.batch_arrivals import clump_law, own_overshoot
from ramsis.worker.problem import WorkerProblem

__all__ = ["missing_arrivals", "scaled_phases"]

FloatArray = NDArray[np.float64]


def missing_arrivals(problem: WorkerProblem) -> FloatArray:
    """P(the worker's next request is the r-th central arrival | n, j).

    Returns
    -------
    ndarray, shape (N+1, D+1, K)
        Entry ``[n-1, j, r-1]``; each row sums to 1. The last n stands for the full state.
    """
    workers, rows = problem.workers, problem.max_queue + 1
    waited_ms = problem.slo_ms - problem.slack_ms
    if not is_orderly(problem.arrivals):
        return _with_clumps(problem, waited_ms)
    weights = np.empty((rows, len(waited_ms), workers))
    for n in range(rows):
        phase = np.arange(n * workers, (n + 1) * workers)
        log_weight = problem.arrivals.log_pf(phase, waited_ms[:, None])
        peak = log_weight.max(axis=1, keepdims=True)
        log_weight -= np.where(np.isneginf(peak), 0.0, peak)
        weights[n] = scaled_phases(np.exp(log_weight))
    return weights


def scaled_phases(weight: FloatArray) -> FloatArray:
    """Weights of the phases 0 … K−1 (last axis) as laws of r = 1 … K; phase 0 where all are 0."""
    weight[weight.sum(axis=-1) == 0.0, 0] = 1.0
    scaled: FloatArray = weight / weight.sum(axis=-1, keepdims=True)
    return scaled[..., ::-1]


def _with_clumps(problem: WorkerProblem, waited_ms: FloatArray) -> FloatArray:
    workers, rows = problem.workers, problem.max_queue + 1
    behind = own_overshoot(clump_law(problem.arrivals), workers)
    count = np.arange(rows * workers)
    weights = np.empty((rows, len(waited_ms), workers))
    for j, waited in enumerate(waited_ms.tolist()):
        law = np.exp(problem.arrivals.log_pf(count, np.array([waited])))
        together = np.convolve(law, behind)[: len(count)]
        weights[:, j] = scaled_phases(together.reshape(rows, workers))
    return weights
