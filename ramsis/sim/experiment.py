"""Simulate a scheme on a workload, once for each seed.

A seed gives two independent streams of random numbers: arrivals and service draws. Both are the
same for every scheme, so differences between schemes are the schemes' own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from ramsis.errors import InvalidValueError, check_positive, describe
from ramsis.profiles import ProfileSet
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.sim.engine import Engine
from ramsis.sim.fleet import MAX_BATCH, Fleet
from ramsis.sim.metrics import Metrics, measure
from ramsis.sim.plan import Plan, SchemeSpec
from ramsis.sim.result import SimulationResult
from ramsis.sim.run import Run
from ramsis.sim.workload import ClosedLoop, Workload

__all__ = ["LARGEST_OVERLOAD", "check_load", "run_plan", "simulate"]

EngineName = Literal["auto", "compiled", "plain"]

LARGEST_OVERLOAD = 1000.0
"""Largest load that is simulated, as a multiple of the fleet's capacity."""


def simulate(
    profile: ProfileSet,
    scheme: SchemeSpec,
    workload: Workload | ClosedLoop,
    *,
    workers: int,
    slo_ms: float,
    service: str = "p95",
    seeds: Sequence[int] = (0,),
    monitor: bool | None = None,
    monitor_ms: float = WINDOW_MS,
    told: float = 1.0,
    network_ms: float = 0.0,
    engine: EngineName = "auto",
    keep_runs: bool = False,
    on_run: Callable[[Run], object] | None = None,
) -> SimulationResult:
    """What a scheme does with a workload.

    Parameters
    ----------
    profile : ProfileSet
        Accuracies and service times.
    scheme : SchemeSpec
        One of :mod:`ramsis.sim.schemes`, or a :class:`~ramsis.sim.plan.Plan` of one's own.
    workload : Workload or ClosedLoop
    workers : int
        >= 1.
    slo_ms : float
        Deadline after arrival, > 0.
    service : str
        ``p95``, ``distribution``, or another statistic; see :mod:`ramsis.sim.fleet`.
    seeds : sequence of int
        One or more, >= 0.
    monitor : bool, optional
        Whether schemes anticipate the load by the load monitor or are told the workload's mean
        load. By default they are told it where it is constant.
    monitor_ms : float
        The monitor's window, > 0: a longer one notices changes later.
    told : float
        The load that schemes are told, as a multiple of that which arrives, > 0.
    network_ms : float
        Delay of each batch, >= 0.
    engine : str
        ``compiled`` runs need a table-driven scheme and given arrivals; ``auto`` takes them where
        they can be, ``plain`` never.
    keep_runs : bool
        Keep the record of every run in the result.
    on_run : callable, optional
        Told each run as it is finished.

    Raises
    ------
    InvalidValueError
        A number out of range, ``compiled`` for a scheme or workload that cannot, a load that is
        not known and not monitored, or one beyond :data:`LARGEST_OVERLOAD` times the capacity.
    InputFileError
        A policy for other models, workers or SLO.
    InfeasibleError
        An SLO below every latency.
    SchemeError
        The scheme did what cannot be done.
    """
    max_batch = max(MAX_BATCH, getattr(scheme, "max_batch", 1))
    fleet = Fleet.of(profile, workers=workers, slo_ms=slo_ms, service=service,
                     network_ms=network_ms, max_batch=max_batch)
    monitored = _monitored(workload, monitor)
    check_load(fleet, workload)
    if not seeds or any(isinstance(s, bool) or s < 0 for s in seeds):
        raise InvalidValueError(describe("not seeds", where="seeds", value=list(seeds),
                                         allowed="one or more whole numbers >= 0"))
    check_positive(monitor_ms=monitor_ms)
    check_positive(told=told)
    plan = scheme.prepare(fleet)
    metrics: list[Metrics] = []
    runs: list[Run] = []
    for seed in seeds:
        run = run_plan(fleet, plan, workload, seed=seed, monitored=monitored,
                       monitor_ms=monitor_ms, told=told, engine=engine)
        metrics.append(measure(run))
        if keep_runs:
            runs.append(run)
        if on_run is not None:
            on_run(run)
    return SimulationResult(
        scheme=plan.name, workers=workers, slo_ms=fleet.slo_ms, service=service,
        load_qps=workload.load_qps, monitored=monitored, duration_ms=workload.duration_ms,
        told_qps=_told_qps(workload, monitored, told),
        seeds=tuple(seeds), metrics=tuple(metrics), runs=tuple(runs),
    )


def run_plan(
    fleet: Fleet,
    plan: Plan,
    workload: Workload | ClosedLoop,
    *,
    seed: int = 0,
    monitored: bool = False,
    monitor_ms: float = WINDOW_MS,
    told: float = 1.0,
    engine: EngineName = "auto",
) -> Run:
    """One run of a prepared scheme; parameters and errors as :func:`simulate`."""
    arrivals, service, classes = (np.random.default_rng(part)
                                   for part in np.random.SeedSequence(seed).spawn(3))
    load_qps = _told_qps(workload, monitored, told)
    if isinstance(workload, ClosedLoop) and fleet.classes:
        raise InvalidValueError(describe("a closed loop has no SLO classes", where="workload",
                                         value=workload))
    given = workload if isinstance(workload, ClosedLoop) else workload.arrivals_ms(arrivals)
    slos = fleet.drawn_slos(len(given), classes) if isinstance(given, np.ndarray) else None
    compiled = plan.compiled
    if compiled is not None and slos is not None and compiled.kernel != "central-queue":
        compiled = None  # other kernels know one deadline for all
    if engine != "plain" and compiled is not None and isinstance(given, np.ndarray):
        from ramsis.sim.compiled import Given, replay

        numbers = Given.drawn(given, workload.duration_ms, service, slos, draws=fleet.draws,
                              by_chance=compiled.by_chance)
        return replay(fleet, compiled, numbers, load_qps, monitor_ms)
    if engine == "compiled":
        raise InvalidValueError(describe("not table-driven", where="engine", value=plan.name,
                                         allowed="engine plain or auto"))
    return Engine((fleet,), given, workload.duration_ms, service, load_qps, monitor_ms, slos).run(
        plan.start)


def check_load(fleet: Fleet, workload: Workload | ClosedLoop) -> None:
    """Refuse a load that can only be a mistake in the unit of time.

    Raises
    ------
    InvalidValueError
        The peak load is beyond :data:`LARGEST_OVERLOAD` times the fleet's capacity.
    """
    peak_qps = getattr(workload, "peak_qps", workload.load_qps)
    largest = LARGEST_OVERLOAD * fleet.capacity_qps
    if peak_qps is not None and peak_qps > largest:
        raise InvalidValueError(
            describe("peak load is beyond all that the workers could serve", where="load_qps",
                     value=peak_qps, allowed=f"at most {largest:.4g} ({LARGEST_OVERLOAD:g} times "
                     f"the capacity); check the unit of the times")
        )


def _told_qps(
    workload: Workload | ClosedLoop, monitored: bool, told: float
) -> float | None:
    """The load that schemes are told, if they are."""
    known = None if monitored else workload.load_qps
    return None if known is None else told * known


def _monitored(workload: Workload | ClosedLoop, monitor: bool | None) -> bool:
    if monitor is None:
        return workload.varies
    if not monitor and workload.load_qps is None:
        raise InvalidValueError(describe("the load of a closed loop is not known beforehand",
                                         where="monitor", value=monitor, allowed="True"))
    return monitor
