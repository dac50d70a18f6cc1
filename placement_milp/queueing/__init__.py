"""Rates of stations in time: the largest Poisson load at which a quantile meets the SLO.

**Problem.** Equal workers with P processes each are a station with one queue and c lanes. An idle
lane takes the waiting requests, up to its batch b, and needs (1 + headroom)·l(size). With the
quantile p of the response times R at the load λ, the station's rate is

    μ = max { λ : R_p(λ) <= SLO }.

Two models that take turns on one worker have a queue each. The load of the first is fixed; μ is
that of the second.

**Method.** R_p is measured on arrivals that the planner draws itself: the same unit-rate arrivals
for every λ, divided by λ. Bisection on λ between 0 and the capacity at full batches, until the
interval is 0.2 % of it. Of two sets of arrivals the worse counts.

Latencies of sizes between the listed ones are on a line; a smaller one takes as long as the
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
# Requests of a run, seeds of its arrivals, and step of the bisection as a share of the rate at
# full batches: more requests and finer steps give steadier rates and take longer.
_REQUESTS = 40_000
_SEEDS = (11, 12)
_STEP = 0.002


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane that runs a model."""

    batch: int  # largest batch, >= 1
    # sizes, latency_ms: listed batches in ascending order, with their latencies
    sizes: tuple[int, ...]
    latency_ms: tuple[float, ...]

    @classmethod
    def of(cls, batch: int, listed: Mapping[int, float]) -> Lane:
        """Create a lane from latencies by batch; those above ``batch`` are left out."""
        sizes = tuple(sorted(size for size in listed if size <= batch))
        return cls(batch, sizes, tuple(listed[size] for size in sizes))

    def table(self, factor: float) -> _Floats:
        """Return latency by size, from 0, times a factor."""
        return factor * np.interp(np.arange(self.batch + 1), self.sizes, self.latency_ms)

    @property
    def rate_per_ms(self) -> float:
        """Rate at full batches."""
        return self.batch / self.latency_ms[-1]


@cache
def station_rate(
    lane: Lane, lanes: int, slo_ms: float, quantile: float, headroom: float
) -> float:
    """Return the requests per second that a station of one model answers in time; 0 for none.

    Parameters
    ----------
    slo_ms, quantile, headroom : float
        R_quantile <= SLO, at latencies longer by the share ``headroom``.
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
    """Return the rate of a second model that takes turns with a first, both in time; 0 for none.

    The search begins at ``least``; a lower rate counts as none.

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
            # Both end at once: a model that has the worker to itself at the end would look too
            # good.
            end_ms = min(times[-1], other[-1])
            others = other[other <= end_ms]
            arrivals = times[times <= end_ms]
            if len(arrivals) == 0 or len(others) == 0:
                return False
            begin = np.array([0, len(others), len(others) + len(arrivals)], dtype=np.int64)
            responses = responses_ms(np.concatenate([others, arrivals]), begin, 1, batches, table)
            if not (_meets(responses[: len(others)], first_slo_ms, quantile)
                    and _meets(responses[len(others):], slo_ms, quantile)):
                return False
        return True

    most = most_beside(first, first_qps, second, headroom) / 1000.0
    low = max(least / 1000.0, _STEP * most)
    return 1000.0 * _largest(in_time, most, low) if low < most and in_time(low) else 0.0


def most_beside(first: Lane, first_qps: float, second: Lane, headroom: float) -> float:
    """Return the requests per second at full batches in the spare time of a first model."""
    spare = max(0.0, 1.0 - first_qps / 1000.0 * (1.0 + headroom) / first.rate_per_ms)
    return 1000.0 * spare * second.rate_per_ms / (1.0 + headroom)


def _largest(in_time: Callable[[float], bool], most: float, low: float = 0.0) -> float:
    """Find the largest rate that is in time, by bisection above a rate ``low`` that is."""
    high = most
    while high - low > _STEP * most:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if in_time(middle) else (low, middle)
    return low


def _meets(response: _Floats, slo_ms: float, quantile: float) -> bool:
    """Return whether a quantile is within the SLO, without the first requests."""
    return float(np.quantile(response[len(response) // 20:], quantile)) <= slo_ms


@cache
def _unit_arrivals(seed: int) -> _Floats:
    """Draw arrival times of a Poisson process of rate 1."""
    return np.cumsum(np.random.default_rng((77, seed)).exponential(size=_REQUESTS))
