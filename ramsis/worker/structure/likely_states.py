"""The likely states of a worker: those where n and the waiting time of the head go together.

n requests are queued T ms after the head came where (n−1)·K to n·K − 1 central arrivals came in T.
A state is likely when that has a probability above 1e-15 for some slack in its bin. Of thousands
of states some hundred are likely. An unlikely one is represented by the likely state of the
nearest n in the same bin.
"""

from __future__ import annotations

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.arrivals.counts import counts_cdf, counts_support
from ramsis.worker.problem.queue import WorkerQueue

_UNLIKELY = 1e-15
_AFTER_DROPS = 1e-10


def likely_states(queue: WorkerQueue) -> BoolArray:
    """Return which states are likely; shape (N+1, D+1).

    Each bin has at least one of n <= N; bin 0 has no upper end of T, and holds the full state.
    """
    waited = queue.slo_ms - queue.slack_ms
    top = counts_support(queue.arrivals, queue.slo_ms)
    cdf = counts_cdf(queue.arrivals, waited, top)
    last = np.arange(1, queue.max_queue + 2) * queue.workers - 1
    upto = np.where(last > top, 1.0, cdf[:, np.minimum(last, top)]).T
    above = 1.0 - np.vstack([np.zeros((1, len(waited))), upto[:-1]])
    shortest_wait = np.append(waited[1:], 0.0)
    at_least = np.where(
        last[:, None] > top, 1.0,
        counts_cdf(queue.arrivals, shortest_wait, top)[:, np.minimum(last, top)].T,
    )
    likely = (above > _UNLIKELY) & (at_least > _UNLIKELY)
    likely[:, 0] = at_least[:, 0] > _UNLIKELY
    likely[0, -1] = True
    likely[-2, ~likely[:-1].any(axis=0)] = True  # so old that more than N are queued
    likely[-1] = False
    likely[-1, 0] = True
    return likely


def likely_after_drops(after_drop: FloatArray) -> BoolArray:
    """Return the states reached by drops from the full one, taken to hold N + 1 requests.

    Parameters
    ----------
    after_drop : ndarray, shape (N+1, D+1, D+1)
        Distribution of the bin after a drop.
    """
    reach = np.zeros(after_drop.shape[:2])
    reach[-1, 0] = 1.0
    for n in range(len(reach) - 1, 0, -1):
        reach[n - 1] = reach[n] @ after_drop[n]
    return reach > _AFTER_DROPS


def representatives(likely: BoolArray) -> IntArray:
    """Return the number of each state's representative likely state; shape (N+1, D+1).

    Gaps between likely n of a bin are filled: ``likely`` is changed in place.
    """
    n = np.arange(len(likely) - 1)
    listed = likely[:-1]
    lowest = np.argmax(listed, axis=0)
    highest = len(n) - 1 - np.argmax(listed[::-1], axis=0)
    listed |= (n[:, None] >= lowest) & (n[:, None] <= highest)
    index = np.cumsum(likely).reshape(likely.shape) - 1
    columns = np.empty(likely.shape, dtype=np.int64)
    columns[:-1] = np.take_along_axis(index[:-1], np.clip(n[:, None], lowest, highest), axis=0)
    columns[-1] = index[-1, 0]
    return columns
