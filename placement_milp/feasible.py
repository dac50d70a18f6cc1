"""Feasible batches: batches of a variant that a worker type can run alone.

A batch b of variant v is feasible on type t if

    l(t, v, b) <= latency_share_of_slo * SLO,    memory(v, b) <= memory of t,

and every ``only-on`` rule that names v, or its family, allows t. With queueing, a batch has to
meet the SLO with headroom; :mod:`placement_milp.queueing` adds the waiting times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from placement_milp.problem import Family, Latency, Problem, Variant, WorkerType


@dataclass(frozen=True, slots=True)
class FeasibleBatch:
    """Batch of a variant that a worker can run alone within its SLO and memory."""

    variant: Variant
    family: Family
    batch: int
    latency_ms: float
    memory_mb: float
    processes: int
    rate_qps: float


def latencies(variant: Variant, worker_type: WorkerType) -> Iterator[Latency]:
    """Yield the latencies of a variant on a type, derived from ``latency_like`` if set."""
    entries = [entry for entry in variant.latency if entry.worker_type == worker_type.name]
    if entries or worker_type.latency_like is None:
        yield from entries
        return
    for entry in variant.latency:
        if entry.worker_type == worker_type.latency_like:
            speed = worker_type.relative_speed
            rate_qps = None if entry.rate_qps is None else entry.rate_qps * speed
            yield replace(entry, worker_type=worker_type.name,
                          latency_ms=entry.latency_ms / speed, rate_qps=rate_qps)


def feasible_batches(
    problem: Problem, variant: Variant, worker_type: WorkerType
) -> list[FeasibleBatch]:
    """Return the feasible batches of a variant on a type."""
    if not may_run(problem, variant, worker_type):
        return []
    family, rules = problem.family(variant.family), problem.rules
    share = rules.latency_share_of_slo if rules.in_time_quantile is None else (
        1.0 / (1.0 + rules.headroom))
    limit_ms = share * family.slo_ms
    return [item for item in listed_batches(family, variant, worker_type)
            if item.latency_ms <= limit_ms and item.memory_mb <= worker_type.memory_mb]


def listed_batches(
    family: Family, variant: Variant, worker_type: WorkerType
) -> Iterator[FeasibleBatch]:
    """Yield all listed batches of a variant on a type, feasible or not."""
    for entry in latencies(variant, worker_type):
        memory_mb = variant.memory_mb if entry.memory_mb is None else entry.memory_mb
        yield FeasibleBatch(variant, family, entry.batch, entry.latency_ms, memory_mb,
                            entry.processes, entry.throughput_qps)


def may_run(problem: Problem, variant: Variant, worker_type: WorkerType) -> bool:
    """Return whether the ``only-on`` rules allow a variant on a type."""
    return all(worker_type.name in rule.worker_types for rule in problem.colocation
               if rule.kind == "only-on" and is_member(variant, rule.members))


def is_member(variant: Variant, members: tuple[str, ...]) -> bool:
    """Return whether a variant, or its family, is among the members of a rule."""
    return variant.name in members or variant.family in members
