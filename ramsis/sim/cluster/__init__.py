"""Simulation of clusters on which models come and go: engine, schedulers, figures."""

from __future__ import annotations

from ramsis.checks import check_arguments
from ramsis.sim.cluster.engine import ClusterEngine, SchedulerError
from ramsis.sim.cluster.metrics import ClusterMetrics, measure_cluster
from ramsis.sim.cluster.progress import Running, Slowdown
from ramsis.sim.cluster.record import ClusterRun
from ramsis.sim.cluster.registry import SCHEDULERS, SchedulerSpec, scheduler
from ramsis.sim.cluster.scheduler import Scheduler, SchedulerMaker

__all__ = ["SCHEDULERS", "ClusterEngine", "ClusterMetrics", "ClusterRun", "Running", "Scheduler",
           "SchedulerError", "SchedulerMaker", "SchedulerSpec", "Slowdown", "measure_cluster",
           "scheduler"]

check_arguments(globals(), ["ClusterEngine", "SchedulerSpec", "measure_cluster", "scheduler"],
                methods=False)
