"""Capacity of stations: the largest Poisson load at which a latency quantile meets the SLO.

**Problem.** Equal workers with P processes each form a station with one queue and c lanes. An idle
lane takes the waiting requests, up to its batch b, and needs (1 + headroom)·l(size). With R_p(λ)
the p-quantile of response times at the load λ, the station's rate is

    μ = max { λ : R_p(λ) <= SLO }.

Two models that take turns on one worker have a queue each. The load of the first is fixed; μ is
the rate of the second.

**Method.** R_p is simulated with common random numbers: the same unit-rate arrivals for every λ,
divided by λ. Bisection between 0 and the capacity at full batches ends when the interval is 0.2 %
of it. The worse of two sets of arrivals counts.

Latencies are interpolated linearly between listed sizes; smaller sizes take as long as the
smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from placement_milp.queueing._kernels import responses_ms

__all__ = ["Lane", "most_beside", "rate_beside", "responses_ms", "station_rate"]

_Floats = NDArray[np.float64]
# Requests of a run, seeds of its arrivals, and precision of the bisection as a share of the rate
# at full batches: more requests and higher precision give steadier rates and take longer.
_REQUESTS = 40_000
_SEEDS = (11, 12)
_STEP = 0.002


@dataclass(frozen=True, slots=True)
class Lane:
    """Lane of a station: a process that runs a model in batches."""

    batch: int  # largest batch, >= 1
    # listed batch sizes in ascending order, with their latencies
    sizes: tuple[int, ...]
    latency_ms: tuple[float, ...]

    @classmethod
    def of(cls, batch: int, listed: Mapping[int, float]) -> Lane:
        """Create a lane from latencies by batch; those above ``batch`` are left out."""
        sizes = tuple(sorted(size for size in listed if size <= batch))
        return cls(batch, sizes, tuple(listed[size] for size in sizes))

    def table(self, factor: float) -> _Floats:
        """Return batch latencies in ms, indexed by size from 0, multiplied by a factor."""
        return factor * np.interp(np.arange(self.batch + 1), self.sizes, self.latency_ms)

    @property
    def rate_per_ms(self) -> float:
        """Requests per ms that the lane answers in batches of the largest size."""
        return self.batch / self.latency_ms[-1]


@cache
def station_rate(
    lane: Lane, lanes: int, slo_ms: float, quantile: float, headroom: float
) -> float:
    """Return the capacity of a station of one model within its SLO, in requests per second, or 0.

    Parameters
    ----------
    lane, lanes : Lane, int
        The lanes of the station, and their number.
    slo_ms, quantile, headroom : float
        Condition R_quantile <= SLO, at latencies longer by the share ``headroom``.
    """
    table = lane.table(1.0 + headroom)[None, :]
    batches = np.array([lane.batch], dtype=np.int64)
    begin = np.array([0, _REQUESTS], dtype=np.int64)

    def in_time(rate_per_ms: float) -> bool:
        return all(_meets(responses_ms(times / rate_per_ms, begin, lanes, batches, table),
                          slo_ms, quantile) for times in map(_unit_arrivals, _SEEDS))

    return 1000.0 * _largest(in_time, lanes * lane.rate_per_ms / (1.0 + headroom))


@cache
def rate_beside(
    first: Lane, first_qps: float, first_slo_ms: float, second: Lane, slo_ms: float,
    quantile: float, headroom: float, least: float = 0.0,
) -> float:
    """Return the capacity of a second model that takes turns with a first, both in time, or 0.

    The search begins at ``least``; lower rates count as 0.

    Parameters
    ----------
    first, first_qps, first_slo_ms
        The first model, its load and its SLO.
    second, slo_ms
        The other model.
    quantile, headroom
        See :func:`station_rate`.
    """
    longest = max(first.batch, second.batch) + 1
    table = np.zeros((2, longest))
    for row, lane in zip(table, (first, second), strict=True):
        row[: lane.batch + 1] = lane.table(1.0 + headroom)
    batches = np.array([first.batch, second.batch], dtype=np.int64)

    def in_time(rate_per_ms: float) -> bool:
        for seed in _SEEDS:
            times = _unit_arrivals(seed) / rate_per_ms
            other = _unit_arrivals(seed + 100) / (first_qps / 1000.0)
            # End both processes together: a model alone at the end would look too good.
            end_ms = min(times[-1], other[-1])
            other, times = other[other <= end_ms], times[times <= end_ms]
            if len(times) == 0 or len(other) == 0:
                return False
            begin = np.array([0, len(other), len(other) + len(times)], dtype=np.int64)
            responses = responses_ms(np.concatenate([other, times]), begin, 1, batches, table)
            if not (_meets(responses[: len(other)], first_slo_ms, quantile)
                    and _meets(responses[len(other):], slo_ms, quantile)):
                return False
        return True

    most = most_beside(first, first_qps, second, headroom) / 1000.0
    low = max(least / 1000.0, _STEP * most)
    return 1000.0 * _largest(in_time, most, low) if low < most and in_time(low) else 0.0


def most_beside(first: Lane, first_qps: float, second: Lane, headroom: float) -> float:
    """Return a bound on :func:`rate_beside`: the rate of the second model at full batches of both.

    The second model then runs in the whole time that the first one leaves.
    """
    spare = max(0.0, 1.0 - first_qps / 1000.0 * (1.0 + headroom) / first.rate_per_ms)
    return 1000.0 * spare * second.rate_per_ms / (1.0 + headroom)


def _largest(in_time: Callable[[float], bool], most: float, low: float = 0.0) -> float:
    """Find the largest rate that is in time, by bisection from ``low``, which is in time."""
    high = most
    while high - low > _STEP * most:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if in_time(middle) else (low, middle)
    return low


def _meets(response: _Floats, slo_ms: float, quantile: float) -> bool:
    """Return whether a quantile of response times meets the SLO, without the warm-up."""
    return float(np.quantile(response[len(response) // 20:], quantile)) <= slo_ms


@cache
def _unit_arrivals(seed: int) -> _Floats:
    """Draw arrival times of a Poisson process of rate 1."""
    return np.cumsum(np.random.default_rng((77, seed)).exponential(size=_REQUESTS))
