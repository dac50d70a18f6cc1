"""Placement of a problem: patterns, program, solution, named workers, independent check."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placement_milp.backend import Limits
from placement_milp.check import check_placement
from placement_milp.consistency import check_consistency
from placement_milp.expand import cut_gpus, moves, name_workers, positions
from placement_milp.formulation import Cut
from placement_milp.optimise import Optimum, optimise
from placement_milp.partitions import instance_worker
from placement_milp.patterns import Pattern, Quality, rates_of
from placement_milp.problem import Family, Problem
from placement_milp.result import FamilyResult, Group, Placement, Point, Stage, Use
from ramsis.errors import NotConvergedError


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

    Points are at equal steps of the budget (epsilon constraint): the cheapest of the most accurate
    placements at each.
    """
    start = time.perf_counter()
    placements: list[Placement] = []
    ended = {"optimal"}

    def add(budget: float | None, *order: str) -> bool:
        """Solve for a point; return whether to continue."""
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
    """Return named groups for counted patterns, with loads in proportion to rates.

    ``shares`` are parts of the demand of each quality's family; ``layouts`` are by name of GPU.
    """
    demand = {family.name: family.demand_qps for family in problem.families}
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
    """Return the share of each family's demand that is answered."""
    groups = tuple(groups)
    queueing = problem.rules.in_time_quantile is not None
    return tuple(_family(family, groups, queueing) for family in problem.families)


def _family(
    family: Family, groups: tuple[Group, ...], queueing: bool
) -> FamilyResult:
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
