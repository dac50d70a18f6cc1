"""The fewest workers with which a scheme reaches an accuracy and a violation rate.

The problem: the least K such that the scheme, on K workers under a workload, has at most so many
violations and at least the accuracy that is asked for (:class:`~ramsis.bounds.Targets`), as
simulated: means over the seeds. Three steps:

1. *From below*: the fluid bound (:mod:`ramsis.bounds.workers`) gives a number of workers that no
   scheme can do with fewer than, or says that no number is enough, and what would be.
2. *Search*: for policies, which serve better on more workers, steps that double from there until
   the targets are met, then bisection between the last two. Each number tried has its own policies
   made and simulated. Other schemes may meet the targets on K workers and miss them on K + 1, as
   when they change to a model that just does not carry the load; so every number from the bound on
   is tried, for large fleets in strides of 1/50 of the bound and then one by one.
3. It stops at a number that meets the targets while the one before it does not, or is below the
   bound; for schemes that are no policies, at the first such number. Numbers end at SPAN times the
   bound, where the scheme is taken not to get there.

The same seeds give every scheme and number of workers the same arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ramsis.bounds import Targets, fewest_workers_bound, fewest_workers_bound_over_time
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError, describe
from ramsis.policy import Expectations, Policy, Rates
from ramsis.profiles import ProfileSet
from ramsis.sim import (
    Policies,
    RateTrace,
    Recorded,
    SchemeSpec,
    SimulationResult,
    Workload,
    simulate_profile,
)
from ramsis.sim.fleet import MAX_BATCH
from ramsis.sim.stations import StationsResult
from ramsis.synthesis.generate import generate_policy
from ramsis.synthesis.schemes import PolicyScheme, policy_scheme

__all__ = ["MOST_WORKERS", "SPAN", "Capacity", "Targets", "Trial", "doubling", "fewest_by_bound",
           "fewest_workers", "largest_batch", "not_reached", "try_workers"]

SPAN = 10
"""Largest number of workers tried, as a multiple of the bound's (and of 10 at least)."""
MOST_WORKERS = 10_000
"""Largest number of workers by the bound for which a search is begun."""
FIGURES = ("accuracy", "violation_rate", "effective_accuracy")
_STRIDES = 50
_WINDOWS = 256
_SHORTEST_WINDOW = 10.0  # in units of the SLO

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trial:
    """One number of workers that was tried.

    Attributes
    ----------
    workers : int
        Of all types.
    promise : Expectations or Rates or None
        Of the policies for a constant load.
    simulation : SimulationResult or StationsResult or None
        None where no policies could be made.
    targets : Targets
    refusal : str
        Why no policies could be made.
    """

    workers: int
    promise: Expectations | Rates | None
    simulation: SimulationResult | StationsResult | None
    targets: Targets
    refusal: str = ""

    @property
    def violation_rate(self) -> float:
        """Mean over the seeds; 1 without policies."""
        return self._mean("violation_rate", 1.0)

    @property
    def effective_accuracy(self) -> float:
        """Mean over the seeds; 0 without policies."""
        return self._mean("effective_accuracy", 0.0)

    @property
    def accuracy(self) -> float:
        """Of the queries in time in all seeds; 0 without any."""
        served = 1.0 - self.violation_rate
        return self.effective_accuracy / served if served > 0 else 0.0

    @property
    def met(self) -> bool:
        """Whether the means over the seeds reach the targets."""
        return (self.simulation is not None
                and self.targets.met(self.accuracy, self.violation_rate))

    @property
    def clear(self) -> bool | None:
        """Whether all of the figures' 95 % intervals is on the same side; None for one seed."""
        accuracy, late = self.half_width("accuracy"), self.half_width("violation_rate")
        if accuracy is None or late is None:
            return None
        sign = 1.0 if self.met else -1.0
        shifted = (self.accuracy - sign * accuracy,
                   min(1.0, max(0.0, self.violation_rate + sign * late)))
        return self.targets.met(*shifted) == self.met

    def half_width(self, figure: str) -> float | None:
        """Of the 95 % interval of a figure; None for one seed, or without policies."""
        return None if self.simulation is None else self.simulation.estimate(figure).half_width

    def figures(self) -> dict[str, Any]:
        """Promise and simulation under the names that every command uses."""
        row: dict[str, Any] = {f"expected_{name}": self.promise and getattr(self.promise, name)
                               for name in FIGURES}
        row |= {name: getattr(self, name) for name in FIGURES}
        return row | {f"{name}_half_width": self.half_width(name) for name in FIGURES}

    def _mean(self, figure: str, without: float) -> float:
        return without if self.simulation is None else self.simulation.estimate(figure).mean


@dataclass(frozen=True, eq=False)
class Capacity:
    """The fewest workers of a scheme.

    Attributes
    ----------
    scheme : str
        As asked for.
    answer : Trial
        The fewest workers that meet the targets.
    bound_workers : float
        Busy workers without which no scheme meets them.
    trials : tuple of Trial
        All that was tried, by number of workers.
    """

    scheme: str
    answer: Trial
    bound_workers: float
    trials: tuple[Trial, ...]

    @property
    def workers(self) -> int:
        """The fewest workers."""
        return self.answer.workers

    @property
    def workers_bound(self) -> int:
        """No scheme meets the targets with fewer."""
        return _whole(self.bound_workers)

    def row(self) -> dict[str, Any]:
        """The answer under the names that every command uses."""
        answer, result, targets = self.answer, self.answer.simulation, self.answer.targets
        assert isinstance(result, SimulationResult)
        row: dict[str, Any] = {
            "scheme": self.scheme, "load_qps": result.load_qps, "workers": self.workers,
            "workers_bound": self.workers_bound, "gap": self.workers - self.workers_bound,
            "bound_workers": self.bound_workers, "slo_ms": result.slo_ms,
            "service": result.service, "min_accuracy": targets.min_accuracy,
            "min_effective_accuracy": targets.min_effective_accuracy,
            "max_violation": targets.max_violation,
        }
        return row | answer.figures() | {
            "queries": sum(one.queries for one in result.metrics), "seeds": len(result.seeds),
            "clear": answer.clear, "tried": [one.workers for one in self.trials],
        }


def fewest_by_bound(
    profile: ProfileSet, workload: Workload, targets: Targets, *, slo_ms: float,
    service: str = "p95", max_batch: int = MAX_BATCH,
) -> float:
    """Busy workers without which no scheme with batches up to ``max_batch`` meets the targets.

    At a constant load in the long run; on a trace of rates for their mean arrivals. Other
    parameters are as of :func:`fewest_workers`.

    Raises
    ------
    InvalidValueError
        A number out of range, or no load.
    InfeasibleError
        No number of workers meets the targets; with the nearest that can be reached.
    """
    law = ServiceTimes.of(profile, service, max_batch)
    if isinstance(workload, RateTrace | Recorded) and workload.varies:
        counts, window_ms = _windows(workload, slo_ms)
        return fewest_workers_bound_over_time(law, targets, slo_ms=slo_ms, counts=counts,
                                       window_ms=window_ms)
    if workload.load_qps is None:
        raise InvalidValueError(describe("the load is not known beforehand", where="workload",
                                         value=workload, allowed="a constant load, or a trace"))
    return fewest_workers_bound(law, targets, slo_ms=slo_ms, load_qps=workload.load_qps)


def fewest_workers(
    profile: ProfileSet,
    workload: Workload,
    targets: Targets,
    *,
    slo_ms: float,
    scheme: str = "fleet",
    service: str = "p95",
    seeds: Sequence[int] = range(5),
    on_trial: Callable[[Trial], object] | None = None,
) -> Capacity:
    """The fewest workers with which a scheme meets the targets.

    Parameters
    ----------
    profile : ProfileSet
    workload : Workload
        A constant load, or a trace, on which the load monitor tells schemes the load.
    targets : Targets
    slo_ms : float
        Deadline after arrival, > 0.
    scheme : str
        ``fleet`` or ``worker``: policies made for each number of workers, with settings as
        ``worker:objective=per-decision`` (``levels`` of them on a trace); else a scheme of
        :mod:`ramsis.sim`, as ``jellyfish-plus:headroom=1.05``.
    service : str
        ``p95`` or another statistic, or ``distribution``.
    seeds : sequence of int
        Of the simulations.
    on_trial : callable, optional
        Told each trial as it is finished.

    Raises
    ------
    InvalidValueError
        A number or word out of range.
    InfeasibleError
        No number of workers meets the targets, or the scheme does not within :data:`SPAN` times
        the bound; with the nearest that can be reached.
    NotConvergedError
        A solver stopped before its rule was met.
    """
    spec = policy_scheme(scheme)
    bound = fewest_by_bound(profile, workload, targets, slo_ms=slo_ms, service=service,
                            max_batch=max(MAX_BATCH, largest_batch(spec)))
    lowest = _whole(bound)
    if lowest > MOST_WORKERS:
        raise InfeasibleError(describe("more workers than are searched for", where="workers",
                                       value=lowest, allowed=f"at most {MOST_WORKERS}"))

    @cache
    def tried(workers: int) -> Trial:
        trial = trials[workers] = try_workers(
            profile, workload, targets, workers, slo_ms=slo_ms, scheme=scheme, service=service,
            seeds=seeds)
        if on_trial is not None:
            on_trial(trial)
        return trial

    trials: dict[int, Trial] = {}
    search = doubling if isinstance(spec, PolicyScheme) else _one_by_one
    answer = search(lambda k: tried(k).met, lowest, SPAN * max(lowest, 10))
    if answer is None:
        not_reached(scheme, workload, trials[max(trials)])
    return Capacity(scheme, tried(answer), bound, tuple(trials[k] for k in sorted(trials)))


def try_workers(
    profile: ProfileSet,
    workload: Workload,
    targets: Targets,
    workers: int,
    *,
    slo_ms: float,
    scheme: str = "fleet",
    service: str = "p95",
    seeds: Sequence[int] = range(5),
) -> Trial:
    """What a scheme does on one number of workers; parameters as of :func:`fewest_workers`.

    Where no policies can be made for so few, as within a budget, the trial says why.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As when its policies are made and simulated.
    """
    spec, promise = policy_scheme(scheme), None
    terms: dict[str, Any] = {"slo_ms": slo_ms, "workers": workers, "service": service}
    if isinstance(spec, PolicyScheme):
        settings = spec.settings(**terms)
        try:
            policies: list[Policy] = [generate_policy(profile, load_qps, settings)
                                      for load_qps in _levels(spec, workload)]
        except InfeasibleError as error:
            return Trial(workers, None, None, targets, str(error))
        promise = None if workload.varies else policies[0].expectations
        spec = Policies(tuple(policies), scheme)
    result = simulate_profile(profile, spec, workload, seeds=seeds, **terms)
    return Trial(workers, promise, result, targets)


def _whole(workers: float) -> int:
    """The least number of workers that are at least so many."""
    return max(1, math.ceil(workers * (1.0 - 1e-9)))


def doubling(met: Callable[[int], bool], lowest: int, highest: int) -> int | None:
    """By doubling steps and bisection; None if not even the highest meets the targets."""
    missed, tried, step = lowest - 1, lowest, 1
    while not met(tried):
        if tried == highest:
            return None
        missed, tried, step = tried, min(tried + step, highest), 2 * step
    while tried - missed > 1:
        middle = (missed + tried) // 2
        missed, tried = (missed, middle) if met(middle) else (middle, tried)
    return tried


def _one_by_one(met: Callable[[int], bool], lowest: int, highest: int) -> int | None:
    """The first from the lowest on, by strides; None if the highest does not meet the targets."""
    if not met(highest):
        return None
    stride = max(1, lowest // _STRIDES)
    reached = next((k for k in range(lowest, highest, stride) if met(k)), highest)
    return next((k for k in range(max(lowest, reached - stride + 1), reached) if met(k)), reached)


def largest_batch(spec: PolicyScheme | SchemeSpec) -> int:
    """What a scheme may run beyond what every fleet can."""
    if isinstance(spec, PolicyScheme):
        return max(int(spec.given.get("max_batch", 1)), 1 + int(spec.given.get("max_queue", 1)))
    return int(getattr(spec, "max_batch", 1))


def _levels(spec: PolicyScheme, workload: Workload) -> tuple[float, ...]:
    """Loads that policies are made for."""
    if isinstance(workload, RateTrace) and workload.varies:
        return spec.loads(workload)
    if isinstance(workload, Recorded):
        return spec.levels_between(0.0, workload.peak_qps)
    assert workload.load_qps is not None  # refused with the bound
    return (workload.load_qps,)


def _windows(trace: RateTrace | Recorded, slo_ms: float) -> tuple[FloatArray, float]:
    """Mean arrivals in equal windows, and how long these are in ms."""
    longest = math.log2(max(1.0, trace.duration_ms / (_SHORTEST_WINDOW * slo_ms)))
    number = min(_WINDOWS, 2 ** int(longest))
    edges = np.linspace(0.0, trace.duration_ms, number + 1)
    if isinstance(trace, Recorded):
        before = np.searchsorted(trace.times_ms, edges).astype(float)
    else:
        steps = np.append(trace.start_ms, trace.end_ms)
        arrived = np.append(0.0, np.cumsum(trace.rate_qps / 1000.0 * np.diff(steps)))
        before = np.interp(edges, steps, arrived)
    return np.diff(before), trace.duration_ms / number


def not_reached(scheme: str, workload: Workload, last: Trial) -> NoReturn:
    """Refuse a scheme that misses the targets on ever so many workers."""
    targets, late = last.targets, last.violation_rate
    where_at = f"{scheme} at {workload.load_qps or 0.0:g} QPS"
    if last.simulation is None:
        raise InfeasibleError(
            f"{where_at}: no policies on {last.workers} workers: {last.refusal}")
    for where, wanted, found, allowed in (
        ("max_violation", targets.max_violation, late, f"at least {late:.6g}"),
        ("min_accuracy", targets.min_accuracy, last.accuracy, f"at most {last.accuracy:.6g}"),
        ("min_effective_accuracy", targets.min_effective_accuracy, last.effective_accuracy,
         f"at most {last.effective_accuracy:.6g}"),
    ):
        missed = found > (wanted or 0.0) if where == "max_violation" else found < (wanted or 0.0)
        if missed:
            raise InfeasibleError(describe(
                f"{where_at} does not reach this on {last.workers} workers",
                where=where, value=wanted, allowed=allowed))
    raise AssertionError("the last trial meets the targets")
