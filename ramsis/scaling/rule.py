"""Interface of scaling rules (autoscalers), and the observations on which they decide.

A fleet has between ``least`` and ``most`` workers. Every ``interval_s`` a rule observes the fleet
and returns the number of workers that it wants. To scale up, workers begin to start; this takes
``startup_s``, at full cost. To scale down, starting workers are cancelled first, the latest first;
then active workers end their batch and leave. Each run has its own rule, which may keep state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Observation:
    """State of the fleet and of the load, as a scaling rule observes it at a decision."""

    time_s: float  # since the run began, >= 0
    load_qps: float  # arrivals per second of the interval that has just ended
    # numbers of workers that serve, and that start
    active: int
    starting: int
    # numbers of requests that wait, and that are in batches
    queued: int
    in_service: int
    # utilisation of the serving workers in the last interval, 0 to 1
    utilisation: float
    # forecast load of the next interval, and its maximum until a worker that is started now has
    # been active for an interval
    forecast_qps: float | None = None
    ahead_qps: float | None = None


class ScalingRule(Protocol):
    """Rule that decides the number of workers of a fleet, made for one run."""

    def wanted(self, seen: Observation) -> int:
        """Return the desired number of workers; the fleet clips it to its limits."""
        ...
