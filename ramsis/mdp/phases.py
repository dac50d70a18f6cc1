"""The round-robin phase: how many central arrivals are still missing to the worker's next one.

The earliest of n queued requests came T_A = SLO − T_j ago. Since then k central arrivals came,
(n−1)·K <= k <= n·K − 1, with weights PF(k, T_A) scaled to sum to 1; the phase is k mod K, and
the worker's next request is the r-th central arrival from now, r = K − (k mod K). Where every
weight is 0, as for T_A = 0 and n > 1, the limit holds: phase 0, r = K.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.mdp.problem import WorkerProblem

__all__ = ["missing_arrivals"]


def missing_arrivals(problem: WorkerProblem) -> NDArray[np.float64]:
    """P(the worker's next request is the r-th central arrival | n, j).

    Returns
    -------
    ndarray, shape (N+1, D+1, K)
        Entry ``[n-1, j, r-1]``; each row sums to 1. The last n stands for the full state.
    """
    workers, rows = problem.workers, problem.max_queue + 1
    waited_ms = problem.slo_ms - problem.slack_ms
    weights = np.empty((rows, len(waited_ms), workers))
    for n in range(rows):
        phase = np.arange(n * workers, (n + 1) * workers)
        log_weight = problem.arrivals.log_pf(phase, waited_ms[:, None])
        peak = log_weight.max(axis=1, keepdims=True)
        impossible = np.isneginf(peak[:, 0])
        log_weight[impossible], peak[impossible] = -np.inf, 0.0
        log_weight[impossible, 0] = 0.0
        weight = np.exp(log_weight - peak)
        weights[n] = (weight / weight.sum(axis=1, keepdims=True))[:, ::-1]
    return weights
