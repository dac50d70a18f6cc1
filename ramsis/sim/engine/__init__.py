"""The engine: events, workers, requests and times of a run, its record, and what decides in it."""

from __future__ import annotations

from ramsis.sim.engine.engine import EventEngine
from ramsis.sim.engine.on_fleets import FleetEngine
from ramsis.sim.engine.on_scenario import ClusterEngine
from ramsis.sim.engine.progress import Running, Slowdown
from ramsis.sim.engine.scheduler import Scheduler, SchedulerError, WorkerGroup, check_at_least

__all__ = [
    "ClusterEngine",
    "EventEngine",
    "FleetEngine",
    "Running",
    "Scheduler",
    "SchedulerError",
    "Slowdown",
    "WorkerGroup",
    "check_at_least",
]
