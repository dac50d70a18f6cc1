"""Deterministic arrival process with equal gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.process import ShippedProcess
from ramsis.arrivals.sampling import check_sample


@dataclass(frozen=True)
class FixedRate(ShippedProcess):
    """Deterministic arrivals: one request every 1000 / load_qps ms, the first at 0.

    >>> FixedRate(load_qps=400.0).sample(10.0, np.random.default_rng()).tolist()
    [0.0, 2.5, 5.0, 7.5]
    """

    name: ClassVar[str] = "fixed-rate"
    why_no_counts: ClassVar[str] = "the counts of disjoint intervals are not independent"

    load_qps: float

    @property
    def gap_cv(self) -> float:
        """Coefficient of variation of the gaps: 0, as they are equal."""
        return 0.0

    def sample(self, duration_ms: float, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return sorted arrival times in ms within ``duration_ms``; ``rng`` is not used."""
        check_sample(self.rate_per_ms, duration_ms)
        gap_ms = 1000.0 / self.load_qps
        times: NDArray[np.float64] = (
            np.arange(float(math.ceil(duration_ms / gap_ms))) * gap_ms)
        return times[times < duration_ms]
