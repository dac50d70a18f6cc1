"""Other work on the machine that measures."""

from __future__ import annotations

import os

MUCH = 0.5
"""Other work, in processors, from which measured latencies are doubtful."""


def foreign_load(own: float) -> float | None:
    """Processors that others keep busy, by the load average of the last minute.

    Parameters
    ----------
    own : float
        Threads of one's own that have run for the last minute.

    Returns
    -------
    float or None
        None where the system does not say.
    """
    try:
        busy = os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
    return max(0.0, busy - own)
