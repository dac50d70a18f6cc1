"""The engine of a run: its world, events, workers and requests; and what schedulers see."""

from __future__ import annotations

from ramsis.sim.engine.engine import Engine
from ramsis.sim.engine.progress import Running, Slowdown
from ramsis.sim.engine.scheduler import Scheduler, SchedulerError, WorkerGroup, check_at_least
from ramsis.sim.engine.world import World

__all__ = ["Engine", "Running", "Scheduler", "SchedulerError", "Slowdown", "WorkerGroup", "World",
           "check_at_least"]
