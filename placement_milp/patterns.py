"""Patterns, the columns of the program: uses of a worker, or of a station of workers.

A **pattern** states the variants on workers of one type, and the rates at which they can answer.
There are three kinds.

*One variant* v at batch b on type t, if l(t, v, b) <= a·SLO with a = ``latency_share_of_slo`` and
the memory at that batch fits: rate P·b / l with P concurrent processes, or the measured rate. The
batch with the highest rate is the pattern.

*Two variants* that share the worker in a duty cycle (:mod:`placement_milp.feasible`).

With queueing (``in_time_quantile``) a pattern of one variant is a *station* of k equal workers
with one queue, and its rate is the load that they answer in time (:mod:`placement_milp.queueing`).
For each k it has the batch and the number of processes with the highest rate. Two variants then
share a worker only if one of them gets the whole load of its family.

*A station* of k workers under a policy: a row of a value table. It takes the row's load, of which
the row's expected violation rate is late.

A pattern is dominated if another one of the same family and worker type has no more workers, and
is no worse in accuracy, rate and share in time. Dominated patterns are left out, as replacing them
never makes a placement worse. They stay if moves have a price, since then the currently held
variants matter.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement_milp.feasible import (
    FeasibleBatch,
    feasible_batches,
    latencies,
    may_run,
    pairs,
    slow_down,
    undominated,
)
from placement_milp.problem import Family, Problem, ValueRow, Variant, WorkerType
from placement_milp.queueing import Lane, most_beside, rate_beside, station_rate
from ramsis.errors import InfeasibleError, describe

_STATIONS = (1, 2, 3, 4, 6, 8, 12, 16)  # numbers of workers of a station; more form several
_LITTLE = 0.5  # largest demand of a family that shares a worker, as a share of the worker's rate
_TRIED = 3  # number of batches tried for such a family, the fastest ones


@dataclass(frozen=True, slots=True)
class Quality:
    """Answers that a family can get: those of a variant, or of a policy, with their accuracy."""

    # name of the family; name of the variant, or a description of the value table's row
    family: str
    label: str
    accuracy: float  # of the requests answered in time
    in_time: float = 1.0  # share of its requests that are answered in time


@dataclass(frozen=True, slots=True)
class Offer:
    """Rate that a pattern offers to requests of a quality.

    ``batch`` and ``latency_ms``, the time of a batch on the worker, are ``None`` under a policy,
    which chooses batches itself.
    """

    quality: Quality
    variants: tuple[str, ...]
    rate_qps: float
    memory_mb: float
    batch: int | None = None
    latency_ms: float | None = None
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Pattern:
    """Pattern: use of a worker, or of a station of several workers, of one type."""

    worker_type: str  # name of the worker type
    # one for each variant that a worker holds, or one for the whole station
    offers: tuple[Offer, ...]
    workers: int  # number of workers of a station, else 1
    memory_mb: float  # used memory of each worker
    # duty cycle: latency of the batch, or of one batch of both variants; ``None`` under a policy
    cycle_ms: float | None
    # latency factor of two variants, which ``cycle_ms`` and ``latency_ms`` include
    slow_down: float = 1.0

    def restricted_to(self, offers: Sequence[Offer]) -> Pattern:
        """Return the pattern with some of its offers; a single variant needs no duty cycle."""
        if len(offers) == len(self.offers):
            return self
        (offer,) = offers
        assert offer.batch is not None
        assert offer.latency_ms is not None
        latency_ms, rate_qps = offer.latency_ms / self.slow_down, offer.rate_qps
        if offer.quality.in_time == 1.0:  # else a queue, whose rate alone nobody has measured
            rate_qps = 1000.0 * offer.batch / latency_ms
        alone = replace(offer, latency_ms=latency_ms, rate_qps=rate_qps)
        return Pattern(self.worker_type, (alone,), 1, offer.memory_mb, latency_ms)

    @property
    def holds(self) -> tuple[str, ...]:
        """Names of the variants that each worker holds."""
        return tuple(name for offer in self.offers for name in offer.variants)

    @property
    def families(self) -> frozenset[str]:
        """Names of the families that the pattern answers."""
        return frozenset(offer.quality.family for offer in self.offers)


def rates_of(used: Iterable[tuple[Pattern, int]]) -> dict[Quality, float]:
    """Return the total rate of each quality, in requests per second, for counted patterns."""
    rates: dict[Quality, float] = {}
    for pattern, count in used:
        for offer in pattern.offers:
            rates[offer.quality] = rates.get(offer.quality, 0.0) + count * offer.rate_qps
    return rates


def enumerate_patterns(problem: Problem) -> tuple[Pattern, ...]:
    """Return the undominated patterns of a problem."""
    prune = not problem.moves_count
    patterns: list[Pattern] = []
    for worker_type in problem.instance_types:
        if worker_type.count == 0:
            continue
        feasible = _feasible(problem, worker_type)
        queueing = problem.rules.in_time_quantile is not None
        of_type = (list(_queues(problem, worker_type, feasible)) if queueing else
                   [single(worker_type, max(batches, key=lambda b: (b.rate_qps, -b.batch)))
                    for batches in feasible.values()])
        of_type += _stations(problem, worker_type)
        patterns += _undominated(problem, of_type) if prune else of_type
        if problem.rules.variants_per_worker > 1 and queueing:
            patterns += _beside(problem, worker_type, feasible)
        elif problem.rules.variants_per_worker > 1:
            patterns += [in_turns(worker_type, (first, second),
                                  slow * (first.latency_ms + second.latency_ms), slow)
                         for first, second, slow in pairs(problem, worker_type, feasible,
                                                          prune=prune)]
    _check_families(problem, patterns)
    return tuple(patterns)


def _feasible(problem: Problem, worker_type: WorkerType) -> dict[str, list[FeasibleBatch]]:
    """Return feasible batches by variant, for the families without a value table."""
    tabled = {table.family for table in problem.values}
    by_variant = {variant.name: feasible_batches(problem, variant, worker_type)
                  for variant in problem.variants if variant.family not in tabled}
    return {name: batches for name, batches in by_variant.items() if batches}


def _offer(
    batch: FeasibleBatch, rate_qps: float, slow_down: float = 1.0, in_time: float = 1.0
) -> Offer:
    variant = batch.variant
    return Offer(
        Quality(variant.family, variant.name, variant.accuracy, in_time), (variant.name,),
        rate_qps, batch.memory_mb, batch.batch, slow_down * batch.latency_ms, batch.processes)


def single(worker_type: WorkerType, item: FeasibleBatch) -> Pattern:
    """Return the pattern of a single variant at a batch."""
    return Pattern(worker_type.name, (_offer(item, item.rate_qps),), 1, item.memory_mb,
                   item.latency_ms)


def each_alone(
    problem: Problem, merit: Callable[[FeasibleBatch], float]
) -> tuple[Pattern, ...]:
    """Return a pattern for each variant and worker type, at the feasible batch of best merit."""
    return tuple(single(item, max(batches, key=merit))
                 for item in problem.instance_types if item.count for variant in problem.variants
                 if (batches := feasible_batches(problem, variant, item)))


def in_turns(
    worker_type: WorkerType, batches: Sequence[FeasibleBatch], cycle_ms: float, slow_down: float,
    rates_qps: Sequence[float] = (), in_time: float = 1.0,
) -> Pattern:
    """Return the pattern of variants in a duty cycle; by default with one batch each."""
    rates_qps = rates_qps or [1000.0 * item.batch / cycle_ms for item in batches]
    offers = tuple(_offer(item, rate_qps, slow_down, in_time)
                   for item, rate_qps in zip(batches, rates_qps, strict=True))
    return Pattern(worker_type.name, offers, 1, sum(item.memory_mb for item in batches), cycle_ms,
                   slow_down)


def _queues(
    problem: Problem, worker_type: WorkerType, feasible: dict[str, list[FeasibleBatch]]
) -> Iterator[Pattern]:
    """Yield the stations of each variant: for each number of workers, the best one."""
    quantile, headroom = problem.rules.in_time_quantile, problem.rules.headroom
    assert quantile is not None
    lanes = {name: _lanes(batches) for name, batches in feasible.items()}
    for name, batches in feasible.items():
        demand_qps = batches[0].family.demand_qps
        for workers in (k for k in _STATIONS if k <= worker_type.count):
            rate_qps, batch = 0.0, batches[0]
            # The fastest first: full batches bound the rate of a station, so most slower ones need
            # no simulation.
            ordered = sorted(batches, key=lambda b: -b.processes * b.batch / b.latency_ms)
            for item in ordered:
                lane = lanes[name][item.processes, item.batch]
                most = 1000.0 * workers * item.processes * lane.rate_per_ms / (1.0 + headroom)
                if most > rate_qps:
                    rate = station_rate(lane, workers * item.processes, item.family.slo_ms,
                                        quantile, headroom)
                    rate_qps, batch = max((rate_qps, batch), (rate, item),
                                          key=lambda pair: pair[0])
            if rate_qps > 0:
                offer = _offer(batch, rate_qps, in_time=quantile)
                yield Pattern(worker_type.name, (offer,), workers, batch.memory_mb,
                              batch.latency_ms)
            # Stop once a station answers the whole demand.
            if rate_qps >= demand_qps:
                break


def _lanes(batches: list[FeasibleBatch]) -> dict[tuple[int, int], Lane]:
    """Return lanes by (processes, largest batch); a lane also runs smaller batches."""
    listed: dict[int, dict[int, float]] = defaultdict(dict)
    for item in batches:
        listed[item.processes][item.batch] = item.latency_ms
    return {(item.processes, item.batch): Lane.of(item.batch, listed[item.processes])
            for item in batches}


def _beside(
    problem: Problem, worker_type: WorkerType, feasible: dict[str, list[FeasibleBatch]]
) -> Iterator[Pattern]:
    """Yield patterns in which a variant with little load shares a worker with another one.

    The first variant gets the whole demand of its family, which is at most half of its rate alone
    at full batches; the other one gets the rate that this leaves. For two variants, the pattern
    has the two batches with the highest such rate.
    """
    quantile, headroom = problem.rules.in_time_quantile, problem.rules.headroom
    assert quantile is not None
    lanes = {name: _lanes(batches) for name, batches in feasible.items()}
    little = [name for name, batches in feasible.items() if batches[0].family.demand_qps <= (
        _LITTLE * max(item.rate_qps for item in batches))]
    for small, partner in itertools.product(little, feasible):
        first, second = feasible[small][0].family, feasible[partner][0].family
        factor = slow_down(problem, feasible[small][0].variant, feasible[partner][0].variant)
        if first.name == second.name or factor is None:
            continue
        best: tuple[float, FeasibleBatch, FeasibleBatch] | None = None
        longer = factor * (1.0 + headroom) - 1.0  # share by which latencies grow in all
        mine_in_turns, others = ([item for item in feasible[name] if item.processes == 1]
                                 for name in (small, partner))
        tried = sorted(mine_in_turns, key=lambda item: item.latency_ms)[:_TRIED]
        # Branch and bound: the worker's spare time bounds the rate. Pairs are sorted by this
        # bound, so the search stops at the first pair whose bound is no better than the best rate.
        for candidate, other in sorted(itertools.product(tried, others),
                                       key=lambda both: -most_beside(
                lanes[small][1, both[0].batch], first.demand_qps, lanes[partner][1, both[1].batch],
                longer)):
            if candidate.memory_mb + other.memory_mb > worker_type.memory_mb:
                continue
            both = lanes[small][1, candidate.batch], lanes[partner][1, other.batch]
            least = best[0] if best else 0.0
            if most_beside(both[0], first.demand_qps, both[1], longer) <= least:
                break
            rate = rate_beside(both[0], first.demand_qps, first.slo_ms, both[1], second.slo_ms,
                               quantile, longer, least)
            if rate > least:
                best = rate, candidate, other
        if best is not None:
            rate, candidate, other = best
            cycle_ms = factor * (candidate.latency_ms + other.latency_ms)
            yield in_turns(worker_type, (candidate, other), cycle_ms, factor,
                           (first.demand_qps, rate), quantile)


def _stations(problem: Problem, worker_type: WorkerType) -> Iterator[Pattern]:
    """Yield a pattern for each row of value tables that fits the workers and their memory."""
    variants = {variant.name: variant for variant in problem.variants}
    for family in problem.families:
        for row in problem.table(family) or ():
            models = [variants[name] for name in row.model_set]
            memory_mb = sum(_largest_memory(model, worker_type) for model in models)
            if (row.worker_type == worker_type.name and row.workers <= worker_type.count
                    and memory_mb <= worker_type.memory_mb
                    and row.expected_violation_rate < 1.0
                    and all(may_run(problem, model, worker_type) for model in models)):
                offer = _policy_offer(family, row, memory_mb)
                yield Pattern(worker_type.name, (offer,), row.workers, memory_mb, None)


def _largest_memory(variant: Variant, worker_type: WorkerType) -> float:
    """Return the largest memory of a variant over all batches that a policy may run."""
    return max([variant.memory_mb, *(entry.memory_mb for entry in latencies(variant, worker_type)
                                     if entry.memory_mb is not None)])


def _policy_offer(family: Family, row: ValueRow, memory_mb: float) -> Offer:
    """Return the offer of a row; its accuracy is that of the requests answered in time."""
    in_time = 1.0 - row.expected_violation_rate
    label = f"{'+'.join(row.model_set)} on {row.workers} {row.worker_type} at {row.load_qps:g} QPS"
    quality = Quality(family.name, label, row.expected_effective_accuracy / in_time, in_time)
    return Offer(quality, row.model_set, row.load_qps, memory_mb)


def _undominated(problem: Problem, patterns: list[Pattern]) -> list[Pattern]:
    """Return the patterns on a worker type that no other one dominates.

    Rates above the family's demand count as equal to it.
    """
    demand = {family.name: family.demand_qps for family in problem.families}
    by_family: dict[str, list[Pattern]] = defaultdict(list)
    for pattern in patterns:
        by_family[pattern.offers[0].quality.family].append(pattern)
    undominated_patterns = []
    for family, group in by_family.items():
        merits = [(-p.workers, min(p.offers[0].rate_qps, demand[family]),
                   p.offers[0].quality.accuracy, p.offers[0].quality.in_time) for p in group]
        undominated_patterns += [group[i] for i in undominated(np.array(merits))]
    return undominated_patterns


def _check_families(problem: Problem, patterns: list[Pattern]) -> None:
    """Refuse a problem with a family that no pattern answers, and state the reason."""
    served = {family for pattern in patterns for family in pattern.families}
    for family in problem.families:
        if family.name not in served:
            raise InfeasibleError(_reason(problem, family))


def _reason(problem: Problem, family: Family) -> str:
    """Return the first condition that excludes all patterns of a family, as a message."""
    where = f"family {family.name}"
    if problem.table(family) is not None:
        return describe("no row of its value table fits the workers", where=where,
                        allowed="rows for workers, memory and types that there are")
    types = [item for item in problem.instance_types if item.count]
    entries = [(variant, item, entry) for variant in problem.variants
               if variant.family == family.name for item in types
               if may_run(problem, variant, item) for entry in latencies(variant, item)]
    if not entries:
        return describe("no variant has a latency on a worker type that it may run on",
                        where=where)
    fitting = [entry for variant, item, entry in entries
               if (entry.memory_mb or variant.memory_mb) <= item.memory_mb]
    if not fitting:
        smallest = min(entry.memory_mb or variant.memory_mb for variant, _, entry in entries)
        largest = max(item.memory_mb for item in types)
        return describe("memory of no worker holds any of its variants", where=where,
                        value=f"{largest:g} MB", allowed=f"at least {smallest:g} MB")
    shortest_ms = min(entry.latency_ms for entry in fitting)
    rules = problem.rules
    least_ms, rule = (
        (shortest_ms / rules.latency_share_of_slo,
         f"latency_share_of_slo {rules.latency_share_of_slo:g}")
        if rules.in_time_quantile is None else
        (shortest_ms * (1.0 + rules.headroom), f"headroom {rules.headroom:g}"))
    return describe("no variant meets the SLO", where=where, value=f"{family.slo_ms:g} ms",
                    allowed=f"at least {least_ms:g} ms (shortest latency {shortest_ms:g} ms, "
                            f"{rule})")
