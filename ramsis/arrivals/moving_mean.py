"""Whether a trace has bursts, or a mean that moves, and at which loads it wants policies.

Counts of windows of about ten arrivals vary for both reasons. Their mean over stretches of about
400 arrivals is taken off; what is left has the dispersion of the bursts alone, 1 for a Poisson
process. The mean itself moves where the counts of neighbouring stretches are alike: bursts are
shorter than a stretch, so they leave these counts without correlation. A trace in the time in
which its mean is steady shows its process without the motion.

Loads of policies are 8 % apart: on the fronts of the shipped profile sets accuracy falls by at
most 0.124 for each factor e of the load, so the next level up costs at most 1 % of accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray

LEVEL_STEP = 0.08
"""Relative distance of load levels, for 1 % of accuracy."""
_PER_WINDOW, _WINDOWS = 10, 41  # arrivals in a window, windows in a stretch
_LEAST_STRETCHES = 12
_ALIKE = 0.3
_BURSTS = 1.2
_LOWEST = 0.02  # of the peak


@dataclass(frozen=True, eq=False)
class MovingMean:
    """Split of the variation of a trace into a moving mean and bursts."""

    # window_ms, stretch_ms: of the counts, and of the mean that is taken off
    window_ms: float
    stretch_ms: float
    # dispersion, dispersion_about_mean: variance over mean of the counts; the same about the
    # moving mean
    dispersion: float
    dispersion_about_mean: float
    correlation: float  # of the counts of neighbouring stretches
    rate_qps: FloatArray  # the mean over each stretch
    moves: bool
    bursts: bool
    # the arrivals in the time in which the mean is steady; as they came where it is
    steady_ms: FloatArray

    @property
    def levels_qps(self) -> tuple[float, ...]:
        """Loads for policies, rising to the highest mean; the mean of all where it is steady."""
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
        Arrival times, rising or equal.
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
    left = float((about**2).mean() / counts.mean() / (1.0 - 1.0 / _WINDOWS))
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
    # Bursts make counts of a stretch uncertain: so many together are as certain as without them.
    joined = max(1, min(math.ceil(left), len(stretches) // _LEAST_STRETCHES))
    # All windows are in one of them, so that no load at the end is left out.
    together = np.array_split(counts, len(stretches) // joined)
    rate_qps = np.array([part.mean() for part in together]) / window * 1000.0
    return MovingMean(
        window, float(times[-1]) / len(together), float(counts.var() / counts.mean()), left, alike,
        rate_qps, moves,
        left > max(_BURSTS, 1.0 + 4.0 * math.sqrt(2.0 / windows)), steady)
