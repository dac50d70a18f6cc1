"""The fewest workers with which requests with a size are answered in time.

The search is that of all capacities (:func:`ramsis.bounds.smallest`): from the least number of
workers that the bound without padding (:mod:`ramsis.sized.bound`) allows, in steps that double,
then by bisection. Each number of workers that is tried has a policy made for it, whose promise
decides at a constant load; on a trace the policy for its mean load is played with each seed, as
other schedulers are. Schedulers that are no policies may serve worse on more workers, so every
number from the bound on is tried for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ramsis.bounds import Targets, smallest
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import ProfileSet
from ramsis.sim.workload import ConstantLoad, Workload
from ramsis.sized.bound import path_bound, upper_bound
from ramsis.sized.policy import generate_sized
from ramsis.sized.problem import SizedProblem
from ramsis.sized.schedulers import POLICY, sized_scheduler
from ramsis.sized.search import class_shares
from ramsis.sized.simulate import drawn, simulate_sized

SPAN = 10
"""Largest number of workers tried, as a multiple of the bound's (and of 10 at least)."""
_MOST_WORKERS = 4096
_FIGURES = ("accuracy", "violation_rate", "effective_accuracy")
_STRETCHES = 8  # of 4,000 requests, for the bound
_ROUNDING = 1e-9


def fewest_workers_of_sizes(
    problem: SizedProblem, profile: ProfileSet, workload: Workload, targets: Targets, *,
    scheduler: str = POLICY, min_in_time_by_class: float | Sequence[float] | None = None,
    seeds: Sequence[int] = range(5),
    on_trial: Callable[[Mapping[str, Any]], object] = lambda trial: None,
) -> dict[str, Any]:
    """Find the fewest workers that meet targets.

    Parameters
    ----------
    problem : SizedProblem
        Its workers do not matter.
    profile : ProfileSet
        Where the times of the problem are from.
    workload : Workload
        A constant load, or a trace.
    targets : Targets
        Without windows.
    scheduler : str
        ``central-queue``, policies made for each number of workers, or a scheduler of
        :func:`ramsis.sized.sized_scheduler`.
    min_in_time_by_class : float or sequence of float, optional
        Share of each size class that is in time, or a share for each.
    seeds : sequence of int
        Of simulations.
    on_trial : callable
        Called with the row of each number of workers.

    Returns
    -------
    dict
        The answer under the names of :meth:`ramsis.synthesis.capacity.Capacity.row`, and
        ``by_class``.

    Raises
    ------
    InvalidValueError
        A number out of range, or windows.
    InfeasibleError
        No workers meet the targets, or the scheduler does not within :data:`SPAN` times the bound.
    """
    if targets.every_ms is not None:
        raise InvalidValueError("not for requests with a size", where="every_ms",
                                value=targets.every_ms, allowed="targets for the whole trace")
    shares = class_shares(problem, min_in_time_by_class)
    _check_reachable(problem, targets, shares)
    lowest = _fewest_by_bound(problem, workload, targets, seeds[0])
    trials: dict[int, dict[str, Any]] = {}

    def met(workers: int) -> bool:
        trial = _trial(replace(problem, workers=workers), profile, workload, scheduler,
                       min_in_time_by_class, seeds)
        trials[workers] = trial
        on_trial(trial)
        return _meets(trial, targets, shares)

    answer = smallest(met, lowest, SPAN * max(lowest, 10), rising=scheduler == POLICY)
    if answer is None:
        last = trials[max(trials)]
        raise InfeasibleError(
            f"{scheduler} at {workload.load_qps or 0.0:g} QPS does not reach this on "
            f"{last['workers']} workers", where="max_violation", value=targets.max_violation,
            allowed=f"at least {last['violation_rate']:.6g}")
    row = trials[answer]
    # Certain where the ends of the intervals say the same of this number and of all below.
    ends = [[_meets(trial, targets, shares, end) for end in (-1.0, 1.0)]
            for workers, trial in trials.items() if workers <= answer]
    wide = any(row[f"{name}_half_width"] is None for name in _FIGURES)
    return {
        "scheduler": scheduler, "load_qps": workload.load_qps, "workers": answer,
        "workers_bound": lowest, "gap": answer - lowest, "slo_ms": problem.slo_ms,
        "service": problem.statistic, "min_accuracy": targets.min_accuracy,
        "min_effective_accuracy": targets.min_effective_accuracy,
        "max_violation": targets.max_violation,
        "min_in_time_by_class": None if shares is None else shares.tolist(),
        **{key: value for key, value in row.items() if key not in ("workers", "met")},
        "unit": problem.unit, "clear": None if wide else all(
            low == high for low, high in ends),
        "tried": sorted(trials),
        "trials": [{key: trials[workers][key] for key in (
            "workers", *_FIGURES, *(f"{name}_half_width" for name in _FIGURES))}
            for workers in sorted(trials)],
    }


def _trial(
    problem: SizedProblem, profile: ProfileSet, workload: Workload, scheduler: str,
    min_in_time_by_class: float | Sequence[float] | None, seeds: Sequence[int],
) -> dict[str, Any]:
    """Return the figures of a scheduler on the workers of a problem."""
    expected: Mapping[str, Any] = {}
    if scheduler == POLICY:
        if workload.load_qps is None:
            raise InvalidValueError("the load is not known beforehand", where="workload",
                                    value=workload, allowed="a constant load, or a trace")
        constant = isinstance(workload, ConstantLoad)
        policy = generate_sized(
            problem, profile, workload.load_qps, min_in_time_by_class=min_in_time_by_class,
            arrivals=getattr(workload, "arrivals", "poisson"))
        if constant:
            expected = policy.expectations
            figures: Mapping[str, Any] = {
                **expected, "accuracy_half_width": 0.0,
                "queries": expected["runs"] * expected["requests"], "seeds": expected["runs"]}
        else:
            figures = simulate_sized(problem, policy.scheduler, workload, seeds=seeds).row()
    else:
        figures = simulate_sized(problem, sized_scheduler(scheduler), workload, seeds=seeds).row()
    return {
        "workers": problem.workers,
        **{f"expected_{name}": expected.get(name) for name in _FIGURES},
        **{name: figures[name] or 0.0 for name in _FIGURES},
        **{f"{name}_half_width": figures[f"{name}_half_width"] for name in _FIGURES},
        "queries": figures["queries"], "seeds": figures["seeds"],
        "by_class": list(figures["by_class"]),
    }


def _meets(
    trial: Mapping[str, Any], targets: Targets, shares: Sequence[float] | np.ndarray | None,
    end: float = 0.0,
) -> bool:
    """Return whether figures reach the targets, or those at an end of their intervals.

    ``end`` is 1 for the bad ends, -1 for the good ones.
    """
    def at_end(row: Mapping[str, Any], name: str) -> float:
        return float(row[name]) - end * float(row[f"{name}_half_width"] or 0.0)

    late = trial["violation_rate"] + end * (trial["violation_rate_half_width"] or 0.0)
    return (late <= targets.max_violation + _ROUNDING
            and at_end(trial, "accuracy") >= (targets.min_accuracy or 0.0) - _ROUNDING
            and at_end(trial, "effective_accuracy") >= (
                targets.min_effective_accuracy or 0.0) - _ROUNDING
            and (shares is None or all(
                entry["in_time_rate"] is None
                or at_end(entry, "in_time_rate") >= share - _ROUNDING
                for entry, share in zip(trial["by_class"], shares, strict=True))))


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


def _fewest_by_bound(
    problem: SizedProblem, workload: Workload, targets: Targets, seed: int
) -> int:
    """Return the fewest workers that the bound without padding allows."""
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
