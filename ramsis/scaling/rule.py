"""Scaling rules and the observations that they decide on.

A fleet has between ``least`` and ``most`` workers. Every ``interval_s`` a rule sees the fleet and
says how many workers it wants. Where it wants more than are active and starting, the missing ones
begin to start, each of which takes ``startup_s`` and costs from then on; where it wants fewer,
those that start are given up first, the latest first, then active workers end their batch and
leave. A rule is made for each run, so it may remember what it saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation of a scaling rule at a decision."""

    time_s: float  # since the run began, >= 0
    load_qps: float  # arrivals per second of the interval that has just ended
    # active, starting: workers that serve, and workers that start
    active: int
    starting: int
    # queued, in_service: requests that wait, and requests in batches
    queued: int
    in_service: int
    # share of the active workers' time of the last interval in which they were busy, 0 to 1
    utilisation: float
    # forecast_qps, ahead_qps: what a forecast says of the next interval, and the highest that it
    # says until a worker that is started now has been active for an interval
    forecast_qps: float | None = None
    ahead_qps: float | None = None


class ScalingRule(Protocol):
    """Rule that decides the number of workers of a fleet, made for one run."""

    def wanted(self, seen: Observation) -> int:
        """Return the desired number of workers; the fleet clips it to its limits."""
        ...
