"""INFaaS: for each family the cheapest variant that meets its accuracy and its latency.

A greedy heuristic, family by family in the order of the problem. Feasible patterns that meet the
minimum accuracy are ordered by cost per query. The first gets ceil(demand / rate) of the workers
that are left; where these do not suffice, the next pattern gets the rest. Where workers have no
cost, the fastest is the cheapest.

Source: Romero, Li, Yadwadkar, Kozyrakis, *INFaaS: Automated Model-less Inference Serving*, USENIX
ATC 2021.
"""

from __future__ import annotations

import math
import time

from placement_milp.backend import Limits
from placement_milp.feasible import feasible_batches
from placement_milp.patterns import Pattern, single
from placement_milp.presets.heuristic import heuristic_placement
from placement_milp.problem import Family, Problem
from placement_milp.result import Placement


def infaas(problem: Problem, limits: Limits | None = None) -> Placement:
    """Give every family the cheapest workers that meet its demand; ``limits`` has no effect."""
    start = time.perf_counter()
    left = {item.name: item.count for item in problem.worker_types}
    cost = {item.name: item.cost_per_hour or 1e-9 for item in problem.worker_types}
    used: list[tuple[Pattern, int]] = []
    for family in problem.families:
        need = family.demand_qps
        ordered = sorted(_candidates(problem, family), key=lambda p: (
            cost[p.worker_type] / p.offers[0].rate_qps, -p.offers[0].quality.accuracy))
        for pattern in ordered:
            rate = pattern.offers[0].rate_qps
            count = min(left[pattern.worker_type], math.ceil(need / rate - 1e-9))
            if count > 0:
                used.append((pattern, count))
                left[pattern.worker_type] -= count
                need -= count * rate
    return heuristic_placement(problem, used, time.perf_counter() - start)


def _candidates(problem: Problem, family: Family) -> list[Pattern]:
    return [
        single(item, max(batches, key=lambda b: b.batch / b.latency_ms))
        for item in problem.worker_types for variant in problem.variants
        if variant.family == family.name and variant.accuracy >= family.min_accuracy
        and (batches := feasible_batches(problem, variant, item))
    ]
