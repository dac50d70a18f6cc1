"""Cells for requests with a size: two back ends, their sizes and loads.

- ``cpu``: a small encoder on one core, fitted to measured times: 2.2 ms + 0.268 ms for each token
  of count x longest, more beyond 64 tokens as attention grows; 300 ms, up to 256 tokens.
- ``gpu``: 6 ms, and 1 ms for each 400 tokens beyond 1,024; 60 ms, up to 512 tokens. ``flash`` is
  the same without padding.

Sizes are those of short texts: round(X) + 2 with X lognormal (median 9, sigma 1.88), clipped to
3 … the largest size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import norm

from ramsis.arrays import FloatArray
from ramsis.arrivals.sizes import SizeDistribution
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.profiles.sized import Law, SizedTimes
from ramsis.sized import SizedProblem

MAX_BATCH = 64
_MEDIAN, _SIGMA, _ADDED, _LEAST = 9.0, 1.88, 2, 3


def _cpu_ms(count: FloatArray, size: FloatArray) -> FloatArray:
    return 2.2 + 0.268 * count * size * (1.0 + 0.15 * np.maximum(0.0, size - 64.0) / 192.0)


def _gpu_ms(count: FloatArray, size: FloatArray) -> FloatArray:
    return 6.0 + np.maximum(0.0, count * size - 1024.0) / 400.0


@dataclass(frozen=True)
class Cell:
    """A back end with its deadline, and the loads that it is tried at."""

    name: str
    law: Law
    time_ms: Callable[[FloatArray, FloatArray], FloatArray]
    slo_ms: float
    max_size: int
    loads_qps: tuple[float, ...]

    def profile(self) -> ProfileSet:
        """Return the back end as a profile of one model, exact at every count and size."""
        counts, sizes = np.arange(1.0, MAX_BATCH + 1), np.arange(1.0, self.max_size + 1)
        times = self.time_ms(counts[:, None], sizes[None, :])
        sized = SizedTimes.of(times, counts.astype(int).tolist(), sizes.astype(int).tolist(),
                              law=self.law, unit="tokens")
        batches = tuple(BatchProfile(int(b), p95_ms=float(row[-1]))
                        for b, row in zip(counts, times, strict=True))
        return ProfileSet(self.name, (ModelProfile("encoder", 1.0, batches, sized=sized),))

    def sizes(self) -> SizeDistribution:
        """Return the distribution of sizes."""
        return short_texts(self.max_size)

    def problem(
        self, *, sizes: SizeDistribution | None = None, workers: int = 1,
        edges: tuple[int, ...] | None = None, weights: tuple[float, ...] | None = None,
    ) -> SizedProblem:
        """Return the problem of the cell."""
        return SizedProblem.of(_profile(self.name), sizes or self.sizes(), slo_ms=self.slo_ms,
                               workers=workers, max_batch=MAX_BATCH, edges=edges, weights=weights)


CELLS = {cell.name: cell for cell in (
    Cell("cpu", "padded", _cpu_ms, 300.0, 256, (30.0, 60.0, 90.0, 120.0)),
    Cell("gpu", "padded", _gpu_ms, 60.0, 512, (2400.0, 3600.0, 4800.0)),
    Cell("flash", "packed", _gpu_ms, 60.0, 512, (7200.0, 9600.0)),
)}


@lru_cache
def _profile(name: str) -> ProfileSet:
    return CELLS[name].profile()


def short_texts(max_size: int) -> SizeDistribution:
    """Return the exact distribution of round(X) + 2, X lognormal, clipped to 3 … ``max_size``."""
    values = np.arange(_LEAST, max_size + 1)
    upper = norm.cdf(np.log((values - _ADDED + 0.5) / _MEDIAN) / _SIGMA)
    upper[-1] = 1.0
    return SizeDistribution(values, np.diff(upper, prepend=0.0))
