"""Simulate a scheduler on a workload, once for each seed.

A seed gives independent streams of random numbers: arrivals, service draws, SLO classes, the
routing to stations and slow spells. They are the same for every scheduler, so differences between
schedulers are the schedulers' own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal

import numpy as np

from ramsis.arrivals.process import check_amount
from ramsis.arrivals.trace import PEAK_WINDOW_MS, RateTrace, Recorded
from ramsis.cluster import Cluster
from ramsis.cluster.service_times import DEFAULT_SERVICE
from ramsis.errors import POSITIVE, InvalidValueError
from ramsis.plugins import blamed
from ramsis.profiles.values import DELAY_MS
from ramsis.reprs import dataclass
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.runtime.policy_set import Level
from ramsis.scenario import Requests
from ramsis.settings import Checked, documented, setting
from ramsis.sim.engine import Engine
from ramsis.sim.fleet import MAX_BATCH, Fleet, Fleets
from ramsis.sim.metrics import Metrics, measure
from ramsis.sim.plan import ClusterPlan, ClusterScheduler, StationPlan, have_kernels
from ramsis.sim.result import SimulationResult
from ramsis.sim.routed import RoutedByLevel
from ramsis.sim.run import Run
from ramsis.sim.slow_spells import SlowSpells
from ramsis.sim.workload import ClosedLoop, Workload

EngineName = Literal["auto", "compiled", "plain"]

LARGEST_OVERLOAD = 1000.0
"""Largest load that is simulated, as a multiple of the workers' capacity."""
_BYTES_EACH = 256.0  # that the plain engine takes for an arrival
_BLOCK = 4096  # uniform numbers drawn at a time


@documented
@dataclass(frozen=True)
class SimulationSettings(Checked):
    """Settings of the simulation of a cluster."""

    service: str | None = setting(
        None, "Service times: a latency statistic, or drawn from the distribution.",
        default_text=DEFAULT_SERVICE)
    monitor: bool | None = setting(
        None, "Whether schedulers use the load monitor or the mean load.",
        default_text="on for a trace")
    monitor_ms: float = setting(
        WINDOW_MS, "Window of the load monitor.", rule=POSITIVE)
    stated_load: float = setting(
        1.0, "Factor on the load that schedulers without the monitor assume: 0.8 is a fifth too "
        "low.", rule=POSITIVE, metavar="FACTOR")
    slowness: float = setting(
        1.0, "Batches take F times as long as profiled.", rule=POSITIVE, metavar="F")
    stated_slowness: float | None = setting(
        None, "Slowness that schedulers assume.", rule=POSITIVE, default_text="--slowness",
        metavar="F")
    network_ms: float = setting(
        0.0, "Network delay of each batch.", rule=DELAY_MS._replace(wrong="not a delay"))
    slow_spells: SlowSpells | None = None  # times in which a worker takes longer; by default none
    # ``compiled`` requires a table-driven scheduler, arrivals known beforehand, no slow spells,
    # and with several stations a stated load; ``auto`` uses compiled kernels if possible,
    # ``plain`` never
    engine: EngineName = "auto"
    seeds: Sequence[int] = (0,)  # one or more, >= 0

    def __post_init__(self) -> None:
        if not self.seeds or any(isinstance(s, bool) or s < 0 for s in self.seeds):
            raise InvalidValueError("not seeds", where="seeds", value=list(self.seeds),
                                    allowed="one or more whole numbers >= 0")
        super().__post_init__()

    @property
    def told_slowness(self) -> float:
        """Factor on service times that schedulers are told."""
        return self.slowness if self.stated_slowness is None else self.stated_slowness

    def stated_qps(self, workload: Workload | ClosedLoop) -> float | None:
        """Return the load that schedulers are told; None where the load monitor anticipates it."""
        monitored = workload.varies if self.monitor is None else self.monitor
        if monitored:
            return None
        if workload.load_qps is None:
            raise InvalidValueError("the load of a closed loop is not known beforehand",
                                    where="monitor", value=self.monitor, allowed="True")
        return self.stated_load * workload.load_qps


def simulate(
    cluster: Cluster,
    scheduler: ClusterScheduler,
    workload: Workload | ClosedLoop,
    settings: SimulationSettings | None = None,
    *,
    keep_runs: bool = False,
    on_run: Callable[[Run], object] | None = None,
) -> SimulationResult:
    """Simulate a scheduler on a workload.

    ``scheduler`` is one of :mod:`ramsis.sim.schedulers`, or a :class:`~ramsis.sim.plan.Plan` for
    your own. ``on_run`` is called with each finished run; with ``keep_runs`` the result has the
    records of all runs.

    Raises
    ------
    InvalidValueError
        A number out of range, ``compiled`` for a scheduler or workload without a compiled form, a
        load that is neither known nor monitored, or one beyond :data:`LARGEST_OVERLOAD` times the
        capacity.
    InputFileError
        A policy for other models, workers or SLOs.
    InfeasibleError
        An SLO below every latency.
    SchedulerError
        The scheduler took an impossible action.
    """
    settings = settings or SimulationSettings()
    service = settings.service or cluster.default_service
    fleets = Fleets.of(cluster, service=service, network_ms=settings.network_ms,
                       max_batch=largest_batch([scheduler]), slowness=settings.slowness,
                       told_slowness=settings.told_slowness)
    stated_qps = settings.stated_qps(workload)
    check_load(fleets, workload)
    plan = scheduler.on_cluster(fleets)
    metrics: list[Metrics] = []
    runs: list[Run] = []
    for seed in settings.seeds:
        run = run_cluster(plan, workload, seed, settings)
        metrics.append(measure(run))
        if keep_runs:
            runs.append(run)
        if on_run is not None:
            on_run(run)
    return SimulationResult(
        scheduler=plan.name, workers=cluster.workers, slo_ms=cluster.slo_ms,
        service=service, load_qps=workload.load_qps, monitored=stated_qps is None,
        duration_ms=workload.duration_ms, told_qps=stated_qps, seeds=tuple(settings.seeds),
        metrics=tuple(metrics), runs=tuple(runs),
    )


def streams(seed: int) -> tuple[np.random.Generator, ...]:
    """Return the random generators of a run: arrivals, service draws, SLO classes, routing."""
    return tuple(np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(4))


def run_cluster(
    plan: ClusterPlan, workload: Workload | ClosedLoop, seed: int, settings: SimulationSettings
) -> Run:
    """Simulate one run of a prepared scheduler; errors are those of :func:`simulate`.

    Compiled kernels simulate the run if every station has one, arrivals are known beforehand,
    workers have no slow spells, and the load is stated or there is one station. Otherwise the
    plain engine does.
    """
    arrivals, service, classes, routing = streams(seed)
    stated_qps, fleets = settings.stated_qps(workload), plan.fleets
    duration_ms, monitor_ms = workload.duration_ms, settings.monitor_ms
    level = _level(plan, stated_qps)
    alone = None if level is None else _only_station(level, fleets)
    requests: Requests | ClosedLoop
    if isinstance(workload, ClosedLoop):
        _check_closed(workload, plan, settings)
        requests = workload
    else:
        compiled = (level is not None and have_kernels(level) and settings.slow_spells is None
                    and settings.engine != "plain"
                    and (alone is not None or stated_qps is not None))
        requests = fleets.draw(workload, arrivals, classes, service if compiled else None)
        if alone is not None and alone.plan.cascades:
            if not compiled or stated_qps is None:
                raise InvalidValueError(
                    "second opinions are simulated at a stated load, by the compiled loop",
                    where="monitor" if stated_qps is None else "engine", value="on"
                    if stated_qps is None else settings.engine,
                    allowed="monitor off, without slow spells")
            sure = np.random.default_rng(np.random.SeedSequence(seed).spawn(6)[5])
            requests = replace(requests, sureness=sure.random(len(requests)))
        if compiled:
            from ramsis.sim.compiled import replay, replay_level, routes

            assert level is not None
            if alone is not None and alone.plan.compiled is not None:
                return replay(alone.fleet, alone.plan.compiled, requests, duration_ms, stated_qps,
                              monitor_ms)
            assert stated_qps is not None
            route = routes(level, fleets, requests, routing.random(len(requests)))
            return replay_level(level, fleets, requests, duration_ms, route, stated_qps)
        if settings.engine == "compiled":
            why = "not table-driven" if settings.slow_spells is None else (
                "compiled loops know no slow spells")
            raise InvalidValueError(why, where="engine", value=plan.name,
                                    allowed="engine plain or auto")
        check_amount(len(requests), bytes_each=_BYTES_EACH)
    spells = None
    if settings.slow_spells is not None:  # of a stream of their own, after those of all runs
        slow = np.random.default_rng(np.random.SeedSequence(seed).spawn(5)[4])
        spells = settings.slow_spells.drawn(fleets.workers, duration_ms, slow)
    engine = Engine.of_fleets(
        fleets.fleets if alone is None else (alone.fleet,), requests, duration_ms, service,
        stated_qps, monitor_ms=monitor_ms, seed=seed, spells=spells)
    if alone is not None:
        source = alone.plan.own
        with blamed(f"scheduler {source} failed") if source else nullcontext():
            return engine.serve(alone.plan.start)
    drawn: list[float] = []

    def uniform(place: int) -> float:
        while place >= len(drawn):
            drawn.extend(routing.random(_BLOCK).tolist())
        return drawn[place]

    return engine.serve(lambda whole: RoutedByLevel(whole, plan, uniform))


def _level(plan: ClusterPlan, stated_qps: float | None) -> Level[StationPlan] | None:
    """Return the level that serves all the time; None where it changes with the load."""
    if stated_qps is not None:
        return plan.levels.at(stated_qps).level
    return plan.levels.levels[0] if len(plan.levels.levels) == 1 else None


def _only_station(level: Level[StationPlan], fleets: Fleets) -> StationPlan | None:
    """Return the station that has all workers; None if there are several stations."""
    station = level.stations[0].policy
    alone = len(level.stations) == len(fleets.fleets) == 1
    return station if alone and len(station.workers) == fleets.workers else None


def _check_closed(
    workload: ClosedLoop, plan: ClusterPlan, settings: SimulationSettings
) -> None:
    """Refuse settings that a closed loop cannot have."""
    if len(plan.fleets.classes) > 1:
        raise InvalidValueError(
            "a closed loop has no SLO classes: its users would have to be of one class each",
            where="workload", value=workload, allowed="one SLO")
    if settings.engine == "compiled":
        raise InvalidValueError("not table-driven: arrivals depend on answers", where="engine",
                                value=plan.name, allowed="engine plain or auto")


def largest_batch(schedulers: Sequence[ClusterScheduler]) -> int:
    """Return the largest batch that the workers of a comparison run."""
    return max([MAX_BATCH, *(scheduler.max_batch for scheduler in schedulers)])


def check_load(workers: Fleet | Fleets, workload: Workload | ClosedLoop) -> None:
    """Refuse a load so high that the unit of times must be wrong, and requests beyond memory."""
    peak_qps = (workload.peak_qps if isinstance(workload, RateTrace | Recorded)
                else workload.load_qps)
    largest = LARGEST_OVERLOAD * workers.capacity_qps
    if peak_qps is not None and peak_qps > largest:
        window = (f" (most requests in {min(PEAK_WINDOW_MS, workload.duration_ms):.4g} ms)"
                  if isinstance(workload, Recorded) else "")
        raise InvalidValueError(f"peak load{window} is beyond all that the workers could serve",
                                where="load_qps", value=peak_qps,
                                allowed=f"at most {largest:.4g} ({LARGEST_OVERLOAD:g} times "
                                f"the capacity); check the unit of the times")
    if workload.load_qps is not None:
        check_amount(workload.load_qps * workload.duration_ms / 1000.0)
