"""Trials of a scheduler on a number of workers, held against targets, also in each time window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals import Arrivals
from ramsis.arrivals.registry import arrivals_of
from ramsis.bounds import Targets
from ramsis.cluster import Cluster
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.policy import CascadePromise, Level, Policy, rates_of
from ramsis.reprs import dataclass
from ramsis.sim import (
    ConstantLoad,
    Estimate,
    Fleets,
    FleetScheduler,
    Run,
    SimulationSettings,
    TimeSeries,
    Workload,
    check_load,
    over_time,
    simulate,
)
from ramsis.sim.experiment import largest_batch
from ramsis.sim.time_series import MOST_BINS
from ramsis.synthesis.capacity.steady_rates import MeasuredRates, steady_rates
from ramsis.synthesis.schedulers import fleet_scheduler, planned_arrivals

FIGURES = ("accuracy", "violation_rate", "effective_accuracy")
"""Names of the figures that are promised and measured."""


@dataclass(frozen=True, eq=False)
class Trial:
    """Trial of one number of workers: rates, promise and targets.

    Attributes
    ----------
    workers : int
        Number of workers of all types together.
    promise : mapping of str to number, or None
        Promise of the policies for a constant load, by the names of a policy set's level; None
        where they were made for other arrivals or service times.
    rates : MeasuredRates or None
        The rates that are compared with the targets; None where no policies could be made.
    targets : Targets
    refusal : str
        Why no policies could be made.
    counts : tuple of int
        Workers of each type that there is, where there are several.
    windows : Windows or None
        Windows of a trace, in each of which the targets must be met.
    opinions : mapping of str to float
        Share, gain and its error of second opinions, as promised; empty where none were asked for.
    """

    workers: int
    promise: Mapping[str, Any] | None
    rates: MeasuredRates | None
    targets: Targets
    refusal: str = ""
    counts: tuple[int, ...] = ()
    windows: Windows | None = None
    opinions: Mapping[str, float] = field(default_factory=dict)

    @property
    def violation_rate(self) -> float:
        """Share of the requests not in time; 1 without policies."""
        return 1.0 if self.rates is None else self.rates.violation_rate.mean

    @property
    def effective_accuracy(self) -> float:
        """Mean accuracy, those not in time counting 0; 0 without policies."""
        return 0.0 if self.rates is None else self.rates.effective_accuracy.mean

    @property
    def accuracy(self) -> float:
        """Mean accuracy of the requests in time; 0 without any."""
        return 0.0 if self.rates is None else self.rates.accuracy.mean

    @property
    def met(self) -> bool:
        """Whether the rates reach the targets, in each window where that is asked for."""
        return (self.rates is not None and self.rates.met(self.targets)
                and not (self.windows is not None and self.windows.missed))

    @property
    def clear(self) -> bool | None:
        """Whether ``met`` is the same at both ends of the 95 % intervals; None if unknown."""
        return True if self.rates is None else self.rates.clear(self.targets)

    def half_width(self, figure: str) -> float | None:
        """Return half of a figure's 95 % interval; None for one seed, or without policies."""
        if self.rates is None:
            return None
        half: float | None = getattr(self.rates, figure).half_width
        return half

    def figures(self) -> dict[str, Any]:
        """Return promised and measured figures under the names that every command uses."""
        promise = self.promise or {}
        row: dict[str, Any] = {f"expected_{name}": promise.get(f"expected_{name}")
                               for name in FIGURES}
        row |= {name: getattr(self, name) for name in FIGURES}
        return row | {f"{name}_half_width": self.half_width(name) for name in FIGURES} | (
            {} if self.windows is None else self.windows.row()) | dict(self.opinions)


def try_workers(
    cluster: Cluster,
    workload: Workload,
    targets: Targets,
    *,
    scheduler: str = "central-queue",
    service: str | None = None,
    seeds: Sequence[int] = range(5),
    on_level: Callable[[], object] | None = None,
) -> Trial:
    """Try a scheduler on a cluster, as precisely as the targets need.

    At a constant load the promise of policies decides, which was measured in the steady state. If
    its error is too large for a clear verdict, more requests are simulated. Schedulers without a
    promise are simulated in any case
    (:func:`ramsis.synthesis.capacity.steady_rates.steady_rates`). A trace is played from beginning
    to end.

    If no policies can be made for so few workers, such as within a budget, the trial has the
    reason and no figures.

    Parameters
    ----------
    cluster : Cluster
    workload, targets, scheduler, service, seeds
        As in :func:`ramsis.synthesis.capacity.fewest_workers`.
    on_level : callable, optional
        Called as each policy is finished.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As when its policies are made and simulated.
    """
    named = fleet_scheduler(scheduler)
    service = service or cluster.default_service
    try:
        spec, policies = named.ready(cluster, named.loads_for(workload), service=service,
                                     arrivals=planned_arrivals(workload, cluster.slo_ms,
                                                               divided=not cluster.simple),
                                     source=scheduler, on_level=on_level)
    except InfeasibleError as error:
        return Trial(cluster.workers, None, None, targets, str(error))
    settings = SimulationSettings(service=service, seeds=seeds)
    if not isinstance(workload, ConstantLoad):
        rates, windows = _played(cluster, spec, workload, settings, targets)
        return Trial(cluster.workers, None, rates, targets, windows=windows)
    if targets.every_ms is not None:
        raise InvalidValueError("a constant load has no windows", where="every_ms",
                                value=targets.every_ms, allowed="a trace")
    promise = promised = None
    opinions: Mapping[str, float] = {}
    if policies is not None:
        level = policies.levels.levels[0]
        if named.given.get("cascades"):
            opinions = _opinions(level)
        if _is_promise(level, workload, service):
            promise, promised = level.expected, _promised(level)
        if promised is not None and promised.clear(targets):
            return Trial(cluster.workers, promise, promised, targets, opinions=opinions)
    fleets = Fleets.of(cluster, service=service, max_batch=largest_batch([spec]))
    check_load(fleets, workload)
    rates = steady_rates(spec.on_cluster(fleets), workload, settings, targets, known=promised)
    return Trial(cluster.workers, promise, rates, targets, opinions=opinions)


def _played(
    cluster: Cluster, spec: FleetScheduler, workload: Workload, settings: SimulationSettings,
    targets: Targets,
) -> tuple[MeasuredRates, Windows | None]:
    """Return the rates on a trace, over all seeds.

    If two seeds give the same run, as where arrivals and service times are recorded and fixed, all
    others would, too, and are not simulated.
    """
    keep = targets.every_ms is not None
    first = simulate(cluster, spec, workload, replace(settings, seeds=settings.seeds[:2]),
                     keep_runs=keep)
    if len(settings.seeds) > 2 and first.metrics[0] != first.metrics[1]:
        more = simulate(cluster, spec, workload, replace(settings, seeds=settings.seeds[2:]),
                        keep_runs=keep)
        first = replace(first, metrics=first.metrics + more.metrics, runs=first.runs + more.runs,
                        seeds=first.seeds + more.seeds)
    return MeasuredRates.of_runs(first), Windows.of(first.runs, targets)


def _is_promise(level: Level[Policy], workload: ConstantLoad, service: str) -> bool:
    """Return whether policies were made for a simulation's arrivals and service times."""
    return all(
        station.policy.service == service and station.policy.overhead_ms == 0.0
        and station.policy.arrivals["process"] == arrivals_of(workload.arrivals).name
        and Arrivals.of(station.policy.arrivals) == arrivals_of(workload.arrivals)
        for station in level.stations)


def _promised(level: Level[Policy]) -> MeasuredRates | None:
    """Return the promise of policies, where it was measured."""
    stations = [station.policy for station in level.stations]
    if stations[0].cascade is not None:  # then it is the only station
        return _promised_with_opinions(stations[0].cascade.promise)
    replays = [policy.replay for policy in stations if policy.replay is not None]
    if len(replays) < len(stations):
        return None
    shares = np.array([policy.load_qps for policy in stations])
    shares /= shares.sum()

    def half(of_each: Sequence[float]) -> float:
        return float(np.linalg.norm(shares * of_each))

    expected = rates_of(zip(shares.tolist(), stations, strict=True))
    return MeasuredRates(
        Estimate(expected.violation_rate,
                 half([replay.violation_half_width for replay in replays])),
        Estimate(expected.effective_accuracy,
                 half([replay.effective_half_width for replay in replays])),
        Estimate(expected.accuracy or 0.0,
                 half([replay.half_widths.get("accuracy", 0.0) for replay in replays])),
        sum(replay.queries for replay in replays), sum(replay.runs for replay in replays))


def _promised_with_opinions(promise: CascadePromise) -> MeasuredRates:
    """Return the promise of a policy with second opinions."""
    served = 1.0 - promise.violation_rate
    accuracy = promise.effective_accuracy / served if served else 0.0
    late, effective = promise.violation_half_width, promise.effective_half_width
    return MeasuredRates(
        Estimate(promise.violation_rate, late), Estimate(promise.effective_accuracy, effective),
        # The error as if those of both rates were at their worst at the same time.
        Estimate(accuracy, (effective + accuracy * late) / served if served else 1.0),
        promise.queries, promise.runs)


def _opinions(level: Level[Policy]) -> dict[str, float]:
    """Return share, gain and its error of second opinions; zeros where they do not pay."""
    cascade = level.stations[0].policy.cascade
    return {"second_opinions": cascade.promise.second_opinions if cascade else 0.0,
            "gain": cascade.promise.gain if cascade else 0.0,
            "gain_error": cascade.promise.gain_error if cascade else 0.0}


@dataclass(frozen=True)
class Windows:
    """Windows of equal length of one run or several; those without requests are left out.

    What remains at the end and is shorter than half a window belongs to the window before it.
    """

    every_ms: float  # length of a window
    count: int
    missed: int  # windows in which the targets are not met
    # the window with the least effective accuracy: its start and its rates
    start_ms: float
    accuracy: float
    violation_rate: float

    @classmethod
    def of(cls, runs: Sequence[Run], targets: Targets) -> Windows | None:
        """Compare the windows of runs with targets.

        None where the targets are for the mean alone, or no request arrived. Equal runs, as on
        recorded requests, count once.

        Raises
        ------
        InvalidValueError
            More than :data:`~ramsis.sim.time_series.MOST_BINS` windows.
        """
        every_ms = targets.every_ms
        if every_ms is None:
            return None
        shortest_ms = max(run.duration_ms for run in runs) / MOST_BINS
        if every_ms < shortest_ms:
            raise InvalidValueError("too many windows", where="every_ms", value=every_ms,
                                    allowed=f"at least {shortest_ms:g} ms: a million windows")
        windows = [_whole_windows(run, every_ms) for run in runs]
        different = windows[:1] + [each for each in windows[1:]
                                   if not np.array_equal(each, windows[0])]
        columns = np.concatenate(different, axis=1)
        start_ms, requests, in_time, reward = columns[:, columns[1] > 0]
        if not len(requests):
            return None
        accuracy = reward / np.maximum(in_time, 1)  # 0 where none was in time
        late = 1.0 - in_time / requests
        met = [targets.met(*rates) for rates in zip(accuracy.tolist(), late.tolist(), strict=True)]
        worst = int(np.argmin(reward / requests))
        return cls(every_ms, len(met), met.count(False), float(start_ms[worst]),
                   float(accuracy[worst]), float(late[worst]))

    def row(self) -> dict[str, Any]:
        """Return the figures of the windows by their names in results."""
        return {"every_s": self.every_ms / 1000.0, "windows": self.count,
                "windows_missed": self.missed, "worst_window_s": self.start_ms / 1000.0,
                "worst_window_accuracy": self.accuracy,
                "worst_window_violation_rate": self.violation_rate}


def _whole_windows(run: Run, every_ms: float) -> FloatArray:
    """Return start, requests, requests in time and reward of each window, shape (4, windows)."""
    series = over_time(run, every_ms)
    columns = np.stack([series.start_ms, series.queries, series.in_time,
                        np.nan_to_num(series.accuracy) * series.in_time])
    # A short window has so few requests that one late among them would decide the search.
    if len(series.start_ms) > 1 and run.duration_ms - series.start_ms[-1] < every_ms / 2.0:
        columns[1:, -2] += columns[1:, -1]
        columns = columns[:, :-1]
    return columns


def busiest_tenth(series: TimeSeries) -> float:
    """Return the effective accuracy of the bins with the highest loads, a tenth of the time."""
    order = np.argsort(-series.queries, kind="stable")[:max(1, round(len(series.queries) / 10))]
    requests = series.queries[order]
    earned = np.nan_to_num(series.effective_accuracy[order]) * requests
    return float(earned.sum() / requests.sum()) if requests.sum() else 0.0
