"""Pruning of dominated models from a profile.

Two rules:

- :func:`prune`, lossless: model m is removed if another is at least as accurate and at least as
  fast at *every* batch size, and better somewhere (or equal everywhere and earlier). A policy can
  replace m by the other one without loss.
- :func:`pareto_front`, the rule of Mendoza et al., EuroSys '24, §4: accuracy against the
  latency of a single batch size. A model that is slower at batch 1 but faster at batch 8 is
  lost with it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import whole
from ramsis.profiles.table import LatencyTable


def prune(table: LatencyTable) -> LatencyTable:
    """Return the table without dominated models, by increasing batch-1 latency (lossless rule).

    Of equal batch-1 latencies the more accurate model is first, so that row 0 is
    :attr:`LatencyTable.fastest`.
    """
    return table.select([table.models[i] for i in _front(table, table.latency_ms)])


def pareto_front(table: LatencyTable, batch: int = 1) -> tuple[str, ...]:
    """Return the models on the Pareto front at a batch size, fastest first.

    Raises
    ------
    InvalidValueError
        When ``batch`` is not in 1 … ``table.max_batch``.
    """
    whole(1, table.max_batch).check("batch size out of range", batch=batch)
    front = _front(table, table.latency_ms[:, batch - 1 : batch])
    return tuple(table.models[i] for i in front)


def dominators(
    accuracy: NDArray[np.float64], latency_ms: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return for each model the index of an undominated model that dominates it, or -1.

    Parameters
    ----------
    accuracy : ndarray, shape (M,)
    latency_ms : ndarray, shape (M, B)
        One column per considered batch size.
    """
    count = len(accuracy)
    dominator = np.full(count, -1, dtype=np.int64)
    # In lexicographic order of the columns, a dominating model precedes the dominated one.
    order = np.lexsort((np.arange(count), -accuracy, *latency_ms.T[::-1]))
    kept = np.empty(count, dtype=np.int64)
    size = 0
    columns = np.unique(np.linspace(0, latency_ms.shape[1] - 1, 4).astype(int))
    for model in order.tolist():
        able = kept[:size]
        able = able[accuracy[able] >= accuracy[model]]
        for column in columns:  # most are told apart by few batch sizes
            able = able[latency_ms[able, column] <= latency_ms[model, column]]
        for other in able.tolist():
            if (latency_ms[other] <= latency_ms[model]).all():
                dominator[model] = other
                break
        else:
            kept[size] = model
            size += 1
    return dominator


def _front(table: LatencyTable, latency_ms: NDArray[np.float64]) -> list[int]:
    undominated = np.flatnonzero(dominators(table.accuracy, latency_ms) < 0)
    order = np.lexsort((-table.accuracy[undominated], latency_ms[undominated, 0]))
    return [int(i) for i in undominated[order]]
