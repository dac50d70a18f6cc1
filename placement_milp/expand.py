"""Assignment of named workers to patterns, with the least loading of models.

Workers of a type that currently hold the same set of variants are interchangeable, and so are
workers that get the same pattern. With x_cp workers that hold the set c and get pattern p,

    max  Σ_cp (load time of c ∩ p) x_cp,  then  Σ_cp |c ∩ p| x_cp
    s.t. Σ_p x_cp <= workers that hold c,    Σ_c x_cp <= workers that get p,    x >= 0.

This is a transportation problem: its vertices are integral, and the dual simplex method ends at
one. The remaining workers are assigned in order, empty ones first.

First, layouts of partitioned GPUs are assigned to named GPUs: the first ones in each state get
the layouts counted for the state. Of their instances, existing ones are used first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from placement_milp.formulation import Cut, gpu_states
from placement_milp.partitions import instance_worker
from placement_milp.problem import Problem, WorkerType
from placement_milp.result import CutGpu, Group, Move

_Change = tuple[tuple[str, ...], tuple[str, ...], float]
_EMPTY: frozenset[str] = frozenset()


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
    """Return distinct names of workers for each set of variants with its number of workers.

    They are taken from all workers of the type, or from ``names``.
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
    # Then use empty workers first, so that no variant is unloaded without need; existing instances
    # before new ones, as creation takes longer than unloading.
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
    """Return the loads and unloads of each worker; idle workers keep their models."""
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
