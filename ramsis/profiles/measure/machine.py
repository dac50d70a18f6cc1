"""Other work on the machine that measures."""

from __future__ import annotations

import os

MUCH = 0.5
"""Other work, in processors, from which measured latencies are doubtful."""


def foreign_load(own: float) -> float | None:
    """Processors kept busy in the last minute beside ``own`` threads; None where not known."""
    try:
        busy = os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
    return max(0.0, busy - own)
