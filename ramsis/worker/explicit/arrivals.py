"""Arrivals at a worker during a service, for problems whose transitions are written out.

The worker's next request is the r-th central arrival of K workers in turn. Used where requests are
dropped that are overdue at the end of a service (:mod:`ramsis.worker.explicit.rows`).
"""

from __future__ import annotations

import numpy as np

from ramsis.arrays import FloatArray


def at_least(upto: FloatArray, workers: int, top: int) -> FloatArray:
    """Return P(n >= 1 … N requests at the worker | r) and E[(n − N)⁺]; shape (…, K, N+1).

    Parameters
    ----------
    upto : ndarray, shape (…, A)
        P(at most 0, 1, … central arrivals); A and more do not come.
    workers, top : int
        K and N.
    """
    size = upto.shape[-1]
    most = max(top + 1, size // workers + 2)
    wanted = np.arange(1, workers + 1)[:, None] + workers * np.arange(most)
    tail = np.where(wanted <= size, 1.0 - upto[..., np.minimum(wanted, size) - 1], 0.0)
    return np.concatenate([tail[..., :top], tail[..., top:].sum(axis=-1, keepdims=True)], axis=-1)


def phase_moved(arrivals: FloatArray, workers: int) -> FloatArray:
    """Return P(r' after some arrivals | r before), shape (…, K, K).

    Parameters
    ----------
    arrivals : ndarray, shape (…, A)
        Probability of 0, 1, … central arrivals.
    workers : int
        K.
    """
    arrived, r = np.arange(arrivals.shape[-1]), np.arange(1, workers + 1)[:, None]
    after = r - arrived + (arrived + workers - r) // workers * workers
    return np.stack([arrivals @ np.eye(workers)[worker - 1] for worker in after], axis=-2)
