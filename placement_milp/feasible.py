"""Feasible batches of a variant alone on a worker, and undominated pairs that share one.

A batch b of variant v is feasible on type t if

    l(t, v, b) <= latency_share_of_slo * SLO,    memory(v, b) <= memory of t,

and every ``only-on`` rule that names v, or its family, allows t. With queueing, a batch has to
meet the SLO with headroom; :mod:`placement_milp.queueing` adds the waiting times.

In a **duty cycle** of C = s·(l_1 + l_2), with the mutual slow-down s of the variants, variant i
answers b_i requests. A request waits at most one cycle for its batch to start, so it is in time if
C + s·l_i <= 2a·SLO_i, with a = ``latency_share_of_slo``. Both memories have to fit.

A pair is dominated if another pair of the same two families is no worse in both rates (b_i / C,
capped at the demand) and in both accuracies. Dominated pairs are left out: first among the batches
of the same variants, then among all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement_milp.problem import Family, Latency, Problem, Variant, WorkerType

_Floats = NDArray[np.float64]


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


class Pair(NamedTuple):
    """Pair of batches that share a worker, with their slow-down."""

    first: FeasibleBatch
    second: FeasibleBatch
    slow_down: float


class _Batches(NamedTuple):
    """Batches of a variant as arrays of equal length."""

    feasible: list[FeasibleBatch]
    batch: _Floats
    latency_ms: _Floats
    memory_mb: _Floats

    @classmethod
    def of(cls, feasible: list[FeasibleBatch]) -> _Batches:
        return cls(feasible, *(np.array([getattr(item, name) for item in feasible], dtype=float)
                               for name in ("batch", "latency_ms", "memory_mb")))


def pairs(
    problem: Problem, worker_type: WorkerType, feasible: dict[str, list[FeasibleBatch]], *,
    prune: bool,
) -> Iterator[Pair]:
    """Yield the undominated pairs of batches on a worker type.

    A pair is compared with the pairs of the same two variants; with ``prune``, also with those of
    all other variants of the two families.
    """
    families: dict[str, list[_Batches]] = {}
    for listed in feasible.values():
        # A duty cycle has one process; concurrent processes are another way to share.
        batches = [item for item in listed if item.processes == 1]
        if batches:
            families.setdefault(batches[0].family.name, []).append(_Batches.of(batches))
    ordered = sorted(families)
    for left, right in itertools.combinations_with_replacement(ordered, 2):
        both = (itertools.combinations(families[left], 2) if left == right
                else itertools.product(families[left], families[right]))
        result: list[Pair] = []
        merits: list[_Floats] = []
        for first, second in both:
            factor = slow_down(problem, first.feasible[0].variant, second.feasible[0].variant)
            if factor is not None:
                i, j, rates = _cycles(problem, worker_type, first, second, factor)
                result += [Pair(first.feasible[a], second.feasible[b], factor)
                           for a, b in zip(i, j, strict=True)]
                accuracy = [batches.feasible[0].variant.accuracy for batches in (first, second)]
                merits.append(np.column_stack([rates, np.tile(accuracy, (len(i), 1))]))
        if result:
            keep = undominated(np.vstack(merits)) if prune else range(len(result))
            yield from (result[index] for index in keep)


def slow_down(problem: Problem, first: Variant, second: Variant) -> float | None:
    """Return the latency factor of two variants on one worker; None if they must not share it."""
    factor = problem.rules.interference
    for rule in problem.colocation:
        members = (is_member(first, rule.members), is_member(second, rule.members))
        if rule.kind == "alone" and any(members):
            return None
        # Two variants of one member family do not violate its rule.
        if all(members) and not (first.family == second.family and first.family in rule.members):
            if rule.kind == "apart":
                return None
            if rule.kind == "slow-down":
                factor = rule.factor
    return factor


def _cycles(
    problem: Problem, worker_type: WorkerType, first: _Batches, second: _Batches, factor: float
) -> tuple[list[int], list[int], _Floats]:
    """Return the undominated pairs of a batch of each variant: their indices, and both rates.

    The rates, shape (pairs, 2), are b_i / C, capped at the families' demands.
    """
    cycle = factor * np.add.outer(first.latency_ms, second.latency_ms)
    share = 2.0 * problem.rules.latency_share_of_slo
    family, other = first.feasible[0].family, second.feasible[0].family
    fits = (
        (cycle + factor * first.latency_ms[:, None] <= share * family.slo_ms)
        & (cycle + factor * second.latency_ms <= share * other.slo_ms)
        & (np.add.outer(first.memory_mb, second.memory_mb) <= worker_type.memory_mb)
    )
    i, j = fits.nonzero()
    length = cycle[i, j]
    rates = np.column_stack([np.minimum(1000.0 * first.batch[i] / length, family.demand_qps),
                             np.minimum(1000.0 * second.batch[j] / length, other.demand_qps)])
    # By falling first rate, a pair is undominated if its second rate exceeds all those before.
    order = np.lexsort((-rates[:, 1], -rates[:, 0]))
    best = np.maximum.accumulate(rates[order, 1])
    keep = order[np.concatenate([[True], rates[order[1:], 1] > best[:-1]])] if len(i) else order
    return i[keep].tolist(), j[keep].tolist(), rates[keep]


def undominated(merits: _Floats) -> list[int]:
    """Return the indices of undominated rows of an array, shape (n, merits); keep one of ties.

    >>> undominated(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0], [2.0, 1.0]]))
    [1, 0]
    """
    order = np.lexsort(-merits.T[::-1])
    front = np.empty_like(merits)
    indices: list[int] = []
    for index in order.tolist():  # lexicographic order: a dominating row precedes a dominated one
        if not (front[: len(indices)] >= merits[index]).all(axis=1).any():
            front[len(indices)] = merits[index]
            indices.append(index)
    return indices
