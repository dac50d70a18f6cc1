"""Placements by brute force: every way of using every worker, for tiny problems.

Shares nothing with ``placement_milp`` but the records of a problem. Given what the workers do,
families do not compete, so that the best shares of each are a small linear program of its own.
"""

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from scipy.optimize import linprog

from placement_milp.problem import Family, Problem, Variant, WorkerType


class Part(NamedTuple):
    """Queries of a family, answered so accurately, that many in time, at most at this rate."""

    family: str
    label: str
    accuracy: float
    in_time: float
    rate: float


class Option(NamedTuple):
    """What some workers of a type can do."""

    worker_type: str
    size: int
    parts: tuple[Part, ...]
    holds: frozenset[str]


class Outcome(NamedTuple):
    """What using the workers in one way is worth."""

    served: float
    effective: float
    worst: float
    cost: float
    workers: int
    moving: float


@cache
def _best(
    family: Family, least: float, penalty: float, parts: tuple[tuple[float, float, float], ...],
    served_first: bool,
) -> tuple[float, float] | None:
    """Share served and effective accuracy less penalty, or None where minima cannot be met."""
    if not parts:
        return None if least > 0 else (0.0, -penalty)
    d = family.demand_qps
    gain = [r * (a + penalty) for a, r, _ in parts]
    rows = [[1.0] * len(parts), [-r for _, r, _ in parts],
            [-r * (a - family.min_accuracy) for a, r, _ in parts]]
    limits = [1.0, -least + 1e-9, 1e-9]
    bounds = [(0.0, rate / d) for *_, rate in parts]
    if served_first:
        most = linprog([-r for _, r, _ in parts], A_ub=rows, b_ub=limits, bounds=bounds)
        if most.status != 0:
            return None
        limits[1] = most.fun + 1e-9
    found = linprog([-g for g in gain], A_ub=rows, b_ub=limits, bounds=bounds)
    if found.status != 0:
        return None
    served = sum(z * r for z, (_, r, _) in zip(found.x, parts, strict=True))
    return float(served), float(-found.fun - penalty)


def _latency(variant: Variant, item: WorkerType) -> dict[int, tuple[float, float]]:
    """Batch → (latency, memory) on a type."""
    own = {e.batch: (e.latency_ms, e.memory_mb or variant.memory_mb) for e in variant.latency
           if e.worker_type == item.name}
    like = {e.batch: (e.latency_ms / item.relative_speed, e.memory_mb or variant.memory_mb)
            for e in variant.latency if e.worker_type == item.latency_like}
    return own or like


def _in(members: tuple[str, ...], variant: Variant) -> bool:
    return bool({variant.name, variant.family} & set(members))


def options(problem: Problem) -> Iterator[Option]:
    """Every use of a worker, dominated or not."""
    slo = {f.name: f.slo_ms for f in problem.families}
    tabled = {table.family for table in problem.values}
    share = problem.rules.latency_share_of_slo
    for item in problem.worker_types:
        runs = [
            (v, b, latency, memory) for v in problem.variants if v.family not in tabled
            for b, (latency, memory) in _latency(v, item).items()
            if all(item.name in rule.worker_types for rule in problem.colocation
                   if rule.kind == "only-on" and _in(rule.members, v))
        ]
        for v, b, latency, memory in runs:
            if latency <= share * slo[v.family] and memory <= item.memory_mb:
                part = Part(v.family, v.name, v.accuracy, 1.0, 1000 * b / latency)
                yield Option(item.name, 1, (part,), frozenset({v.name}))
        if problem.rules.variants_per_worker == 2:
            yield from _shared(problem, item, runs, slo)
        for table in problem.values:
            yield from _tabled(problem, item, table.family, slo[table.family])


def _shared(
    problem: Problem, item: WorkerType, runs: list[tuple[Variant, int, float, float]],
    slo: dict[str, float],
) -> Iterator[Option]:
    share = problem.rules.latency_share_of_slo
    for (v, b, lv, mv), (w, c, lw, mw) in itertools.combinations(runs, 2):
        if v.name == w.name:
            continue
        s = problem.rules.interference
        forbidden = False
        for rule in problem.colocation:
            both = any(_in((m,), v) and _in((n,), w)
                       for m, n in itertools.permutations(rule.members, 2)
                       if not (v.family == w.family and v.family in rule.members))
            if rule.kind == "alone" and (_in(rule.members, v) or _in(rule.members, w)):
                forbidden = True
            if rule.kind == "apart" and both:
                forbidden = True
            if rule.kind == "slow-down" and both:
                s = rule.factor
        cycle = s * (lv + lw)
        if (not forbidden and mv + mw <= item.memory_mb
                and cycle + s * lv <= 2 * share * slo[v.family]
                and cycle + s * lw <= 2 * share * slo[w.family]):
            parts = (Part(v.family, v.name, v.accuracy, 1.0, 1000 * b / cycle),
                     Part(w.family, w.name, w.accuracy, 1.0, 1000 * c / cycle))
            yield Option(item.name, 1, parts, frozenset({v.name, w.name}))


def _tabled(problem: Problem, item: WorkerType, family: str, slo_ms: float) -> Iterator[Option]:
    memory = {v.name: v.memory_mb for v in problem.variants}
    for table in problem.values:
        for i, row in enumerate(table.rows if table.family == family else ()):
            in_time = 1 - row.expected_violation_rate
            if (row.worker_type == item.name and row.slo_ms == slo_ms and in_time > 0
                    and sum(memory[name] for name in row.model_set) <= item.memory_mb):
                part = Part(family, f"row {i}", row.expected_effective_accuracy / in_time,
                            in_time, row.load_qps)
                yield Option(item.name, row.workers, (part,), frozenset(row.model_set))


def _uses(found: list[Option], count: int) -> Iterator[tuple[Option, ...]]:
    """Every multiset of options that takes at most ``count`` workers."""
    for number in range(count + 1):
        for chosen in itertools.combinations_with_replacement(found, number):
            if sum(option.size for option in chosen) <= count:
                yield chosen


def outcomes(problem: Problem, served_first: bool = False) -> Iterator[Outcome]:
    """What every placement within the rules is worth, each with its best shares."""
    everything = list(dict.fromkeys(options(problem)))
    by_type = [list(_uses([o for o in everything if o.worker_type == item.name], item.count))
               for item in problem.worker_types]
    for chosen in itertools.product(*by_type):
        outcome = _outcome(problem, tuple(itertools.chain(*chosen)), served_first)
        if outcome is not None:
            yield outcome


def _outcome(problem: Problem, chosen: tuple[Option, ...], served_first: bool) -> Outcome | None:
    cost = {item.name: item.cost_per_hour for item in problem.worker_types}
    workers = sum(option.size for option in chosen)
    price = sum(cost[option.worker_type] * option.size for option in chosen)
    rules = problem.rules
    if rules.max_workers is not None and workers > rules.max_workers:
        return None
    if rules.max_cost_per_hour is not None and price > rules.max_cost_per_hour + 1e-9:
        return None
    penalty = problem.objective.unserved_penalty
    total = sum(f.weight * f.demand_qps for f in problem.families)
    served = effective = 0.0
    worst = math.inf
    for family in problem.families:
        mine = [option for option in chosen if any(p.family == family.name for p in option.parts)]
        if family.max_workers is not None and (
                sum(option.size for option in mine) > family.max_workers):
            return None
        rates: dict[tuple[str, float, float], float] = {}
        for part in itertools.chain(*(option.parts for option in mine)):
            if part.family == family.name:
                key = (part.label, part.accuracy, part.in_time)
                rates[key] = rates.get(key, 0.0) + part.rate
        parts = tuple(sorted((a, r, rate) for (_, a, r), rate in rates.items()))
        best = _best(family, problem.min_share(family), penalty, parts, served_first)
        if best is None:
            return None
        share = family.weight * family.demand_qps / total
        served += share * best[0]
        effective += share * best[1]
        worst = min(worst, best[1])
    return Outcome(served, effective, worst, price, workers, _moving(problem, chosen))


def _moving(problem: Problem, chosen: tuple[Option, ...]) -> float:
    """Least seconds of loading, over every assignment of the uses to named workers."""
    load = {v.name: v.load_ms / 1000 for v in problem.variants}
    held = {item.worker: set(item.variants) for item in problem.current}
    total = 0.0
    for item in problem.worker_types:
        wanted = [o.holds for o in chosen if o.worker_type == item.name for _ in range(o.size)]
        total += min(
            (sum(load[name] for holds, worker in zip(wanted, order, strict=True)
                 for name in holds - held.get(worker, set()))
             for order in itertools.permutations(item.worker_names(), len(wanted))), default=0.0)
    return total
