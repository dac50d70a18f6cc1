"""Resolution of the clock of recorded times, and spreading of requests within its ticks.

If a clock has whole seconds, all gaps are multiples of a second, and requests share seconds. Times
of a load test at a constant rate lie on a grid as well, but no requests share a point of it. So
two criteria decide: the greatest common divisor of the gaps, and whether about as many requests
share a tick as random arrivals would.

Within a tick only the order is known. The requests of a Poisson process are uniform order
statistics there, which :meth:`Clock.spread` draws with a fixed seed. If ticks hold nearly equal
numbers of requests, the rate was constant, and requests are spread evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray

_US = 1000.0  # µs per ms; 1 µs is the finest resolution that is tested
_LONGEST_MS = 1e15
_LEAST_REQUESTS = 10
_AT_ONCE = 100_000
_USUAL_US = (3_600_000_000, 60_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10)
# The common divisor of fewer distinct gaps may be a multiple of the tick by chance (2⁻¹⁰ for ten).
_FEW_GAPS = 10
_FEW_SHARED = 0.25  # least number of requests that share ticks, relative to random arrivals
_EVEN = 0.3, 1e-3  # largest index of dispersion, and its largest p-value for a Poisson process
_NAMES = {0.001: "microsecond", 1.0: "millisecond", 1000.0: "second", 60_000.0: "minute",
          3_600_000.0: "hour"}


@dataclass(frozen=True)
class Clock:
    """Clock of recorded times, coarser than 1 µs."""

    tick_ms: float  # resolution
    requests: int
    shared: int  # requests that come after another one in the same tick
    # whether ticks hold nearly equal numbers of requests, as at a constant rate
    even: bool = False

    @property
    def matters(self) -> bool:
        """Whether more than one request in a hundred shares its tick with one before it."""
        return self.shared > 0.01 * self.requests

    def spread(self, times_ms: FloatArray) -> FloatArray:
        """Return the times with the requests of each clock tick spread over the tick.

        They get equal distances if :attr:`even`, else uniform random times with a fixed seed. The
        order of ``times_ms`` is kept.

        Parameters
        ----------
        times_ms : ndarray, shape (n,)
            In any order, each at the start of its tick.
        """
        if not (np.diff(times_ms) >= 0).all():
            order = np.argsort(times_ms, kind="stable")
            spread = np.empty(len(times_ms))
            spread[order] = self.spread(times_ms[order])
            return spread
        if self.even:
            _, first, count = np.unique(times_ms, return_index=True, return_counts=True)
            place = np.arange(len(times_ms)) - np.repeat(first, count)
            return times_ms + self.tick_ms * (place + 0.5) / np.repeat(count, count)
        spread = np.random.default_rng(0).random(len(times_ms))
        spread *= self.tick_ms
        spread += times_ms
        spread.sort()  # ticks do not overlap, so this sorts within each of them
        return spread

    def words(self) -> str:
        """Describe the resolution of the times."""
        name = _NAMES.get(self.tick_ms)
        length = f"{self.tick_ms / 1000.0:g} s" if self.tick_ms >= 1000 else f"{self.tick_ms:g} ms"
        resolution = f"whole {name}s" if name else f"steps of {length}"
        length = f"1 {name}" if name in ("minute", "hour") else length
        how = "spread evenly within" if self.even else "spread within"
        return (f"timestamps have {resolution}: {self.requests} requests {how} their "
                f"{name or 'step'}; bursts shorter than {length} cannot be seen")


def clock_of(times_ms: FloatArray) -> Clock | None:
    """Detect the clock of recorded times; None if none coarser than 1 µs is found.

    Parameters
    ----------
    times_ms : ndarray, shape (n,)
        In any order, finite; times since any tick of the clock.
    """
    if len(times_ms) < _LEAST_REQUESTS:
        return None
    gaps, times = np.diff(times_ms), times_ms
    if not (gaps >= 0).all():
        times = np.sort(times_ms)
        gaps = np.diff(times)
    if not 0.0 < times[-1] - times[0] < _LONGEST_MS:
        return None
    tick_us = _divisor_us(times)
    if int((gaps > 0).sum()) < _FEW_GAPS:
        tick_us = next((usual for usual in _USUAL_US if tick_us % usual == 0), tick_us)
    if tick_us <= 1:
        return None
    tick_ms = tick_us / _US
    shared = int((gaps < 0.5 * tick_ms).sum())
    ticks = float(times[-1] - times[0]) / tick_ms + 1.0
    at_random = len(times) + ticks * math.expm1(-len(times) / ticks)
    if shared == 0 or shared < _FEW_SHARED * at_random:
        return None
    return Clock(tick_ms, len(times), shared, _is_even(times, tick_ms, ticks))


def _divisor_us(times: FloatArray) -> int:
    """Return the greatest common divisor of times since the first, in µs."""
    divisor = 0
    for start in range(0, len(times), _AT_ONCE):
        since = np.rint((times[start:start + _AT_ONCE] - times[0]) * _US).astype(np.int64)
        divisor = math.gcd(divisor, int(np.gcd.reduce(since)))
        if divisor == 1:
            break
    return divisor


def _is_even(times: FloatArray, tick_ms: float, ticks: float) -> bool:
    """Return whether counts in inner ticks vary far less than those of a Poisson process."""
    if ticks > 4 * len(times):
        return False
    tick = np.rint((times - times[0]) / tick_ms).astype(np.int32)
    counts = np.bincount(tick)[1:-1]
    if len(counts) < 3 or counts.mean() < 1.0:
        return False
    from scipy.stats import chi2  # which takes long to load

    dispersion = float(counts.var(ddof=1) / counts.mean())
    return dispersion < _EVEN[0] and bool(
        chi2.cdf(dispersion * (len(counts) - 1), len(counts) - 1) < _EVEN[1])
