"""Simulations of one profile or one fleet, with the settings as keywords."""

from collections.abc import Callable
from typing import Any

from ramsis.cluster import Cluster
from ramsis.profiles import ProfileSet
from ramsis.sim import ClosedLoop, Fleet, Fleets, FleetScheduler, Plan, Run, simulate
from ramsis.sim.experiment import SimulationSettings, run_cluster
from ramsis.sim.plan import ClusterPlan
from ramsis.sim.result import SimulationResult
from ramsis.sim.workload import Workload


def simulate_profile(
    profile: ProfileSet,
    scheduler: FleetScheduler,
    workload: Workload | ClosedLoop,
    *,
    workers: int,
    slo_ms: float,
    keep_runs: bool = False,
    on_run: Callable[[Run], object] | None = None,
    **settings: Any,
) -> SimulationResult:
    """Simulate workers of one type that serve requests of one SLO."""
    return simulate(Cluster.of(profile, workers=workers, slo_ms=slo_ms), scheduler, workload,
                    SimulationSettings(**settings), keep_runs=keep_runs, on_run=on_run)


def run_plan(
    fleet: Fleet,
    plan: Plan,
    workload: Workload | ClosedLoop,
    *,
    seed: int = 0,
    monitored: bool = False,
    **settings: Any,
) -> Run:
    """Run a prepared scheduler on one fleet once; an unknown load is always monitored."""
    return run_cluster(
        ClusterPlan.of_one(plan, Fleets.of_one(fleet)), workload, seed,
        SimulationSettings(monitor=monitored or workload.load_qps is None, **settings))
