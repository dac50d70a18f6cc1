"""Slack grids: the values T_0 = 0 < T_1 < … <= SLO that a slack is rounded down to (§4.1).

The fixed-length grid is SLO·i/D; the model-based grid holds 0, the SLO, and every distinct
profiled latency up to the SLO, so that no rounding crosses a latency.
"""

from __future__ import annotations

import re

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.errors import InvalidValueError, check_positive
from ramsis.profiles import LatencyTable

DEFAULT_GRID = "fixed:100"
MAX_DIVISIONS = 100_000
"""Most steps of a fixed-length grid."""
_ALLOWED = f"fixed:D with a whole number D from 1 to {MAX_DIVISIONS}, or model"


def fixed_grid(slo_ms: float, divisions: int) -> FloatArray:
    """Return SLO·i/D for i = 0 … D, in ms.

    >>> fixed_grid(150.0, 3).tolist()
    [0.0, 50.0, 100.0, 150.0]
    """
    _check_divisions(divisions)
    grid = slo_ms * np.arange(divisions + 1) / divisions
    grid[-1] = slo_ms  # which rounding may miss
    return grid


def model_grid(slo_ms: float, latency: LatencyTable, max_batch: int) -> FloatArray:
    """Return 0, the SLO, and every distinct latency l(m, b) <= SLO with b <= max_batch, in ms."""
    values = latency.latency_ms[:, :max_batch]
    within = values[values <= slo_ms]
    return np.unique(np.concatenate([[0.0, slo_ms], within]))


def slack_grid(text: str, slo_ms: float, latency: LatencyTable, max_batch: int) -> FloatArray:
    """Return the grid for ``--grid TEXT``: ``fixed:100`` or ``model``."""
    check_positive("SLO is not positive", slo_ms=slo_ms)
    divisions = parse_grid(text)
    if divisions is None:
        return model_grid(slo_ms, latency, max_batch)
    return fixed_grid(slo_ms, divisions)


def parse_grid(text: str) -> int | None:
    """Return the number of steps D in ``fixed:D``, 100 for ``fixed``; None for ``model``."""
    if text == "model":
        return None
    kind, colon, count = text.partition(":")
    if kind != "fixed" or (colon and not re.fullmatch("-?[0-9]{1,100}", count)):
        raise InvalidValueError("unknown slack grid", where="grid", value=text, allowed=_ALLOWED)
    divisions = int(count) if colon else 100
    _check_divisions(divisions)
    return divisions


def _check_divisions(divisions: int) -> None:
    if not 1 <= divisions <= MAX_DIVISIONS:
        raise InvalidValueError("number of slack divisions out of range", where="grid",
                                value=divisions,
                                allowed=f"a whole number D from 1 to {MAX_DIVISIONS}")
