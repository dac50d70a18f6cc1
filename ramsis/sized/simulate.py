"""Simulation of requests with a size: figures in all and by size class.

Each seed has independent streams of random numbers for arrivals and sizes, the same for every
scheduler. Batches take exactly the time of the profile's statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals.process import check_amount
from ramsis.errors import InvalidValueError, check_positive
from ramsis.reprs import dataclass
from ramsis.sim.experiment import LARGEST_OVERLOAD
from ramsis.sim.metrics import Metrics, measure
from ramsis.sim.result import SimulationResult
from ramsis.sim.run import DROPPED, Run, Site
from ramsis.sim.workload import ConstantLoad, Workload
from ramsis.sized.problem import SizedProblem
from ramsis.sized.schedulers import Serving, SizedScheduler

if TYPE_CHECKING:
    from ramsis.sized import _kernels as kernels

_ARRIVALS, _SIZES = 0, 6  # of the streams of a seed: those of other simulations are between


@dataclass(frozen=True, eq=False)
class SizedRun:
    """Record of one run of requests with a size."""

    run: Run
    size: IntArray  # of each request, shape (n,)
    padding: float  # share of the computed size that is padding; 0 where nothing is padded
    figures: Mapping[str, float]  # figures that the scheduler itself reports, by name


@dataclass(frozen=True, eq=False)
class SizedResult:
    """Runs of one scheduler on one workload, one for each seed."""

    total: SimulationResult  # of all requests
    ranges: tuple[tuple[int, int], ...]  # smallest and largest size of each class
    by_class: tuple[SimulationResult, ...]  # of the requests of each class
    weights: tuple[float, ...]  # value of an answer in time at accuracy 1, of each class
    padding: float  # share of the computed size that is padding, mean over the seeds
    figures: Mapping[str, float]  # figures that the scheduler reports, means over the seeds

    def _summary(self) -> str:
        classes = ", ".join(
            f"{low}–{high}: {1.0 - result.violation_rate:.4f}"
            for (low, high), result in zip(self.ranges, self.by_class, strict=True))
        return f"{self.total._summary()}; in time by size {classes}"

    def row(self) -> dict[str, Any]:
        """Return the row of :meth:`ramsis.sim.SimulationResult.row`, with figures by class.

        ``by_class`` has the smallest and the largest size of each class, its share of the
        requests, the share of these that is answered in time with its half-width, and the mean
        accuracy of those in time, None without any. Where
        classes have different weights, ``value`` is the mean of accuracy × weight over all
        requests, 0 for those not in time.
        """
        row = self.total.row()
        row["padding"] = self.padding
        row["by_class"] = [self._class_row(i) for i in range(len(self.ranges))]
        if len({*self.weights}) > 1:
            row["value"] = float(np.mean([
                sum(weight * result.metrics[i].effective_accuracy * result.metrics[i].queries
                    for weight, result in zip(self.weights, self.by_class, strict=True))
                / max(total.queries, 1) for i, total in enumerate(self.total.metrics)]))
        return {**row, **self.figures}

    def _class_row(self, i: int) -> dict[str, Any]:
        """Return the mean figures of size class ``i`` over the seeds, as a row."""
        result = self.by_class[i]
        requests = sum(metrics.queries for metrics in result.metrics)
        violations = result.estimate("violation_rate")
        total = sum(metrics.queries for metrics in self.total.metrics)
        accuracy = result.estimate("accuracy").mean
        return {"sizes": list(self.ranges[i]), "share": requests / total if total else 0.0,
                "in_time_rate": 1.0 - violations.mean if requests else None,
                "in_time_rate_half_width": violations.half_width if requests else None,
                "accuracy": None if np.isnan(accuracy) else accuracy}


def simulate_sized(
    problem: SizedProblem, scheduler: SizedScheduler, workload: Workload, *,
    seeds: Sequence[int] = (0,), slowness: float = 1.0,
    on_run: Callable[[SizedRun], object] | None = None,
) -> SizedResult:
    """Simulate a scheduler of requests with a size.

    Parameters
    ----------
    problem : SizedProblem
        Its times are those that the scheduler assumes.
    scheduler : SizedScheduler
        Such as :func:`ramsis.sized.sized_scheduler` returns.
    workload : Workload
        Recorded requests have the sizes that were recorded, also as an arrival process that keeps
        them (:meth:`ramsis.arrivals.Arrivals.with_sizes_of`); other sizes are drawn from those of
        the problem.
    seeds : sequence of int
        Recorded requests with sizes are the same with each seed, so they are simulated once.
    slowness : float
        Service time as a multiple of what the scheduler assumes.
    on_run : callable, optional
        Called with each finished run.

    Raises
    ------
    InvalidValueError
        A parameter that does not fit the problem, a size beyond the profile, or a load beyond all
        that the workers could serve.
    """
    if not seeds:
        raise InvalidValueError("no seeds", where="seeds", value=list(seeds),
                                allowed="one or more whole numbers >= 0")
    check_positive(slowness=slowness)
    check_sized_load(problem, workload)
    total: list[Metrics] = []
    by_class: list[list[Metrics]] = [[] for _ in problem.ranges]
    padding, figures = [], []
    run: SizedRun | None = None
    for seed in seeds:
        if run is None or recorded_sizes(workload) is None:
            run = run_sized(problem, scheduler, workload, seed, slowness=slowness)
        total.append(measure(run.run))
        size_class = problem.class_of(run.size)
        for i, metrics in enumerate(by_class):
            metrics.append(measure(run.run, size_class == i))
        padding.append(run.padding)
        figures.append(run.figures)
        if on_run is not None:
            on_run(run)
    result = SimulationResult(
        scheduler=scheduler.name, workers=problem.workers, slo_ms=problem.slo_ms,
        service=problem.statistic, load_qps=workload.load_qps, monitored=False,
        duration_ms=workload.duration_ms, seeds=tuple(seeds), metrics=tuple(total))
    return SizedResult(
        result, problem.ranges,
        tuple(replace(result, metrics=tuple(metrics)) for metrics in by_class), problem.weights,
        float(np.mean(padding)),
        {name: float(np.mean([figure[name] for figure in figures])) for name in figures[0]})


def recorded_sizes(workload: Workload) -> IntArray | None:
    """Return the request sizes that a workload records; None if sizes are drawn by seed."""
    sizes: IntArray | None = getattr(workload, "sizes", None)
    return sizes


def drawn(
    problem: SizedProblem, workload: Workload, seed: int
) -> tuple[FloatArray, IntArray]:
    """Return arrival times and sizes of the requests of a seed, (n,) each; refuse larger sizes."""
    parts = np.random.SeedSequence(seed).spawn(_SIZES + 1)
    arrivals, of_sizes = (np.random.default_rng(parts[i]) for i in (_ARRIVALS, _SIZES))
    if isinstance(workload, ConstantLoad):
        check_amount(workload.process.rate_per_ms * workload.duration_ms)
        arrival_ms, sizes = problem.requests_of(workload.process, workload.duration_ms, arrivals,
                                                of_sizes)
    else:
        arrival_ms = workload.arrivals_ms(arrivals)
        recorded = recorded_sizes(workload)
        sizes = problem.sizes.sample(len(arrival_ms), of_sizes) if recorded is None else recorded
    if len(sizes) and sizes.max() > problem.max_size:
        raise InvalidValueError("a size beyond those of the profile", where="sizes",
                                value=int(sizes.max()),
                                allowed=f"1 to {problem.max_size} {problem.unit}")
    return arrival_ms, sizes


def run_sized(
    problem: SizedProblem, scheduler: SizedScheduler, workload: Workload, seed: int, *,
    slowness: float = 1.0,
) -> SizedRun:
    """Run a scheduler once; errors are those of :func:`simulate_sized`."""
    return serve_sized(problem, scheduler, *drawn(problem, workload, seed),
                       duration_ms=workload.duration_ms, slowness=slowness)


def serve_sized(
    problem: SizedProblem, scheduler: SizedScheduler, arrival_ms: FloatArray, size: IntArray, *,
    duration_ms: float, slowness: float = 1.0,
) -> SizedRun:
    """Serve requests with given arrival times, not falling, and sizes; both of shape (n,)."""
    from ramsis.sized import _kernels as kernels

    n, workers = len(arrival_ms), problem.workers
    stream = kernels.Stream(np.require(arrival_ms, float, ("C", "W")),
                            np.require(size, np.int64, ("C", "W")))
    room = kernels.room_for(n, workers)
    figures = scheduler.serve(Serving(
        problem, stream, kernels.Terms(problem.slo_ms, workers, float(slowness)), room))
    count = int(room.at[kernels.STARTED])
    dropped = np.flatnonzero(room.batch_of == DROPPED).astype(np.int32)
    site = Site(tuple(f"worker {i}" for i in range(workers)), np.zeros(workers, dtype=np.int64),
                np.ones(workers, dtype=bool), problem.models, problem.accuracy,
                [range(len(problem.models))] * workers, problem.models,
                np.arange(len(problem.models)), one_at_a_time=True)
    run = Run(
        site=site, duration_ms=duration_ms, arrival_ms=stream.arrival_ms,
        slo_ms=np.array([problem.slo_ms]), batch_of=room.batch_of.astype(np.int32),
        start_ms=room.start_ms[:count], finish_ms=room.finish_ms[:count],
        worker=room.worker[:count].astype(np.int32), model=room.model[:count].astype(np.int32),
        size=room.requests[:count].astype(np.int32),
        drop_request=dropped, drop_ms=room.drop_ms[dropped], figures=figures)
    return SizedRun(run, stream.size, _padding(problem, stream, room, count), figures)


def _padding(
    problem: SizedProblem, stream: kernels.Stream, room: kernels.Room, count: int
) -> float:
    """Return the share of the computed size that is padding."""
    if not problem.times.padded or not count:
        return 0.0
    batch_of = room.batch_of
    answered = batch_of >= 0
    longest = np.zeros(count, dtype=np.int64)
    np.maximum.at(longest, batch_of[answered], stream.size[answered])
    computed = float(longest @ room.requests[:count])
    return 1.0 - float(stream.size[answered].sum()) / computed


def capacity_qps(problem: SizedProblem) -> float:
    """Return the requests per second that full batches of equal sizes would serve, at most."""
    count = problem.max_batch
    measures = problem.sizes.values * (1 if problem.times.padded else count)
    each_ms = np.array([problem.batch_ms(count, int(x)).min() for x in measures]) / count
    return float(1000.0 * problem.workers / (problem.sizes.probability @ each_ms))


def check_sized_load(problem: SizedProblem, workload: Workload) -> None:
    """Refuse a load that can only be a mistaken unit of time."""
    peak_qps = getattr(workload, "peak_qps", workload.load_qps)
    largest = LARGEST_OVERLOAD * capacity_qps(problem)
    if peak_qps is not None and peak_qps > largest:
        raise InvalidValueError(
            "peak load is beyond all that the workers could serve", where="load_qps",
            value=peak_qps, allowed=f"at most {largest:.4g} ({LARGEST_OVERLOAD:g} times the "
            "capacity); check the unit of the times")
