"""Preference among equally good policies: early answers, or less work.

Many policies have all but the same effective accuracy: at low loads it matters little whether a
request waits for others before it is served. A preference p charges each request a small cost, at
most ``WEIGHT`` = 0.0002 in units of accuracy:

    early        WEIGHT · min(response time / SLO, 1), a dropped request as if it took the SLO
    less-work    WEIGHT · min(worker time / SLO, 1), the worker time of a batch divided by its size

With E the effective accuracy less the price of violations and C in [0, 1] the mean of the second
factor, the best policy π for E − WEIGHT·C has E(π) >= E* − WEIGHT·(C* − C(π)) >= E* − WEIGHT,
where E* and C* are those of the best policy without a preference. So no more than 0.0002 is given
up, and only where answers become earlier, or work less, in return.
"""

from __future__ import annotations

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.errors import check_known

PREFERENCES = ("early", "less-work")
"""Names of the preferences."""
WEIGHT = 2e-4
"""Most that a preference costs a request, in units of accuracy."""


def check_preference(prefer: str | None) -> None:
    """Refuse an unknown preference; None means no preference."""
    if prefer is not None:
        check_known("unknown preference", prefer, PREFERENCES, "prefer")


def preference_cost(
    prefer: str | None, response_ms: FloatArray, work_ms: FloatArray, slo_ms: float
) -> FloatArray:
    """Cost of a request in units of accuracy, in [0, WEIGHT]; of the arrays' common shape.

    Parameters
    ----------
    prefer : str or None
        One of :data:`PREFERENCES`; None costs nothing.
    response_ms, work_ms : ndarray
        Response time of the request, and worker time that is spent on it.
    """
    spent_ms = {"early": response_ms, "less-work": work_ms}.get(prefer or "")
    if spent_ms is None:
        return np.zeros(np.broadcast_shapes(response_ms.shape, work_ms.shape))
    whole = np.broadcast_to(spent_ms, np.broadcast_shapes(response_ms.shape, work_ms.shape))
    return WEIGHT * np.clip(whole / slo_ms, 0.0, 1.0)
