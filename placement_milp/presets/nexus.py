"""Nexus: squishy bin packing of sessions onto workers of one type.

A session is a family with one variant. First, as many workers as run its largest batch B with
2 l(B) <= SLO without a pause. The residual rate r fills a worker partly: the largest b with
l(b) + b / r <= SLO, in a duty cycle of b / r. These residual loads are packed, the highest
occupancy first. Two that share a worker take the shorter of their cycles, in which each needs the
smallest batch that keeps up with its rate; the worker must have the time for all batches of a
cycle, and the memory. A residual load goes to the worker whose occupancy becomes the highest, or
to a new one.

Batches in between those that a problem lists run as the next larger one that it does. Where there
are too few workers, the last ones packed are left out.

Source: Shen et al., *Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis*,
SOSP 2019, section 6.1.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from placement_milp.backend import Limits
from placement_milp.feasible import FeasibleBatch, feasible_batches, listed_batches
from placement_milp.pairs import slow_down
from placement_milp.patterns import Pattern, in_turns, single
from placement_milp.presets.heuristic import checked_placement
from placement_milp.problem import Family, Problem, WorkerType
from placement_milp.result import Placement
from ramsis.errors import InvalidValueError


@dataclass(frozen=True)
class _Session:
    """Batches of a family's variant, the smallest first, and the residual rate, > 0."""

    batches: tuple[FeasibleBatch, ...]
    per_ms: float


@dataclass(frozen=True)
class _Node:
    """Sessions on a worker in a duty cycle, with the batch of each."""

    sessions: tuple[_Session, ...]
    batches: tuple[FeasibleBatch, ...]
    cycle_ms: float
    slow_down: float

    @property
    def occupancy(self) -> float:
        """Share of the cycle that is busy."""
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
            whole, left = _saturate(problem, session, item)
            used += [whole] if whole[1] else []
            residual += [left] if left.per_ms > 1e-12 else []
    nodes = [node for session in residual if (node := _node(problem, (session,))) is not None]
    # The fullest first, as the spare time of a worker fits small loads only.
    packed = _pack(problem, item, sorted(nodes, key=lambda node: -node.occupancy))
    used += [(in_turns(item, node.batches, node.cycle_ms, node.slow_down), 1) for node in packed]
    kept, over = _fitting(used, item.count)
    notes = (f"{over} of the workers that it asks for are not there",) if over else ()
    return checked_placement(problem, kept, time.perf_counter() - start, notes=notes)


def _session(problem: Problem, family: Family, item: WorkerType) -> _Session | None:
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
    """Return the workers that run the largest batch all the time, and the residual rate."""
    best = max(feasible_batches(problem, session.batches[0].variant, item), key=lambda b: b.batch)
    rate = best.batch / best.latency_ms
    whole = int(session.per_ms / rate + 1e-9)
    left = max(0.0, session.per_ms - whole * rate)
    return (single(item, best), whole), _Session(session.batches, left)


def _node(problem: Problem, sessions: tuple[_Session, ...]) -> _Node | None:
    """Return a node for a residual load: the largest batch within its duty cycle."""
    (session,) = sessions
    limit = _limit_ms(problem, session)
    for batch in reversed(session.batches):
        cycle = batch.batch / session.per_ms
        if cycle >= batch.latency_ms and cycle + batch.latency_ms <= limit:
            return _Node(sessions, (batch,), cycle, 1.0)
    smallest = session.batches[0]  # the rate is too low to fill even this one in time
    cycle = limit - smallest.latency_ms
    keeps_up = smallest.batch / cycle >= session.per_ms * (1 - 1e-9)
    in_time = cycle >= smallest.latency_ms and keeps_up
    return _Node(sessions, (smallest,), cycle, 1.0) if in_time else None


def _limit_ms(problem: Problem, session: _Session) -> float:
    return 2.0 * problem.rules.latency_share_of_slo * session.batches[0].family.slo_ms


def _pack(problem: Problem, item: WorkerType, nodes: Sequence[_Node]) -> list[_Node]:
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
    """Return both nodes on one worker in the shorter cycle; None where that is impossible."""
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
    """Return the first ``count`` workers, and how many more are needed."""
    kept = []
    left = count
    for pattern, needed in used:
        kept.append((pattern, min(needed, left)))
        left -= kept[-1][1]
    return kept, sum(needed for _, needed in used) - (count - left)
