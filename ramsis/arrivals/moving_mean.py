"""Separation of bursts from a moving mean in a trace, and the policy loads that cover it.

Both make counts of windows of about ten arrivals vary. Subtracting their mean over stretches of
about 400 arrivals leaves the index of dispersion of the bursts, 1 for a Poisson process. The mean
moves if the counts of neighbouring stretches are correlated: bursts are shorter than a stretch, so
they cause no such correlation. Rescaling time to a constant mean gives the trace without its
motion.

Load levels of policies are 8 % apart: on the Pareto fronts of the shipped profile sets accuracy
falls by at most 0.124 per factor e of the load, so the next level costs at most 1 % of accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray

LEVEL_STEP = 0.08
"""Relative distance of load levels; the next level costs at most 1 % of accuracy."""
_PER_WINDOW, _WINDOWS = 10, 41  # arrivals in a window, windows in a stretch
_LEAST_STRETCHES = 12
_ALIKE = 0.3  # correlation of neighbouring stretches above which the mean moves
_BURSTS = 1.2  # dispersion about the moving mean above which there are bursts
_LOWEST = 0.02  # lowest load level, as a share of the peak


@dataclass(frozen=True, eq=False)
class MovingMean:
    """Split of the variation of a trace into a moving mean and bursts."""

    window_ms: float  # length of the windows in which arrivals are counted
    stretch_ms: float  # length of the stretches of ``rate_qps``
    dispersion: float  # variance over mean of the counts
    dispersion_about_mean: float  # the same for deviations from the moving mean
    correlation: float  # of the counts of neighbouring stretches
    rate_qps: FloatArray  # mean load of each stretch
    moves: bool  # whether the mean load changes
    bursts: bool  # whether arrivals are burstier than Poisson about the moving mean
    # arrival times, rescaled to a constant mean load if the mean moves
    steady_ms: FloatArray

    @property
    def levels_qps(self) -> tuple[float, ...]:
        """Load levels for policies, up to the highest mean; the mean load if it is constant."""
        if not self.moves:
            return (1000.0 * (len(self.steady_ms) - 1) / float(self.steady_ms[-1]),)
        peak = float(self.rate_qps.max())
        low = max(float(self.rate_qps.min()), _LOWEST * peak)
        steps = math.ceil(math.log(peak / low) / math.log1p(LEVEL_STEP) - 1e-9)
        return tuple(peak / (1.0 + LEVEL_STEP) ** i for i in range(steps, -1, -1))


def moving_mean(times_ms: FloatArray) -> MovingMean | None:
    """Estimate the moving mean of a trace; None below about 5,000 arrivals.

    Parameters
    ----------
    times_ms : ndarray
        Arrival times, non-decreasing.
    """
    times = np.asarray(times_ms, dtype=float)
    times = times - times[0] if len(times) else times
    windows = len(times) // _PER_WINDOW
    if windows < _LEAST_STRETCHES * _WINDOWS or times[-1] <= 0.0:
        return None
    window = float(times[-1]) / windows
    counts = np.bincount(np.minimum((times / window).astype(np.int64), windows - 1),
                         minlength=windows).astype(float)
    mean = np.convolve(counts, np.full(_WINDOWS, 1.0 / _WINDOWS), mode="valid")
    half = _WINDOWS // 2
    about = counts[half:-half] - mean
    # The mean contains the count itself, which removes 1 / _WINDOWS of the variance.
    dispersion = float((about**2).mean() / counts.mean() / (1.0 - 1.0 / _WINDOWS))
    stretches = counts[:windows // _WINDOWS * _WINDOWS].reshape(-1, _WINDOWS).sum(axis=1)
    before, after = stretches[:-1], stretches[1:]
    spread = before.std() > 0 and after.std() > 0
    alike = float(np.corrcoef(before, after)[0, 1]) if spread else 0.0
    moves = alike > max(_ALIKE, 3.0 / math.sqrt(len(stretches)))
    steady = times
    if moves:
        rate = np.maximum(np.pad(mean, half, mode="edge"), 1e-3 * counts.mean())
        edges = np.append(0.0, np.cumsum(rate))
        steady = np.interp(times, np.arange(windows + 1) * window, edges * (times[-1] / edges[-1]))
    # Bursts raise the variance of a stretch's mean: as many stretches as the dispersion, joined,
    # have the variance of a Poisson process. The split covers all windows, the last ones too.
    joined = max(1, min(math.ceil(dispersion), len(stretches) // _LEAST_STRETCHES))
    together = np.array_split(counts, len(stretches) // joined)
    rate_qps = np.array([part.mean() for part in together]) / window * 1000.0
    return MovingMean(
        window, float(times[-1]) / len(together), float(counts.var() / counts.mean()), dispersion,
        alike, rate_qps, moves,
        dispersion > max(_BURSTS, 1.0 + 4.0 * math.sqrt(2.0 / windows)), steady)
