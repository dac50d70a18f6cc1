"""Every way to cut GPUs and to use their instances, one by one; only for tiny problems.

It shares nothing with the program: layouts are all sets of (instance, start) that fit, found by
trying each set, and GPUs are told apart by name.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from placement_milp import Problem
from placement_milp.partitions import PartitionTable
from placement_milp.problem import WorkerType


class Outcome(NamedTuple):
    """What one way to use the GPUs is worth."""

    effective: float
    worst: float
    cost: float
    gpus: int
    moving: float


Place = tuple[str, int]
Choice = dict[Place, str]
"""Instances of a GPU in use, with the variant of each."""


def fits(table: PartitionTable, places: tuple[Place, ...]) -> bool:
    """Whether a GPU can have some instances at once, by its table alone."""
    kinds = {kind.name: kind for kind in table.instances}
    slices = [s for name, start in places for s in range(start, start + kinds[name].memory_slices)]
    compute = sum(kinds[name].compute_slices for name, _ in places)
    return (len(slices) == len(set(slices)) and compute <= table.compute_slices
            and all(start in kinds[name].starts and start + kinds[name].memory_slices
                    <= table.memory_slices for name, start in places))


def legal(table: PartitionTable) -> list[tuple[Place, ...]]:
    """All sets of instances that a GPU can have at once."""
    places = [(kind.name, start) for kind in table.instances for start in kind.starts]
    return [subset for size in range(len(places) + 1)
            for subset in itertools.combinations(places, size) if fits(table, subset)]


def best_rate(problem: Problem, variant: str, kind: str) -> float:
    """The most that a variant answers in time on an instance, 0 if nothing is in time."""
    item = next(v for v in problem.variants if v.name == variant)
    slo_ms = problem.family(item.family).slo_ms
    memory = next(t.memory_mb for t in problem.instance_types if t.name == kind)
    return max((1000.0 * e.processes * e.batch / e.latency_ms if e.rate_qps is None
                else e.rate_qps for e in item.latency if e.worker_type == kind
                and e.latency_ms <= problem.rules.latency_share_of_slo * slo_ms
                and (e.memory_mb or item.memory_mb) <= memory), default=0.0)


def choices(problem: Problem, item: WorkerType, gpu: str) -> Iterator[tuple[Choice, float]]:
    """Uses of a GPU with the seconds of moving that each takes; {} is that it stays as it is."""
    assert item.partitions is not None
    now = {tuple(h.worker.rpartition("/")[2].split("@")): set(h.variants)
           for h in problem.current if h.worker.rpartition("/")[0] == gpu}
    there = {(name, int(start)): held for (name, start), held in now.items()}
    names = [v.name for v in problem.variants]
    load = {v.name: v.load_ms / 1000 for v in problem.variants}
    yield {}, 0.0
    for layout in legal(item.partitions):
        for used in (u for size in range(1, len(layout) + 1)
                     for u in itertools.combinations(layout, size)):
            for held in itertools.product(names, repeat=len(used)):
                if all(best_rate(problem, v, f"{item.name}/{place[0]}")
                       for v, place in zip(held, used, strict=True)):
                    changed = sum(place not in there for place in used) + sum(
                        place not in layout for place in there)
                    loads = sum(load[v] for v, place in zip(held, used, strict=True)
                                if v not in there.get(place, ()))
                    yield (dict(zip(used, held, strict=True)),
                           loads + changed * item.instance_ms / 1000)


def outcomes(problem: Problem) -> Iterator[Outcome]:
    """Every outcome that meets the minima."""
    listed: list[list[tuple[tuple[tuple[str, float], ...], float, float, int]]] = []
    for item in problem.worker_types:
        for gpu in item.worker_names():
            cheapest: dict[Any, float] = {}
            for use, moving in choices(problem, item, gpu):
                rates: dict[str, float] = {}
                for (name, _), variant in use.items():
                    rates[variant] = rates.get(variant, 0.0) + best_rate(
                        problem, variant, f"{item.name}/{name}")
                key = tuple(sorted((v, round(r, 9)) for v, r in rates.items()))
                cheapest[key] = min(moving, cheapest.get(key, float("inf")))
            listed.append([(key, moving, item.cost_per_hour if key else 0.0, int(bool(key)))
                           for key, moving in cheapest.items()])
    for combination in itertools.product(*listed):
        total: dict[str, float] = {}
        for rates_, *_ in combination:
            for variant, rate in rates_:
                total[variant] = total.get(variant, 0.0) + rate
        shares = [_shares(problem, family.name, total) for family in problem.families]
        if all(served >= problem.min_share(family) - 1e-9
               for family, (served, _) in zip(problem.families, shares, strict=True)):
            demand = sum(family.demand_qps for family in problem.families)
            yield Outcome(
                sum(right * family.demand_qps / demand
                    for family, (_, right) in zip(problem.families, shares, strict=True)),
                min(right for _, right in shares), sum(c[2] for c in combination),
                sum(c[3] for c in combination), sum(c[1] for c in combination))


def _shares(problem: Problem, family: str, rates: dict[str, float]) -> tuple[float, float]:
    """Share of a family's demand that is served, and rightly, the most accurate first."""
    left, right = 1.0, 0.0
    demand = problem.family(family).demand_qps
    for variant in sorted((v for v in problem.variants if v.family == family),
                          key=lambda v: -v.accuracy):
        part = min(left, rates.get(variant.name, 0.0) / demand)
        left -= part
        right += part * variant.accuracy
    return 1.0 - left, right
