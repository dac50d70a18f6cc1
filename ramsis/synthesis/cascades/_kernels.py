"""The compiled pass that fills the table of fresh requests of a cascade."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.compiling import njit
from ramsis.runtime.table import SLACK_TOLERANCE_MS


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def fill(
    worth: FloatArray, price: FloatArray, mean_ms: FloatArray, planned_ms: FloatArray,
    least: NDArray[np.int64], slack_ms: tuple[float, float], chosen: NDArray[np.int16],
    sizes: NDArray[np.int16],
) -> None:
    """Write the model and batch for each level, queue and slack.

    They go to ``chosen`` and ``sizes`` (L, N, J): a batch of 0 drops the head, one of -1 waits.
    ``worth`` (L, M) is the accuracy of a request that the model answers first, with what second
    opinions add, ``price`` (L,) that of a ms of worker time. Batches take ``mean_ms`` (M, B) on
    average, and must end after ``planned_ms`` (M, B) within the slack. Those smaller than
    ``least`` (L,) wait while the slack allows. ``slack_ms`` is the width of a slack bin, and the
    slack beyond the next larger batch without which none waits.
    """
    step_ms, spare_ms = slack_ms
    levels, longest, bins = sizes.shape
    models, batches = mean_ms.shape
    best = np.empty((models, batches), dtype=np.int64)  # batch up to each, with its value
    value = np.empty((models, batches))
    fits = np.empty((models, bins), dtype=np.int64)  # largest batch within each slack
    for m in range(models):
        for j in range(bins):
            within = 0
            while within < batches and (planned_ms[m, within]
                                        <= j * step_ms + SLACK_TOLERANCE_MS):
                within += 1
            fits[m, j] = within
    # For each queue the best model, batch and value.
    model, size = np.empty(longest, dtype=np.int16), np.empty(longest, dtype=np.int16)
    most = np.empty(longest)
    for level in range(levels):
        for m in range(models):
            for b in range(batches):
                value[m, b] = (b + 1) * worth[level, m] - price[level] * mean_ms[m, b]
                best[m, b] = b
                if b > 0 and value[m, b] < value[m, b - 1]:
                    value[m, b], best[m, b] = value[m, b - 1], best[m, b - 1]
        model[:], size[:], most[:] = 0, 0, -np.inf
        for j in range(bins):
            for m in range(models):
                before = fits[m, j - 1] if j > 0 else 0
                # More slack adds batches, and shorter queues have no use for them.
                for row in range(before, longest if fits[m, j] > before else 0):
                    b = min(fits[m, j] - 1, row)
                    if value[m, b] > most[row]:
                        model[row], most[row], size[row] = m, value[m, b], best[m, b] + 1
            for row in range(longest):
                chosen[level, row, j] = model[row]
                sizes[level, row, j] = size[row]
            for row in range(min(least[level] - 1, longest)):
                if 0 < size[row] <= row + 1 and (
                        j * step_ms - planned_ms[model[row], min(size[row], batches - 1)]
                        > spare_ms):
                    sizes[level, row, j] = -1
