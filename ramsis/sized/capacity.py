"""The fewest workers with which requests with a size are answered in time.

The search is that of all capacities (:mod:`ramsis.synthesis.capacity`), from the least number of
workers that the bound without padding (:mod:`ramsis.sized.bound`) allows. Each number of workers
that is tried has a policy made for it, whose promise decides at a constant load. On a trace the
policy is made for its mean load, and for arrivals that repeat it if it has the times of requests;
it is played on the trace with each seed, as other schedulers are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ramsis.arrivals.recorded import RepeatedRequests
from ramsis.arrivals.registry import AnyArrivals
from ramsis.arrivals.trace import Recorded
from ramsis.bounds import Targets, smallest
from ramsis.cluster.cluster import classes_of
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import ProfileSet
from ramsis.reprs import dataclass
from ramsis.sim.workload import ConstantLoad, Workload
from ramsis.sized.bound import path_bound, upper_bound
from ramsis.sized.policy import generate_sized
from ramsis.sized.problem import SizedProblem
from ramsis.sized.schedulers import POLICY, sized_scheduler
from ramsis.sized.search import class_shares
from ramsis.sized.simulate import check_sized_load, drawn, simulate_sized
from ramsis.synthesis.capacity import FIGURES, Capacity, MeasuredRates, Trial, offered_types
from ramsis.synthesis.capacity.fewest import not_reached, search_workers

_MOST_WORKERS = 4096
_STRETCHES = 8  # of 4,000 requests, for the bound
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class SizedTrial(Trial):
    """Trial of one number of workers with a share in time for each size class."""

    by_class: Sequence[Mapping[str, Any]] = ()  # as of :meth:`ramsis.sized.SizedResult.row`
    shares: Sequence[float] | None = None  # of each class, that are to be in time

    @classmethod
    def of_row(
        cls, row: Mapping[str, Any], targets: Targets, shares: Sequence[float] | None = None,
        promise: Mapping[str, Any] | None = None,
    ) -> SizedTrial:
        """Return the trial with the figures of a row of :meth:`ramsis.sized.SizedResult.row`."""
        workers = row["workers"]
        return cls(workers, promise, MeasuredRates.of_row(row), targets, counts=(workers,),
                   by_class=row["by_class"], shares=shares)

    @property
    def met(self) -> bool:
        """Whether the rates reach the targets, and each class its share."""
        return super().met and self._least_margin(0.0) >= -_ROUNDING

    @property
    def clear(self) -> bool | None:
        """Whether ``met`` is the same at both ends of the 95 % intervals; None if unknown."""
        rates = super().clear
        if self.shares is None or rates is None:
            return rates
        if not super().met:  # a clear miss of the rates decides alone, else that of a class may
            return rates or self._least_margin(-1.0) < -_ROUNDING
        low, high = (self._least_margin(end) >= -_ROUNDING for end in (1.0, -1.0))
        return (rates and low) if self.met else not high

    def _least_margin(self, end: float) -> float:
        """Return the least margin, over the classes, of the share in time above the one asked for.

        ``end`` is 1 for the bad ends of the intervals, -1 for the good ones, 0 for the means.
        """
        if self.shares is None:
            return 0.0
        return min((entry["in_time_rate"] - end * (entry["in_time_rate_half_width"] or 0.0) - share
                    for entry, share in zip(self.by_class, self.shares, strict=True)
                    if entry["in_time_rate"] is not None), default=0.0)


def fewest_workers_of_sizes(
    problem: SizedProblem, profile: ProfileSet, workload: Workload, targets: Targets, *,
    scheduler: str = POLICY, min_in_time_by_class: float | Sequence[float] | None = None,
    seeds: Sequence[int] = range(5),
    on_trial: Callable[[SizedTrial], object] = lambda trial: None,
) -> dict[str, Any]:
    """Find the fewest workers that meet targets; the workers of ``problem`` do not matter.

    ``profile`` is where the times of the problem are from. ``scheduler`` is ``central-queue``,
    policies made for each number of workers, or one of :func:`ramsis.sized.sized_scheduler`.
    ``min_in_time_by_class`` is the share of each size class that is in time, or a share for each.
    The answer is under the names of :meth:`ramsis.synthesis.capacity.Capacity.row`, with
    ``by_class``, ``min_in_time_by_class`` and ``unit``. InfeasibleError: the scheduler does not
    meet the targets within ten times the bound, or no workers do.
    """
    lowest = fewest_by_bound_of_sizes(problem, workload, targets, seed=seeds[0],
                                      min_in_time_by_class=min_in_time_by_class)
    shares = class_shares(problem, min_in_time_by_class)

    def tried(workers: int) -> SizedTrial:
        trial = _trial(replace(problem, workers=workers), profile, workload, scheduler, targets,
                       shares, seeds)
        on_trial(trial)
        return trial

    answer, trials = search_workers(tried, lowest, rising=scheduler == POLICY)
    if not answer.met:
        _check_classes(problem, scheduler, workload, answer)
        not_reached(scheduler, workload, answer)
    found = Capacity(scheduler, workload.load_qps, offered_types(profile),
                     classes_of(problem.slo_ms), problem.statistic, answer, float(lowest),
                     (lowest,), trials)
    return {**found.row(), "unit": problem.unit, "by_class": list(answer.by_class),
            "min_in_time_by_class": None if shares is None else shares.tolist()}


def _trial(
    problem: SizedProblem, profile: ProfileSet, workload: Workload, scheduler: str,
    targets: Targets, shares: np.ndarray | None, seeds: Sequence[int],
) -> SizedTrial:
    """Try a scheduler on the workers of a problem."""
    trial_of = partial(SizedTrial.of_row, targets=targets,
                       shares=None if shares is None else shares.tolist())
    if scheduler != POLICY:
        return trial_of(simulate_sized(problem, sized_scheduler(scheduler), workload,
                                       seeds=seeds).row())
    if workload.load_qps is None:
        raise InvalidValueError("the load is not known beforehand", where="workload",
                                value=workload, allowed="a constant load, or a trace")
    arrivals: AnyArrivals = getattr(workload, "arrivals", "poisson")
    if isinstance(workload, Recorded):
        arrivals = partial(RepeatedRequests, times_ms=workload.times_ms,
                           duration_ms=workload.duration_ms, sizes=workload.sizes)
    policy = generate_sized(
        problem, profile, workload.load_qps, arrivals=arrivals,
        min_in_time_by_class=None if shares is None else shares.tolist())
    if not isinstance(workload, ConstantLoad):
        return trial_of(simulate_sized(problem, policy.scheduler, workload, seeds=seeds).row())
    expected = policy.expectations
    return trial_of({**expected, "workers": problem.workers, "accuracy_half_width": 0.0,
                     "queries": expected["runs"] * expected["requests"],
                     "seeds": expected["runs"]},
                    promise={f"expected_{name}": expected[name] for name in FIGURES})


def _check_classes(
    problem: SizedProblem, scheduler: str, workload: Workload, last: SizedTrial
) -> None:
    """Refuse a scheduler that misses only the share in time of a class, however many workers."""
    if last.rates is None or not last.rates.met(last.targets) or last.shares is None:
        return
    for (low, high), entry, share in zip(problem.ranges, last.by_class, last.shares, strict=True):
        reached = entry["in_time_rate"]
        if reached is not None and reached < share - _ROUNDING:
            raise InfeasibleError(
                f"{scheduler} at {workload.load_qps or 0.0:g} QPS does not reach this share of "
                f"{low}–{high} {problem.unit} on {last.workers} workers",
                where="min_in_time_by_class", value=share, allowed=f"at most {reached:.6g}")


def _check_reachable(
    problem: SizedProblem, targets: Targets, shares: Sequence[float] | np.ndarray | None
) -> None:
    """Refuse targets that no number of workers reaches: sizes that take too long alone."""
    able = np.array([problem.batch_ms(1, int(size)).min() <= problem.slo_ms
                     for size in problem.sizes.values])
    share = float(problem.sizes.probability[able].sum())
    best = float(problem.accuracy.max())
    if 1.0 - targets.max_violation > share + _ROUNDING:
        raise InfeasibleError(
            "no number of workers reaches this share of violations", where="max_violation",
            value=targets.max_violation, allowed=f"at least {1.0 - share:.6g}: the other sizes "
            "take longer than the SLO alone")
    for name, wanted, most in (("min_accuracy", targets.min_accuracy, best),
                               ("min_effective_accuracy", targets.min_effective_accuracy,
                                best * share)):
        if wanted is not None and wanted > most + _ROUNDING:
            raise InfeasibleError("no number of workers reaches this accuracy", where=name,
                                  value=wanted, allowed=f"at most {most:.6g}")
    size_class = problem.class_of(problem.sizes.values)
    for i, wanted in enumerate([] if shares is None else shares):
        mass = problem.sizes.probability[size_class == i]
        most = float(mass[able[size_class == i]].sum() / mass.sum()) if mass.size else 1.0
        if wanted > most + _ROUNDING:
            low, high = problem.ranges[i]
            raise InfeasibleError(
                f"no number of workers reaches this share of {low}–{high} {problem.unit}",
                where="min_in_time_by_class", value=float(wanted), allowed=f"at most {most:.6g}")


def fewest_by_bound_of_sizes(
    problem: SizedProblem, workload: Workload, targets: Targets, *, seed: int = 0,
    min_in_time_by_class: float | Sequence[float] | None = None,
) -> int:
    """Return the fewest workers that the bound without padding allows.

    Parameters are as of :func:`fewest_workers_of_sizes`, ``seed`` that of the requests of the
    bound. Targets that no number of workers reaches are refused.
    """
    if targets.every_ms is not None:
        raise InvalidValueError("not for requests with a size", where="every_ms",
                                value=targets.every_ms, allowed="targets for the whole trace")
    _check_reachable(problem, targets, class_shares(problem, min_in_time_by_class))
    check_sized_load(replace(problem, workers=_MOST_WORKERS), workload)
    process = workload.process if isinstance(workload, ConstantLoad) else None
    requests = drawn(problem, workload, seed) if process is None else None

    def allowed(workers: int) -> bool:
        there = replace(problem, workers=workers, weights=(1.0,) * len(problem.edges))
        if process is not None:
            bound = upper_bound(there, process, rounds=0, stretches=_STRETCHES, seed=seed)
        else:
            assert requests is not None
            bound = path_bound(there, *requests, rounds=0)
        return (bound.in_time + bound.in_time_half_width >= 1.0 - targets.max_violation
                and bound.upper_bound + bound.half_width >= (
                    targets.min_effective_accuracy or 0.0) - _ROUNDING)

    lowest = smallest(allowed, 1, _MOST_WORKERS)
    if lowest is None:
        raise InfeasibleError("more workers than are searched for", where="workers",
                              value=_MOST_WORKERS, allowed=f"at most {_MOST_WORKERS}")
    return lowest
