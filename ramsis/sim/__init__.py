"""Discrete-event simulation of serving: workloads, engine, schedulers, figures.

>>> import ramsis
>>> from ramsis.sim import JellyfishPlus, ConstantLoad, simulate
>>> from ramsis.cluster import Cluster
>>> cluster = Cluster.of(ramsis.load_profile("digits-cpu"), workers=4, slo_ms=100.0)
>>> result = simulate(cluster, JellyfishPlus(),
...                   ConstantLoad(load_qps=100.0, duration_ms=5000.0))
>>> result.metrics[0].never_answered
0

May import: arrivals, cluster, policy, profiles, runtime, scenario.
"""

from __future__ import annotations

from ramsis.arrivals.trace import RateTrace, Recorded
from ramsis.checks import check_arguments
from ramsis.lazy_names import names_from
from ramsis.scenario import Requests
from ramsis.sim.engine import Engine, Running, Scheduler, SchedulerError, Slowdown, World
from ramsis.sim.experiment import SimulationSettings, check_load, run_cluster, simulate
from ramsis.sim.fleet import Fleet, Fleets
from ramsis.sim.metrics import Metrics, measure
from ramsis.sim.plan import ClusterPlan, FleetScheduler, PerType, Plan
from ramsis.sim.registry import SCHEDULERS, SchedulerSpec, scheduler
from ramsis.sim.result import Estimate, SimulationResult
from ramsis.sim.run import Run
from ramsis.sim.schedulers import (
    FLEET_SCHEDULERS,
    BentoML,
    Clipper,
    Delay,
    Fixed,
    Greedy,
    Infaas,
    JellyfishPlus,
    ModelSwitching,
    Policies,
    Symphony,
)
from ramsis.sim.slow_spells import SlowSpells
from ramsis.sim.time_series import TimeSeries, over_time
from ramsis.sim.workload import ClosedLoop, ConstantLoad, Workload

__all__ = ["FLEET_SCHEDULERS", "SCHEDULERS", "BentoML", "Clipper", "ClosedLoop", "ClusterPlan",
           "ConstantLoad", "Delay", "Engine", "Estimate", "Fixed", "Fleet", "FleetScheduler",
           "Fleets", "Greedy", "Infaas", "JellyfishPlus", "Metrics", "ModelSwitching", "PerType",
           "Plan", "Policies", "RateTrace", "Recorded", "Requests", "Run", "Running", "Scheduler",
           "SchedulerError", "SchedulerSpec", "SimulationResult", "SimulationSettings",
           "SlowSpells", "Slowdown", "Symphony", "TimeSeries", "Workload", "World", "check_load",
           "measure", "over_time", "run_cluster", "scheduler", "simulate"]

__getattr__, __dir__ = names_from(globals())

check_arguments(globals(), ["simulate"])
