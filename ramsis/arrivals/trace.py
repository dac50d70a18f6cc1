"""Trace workloads: a piecewise constant load, or recorded arrivals.

A varying load is a constant-rate process in rescaled time: with Λ(t) the mean number of arrivals
up to t, arrivals of rate 1 on [0, Λ(T)) are mapped through the inverse of Λ.
"""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.arrivals.process import Sampler, check_amount
from ramsis.arrivals.registry import AnyArrivals, Arrivals, arrivals_of
from ramsis.arrivals.sizes import whole_sizes
from ramsis.errors import InvalidValueError, check_positive
from ramsis.reprs import dataclass

PEAK_WINDOW_MS = 1000.0
"""Time that the peak of recorded arrivals is counted over; the whole of a shorter recording."""
_QPS = 1000.0  # one arrival per ms: the rate in rescaled time


@dataclass(frozen=True, eq=False)
class RateTrace:
    """Workload with a piecewise constant load."""

    # shape (n,): starts of the steps, increasing. The first is the trace's time 0.
    start_ms: FloatArray
    rate_qps: FloatArray  # load of each step, finite and >= 0, not all 0, shape (n,)
    # end of the last step; by default it is as long as the one before (1 s if it is the only one)
    end_ms: float
    # process in rescaled time, as :class:`ramsis.sim.ConstantLoad` takes it, at a load of 1000
    # requests per second: bursts of 500 ms last for 500 arrivals on average.
    arrivals: Arrivals
    _process: Sampler = field(repr=False)

    def __init__(
        self, start_ms: ArrayLike, rate_qps: ArrayLike, end_ms: float | None = None,
        arrivals: AnyArrivals = "poisson",
    ) -> None:
        start = np.array(start_ms, dtype=float).reshape(-1)
        rate = np.array(rate_qps, dtype=float).reshape(-1)
        if not len(start) or start.shape != rate.shape:
            raise InvalidValueError("no trace", where="rate trace", value=len(start),
                                    allowed="one or more steps, each with a rate")
        _refuse_first(~(np.isfinite(rate) & (rate >= 0)), rate, "rate is not a load",
                      "a finite number >= 0")
        _refuse_first(~np.isfinite(start), start, "not a time", "a finite number")
        _refuse_first(np.append(False, np.diff(start) <= 0), start, "time goes back",
                      "times that rise")
        last = start[-1] - start[-2] if len(start) > 1 else 1000.0
        end = start[-1] + last if end_ms is None else float(end_ms)
        if not (math.isfinite(end) and end > start[-1]):
            raise InvalidValueError("trace ends before its last step", where="end_ms", value=end,
                                    allowed=f"a number > {start[-1]}")
        if not rate.any():
            raise InvalidValueError("empty trace", where="rate trace", value=0.0,
                                    allowed="a rate > 0 somewhere")
        put = object.__setattr__
        put(self, "start_ms", start - start[0])
        put(self, "rate_qps", rate)
        put(self, "end_ms", float(end - start[0]))
        put(self, "arrivals", arrivals_of(arrivals))
        put(self, "_process", self.arrivals.drawn(_QPS))

    @property
    def duration_ms(self) -> float:
        """Length of the trace."""
        return self.end_ms

    @property
    def load_qps(self) -> float:
        """Mean load in requests per second."""
        return float(1000.0 * self._cumulative()[-1] / self.end_ms)

    @property
    def peak_qps(self) -> float:
        """Highest load of any step."""
        return float(self.rate_qps.max())

    @property
    def varies(self) -> bool:
        """Whether there is more than one rate."""
        return bool((self.rate_qps != self.rate_qps[0]).any())

    def content(self) -> tuple[FloatArray, ...]:
        """Return the arrays that define the trace: starts in ms, rates per second and the end."""
        return self.start_ms, self.rate_qps, np.array([self.end_ms])

    def scaled(self, factor: float) -> RateTrace:
        """Return the trace at ``factor`` times the load."""
        check_positive(factor=factor)
        return RateTrace(self.start_ms, self.rate_qps * factor, self.end_ms,
                         self.arrivals)

    def until(self, duration_ms: float) -> RateTrace:
        """Return the trace up to ``duration_ms``; the whole trace if it is shorter."""
        check_positive(duration_ms=duration_ms)
        part = self.start_ms < duration_ms
        return RateTrace(self.start_ms[part], self.rate_qps[part], min(duration_ms, self.end_ms),
                         self.arrivals)

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Sample sorted arrival times in ms."""
        cumulative = self._cumulative()
        edges = np.append(self.start_ms, self.end_ms)
        check_amount(float(cumulative[-1]))
        rate = self._process.rate_per_ms
        stretched = self._process.sample(float(cumulative[-1]) / rate, rng) * rate
        times = _inverse(stretched, cumulative, edges)
        return np.minimum(times, np.nextafter(self.end_ms, 0.0))

    def _cumulative(self) -> FloatArray:
        """Return the mean number of arrivals up to each edge, shape (n+1,)."""
        lengths = np.diff(np.append(self.start_ms, self.end_ms))
        return np.append(0.0, np.cumsum(self.rate_qps / 1000.0 * lengths))


@dataclass(frozen=True, eq=False)
class Recorded:
    """Workload of recorded arrival times, equal in every run."""

    times_ms: FloatArray  # non-decreasing; the first becomes time 0, shape (n,)
    # end of the recording, relative to the first arrival; by default one mean gap after the last
    # arrival, or one second if all arrive at one instant
    duration_ms: float
    # if arrivals were spread within the ticks of a coarse clock: the same requests, each at the
    # start of its tick, which are the largest bursts that the clock may hide
    at_ticks: Recorded | None
    sizes: IntArray | None  # request sizes, if recorded, shape (n,)

    def __init__(
        self, times_ms: ArrayLike, duration_ms: float | None = None,
        at_ticks: Recorded | None = None, sizes: ArrayLike | None = None,
    ) -> None:
        times = np.array(times_ms, dtype=float).reshape(-1)
        if not len(times):
            raise InvalidValueError("empty trace", where="times_ms", value=0,
                                    allowed="one or more arrivals")
        _refuse_first(~np.isfinite(times), times, "not a time", "a finite number")
        _refuse_first(np.append(False, np.diff(times) < 0), times, "time goes back",
                      "times that do not fall")
        times -= times[0]
        if duration_ms is None:
            gap = times[-1] / (len(times) - 1) if times[-1] > 0 else 1000.0
            duration_ms = float(times[-1] + max(gap, 1e-6))
        check_positive(duration_ms=duration_ms)
        count = int(np.searchsorted(times, duration_ms))
        if sizes is not None:
            sizes = whole_sizes(sizes, "sizes")
            if len(sizes) < count:
                raise InvalidValueError("not a size for each request", where="sizes",
                                        value=len(sizes), allowed=f"{len(times)} sizes")
            sizes = sizes[:count]
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "times_ms", times[:count])
        object.__setattr__(self, "duration_ms", float(duration_ms))
        object.__setattr__(self, "at_ticks", at_ticks)

    @property
    def load_qps(self) -> float:
        """Mean load in requests per second."""
        return 1000.0 * len(self.times_ms) / self.duration_ms

    @property
    def peak_qps(self) -> float:
        """Highest load in any second; that of the whole recording if it is shorter."""
        window_ms = min(PEAK_WINDOW_MS, self.duration_ms)
        last = np.searchsorted(self.times_ms, self.times_ms + window_ms)
        return float((last - np.arange(len(last))).max() * 1000.0 / window_ms)

    @property
    def varies(self) -> bool:
        """Whether the load varies; recorded traffic counts as varying."""
        return True

    def content(self) -> tuple[FloatArray, ...]:
        """Return the arrays that define the recording: times and duration in ms, and sizes."""
        sizes = () if self.sizes is None else (self.sizes.astype(float),)
        return self.times_ms, np.array([self.duration_ms]), *sizes

    def scaled(self, factor: float) -> Recorded:
        """Return the recording sped up by ``factor``."""
        check_positive(factor=factor)
        return Recorded(self.times_ms / factor, self.duration_ms / factor,
                        self.at_ticks and self.at_ticks.scaled(factor), self.sizes)

    def until(self, duration_ms: float) -> Recorded:
        """Return the recording up to ``duration_ms``; the whole recording if it is shorter."""
        return Recorded(self.times_ms, min(duration_ms, self.duration_ms),
                        self.at_ticks and self.at_ticks.until(duration_ms), self.sizes)

    def arrivals_ms(self, rng: np.random.Generator) -> FloatArray:
        """Return the recorded times."""
        return self.times_ms


def _inverse(values: FloatArray, cumulative: FloatArray, edges: FloatArray) -> FloatArray:
    """Invert the piecewise linear function from ``edges`` to ``cumulative`` at the values."""
    step = np.searchsorted(cumulative, values, side="right") - 1
    step = np.minimum(step, len(edges) - 2)
    rise = np.diff(cumulative)
    share = (values - cumulative[step]) / np.where(rise > 0, rise, 1.0)[step]
    result: FloatArray = edges[step] + share * np.diff(edges)[step]
    return np.maximum.accumulate(result)


def _refuse_first(bad: BoolArray, values: FloatArray, what: str, allowed: str) -> None:
    """Raise an error for the first bad value of an array, if any; entries count from 1."""
    if bad.any():
        first = int(np.argmax(bad))
        raise InvalidValueError(what, where=f"entry {first + 1}", value=float(values[first]),
                                allowed=allowed)
