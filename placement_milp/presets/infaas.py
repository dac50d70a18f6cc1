"""INFaaS: the cheapest variant of each family that meets its accuracy and its latency.

A greedy heuristic, family by family in the order of the problem. Feasible patterns that meet the
minimum accuracy are sorted by cost per request. The first gets ceil(demand / rate) of the
remaining workers; if these do not suffice, the next pattern gets the remaining demand. If workers
have no cost, the fastest pattern is the cheapest.

Source: Romero, Li, Yadwadkar, Kozyrakis, *INFaaS: Automated Model-less Inference Serving*, USENIX
ATC 2021.
"""

from __future__ import annotations

import math
import time

from placement_milp.backend import Limits
from placement_milp.patterns import Pattern, each_alone
from placement_milp.presets.heuristic import checked_placement
from placement_milp.problem import Problem
from placement_milp.result import Placement


def infaas(problem: Problem, limits: Limits | None = None) -> Placement:
    """Give every family the cheapest workers that meet its demand; ``limits`` has no effect."""
    start = time.perf_counter()
    free = {item.name: item.count for item in problem.worker_types}
    cost = {item.name: item.cost_per_hour or 1e-9 for item in problem.worker_types}
    used: list[tuple[Pattern, int]] = []
    alone = each_alone(problem, lambda item: item.batch / item.latency_ms)
    ordered = sorted((p for p in alone if p.worker_type in free), key=lambda p: (
        cost[p.worker_type] / p.offers[0].rate_qps, -p.offers[0].quality.accuracy))
    for family in problem.families:
        need = family.demand_qps
        for pattern in ordered:
            quality, rate = pattern.offers[0].quality, pattern.offers[0].rate_qps
            if quality.family != family.name or quality.accuracy < family.min_accuracy:
                continue
            count = min(free[pattern.worker_type], math.ceil(need / rate - 1e-9))
            if count > 0:
                used.append((pattern, count))
                free[pattern.worker_type] -= count
                need -= count * rate
    return checked_placement(problem, used, time.perf_counter() - start)
