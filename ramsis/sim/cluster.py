"""Simulation of clusters on which models come and go."""

from __future__ import annotations

from ramsis.sim.engine import ClusterEngine, Running, Scheduler, SchedulerError, Slowdown
from ramsis.sim.metrics import Metrics, measure
from ramsis.sim.registry import SCHEDULERS, SchedulerSpec, scheduler
from ramsis.sim.run import Run

__all__ = ["SCHEDULERS", "ClusterEngine", "Metrics", "Run", "Running", "Scheduler",
           "SchedulerError", "SchedulerSpec", "Slowdown", "measure", "scheduler"]
