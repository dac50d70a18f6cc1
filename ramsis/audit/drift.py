r"""Drift: service times that shift from the profile, and loads above the highest level.

The test is a CUSUM (Page, Biometrika 1954). Of each observation x take z = (x - μ)/σ, its distance
from the expectation in standard deviations, clipped to ±4 so that no single one decides. Two sums

    S⁺ ← max(0, S⁺ + z - δ/2),      S⁻ ← max(0, S⁻ - z - δ/2)

rise when the mean moves up or down by more than δ/2. An alarm is given when one passes h. For
independent normal z without drift the mean number of observations to a false alarm of one side is,
by Siegmund (Sequential Analysis, 1985, sect. II.6),

    ARL = (exp(δb) - δb - 1) / (δ²/2),      b = h + 1.166,

which :func:`threshold` solves for h; the two sides together halve it. A shift by δ is found after
about h/(δ/2) observations. σ is increased where δ would exceed 1/2, so that an alarm takes tens of
observations, not a few outliers; false alarms are then rarer than stated. Where service is slow
for several batches in a row, observations are correlated, and false alarms more frequent.

*Service times* are observed per batch as the ratio to the mean of that variant and size. The mean
is learned from the first batches after the policies began to serve, unless the policies know means
(`--service distribution`); the deviation is always learned. *Arrivals* are counted by the second
and compared with the highest level's load, on the rising side, as Poisson counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field

from ramsis.errors import check_positive
from ramsis.reprs import dataclass

SERVICE, ARRIVALS = "service times", "arrivals"
_MOST = 4.0  # largest |z|
_OVERSHOOT = 1.166  # of Siegmund's approximation
_LEARNED = 30  # observations from which means and deviations are learned
_LARGEST_SHIFT = 0.5  # largest δ; see the module
# Mean batches and seconds to a false alarm by the formula; in practice they are more frequent, as
# slow periods make observations correlated.
_FALSE_ALARM_EVERY = 1e9
_FALSE_ALARM_EVERY_SECONDS = 1e8


@dataclass(frozen=True)
class DriftAlarm:
    """A detected drift of service times or arrivals."""

    what: str  # ``service times`` or ``arrivals``
    ratio: float  # of recent observations to the expectation
    observations: int  # since the sum was last 0


def threshold(shift: float, every: float) -> float:
    """Return the height h at which one side has a false alarm in ``every`` observations.

    To be detected is a ``shift`` δ > 0, in standard deviations; ``every`` is a mean, > 1.
    """
    low, high = 0.0, 1.0

    def arl(h: float) -> float:
        x = shift * (h + _OVERSHOOT)
        return (math.exp(x) - x - 1.0) / (shift * shift / 2.0)

    while arl(high) < every:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if arl(middle) < every else (low, middle)
    return high


class Cusum:
    """CUSUM of one side, for a shift δ > 0, in standard deviations.

    There is a false alarm in ``every`` observations, see :func:`threshold`.
    """

    __slots__ = ("_half", "_height", "count", "total")

    def __init__(self, shift: float, every: float) -> None:
        check_positive(shift=shift, every=every)
        self._half, self._height = shift / 2.0, threshold(shift, every)
        self.total, self.count = 0.0, 0

    def add(self, z: float) -> bool:
        """Add an observation; return whether the sum has passed its threshold."""
        self.total += min(max(z, -_MOST), _MOST) - self._half
        if self.total <= 0.0:
            self.total, self.count = 0.0, 0
            return False
        self.count += 1
        return self.total > self._height

    def clear(self) -> None:
        """Reset the cumulative sum, so that a further alarm needs new evidence."""
        self.total, self.count = 0.0, 0


class _Learned:
    """Mean and variance of the first observations, updated one by one (Welford)."""

    __slots__ = ("count", "mean", "squares")

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, x: float) -> None:
        self.count += 1
        step = x - self.mean
        self.mean += step / self.count
        self.squares += step * (x - self.mean)

    @property
    def deviation(self) -> float:
        return math.sqrt(self.squares / max(self.count - 1, 1))


@dataclass
class ServiceDrift:
    """Monitor of service times against their expectation."""

    # mean of a batch by variant and size, None where the policies do not know it
    expected_ms: Callable[[str, int], float | None]
    ratio: float = 1.2  # shift to be detected, as a multiple of the mean, > 1
    every: float = _FALSE_ALARM_EVERY  # batches to a false alarm
    _learned: dict[tuple[str, int], _Learned] = field(default_factory=dict)
    _sides: tuple[Cusum, Cusum] | None = None
    _spread: _Learned = field(default_factory=_Learned)
    _deviation: float = math.nan  # of the ratios, once it is learned
    _recent: float = 1.0

    def add(self, variant: str, run_as: int, service_ms: float) -> DriftAlarm | None:
        """Add the time of a batch; return an alarm, after which monitoring restarts, or None."""
        expected_ms = self.expected_ms(variant, run_as)
        if expected_ms is None:
            learned = self._learned.setdefault((variant, run_as), _Learned())
            if learned.count < _LEARNED:
                learned.add(service_ms)
                return None
            expected_ms = learned.mean
        return self._observe(service_ms / expected_ms)

    def _observe(self, x: float) -> DriftAlarm | None:
        """Add a ratio of measured to expected time to both CUSUMs; return an alarm, if any."""
        if self._spread.count < _LEARNED:
            self._spread.add(min(x, 2.0 * self.ratio))
            return None
        if self._sides is None:
            self._deviation = max(self._spread.deviation, (self.ratio - 1.0) / _LARGEST_SHIFT)
            shift = (self.ratio - 1.0) / self._deviation
            self._sides = Cusum(shift, 2.0 * self.every), Cusum(shift, 2.0 * self.every)
        self._recent += 0.05 * (x - self._recent)
        z = (x - 1.0) / self._deviation
        for side, value in zip(self._sides, (z, -z), strict=True):
            if side.add(value):
                alarm = DriftAlarm(SERVICE, self._recent, side.count)
                self.clear()
                return alarm
        return None

    def clear(self) -> None:
        """Restart the test, and learn the mean service times again."""
        self._learned.clear()
        self._sides, self._spread, self._recent = None, _Learned(), 1.0


class ArrivalDrift:
    """Monitor of arrivals by the second against the load of the highest level.

    Parameters
    ----------
    highest_qps
        Load of the highest level, > 0.
    ratio
        Shift to be detected, as a multiple of this load, > 1.
    every
        Seconds to a false alarm at that load.
    """

    def __init__(
        self, highest_qps: float, ratio: float = 1.1, every: float = _FALSE_ALARM_EVERY_SECONDS
    ) -> None:
        check_positive(highest_qps=highest_qps)
        self.highest_qps = highest_qps
        shift_qps = (ratio - 1.0) * highest_qps
        self._deviation = max(math.sqrt(highest_qps), shift_qps / _LARGEST_SHIFT)
        self._side = Cusum(shift_qps / self._deviation, every)
        self._recent = highest_qps

    def add(self, count: int) -> DriftAlarm | None:
        """Add the count of a second; return an alarm, after which the sum restarts, or None."""
        self._recent += 0.2 * (count - self._recent)
        if not self._side.add((count - self.highest_qps) / self._deviation):
            return None
        alarm = DriftAlarm(ARRIVALS, self._recent / self.highest_qps, self._side.count)
        self._side.clear()
        return alarm
