"""Greedy presets: Nexus and INFaaS.

*Nexus*: squishy bin packing of sessions onto workers of one type. A session is a family with one
variant. First, it gets whole workers that always run its largest batch B with 2 l(B) <= SLO. The
residual rate r fills part of a worker: the largest b with l(b) + b / r <= SLO, in a duty cycle of
b / r. These residual loads are packed, the highest occupancy first. Loads on one worker run in the
shortest of their cycles, each with the smallest batch that sustains its rate there; all batches
together must fit the cycle and the memory. A residual load goes to the worker whose occupancy
becomes the highest with it, or to a new worker if it fits on none.

A batch size between listed ones runs as the next larger one. If there are too few workers, the
last packed ones are left out.

Source: Shen et al., *Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis*,
SOSP 2019, section 6.1.

*INFaaS*: families, in the order of the problem, get their cheapest variants. The feasible patterns
of a family that meet its minimum accuracy are sorted by cost per request. The first gets
ceil(demand / rate) of the remaining workers; if there are fewer, the next pattern gets the
remaining demand. If workers have no cost, the fastest pattern is the cheapest.

Source: Romero, Li, Yadwadkar, Kozyrakis, *INFaaS: Automated Model-less Inference Serving*, USENIX
ATC 2021.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from placement_milp.backend import Limits
from placement_milp.feasible import FeasibleBatch, feasible_batches, listed_batches, slow_down
from placement_milp.patterns import Pattern, each_alone, in_turns, single
from placement_milp.presets.heuristic import checked_placement
from placement_milp.problem import Family, Problem, WorkerType
from placement_milp.result import Placement
from ramsis.errors import InvalidValueError


@dataclass(frozen=True)
class _Session:
    """Session: batches of a family's variant, the smallest first, and its rate, > 0."""

    batches: tuple[FeasibleBatch, ...]
    per_ms: float


@dataclass(frozen=True)
class _Node:
    """Worker in a duty cycle: its sessions, with the batch of each."""

    sessions: tuple[_Session, ...]
    batches: tuple[FeasibleBatch, ...]
    cycle_ms: float
    slow_down: float

    @property
    def occupancy(self) -> float:
        """Share of the duty cycle in which the worker is busy."""
        return self.slow_down * sum(b.latency_ms for b in self.batches) / self.cycle_ms


def nexus(problem: Problem, limits: Limits | None = None) -> Placement:
    """Pack each family's most accurate feasible variant; ``limits`` has no effect."""
    start = time.perf_counter()
    types = [item for item in problem.worker_types if item.count]
    if len(types) != 1:
        raise InvalidValueError("Nexus packs workers of one type", value=len(types),
                                where="worker_types", allowed="one type with workers")
    (item,) = types
    used: list[tuple[Pattern, int]] = []
    residual: list[_Session] = []
    for family in problem.families:
        session = _session(problem, family, item)
        if session is not None:
            full, partial = _saturate(problem, session, item)
            used += [full] if full[1] else []
            residual += [partial] if partial.per_ms > 1e-12 else []
    nodes = [node for session in residual if (node := _node(problem, (session,))) is not None]
    # Pack the highest occupancy first, as spare time of a worker fits only small loads.
    packed = _pack(problem, item, sorted(nodes, key=lambda node: -node.occupancy))
    used += [(in_turns(item, node.batches, node.cycle_ms, node.slow_down), 1) for node in packed]
    fitting, over = _fitting(used, item.count)
    notes = (f"{over} of the workers that it asks for are not there",) if over else ()
    return checked_placement(problem, fitting, time.perf_counter() - start, notes=notes)


def _session(problem: Problem, family: Family, item: WorkerType) -> _Session | None:
    """Return the session of a family: its most accurate feasible variant; None without one."""
    variants = [v for v in problem.variants if v.family == family.name
                and feasible_batches(problem, v, item)]
    if not variants:
        return None
    variant = max(variants, key=lambda v: v.accuracy)
    batches = tuple(sorted(listed_batches(family, variant, item), key=lambda b: b.batch))
    return _Session(batches, family.demand_qps / 1000)


def _saturate(
    problem: Problem, session: _Session, item: WorkerType
) -> tuple[tuple[Pattern, int], _Session]:
    """Return whole workers with the largest batch, and the session with its residual rate."""
    best = max(feasible_batches(problem, session.batches[0].variant, item), key=lambda b: b.batch)
    rate = best.batch / best.latency_ms
    workers = int(session.per_ms / rate + 1e-9)
    residual = max(0.0, session.per_ms - workers * rate)
    return (single(item, best), workers), _Session(session.batches, residual)


def _node(problem: Problem, sessions: tuple[_Session, ...]) -> _Node | None:
    """Return the node of a residual load with the largest batch that meets the SLO."""
    (session,) = sessions
    limit = _limit_ms(problem, session)
    for batch in reversed(session.batches):
        cycle = batch.batch / session.per_ms
        if cycle >= batch.latency_ms and cycle + batch.latency_ms <= limit:
            return _Node(sessions, (batch,), cycle, 1.0)
    smallest = session.batches[0]  # at this low rate, not even this batch fills in time
    cycle = limit - smallest.latency_ms
    keeps_up = smallest.batch / cycle >= session.per_ms * (1 - 1e-9)
    in_time = cycle >= smallest.latency_ms and keeps_up
    return _Node(sessions, (smallest,), cycle, 1.0) if in_time else None


def _limit_ms(problem: Problem, session: _Session) -> float:
    """Return the limit of a cycle and a batch together: the SLO, if a batch may take half."""
    return 2.0 * problem.rules.latency_share_of_slo * session.batches[0].family.slo_ms


def _pack(problem: Problem, item: WorkerType, nodes: Sequence[_Node]) -> list[_Node]:
    """Merge each node into the packed one with the highest occupancy after it, or add it."""
    packed: list[_Node] = []
    for node in nodes:
        merged = [(both, i) for i, other in enumerate(packed)
                  if (both := _merge(problem, item, other, node)) is not None]
        if merged:
            best, i = max(merged, key=lambda pair: pair[0].occupancy)
            packed[i] = best
        else:
            packed.append(node)
    return packed


def _merge(problem: Problem, item: WorkerType, first: _Node, second: _Node) -> _Node | None:
    """Merge two nodes on one worker, in the shorter cycle; None if they do not fit."""
    sessions = first.sessions + second.sessions
    cycle = min(first.cycle_ms, second.cycle_ms)
    factors = [slow_down(problem, a.batches[0].variant, b.batches[0].variant)
               for a, b in itertools.combinations(sessions, 2)]
    if None in factors:
        return None
    slow = max(factor for factor in factors if factor is not None)
    batches = []
    for session in sessions:
        need = math.ceil(session.per_ms * cycle - 1e-9)
        enough = [b for b in session.batches if b.batch >= need]
        if not enough or cycle + slow * enough[0].latency_ms > _limit_ms(problem, session):
            return None
        batches.append(enough[0])
    node = _Node(sessions, tuple(batches), cycle, slow)
    fits = sum(b.memory_mb for b in batches) <= item.memory_mb
    return node if fits and node.occupancy <= 1.0 else None


def _fitting(
    used: list[tuple[Pattern, int]], count: int
) -> tuple[list[tuple[Pattern, int]], int]:
    """Return the patterns that fit ``count`` workers, and how many more workers all would need."""
    fitting = []
    free = count
    for pattern, needed in used:
        fitting.append((pattern, min(needed, free)))
        free -= fitting[-1][1]
    return fitting, sum(needed for _, needed in used) - (count - free)


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
