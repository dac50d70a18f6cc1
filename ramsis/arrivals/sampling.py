"""Drawing arrival times."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError, describe

__all__ = ["poisson_instants"]


def poisson_instants(
    rate_per_ms: float, duration_ms: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Instants of a Poisson process within [0, duration_ms), rising.

    Raises
    ------
    InvalidValueError
        When the duration is not a finite number >= 0.
    """
    if not (math.isfinite(duration_ms) and duration_ms >= 0):
        raise InvalidValueError(
            describe("not a duration", where="duration_ms", value=duration_ms,
                     allowed="a finite number >= 0")
        )
    count = rng.poisson(rate_per_ms * duration_ms)
    return np.sort(rng.uniform(0.0, duration_ms, size=count))
