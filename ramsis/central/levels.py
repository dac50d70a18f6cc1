"""Queue and idle levels of a central queue's table, and the batches worth starting."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.cluster.service_times import ServiceTimes

STEPS = 60
"""Number of slack bins where service times are drawn."""

_FINEST = 256  # distinct latencies as slack bins are no closer than SLO / this


def queue_levels(largest_batch: int, arrivals_within_slo: float) -> IntArray:
    """Return the queue lengths that the table distinguishes, from 0.

    >>> queue_levels(3, 20.0)[-4:].tolist()
    [22, 29, 38, 50]
    """
    top = max(2 * largest_batch, arrivals_within_slo + 6.0 * math.sqrt(arrivals_within_slo))
    levels = [0]
    while levels[-1] < top:
        last = levels[-1]
        levels.append(last + (1 if last < 2 * largest_batch else last // largest_batch))
    return np.array(levels)


def idle_levels(workers: int) -> IntArray:
    """Return the numbers of idle workers that the table distinguishes, from 0 to all.

    >>> idle_levels(4).tolist()
    [0, 1, 2, 3, 4]
    >>> len(idle_levels(10_000))
    86
    """
    root = math.sqrt(workers)
    levels = [0]
    while levels[-1] < workers:
        last = levels[-1]
        step = last / 8 if last > 8 * root else min(last / 8, root / 4)
        levels.append(min(last + max(1, int(step)), workers))
    return np.array(levels)


def worthwhile_batches(times: ServiceTimes, slo_ms: float) -> tuple[IntArray, IntArray]:
    """Return the models and sizes of undominated batches that can be in time, fastest first.

    A batch is dominated if a model that is no less accurate takes no longer at that size, or for
    as many requests in smaller batches, one after the other on the same worker.

    Returns
    -------
    (A,) model indices, (A,) batch sizes
    """
    model, column = np.nonzero(times.quantiles_ms[:, :, 0] <= slo_ms)
    order = np.lexsort((column, -times.accuracy[model], times.mean_ms[model, column]))
    kept: list[tuple[int, int]] = []
    for m, c in zip(model[order].tolist(), column[order].tolist(), strict=True):
        own_ms = times.quantiles_ms[m, c]
        beaten = any(other_c <= c and times.accuracy[other] >= times.accuracy[m]
                     and (-(-(c + 1) // (other_c + 1)) * times.quantiles_ms[other, other_c]
                          <= own_ms).all() for other, other_c in kept)
        if not beaten:
            kept.append((m, c))
    chosen = np.array(kept, dtype=np.int64).reshape(-1, 2)
    return chosen[:, 0].copy(), chosen[:, 1] + 1


def latency_grid(latency_ms: FloatArray, slo_ms: float) -> FloatArray:
    """Return 0 and the distinct latencies; of those closer than SLO/256 the largest."""
    grid: list[float] = []
    for value in np.unique(latency_ms)[::-1].tolist():
        if not grid or grid[-1] - value >= slo_ms / _FINEST:
            grid.append(value)
    return np.array([0.0, *grid[::-1]])


def refined_grid(grid: FloatArray, slo_ms: float) -> FloatArray:
    """Refine a grid with equal steps between its values, none wider than SLO/60."""
    edges = np.append(grid, slo_ms)
    parts = [np.linspace(low, high, max(1, math.ceil((high - low) * STEPS / slo_ms)) + 1)[:-1]
             for low, high in pairwise(edges.tolist())]
    return np.concatenate(parts)
