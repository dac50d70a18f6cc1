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

Many placements reach the optimum. The source leaves the choice to its solver. Here it does not
depend on a solver: of the placements with the most requests served, one with

1. the fewest GPUs in use;
2. the smallest batches: the least sum over instances, then model by model in the problem's order;
3. the fewest instances, model by model;
4. the first models on the first GPUs of a type.

Source: P. Elvinger, ETH Zurich, MSc thesis, 2024; the order of equal placements is this module's.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pulp

from placement_milp.backend import (
    SOLVERS,
    Limits,
    SearchStatus,
    Solved,
    relative_gap,
    solve,
    solve_later,
)
from placement_milp.feasible import latencies
from placement_milp.presets.heuristic import (
    ModelOnGpu,
    check_one_variant_each,
    gpu_groups,
    gpu_placement,
)
from placement_milp.problem import Family, Problem
from placement_milp.recipe import families
from placement_milp.result import Placement, Stage
from ramsis.errors import InfeasibleError

_HELD = 1e-6  # tolerance of the served rate, as a share of the demand, in later goals
_WHOLE = 0.01  # tolerance with which later goals keep the integer values of earlier ones
_TRIED = 100_000  # tried arrangements of a type's GPUs, after which the solver's one is kept


def gpu_sharing(
    problem: Problem, limits: Limits | None = None, *, replicas: int | None = None,
    tie: int | None = None,
) -> Placement:
    """Place models on parts of GPUs for the most requests served.

    Parameters
    ----------
    problem : Problem
        One variant in each family, with ``compute_share`` where it may run; objective, minima and
        rules play no part. Every worker is a GPU.
    replicas : int, optional
        Maximum number of instances of a model.
    tie : int, optional
        Seed of a random order of equal placements, in place of the module's order, to study which
        of them a solver might return.
    """
    limits = limits or Limits()
    start = time.perf_counter()
    instances = _instances(problem)
    lp = pulp.LpProblem("gpu_sharing", pulp.LpMinimize)
    x = {item: lp.add_variable(f"x_{i}", 0, 1, pulp.LpInteger) for i, item in enumerate(instances)}
    served = {family: lp.add_variable(f"w_{i}", 0, family.demand_qps)  # offered
              for i, family in enumerate(problem.families)}
    y = _constrain(lp, x, served, replicas)
    objective = pulp.LpAffineExpression([(w, 1) for w in served.values()])
    total = sum(family.demand_qps for family in problem.families)
    solved = solve(lp, objective, maximise=True, size=total, limits=limits)
    chosen = _chosen(x)
    if solved.status is SearchStatus.OPTIMAL:
        # Scale by the load, as solvers' tolerances are absolute.
        lp.addConstraint(objective * (1 / total) >= float(objective.value()) / total - _HELD)
        solved, chosen = _first_of_equals(lp, x, y, solved, limits, start, tie)
    groups = gpu_groups(problem, chosen, sorted({item.gpu for item in chosen}))
    reached = sum(family.served_qps for family in families(problem, groups))
    gap = relative_gap(reached, solved.dual_bound)
    return gpu_placement(
        problem, groups, time.perf_counter() - start, status=solved.status.value,
        stages=(Stage("goodput", reached, solved.dual_bound, gap),))


def _instances(problem: Problem) -> list[ModelOnGpu]:
    """Return every model, batch size and GPU whose batch is within the SLO."""
    check_one_variant_each(problem)
    instances = [
        ModelOnGpu(family, variant, item, entry, gpu)
        for variant in problem.variants for family in [problem.family(variant.family)]
        for item in problem.worker_types
        for entry in latencies(variant, item) for gpu in item.worker_names()
        if entry.latency_ms <= family.slo_ms and entry.compute_share is not None
    ]
    if not instances:
        raise InfeasibleError("no batch is within its SLO and has a compute_share",
                              where=problem.name)
    return instances


def _constrain(
    lp: pulp.LpProblem, x: dict[ModelOnGpu, pulp.LpVariable],
    served: dict[Family, pulp.LpVariable], replicas: int | None,
) -> dict[Family, dict[int, pulp.LpVariable]]:
    """Add all constraints but ``offered``, a bound on w; return y by family and batch."""
    batch_of: dict[Family, dict[int, pulp.LpVariable]] = {}

    def at_most(terms: list[tuple[pulp.LpVariable, float]], limit: float, name: str) -> None:
        lp.addConstraint(pulp.LpAffineExpression(terms) <= limit, name)

    for i, (family, w) in enumerate(served.items()):
        instances = {item: v for item, v in x.items() if item.family == family}
        # Scale by the demand, so that small and large rates have the same relative tolerance.
        rates = [(v, -item.rate_qps / family.demand_qps) for item, v in instances.items()]
        at_most([(w, 1 / family.demand_qps), *rates], 0, f"goodput_{i}")
        batches = sorted({item.entry.batch for item in instances})
        y = {batch: lp.add_variable(f"y_{i}_{batch}", 0, 1, pulp.LpInteger) for batch in batches}
        batch_of[family] = y
        at_most([(v, 1) for v in y.values()], 1, f"one_batch_{i}")
        for j, (item, v) in enumerate(instances.items()):
            at_most([(v, 1), (y[item.entry.batch], -1)], 0, f"linked_{i}_{j}")
        for j, gpu in enumerate(sorted({item.gpu for item in instances})):
            here = [(v, 1.0) for item, v in instances.items() if item.gpu == gpu]
            at_most(here, 1, f"one_instance_{i}_{j}")
        if replicas is not None:
            at_most([(v, 1) for v in instances.values()], replicas, f"replicas_{i}")
    gpus = itertools.groupby(sorted(x, key=lambda item: item.gpu), key=lambda item: item.gpu)
    for j, (_, group) in enumerate(gpus):
        items = list(group)
        at_most([(x[item], item.entry.compute_share or 0.0) for item in items], 1,
                f"compute_{j}")
        size = items[0].worker_type.memory_mb
        at_most([(x[item], item.memory_mb / size) for item in items], 1, f"memory_{j}")
    return batch_of


def _chosen(x: dict[ModelOnGpu, pulp.LpVariable]) -> list[ModelOnGpu]:
    return [item for item, variable in x.items() if (variable.varValue or 0) > 0.5]


def _first_of_equals(
    lp: pulp.LpProblem, x: dict[ModelOnGpu, pulp.LpVariable],
    y: Mapping[Family, Mapping[int, pulp.LpVariable]], solved: Solved, limits: Limits,
    start: float, tie: int | None,
) -> tuple[Solved, list[ModelOnGpu]]:
    """Return the optimum with the fewest GPUs, smallest batches, fewest instances, in turn."""
    chosen = _chosen(x)
    for goal in _goals(lp, x, y, tie):
        solution = solve_later(partial(_least, lp, goal), replace(limits, gap=1e-6), start)
        if solution.status is not SearchStatus.OPTIMAL:
            return replace(solved, status=solution.status), chosen
        chosen = _chosen(x)
        if tie is None:
            lp.addConstraint(goal <= round(goal.value()) + _WHOLE)
    return solved, _arranged(x, chosen) if tie is None else chosen


def _least(lp: pulp.LpProblem, goal: pulp.LpAffineExpression, limits: Limits) -> Solved:
    """Minimise a goal; if the solver wrongly reports infeasibility, use the other solver."""
    size = math.fsum(abs(factor) for factor in goal.values()) or 1.0
    solution = solve(lp, goal, maximise=False, size=size, limits=limits)
    if solution.status is SearchStatus.INFEASIBLE:
        other = next(name for name in SOLVERS if name != limits.solver)
        solution = solve(lp, goal, maximise=False, size=size, limits=replace(limits, solver=other))
    return solution


def _goals(
    lp: pulp.LpProblem, x: dict[ModelOnGpu, pulp.LpVariable],
    y: Mapping[Family, Mapping[int, pulp.LpVariable]], tie: int | None,
) -> Iterator[pulp.LpAffineExpression]:
    """Yield the objectives of the lexicographic minimisation, in order."""
    if tie is not None:
        weights = np.random.default_rng(tie).uniform(-1, 1, len(x)).tolist()
        yield pulp.LpAffineExpression(list(zip(x.values(), weights, strict=True)))
        return
    gpus = {item.gpu: item.worker_type for item in x}
    busy = {gpu: lp.add_variable(f"busy_{i}", 0, 1, pulp.LpInteger) for i, gpu in enumerate(gpus)}
    for gpu, variable in busy.items():
        here = [v for item, v in x.items() if item.gpu == gpu]
        for other in here:
            lp.addConstraint(other - variable <= 0)
        lp.addConstraint(pulp.lpSum(here) - variable >= 0)
    for (first, kind), (second, second_kind) in itertools.pairwise(gpus.items()):
        if kind == second_kind:  # break the symmetry of equal GPUs: the first ones are busy
            lp.addConstraint(busy[first] - busy[second] >= 0)
    yield pulp.LpAffineExpression([(v, 1) for v in busy.values()])
    yield pulp.LpAffineExpression([(v, item.entry.batch) for item, v in x.items()])
    for variables in y.values():
        if len(variables) > 1:
            yield pulp.LpAffineExpression([(v, batch) for batch, v in variables.items()])
    for family, kind in itertools.product(y, dict.fromkeys(gpus.values())):
        yield pulp.LpAffineExpression([(v, 1) for item, v in x.items() if item.family == family
                                       and item.worker_type == kind])


def _arranged(x: Mapping[ModelOnGpu, object], chosen: list[ModelOnGpu]) -> list[ModelOnGpu]:
    """Rearrange the instances of each GPU type so that the first models are on the first GPUs."""
    arranged = []
    for kind in dict.fromkeys(item.worker_type for item in chosen):
        instances = [item for item in chosen if item.worker_type == kind]
        order = list(dict.fromkeys(item.variant.name for item in x))
        sorts = sorted({item._replace(gpu="") for item in instances},
                       key=lambda instance: order.index(instance.variant.name))
        counts = tuple(sum(item._replace(gpu="") == sort for item in instances) for sort in sorts)
        gpus = list(dict.fromkeys(item.gpu for item in x if item.worker_type == kind))
        plan = _Packing(sorts, len({item.gpu for item in instances})).plan(counts)
        arranged += instances if plan is None else [
            sorts[i]._replace(gpu=gpu) for gpu, here in zip(gpus, plan, strict=False)
            for i in here]
    return arranged


class _Packing:
    """Backtracking search for a packing of instances on equal GPUs, none of them empty.

    A GPU holds at most one instance of each sort (model and batch).
    """

    def __init__(self, sorts: list[ModelOnGpu], gpus: int) -> None:
        self.gpus, self.tried = gpus, 0
        self.fits = [subset for subset in itertools.chain.from_iterable(
            itertools.combinations(range(len(sorts)), size) for size in range(1, 1 + len(sorts)))
            if self._fit([sorts[i] for i in subset])] if len(sorts) <= 12 else []
        self.fits.sort(key=lambda subset: [i not in subset for i in range(len(sorts))])
        self.impossible: set[tuple[int, tuple[int, ...]]] = set()

    @staticmethod
    def _fit(items: list[ModelOnGpu]) -> bool:
        return (math.fsum(item.entry.compute_share or 0.0 for item in items) <= 1 + 1e-6
                and math.fsum(item.memory_mb for item in items)
                <= (1 + 1e-6) * items[0].worker_type.memory_mb)

    def plan(self, counts: tuple[int, ...], gpu: int = 0) -> list[tuple[int, ...]] | None:
        """Pack ``counts`` instances by sort on the GPUs from ``gpu`` on; None if none is found."""
        if gpu == self.gpus:
            return [] if not any(counts) else None
        if (gpu, counts) in self.impossible or self.tried > _TRIED:
            return None
        for subset in self.fits:
            self.tried += 1
            left = tuple(count - (i in subset) for i, count in enumerate(counts))
            if min(left) >= 0 and max(left) < self.gpus - gpu:
                later = self.plan(left, gpu + 1)
                if later is not None:
                    return [subset, *later]
        self.impossible.add((gpu, counts))
        return None
