"""The clock of recorded times: its resolution, found from the values, and times within its ticks.

Where a clock has whole seconds, all times are whole multiples of a second after the first, and
requests share their second. Times of a load test at a constant rate lie on a grid as well, but
there the requests do: none of them share a point of it. So both are asked: the greatest common
divisor of the gaps, and whether as many requests share a tick as would of arrivals at random.

Within a tick the order is known and nothing else. A Poisson process puts its requests there as
uniform order statistics, which is what :meth:`Clock.spread` draws, with a fixed seed. Where ticks
hold nearly equal numbers the requests came at a constant rate, and are spread evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ramsis.arrays import FloatArray

_US = 1000.0  # µs in each ms: the finest resolution that is looked for
_LONGEST_MS = 1e15
_LEAST_REQUESTS = 10
_AT_ONCE = 100_000
_USUAL_US = (3_600_000_000, 60_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10)
# A divisor of so few distinct gaps may be a multiple of the tick by chance (2⁻¹⁰ for ten).
_FEW_GAPS = 10
_FEW_SHARED = 0.25  # of what arrivals at random share
_EVEN = 0.3, 1e-3  # index of dispersion, and its probability for a Poisson process
_NAMES = {0.001: "microsecond", 1.0: "millisecond", 1000.0: "second", 60_000.0: "minute",
          3_600_000.0: "hour"}


@dataclass(frozen=True)
class Clock:
    """The clock that recorded times were read from."""

    tick_ms: float  # its resolution
    requests: int
    shared: int  # requests that come after another one in the same tick
    # whether the ticks hold nearly equal numbers of requests, as at a constant rate
    even: bool = False

    @property
    def matters(self) -> bool:
        """Whether more than one request in a hundred shares its tick with one before it."""
        return self.shared > 0.01 * self.requests

    def spread(self, times_ms: FloatArray) -> FloatArray:
        """Return the times with the requests of each clock tick spread over the tick.

        At equal distances where :attr:`even`, else uniformly at random, equal in every call. The
        order of ``times_ms`` is kept.

        Parameters
        ----------
        times_ms : ndarray, shape (n,)
            In any order, each at the beginning of its tick.
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
        spread.sort()  # ticks do not overlap, so each request stays within its own
        return spread

    def words(self) -> str:
        """Describe the resolution of the times."""
        name = _NAMES.get(self.tick_ms)
        length = f"{self.tick_ms / 1000.0:g} s" if self.tick_ms >= 1000 else f"{self.tick_ms:g} ms"
        what = f"whole {name}s" if name else f"steps of {length}"
        length = f"1 {name}" if name in ("minute", "hour") else length
        how = "spread evenly within" if self.even else "spread within"
        return (f"timestamps have {what}: {self.requests} requests {how} their {name or 'step'}; "
                f"bursts shorter than {length} cannot be seen")


def clock_of(times_ms: FloatArray) -> Clock | None:
    """Return the clock of recorded times; None where they show none coarser than 1 µs.

    Parameters
    ----------
    times_ms : ndarray, shape (n,)
        In any order, finite; from any origin that is a tick.
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
