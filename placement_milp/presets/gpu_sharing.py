"""GPU sharing by occupancy: AO-MILP and WSM-MILP, models that run at once on parts of a GPU.

    max   Σ_m w_m
    w_m <= rps_m                                    offered
    w_m <= Σ_b,g goodput_m,b x_m,b,g                goodput  (printed without x in the source)
    Σ_b y_m,b <= 1                                  one_batch
    x_m,b,g <= y_m,b                                linked
    Σ_m,b compute_m,b x_m,b,g <= 1   for every g    compute
    Σ_m,b memory_m,b x_m,b,g <= memory_g            memory
    Σ_b x_m,b,g <= 1                                one_instance
    Σ_b,g x_m,b,g <= replicas                       replicas (off unless asked for)

x (an instance of model m at batch b on GPU g) and y (the batch of a model) are 0 or 1, w_m is the
rate served. goodput = batch / latency, and batches above the SLO are left out, as are entries
without ``compute_share``. AO-MILP takes a model's largest achieved occupancy for
``compute_share``, WSM-MILP its utilisation of the multiprocessors, weighted by time.

Source: P. Elvinger, ETH Zurich, MSc thesis, 2024.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import NamedTuple

import pulp

from placement_milp.backend import Limits, relative_gap, solve
from placement_milp.check import check_placement
from placement_milp.expand import moves
from placement_milp.feasible import latencies
from placement_milp.problem import Family, Latency, Problem, Variant, WorkerType
from placement_milp.recipe import families
from placement_milp.result import Group, Placement, Stage, Use
from ramsis.errors import InfeasibleError, InvalidValueError, describe

__all__ = ["gpu_sharing"]


class _Instance(NamedTuple):
    """A model at a batch on one GPU."""

    family: Family
    variant: Variant
    worker_type: WorkerType
    entry: Latency
    gpu: str

    @property
    def rate_qps(self) -> float:
        return 1000.0 * self.entry.batch / self.entry.latency_ms

    @property
    def memory_mb(self) -> float:
        return self.entry.memory_mb or self.variant.memory_mb


def gpu_sharing(
    problem: Problem, limits: Limits | None = None, *, replicas: int | None = None
) -> Placement:
    """Place models on parts of GPUs for the most queries served.

    Parameters
    ----------
    problem : Problem
        One variant in each family, with ``compute_share`` where it may run; objective, minima and
        rules play no part. Every worker is a GPU.
    limits : Limits
    replicas : int, optional
        Maximum number of instances of a model.

    Raises
    ------
    InvalidValueError
        Several variants in a family.
    InfeasibleError
        No batch of any model is feasible.
    """
    limits = limits or Limits()
    start = time.perf_counter()
    instances = _instances(problem)
    lp = pulp.LpProblem("gpu_sharing", pulp.LpMinimize)
    x = {item: lp.add_variable(f"x_{i}", 0, 1, pulp.LpInteger) for i, item in enumerate(instances)}
    served = {family: lp.add_variable(f"w_{i}", 0, family.demand_qps)  # offered
              for i, family in enumerate(problem.families)}
    _constrain(lp, x, served, replicas)
    objective = pulp.LpAffineExpression([(w, 1) for w in served.values()])
    total = sum(family.demand_qps for family in problem.families)
    solved = solve(lp, objective, maximise=True, size=total, limits=limits)
    chosen = [item for item, variable_ in x.items() if (variable_.varValue or 0) > 0.5]
    groups = _groups(problem, chosen)
    found = families(problem, groups)
    reached = sum(family.served_qps for family in found)
    gap = relative_gap(reached, solved.dual_bound)
    placement = Placement(
        problem.name, solved.status.value, reached, solved.dual_bound, gap,
        time.perf_counter() - start, (Stage("goodput", reached, solved.dual_bound, gap),), groups,
        found, moves(problem, groups), problem=problem)
    check_placement(_only_counts(problem), placement)
    return placement


def _instances(problem: Problem) -> list[_Instance]:
    by_name = {family.name: family for family in problem.families}
    for name, number in Counter(variant.family for variant in problem.variants).items():
        if number > 1:
            raise InvalidValueError(describe("family has several variants", where=name,
                                             value=number, allowed="one model in each family"))
    found = [
        _Instance(by_name[variant.family], variant, item, entry, gpu)
        for variant in problem.variants for item in problem.worker_types
        for entry in latencies(variant, item) for gpu in item.worker_names()
        if entry.latency_ms <= by_name[variant.family].slo_ms and entry.compute_share is not None
    ]
    if not found:
        raise InfeasibleError(describe("no batch is within its SLO and has a compute_share",
                                       where=problem.name))
    return found


def _constrain(
    lp: pulp.LpProblem, x: dict[_Instance, pulp.LpVariable],
    served: dict[Family, pulp.LpVariable], replicas: int | None,
) -> None:
    """Every row but ``offered``, which is the bound of w."""
    def at_most(terms: list[tuple[pulp.LpVariable, float]], limit: float, name: str) -> None:
        lp.addConstraint(pulp.LpAffineExpression(terms) <= limit, name)

    for i, (family, w) in enumerate(served.items()):
        mine = {item: v for item, v in x.items() if item.family == family}
        rates = [(v, -item.rate_qps / family.demand_qps) for item, v in mine.items()]
        at_most([(w, 1 / family.demand_qps), *rates], 0, f"goodput_{i}")
        batches = sorted({item.entry.batch for item in mine})
        y = {batch: lp.add_variable(f"y_{i}_{batch}", 0, 1, pulp.LpInteger) for batch in batches}
        at_most([(v, 1) for v in y.values()], 1, f"one_batch_{i}")
        for j, (item, v) in enumerate(mine.items()):
            at_most([(v, 1), (y[item.entry.batch], -1)], 0, f"linked_{i}_{j}")
        for j, gpu in enumerate(sorted({item.gpu for item in mine})):
            here = [(v, 1.0) for item, v in mine.items() if item.gpu == gpu]
            at_most(here, 1, f"one_instance_{i}_{j}")
        if replicas is not None:
            at_most([(v, 1) for v in mine.values()], replicas, f"replicas_{i}")
    gpus = itertools.groupby(sorted(x, key=lambda item: item.gpu), key=lambda item: item.gpu)
    for j, (_, there) in enumerate(gpus):
        items = list(there)
        at_most([(x[item], item.entry.compute_share or 0.0) for item in items], 1,
                f"compute_{j}")
        size = items[0].worker_type.memory_mb
        at_most([(x[item], item.memory_mb / size) for item in items], 1, f"memory_{j}")


def _groups(problem: Problem, chosen: list[_Instance]) -> tuple[Group, ...]:
    """A group for each GPU; the queries of a family are spread evenly over its rates."""
    rate: Counter[str] = Counter()
    for item in chosen:
        rate[item.family.name] += item.rate_qps  # type: ignore[assignment]
    busy = {f.name: min(1.0, f.demand_qps / rate[f.name]) for f in problem.families
            if rate[f.name]}
    groups = []
    for gpu in sorted({item.gpu for item in chosen}):
        here = [item for item in chosen if item.gpu == gpu]
        uses = tuple(
            Use(item.family.name, (item.variant.name,), item.entry.batch, item.entry.latency_ms,
                item.variant.accuracy, 1.0, item.rate_qps, busy[item.family.name] * item.rate_qps)
            for item in here)
        kind = here[0].worker_type
        groups.append(Group(kind.name, (gpu,), 1, uses, sum(item.memory_mb for item in here),
                            kind.memory_mb, None, kind.cost_per_hour))
    return tuple(groups)


def _only_counts(problem: Problem) -> Problem:
    """The problem without the rules that this program leaves out."""
    bare = tuple(Family(f.name, f.demand_qps, f.slo_ms) for f in problem.families)
    return Problem(problem.name, bare, problem.worker_types, problem.variants)
