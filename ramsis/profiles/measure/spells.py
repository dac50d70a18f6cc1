"""Slow spells in measured latencies: frequency, factor and length of slow phases of a machine.

Every run of a batch is divided by the median of its model and batch size. A ratio above
:data:`SLOW` is a slow run; consecutive slow runs are a spell. Then

    share       time of the slow runs over time of all;
    factor      mean of the slow runs' ratios;
    length_ms   time of the slow runs over number of spells.

The autocorrelation of the ratios, from one run to the next, says whether slow runs come together
at all: it is near 0 where they are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLOW = 1.5
"""A run is slow that takes so many times the median, or more."""

_FEWEST = 20  # runs


def spells_of(
    keys: Sequence[tuple[str, int]], latency_ms: Sequence[float]
) -> dict[str, Any] | None:
    """Compute the statistics of slow spells for a profile's ``measurement``; None if too few runs.

    Parameters
    ----------
    keys : sequence of (str, int)
        Model and batch size of each run, in the order of time.
    """
    if len(keys) < _FEWEST:
        return None
    times = np.asarray(latency_ms, dtype=float)
    ratio = np.empty(len(times))
    _, own = np.unique([f"{name}/{batch}" for name, batch in keys], return_inverse=True)
    for key in range(int(own.max()) + 1):
        ratio[own == key] = times[own == key] / np.median(times[own == key])
    slow = ratio >= SLOW
    found: dict[str, Any] = {"autocorrelation": round(_autocorrelation(ratio), 4)}
    if slow.any() and not slow.all():
        spells = int(np.count_nonzero(slow & ~np.append(False, slow[:-1])))
        busy_ms = float(times[slow].sum())
        found |= {
            "share": round(busy_ms / float(times.sum()), 6),
            "factor": round(float(ratio[slow].mean()), 4),
            "length_ms": round(busy_ms / spells, 4),
        }
    return found


def _autocorrelation(values: NDArray[np.float64]) -> float:
    """Return the autocorrelation of a series at lag 1."""
    away = values - values.mean()
    total = float(away @ away)
    return float(away[1:] @ away[:-1]) / total if total > 0 else 0.0
