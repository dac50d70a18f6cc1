"""The compiled loop that writes out transitions: first passage and queue in one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.compiling import njit


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def four_intervals(
    before: NDArray[np.float64],
    within: NDArray[np.float64],
    after_cdf: NDArray[np.float64],
    table: NDArray[np.float64],
    excess: NDArray[np.float64],
) -> None:
    """Compute P(first passage in one slack bin, queue at the end of the service) by phase.

    The service is cut where the bin begins and ends: ``a`` central arrivals before it, ``d``
    within, ``k`` after. The worker's next request is the r-th; it falls in the bin when
    a < r <= a + d, and then n' = 1 + floor((a + d + k - r) / K).

    Parameters
    ----------
    before : (K,)
        PF(a, length before the bin).
    within : (M,)
        PF(d, length within the bin).
    after_cdf : (C,)
        P(at most k arrivals after the bin); the last entry counts as 1.
    table : (K, N+1)
        Added to: ``table[r-1, n'-1]``, all n' > N in the last column.
    excess : (K,)
        Added to: E[(n' - N - 1)+; first passage in the bin].
    """
    workers, rows = table.shape
    for total in range(1, workers + within.size):
        joint = 0.0  # P(a < r, a + d = total), growing with r
        for r in range(1, min(workers, total) + 1):
            if total - r + 1 < within.size:
                joint += before[r - 1] * within[total - r + 1]
            if joint < 1e-18:
                continue
            queued, below = 1, 0.0
            while below < 1.0:
                last = queued * workers - 1 - (total - r)
                upto = 0.0
                if last >= after_cdf.size - 1:
                    upto = 1.0
                elif last >= 0:
                    upto = after_cdf[last]
                share = joint * (upto - below)
                table[r - 1, min(queued, rows) - 1] += share
                if queued > rows:
                    excess[r - 1] += share * (queued - rows)
                below = upto
                queued += 1
