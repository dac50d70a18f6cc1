"""Placement of a problem: patterns, program, solution, named workers, independent check.

Workers of a type that currently hold the same set of variants are interchangeable, and so are
workers that get the same pattern. With x_cp workers that hold the set c and get pattern p,

    max  Σ_cp (load time of c ∩ p) x_cp,  then  Σ_cp |c ∩ p| x_cp
    s.t. Σ_p x_cp <= workers that hold c,    Σ_c x_cp <= workers that get p,    x >= 0.

This is a transportation problem: its vertices are integral, and the dual simplex method ends at
one. The remaining workers are assigned in order, empty ones first.

Before that, layouts are assigned to named partitioned GPUs: the layouts counted for a state go to
the first GPUs in this state. Of the instances of these GPUs, existing ones are used first.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement_milp.backend import Limits
from placement_milp.check import check_placement
from placement_milp.consistency import check_consistency
from placement_milp.formulation import Cut, gpu_states
from placement_milp.optimise import Optimum, optimise
from placement_milp.partitions import instance_worker
from placement_milp.patterns import Pattern, Quality, rates_of
from placement_milp.problem import Family, Problem, WorkerType
from placement_milp.result import CutGpu, FamilyResult, Group, Move, Placement, Point, Stage, Use
from ramsis.errors import NotConvergedError

_Change = tuple[tuple[str, ...], tuple[str, ...], float]
_EMPTY: frozenset[str] = frozenset()


def place(problem: Problem, limits: Limits | None = None) -> Placement:
    """Compute the optimal placement of a problem: variants, batches and loads of all workers.

    Parameters
    ----------
    limits : Limits, optional
        Gap, time limit and solver.

    Returns
    -------
    Placement
        With objective, dual bound and gap; checked by independent code.
    """
    limits = limits or Limits()
    check_consistency(problem, f"problem {problem.name}")
    if problem.objective.kind == "pareto":
        return _front(problem, limits)
    return placed(problem, optimise(problem, limits))


def _front(problem: Problem, limits: Limits) -> Placement:
    """Return the most accurate placement, with the Pareto front down to the cheapest.

    The points are at equal steps of the budget (epsilon constraint). At each step, the point is
    the cheapest of the most accurate placements within the budget.
    """
    start = time.perf_counter()
    placements: list[Placement] = []
    ended = {"optimal"}

    def add(budget: float | None, *order: str) -> bool:
        """Solve for a point of the Pareto front; return whether to continue."""
        seconds = limits.left(start)
        # An incomplete front is valid if it has at least one point.
        if "interrupted" in ended or (placements and seconds is not None and seconds <= 0):
            ended.add("time-limit")
            return False
        objective = replace(problem.objective, kind="lexicographic", order=order)
        rules = replace(problem.rules, max_cost_per_hour=budget)
        try:
            placements.append(place(replace(problem, objective=objective, rules=rules),
                                    replace(limits, seconds=seconds)))
        except (NotConvergedError, KeyboardInterrupt) as error:
            if not placements:
                raise
            stopped = isinstance(error, KeyboardInterrupt)
            ended.add("interrupted" if stopped else "time-limit")
            return False
        ended.add(placements[-1].status)
        return True

    limit = problem.rules.max_cost_per_hour
    # The two ends of the front: the most accurate placement, then the cheapest.
    more = add(limit, "effective-accuracy", "cost") and add(limit, "cost", "effective-accuracy")
    steps = problem.objective.points - 1
    if more:
        high, low = placements[0].cost_per_hour, placements[1].cost_per_hour
        for i in range(1, steps):
            # The cheapest point is already on the front, so steps begin above it.
            budget = low + (high - low) * i / steps
            more = more and add(budget * (1 + 1e-9), "effective-accuracy", "cost")
    worst = next(status for status in ("interrupted", "time-limit", "optimal") if status in ended)
    points = {_point(placement) for placement in placements
              if any(stage.metric == "effective-accuracy" for stage in placement.stages)}
    front = sorted((p for p in points if not any(
        q != p and q.cost_per_hour <= p.cost_per_hour
        and q.effective_accuracy >= p.effective_accuracy for q in points)),
                   key=lambda point: point.cost_per_hour)
    return replace(placements[0], status=worst, front=tuple(front), problem=problem,
                   seconds=time.perf_counter() - start)


def _point(placement: Placement) -> Point:
    accuracy = next(s for s in placement.stages if s.metric == "effective-accuracy")
    return Point(round(placement.cost_per_hour, 9), accuracy.objective, accuracy.dual_bound,
                 placement.workers_in_use)


def placed(problem: Problem, optimum: Optimum) -> Placement:
    """Return the checked placement of an optimum, with named workers."""
    layouts = positions(problem, optimum.cuts)
    groups = assemble(problem, optimum.used, optimum.shares, layouts)
    placement = placement_of(
        problem, groups, optimum.seconds, optimum.status.value, optimum.stages,
        gpus=cut_gpus(problem, layouts, groups), prices=optimum.prices)
    check_placement(problem, placement)
    return placement


def placement_of(
    problem: Problem, groups: tuple[Group, ...], seconds: float, status: str = "heuristic",
    stages: tuple[Stage, ...] = (), **more: Any,
) -> Placement:
    """Return the placement of groups; without stages its objective is effective accuracy."""
    placement = Placement(
        problem.name, status, 0.0, None, None, seconds, stages, groups, families(problem, groups),
        moves(problem, groups), problem=problem, **more)
    if not stages:
        return replace(placement, objective=placement.effective_accuracy)
    first = stages[0]
    return replace(placement, objective=first.objective, dual_bound=first.dual_bound,
                   gap=first.gap)


def assemble(
    problem: Problem, used: Sequence[tuple[Pattern, int]], shares: Mapping[Quality, float],
    layouts: Mapping[str, Cut] | None = None,
) -> tuple[Group, ...]:
    """Return named groups for counted patterns.

    The load of a quality, a share of its family's demand by ``shares``, is divided among the
    workers that offer it, in proportion to their rates. ``layouts`` are by name of GPU.
    """
    demand = {family.name: family.demand_qps for family in problem.families}
    # Load of a quality relative to the rate of all its workers.
    load = {q: shares.get(q, 0.0) * demand[q.family] / rate
            for q, rate in rates_of(used).items()}
    groups = []
    for item in problem.instance_types:
        patterns = [(p, count) for p, count in used if p.worker_type == item.name]
        # A partitioned GPU has only the instances of its layout.
        instances = None if item in problem.worker_types else [
            instance_worker(gpu, name, start) for gpu, cut in (layouts or {}).items()
            for name, start in cut.layout if f"{cut.worker_type}/{name}" == item.name]
        named = name_workers(problem, item, [(frozenset(p.holds), count * p.workers)
                                             for p, count in patterns], instances)
        for (pattern, _), workers in zip(patterns, named, strict=True):
            groups.append(Group(
                item.name, workers, pattern.workers, _uses(pattern, load), pattern.memory_mb,
                item.memory_mb, pattern.cycle_ms, item.cost_per_hour * len(workers),
            ))
    return tuple(groups)


def _uses(pattern: Pattern, load: Mapping[Quality, float]) -> tuple[Use, ...]:
    return tuple(
        Use(offer.quality.family, offer.variants, offer.batch, offer.latency_ms,
            offer.quality.accuracy, offer.quality.in_time, offer.rate_qps,
            min(1.0, load[offer.quality]) * offer.rate_qps, processes=offer.processes)
        for offer in pattern.offers
    )


def families(problem: Problem, groups: Iterable[Group]) -> tuple[FamilyResult, ...]:
    """Return each family's share of demand answered in time, accuracy and worst latency."""
    groups = tuple(groups)
    queueing = problem.rules.in_time_quantile is not None
    return tuple(_family(family, groups, queueing) for family in problem.families)


def _family(
    family: Family, groups: tuple[Group, ...], queueing: bool
) -> FamilyResult:
    """Return the share of a family's demand served by its groups, and its accuracy."""
    uses = [(group, use) for group in groups for use in group.uses if use.family == family.name]
    served = [(len(group.workers) // group.together * use.load_qps * use.in_time, use)
              for group, use in uses]
    served_qps = math.fsum(qps for qps, _ in served)
    right_qps = math.fsum(qps * use.accuracy for qps, use in served)
    # With queueing, the longest response time is random.
    waits = [] if queueing else [
             group.cycle_ms + use.latency_ms for group, use in uses
             if group.cycle_ms is not None and use.latency_ms is not None and use.load_qps > 0]
    return FamilyResult(
        family.name, family.demand_qps, family.slo_ms, served_qps,
        served_qps / family.demand_qps, right_qps / served_qps if served_qps > 0 else None,
        right_qps / family.demand_qps, max(waits, default=None),
        sum(len(group.workers) for group in groups
            if any(use.family == family.name for use in group.uses)),
    )


def positions(problem: Problem, cuts: Sequence[tuple[Cut, int]]) -> dict[str, Cut]:
    """Assign layouts to named GPUs; return the layouts of partitioned GPUs by name."""
    cut_of_gpu: dict[str, Cut] = {}
    for item in problem.worker_types:
        type_cuts = [(cut, count) for cut, count in cuts if cut.worker_type == item.name]
        for state, gpus in gpu_states(problem, item).items() if type_cuts else ():
            free = iter(gpus)
            for cut, count in type_cuts:
                cut_of_gpu |= {next(free): cut for _ in range(count if cut.now == state else 0)}
    return cut_of_gpu


def cut_gpus(
    problem: Problem, layouts: Mapping[str, Cut], groups: Sequence[Group]
) -> tuple[CutGpu, ...]:
    """Return the layout of each GPU: instances in use, and existing ones that can stay."""
    used = {worker for group in groups for worker in group.workers}
    cuts = []
    for item in problem.worker_types:
        for gpu in item.worker_names() if item.partitions is not None else ():
            current = {holding.worker for holding in problem.current
                       if holding.worker.rpartition("/")[0] == gpu}
            instances = [(start, name, instance_worker(gpu, name, start))
                         for name, start in (layouts[gpu].layout if gpu in layouts else ())]
            existing = [(start, name, worker) for start, name, worker in instances
                        if worker in used or worker in current]
            # An unused GPU keeps its layout.
            if not any(worker in used for _, _, worker in existing):
                continue
            stays = {worker for _, _, worker in existing}
            cuts.append(CutGpu(
                gpu, item.name, tuple(f"{name}@{start}" for start, name, _ in sorted(existing)),
                tuple(f"{name}@{start}" for start, name, worker in sorted(existing)
                      if worker not in current),
                tuple(sorted(worker.rpartition("/")[2] for worker in current - stays)),
                item.cost_per_hour))
    return tuple(cuts)


def name_workers(
    problem: Problem, worker_type: WorkerType, needs: Sequence[tuple[frozenset[str], int]],
    names: Sequence[str] | None = None,
) -> list[tuple[str, ...]]:
    """Choose the workers that get each set of variants; return their names, in the order of needs.

    Parameters
    ----------
    needs : sequence of (frozenset of str, int)
        Sets of variants, each with its number of workers.
    names : sequence of str, optional
        Workers that may be chosen; by default all of the type. Each is chosen once at most.
    """
    holdings = problem.held
    by_set: dict[frozenset[str], list[str]] = defaultdict(list)
    workers = worker_type.worker_names() if names is None else names
    for name in workers:
        by_set[holdings.get(name, _EMPTY)].append(name)
    taken: list[list[str]] = [[] for _ in needs]
    sets = [item for item in by_set if item]
    if sets and needs:
        amounts = _transport(problem, sets, [len(by_set[item]) for item in sets], needs)
        for c, item in enumerate(sets):
            for p in range(len(needs)):
                staying = int(amounts[c, p])
                taken[p] += by_set[item][:staying]
                del by_set[item][:staying]
    # The other workers: empty ones first, so that no variant is unloaded without need. Instances
    # that exist come before new ones, as creation takes longer than unloading.
    free = by_set.pop(_EMPTY, []) + [name for item in sets for name in by_set[item]]
    if names is not None:
        free.sort(key=lambda name: name not in holdings)
    position = 0
    for p, (_, number) in enumerate(needs):
        more = number - len(taken[p])
        taken[p] += free[position : position + more]
        position += more
    order = {name: i for i, name in enumerate(workers)}
    return [tuple(sorted(names, key=order.__getitem__)) for names in taken]


def _transport(
    problem: Problem, sets: list[frozenset[str]], available: list[int],
    needs: Sequence[tuple[frozenset[str], int]],
) -> NDArray[np.float64]:
    """Solve the transportation problem; return x_cp, shape (held sets, patterns)."""
    from scipy.optimize import linprog  # slow to import

    load = {variant.name: variant.load_ms for variant in problem.variants}
    tie_break = 1e-6 * max(load.values(), default=0.0) + 1e-6
    worth = np.array([[sum(load[name] + tie_break for name in item & holds) for holds, _ in needs]
                      for item in sets])
    rows, columns = worth.shape
    leaving = np.kron(np.eye(rows), np.ones(columns))
    arriving = np.kron(np.ones(rows), np.eye(columns))
    solution = linprog(-worth.ravel() / (worth.max() or 1.0), A_ub=np.vstack([leaving, arriving]),
                       b_ub=[*available, *(number for _, number in needs)], method="highs-ds")
    assert solution.x is not None  # x = 0 is feasible
    amounts = np.rint(solution.x).reshape(worth.shape)
    amounts[worth == 0] = 0
    return amounts


def moves(problem: Problem, groups: Sequence[Group]) -> tuple[Move, ...]:
    """Return the variants that each worker loads and unloads; idle workers keep theirs."""
    holdings = problem.held
    load_ms = {variant.name: variant.load_ms for variant in problem.variants}
    result = []
    for group in groups:
        holds = tuple(name for use in group.uses for name in use.variants)

        @cache
        def change(now: frozenset[str], holds: tuple[str, ...] = holds) -> _Change:
            load = tuple(name for name in holds if name not in now)
            return load, tuple(sorted(now - set(holds))), sum(load_ms[name] for name in load)

        result += [Move(worker, *changed) for worker in group.workers
                   if any((changed := change(holdings.get(worker, _EMPTY)))[:2])]
    return tuple(result)
