"""The cheapest mix of worker types with which policies reach an accuracy and a violation rate.

The problem: whole numbers K_t of workers of each type, of least cost Σ w_t·K_t, such that policies
made for that mix (:mod:`ramsis.synthesis.mix_problem`), simulated at a constant load, have at most
so many violations and at least the accuracy that is asked for. Three steps:

1. *From below*: the fluid program turned round (:mod:`ramsis.bounds.workers`) gives a
   cost that no scheme on any mix can do with less than, and says that most mixes cannot meet the
targets. 2. *From above*: the fewest workers of each type alone, by doubling steps and bisection.
3. *Between*: costs from the bound on in steps that double, then bisection. Of the mixes up to a
   cost the one is made and simulated that by the fluid program could carry the largest load. Then
   those cheaper than the answer, in that order; each that meets the targets is the new answer.

It stops when the fluid program allows no cheaper mix, or after MISSES of them in a row in the last
step. Wherever a mix misses the targets, so are taken to those with no more workers of any type, as
policies serve better on more. Types that are alike count as one type for policies, not for cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ramsis.bounds import CheapestWorkers, Targets
from ramsis.cluster.slo_class import SloClass
from ramsis.cluster.worker_type import WorkerType, check_names
from ramsis.errors import InfeasibleError, InvalidValueError, describe
from ramsis.policy import DISPATCHES, Rates
from ramsis.sim import ConstantLoad
from ramsis.sim.fleet import MAX_BATCH
from ramsis.sim.stations import simulate_stations
from ramsis.synthesis.capacity import (
    MOST_WORKERS,
    SPAN,
    Trial,
    doubling,
    largest_batch,
    not_reached,
    try_workers,
)
from ramsis.synthesis.mix_problem import MixProblem
from ramsis.synthesis.schemes import PolicyScheme, policy_scheme

__all__ = ["MISSES", "CheapestMix", "cheapest_mix", "fluid_mixes"]

MISSES = 8
"""Mixes in a row that miss the targets, cheaper than the answer, after which no more are tried."""
_CHEAPER = 1.0 - 1e-6

Counts = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class CheapestMix:
    """The cheapest mix of a scheme.

    Attributes
    ----------
    scheme : str
        As asked for.
    types : tuple of WorkerType
    load_qps, slo_ms : float
    service : str
    counts : tuple of int
        Workers of each type in the answer.
    answer : Trial
        What they do.
    fluid_cost : float
        No scheme on any mix costs less, were there parts of workers.
    counts_bound : tuple of int
        The cheapest mix of whole workers that the bound allows; no scheme on any mix costs less.
    trials : tuple of (tuple of int, Trial)
        All that was tried, in that order.
    complete : bool
        Whether all cheaper mixes are ruled out by the bound or by mixes that missed the targets
        with no fewer workers of any type.
    """

    scheme: str
    types: tuple[WorkerType, ...]
    load_qps: float
    slo_ms: float
    service: str
    counts: Counts
    answer: Trial
    fluid_cost: float
    counts_bound: Counts
    trials: tuple[tuple[Counts, Trial], ...]
    complete: bool

    @property
    def cost(self) -> float:
        """Of the answer."""
        return self._cost(self.counts)

    @property
    def cost_bound(self) -> float:
        """No scheme on any mix of whole workers meets the targets at less."""
        return self._cost(self.counts_bound)

    def row(self) -> dict[str, Any]:
        """The answer under the names that every command uses."""
        answer, targets = self.answer, self.answer.targets
        assert answer.simulation is not None  # it meets the targets
        return {
            "scheme": self.scheme, "load_qps": self.load_qps, "workers": sum(self.counts),
            "worker_types": self._named(self.counts), "cost": self.cost,
            "cost_bound": self.cost_bound, "gap": float(f"{self.cost - self.cost_bound:.9g}"),
            "worker_types_bound": self._named(self.counts_bound), "fluid_cost": self.fluid_cost,
            "slo_ms": self.slo_ms, "service": self.service,
            "min_accuracy": targets.min_accuracy,
            "min_effective_accuracy": targets.min_effective_accuracy,
            "max_violation": targets.max_violation, **answer.figures(),
            "seeds": len(answer.simulation.seeds), "clear": answer.clear,
            "tried": [self._named(counts) for counts, _ in self.trials],
            "complete": self.complete,
        }

    def _cost(self, counts: Counts) -> float:
        total = sum(one.cost * count for one, count in zip(self.types, counts, strict=True))
        return float(f"{total:.12g}")

    def _named(self, counts: Counts) -> dict[str, int]:
        return {one.name: count for one, count in zip(self.types, counts, strict=True)}


def fluid_mixes(
    types: Sequence[WorkerType], load_qps: float, targets: Targets, *, slo_ms: float,
    service: str = "p95", max_batch: int = MAX_BATCH,
) -> CheapestWorkers:
    """What the bound says of mixes for schemes with batches up to ``max_batch``.

    Raises
    ------
    InvalidValueError
        A number out of range, or a name twice.
    InfeasibleError
        No mix meets the targets, or none of the workers that there are.
    """
    check_names(types, "types")
    for one in types:
        if one.count is not None and one.count < 1:
            raise InvalidValueError(describe("not a number of workers", where="max_workers",
                                             value=f"{one.name}={one.count}", allowed=">= 1"))
    laws = [one.service_times(service, max_batch) for one in types]
    fluid = CheapestWorkers(laws, [one.cost for one in types], targets, slo_ms=slo_ms,
                       load_qps=load_qps, most=[one.count for one in types])
    workers = sum(fluid.cheapest()[1])
    if workers > MOST_WORKERS:
        raise InfeasibleError(describe("more workers than are searched for", where="workers",
                                       value=math.ceil(workers),
                                       allowed=f"at most {MOST_WORKERS}"))
    return fluid


def cheapest_mix(
    types: Sequence[WorkerType],
    load: ConstantLoad,
    targets: Targets,
    *,
    slo_ms: float,
    scheme: str = "central-queue",
    service: str = "p95",
    seeds: Sequence[int] = range(5),
    on_trial: Callable[[Trial], object] | None = None,
) -> CheapestMix:
    """The cheapest mix of workers with which policies meet the targets at a constant load.

    Parameters
    ----------
    types : sequence of WorkerType
        One or more, of different names.
    load : ConstantLoad
    targets : Targets
    slo_ms : float
        Deadline after arrival, > 0.
    scheme : str
        ``central-queue``, ``round-robin`` or ``shortest-queue``, with settings as
        ``round-robin:objective=per-decision``.
    service : str
        ``p95`` or another statistic, or ``distribution``.
    seeds : sequence of int
        Of the simulations.
    on_trial : callable, optional
        Told each trial as it is finished.

    Raises
    ------
    InvalidValueError
        A number or word out of range, or a scheme that is not made of policies.
    InfeasibleError
        No mix meets the targets, or the scheme does not within the workers that there are and
        :data:`~ramsis.synthesis.capacity.SPAN` times the bound; with the nearest that can be
        reached.
    NotConvergedError
        A solver stopped before its rule was met.
    """
    spec = policy_scheme(scheme)
    if not isinstance(spec, PolicyScheme):
        raise InvalidValueError(describe("not policies: several worker types take these",
                                         where="scheme", value=scheme, allowed=", ".join(DISPATCHES)))
    fluid = fluid_mixes(types, load.load_qps, targets, slo_ms=slo_ms, service=service,
                        max_batch=max(MAX_BATCH, largest_batch(spec)))

    @cache
    def tried(merged: Counts) -> Trial:
        trial = _try_mix(types, fluid.kinds, merged, load, targets, spec=spec, slo_ms=slo_ms,
                         scheme=scheme, service=service, seeds=seeds)
        if on_trial is not None:
            on_trial(trial)
        return trial

    fluid_cost, _ = fluid.cheapest()
    _, bound = fluid.cheapest(whole=True)
    search = _Search(fluid, tried, tuple(round(k) for k in bound))
    search.run()
    if search.answer is None:
        not_reached(scheme, load, max((trial for _, trial in search.trials),
                                      key=lambda trial: trial.workers))
    return CheapestMix(scheme, tuple(types), load.load_qps, slo_ms, service, search.answer,
                       tried(fluid.merged(search.answer)), fluid_cost, search.bound,
                       tuple(search.trials), search.complete)


class _Search:
    """The state of a search: what was tried, and the cheapest mix that met the targets."""

    def __init__(
        self, fluid: CheapestWorkers, tried: Callable[[Counts], Trial], bound: Counts
    ) -> None:
        self.fluid, self.tried, self.bound = fluid, tried, bound
        self.answer: Counts | None = None
        self.trials: list[tuple[Counts, Trial]] = []
        self.complete = False
        self._failed: list[Counts] = []

    def run(self) -> None:
        """The three steps; :attr:`answer` is None if nothing met the targets."""
        for t in range(len(self.bound)):
            self._alone(t)
        step = float(self.fluid.costs.min())
        missed = self._climb(step)
        while self.answer is not None and self._cost - missed > step:
            middle = (self._cost + missed) / 2.0
            if not self._improve(middle):
                missed = middle
        misses = 0
        while self.answer is not None and misses < MISSES and not self.complete:
            misses = 0 if self._improve(self._cost * _CHEAPER, last=True) else misses + 1

    @property
    def _cost(self) -> float:
        assert self.answer is not None
        return self.fluid.cost(self.answer)

    def _top(self) -> float:
        """Costs up to which mixes are of interest."""
        if self.answer is not None:
            return self._cost * _CHEAPER
        return SPAN * self.fluid.cost(self.bound)

    def _alone(self, t: int) -> None:
        """The fewest workers of one type, if they are cheaper than the answer."""
        lowest = self.fluid.fewest_alone(t)
        if lowest is None:
            return
        highest = SPAN * max(lowest, 10)
        if self.answer is not None:
            highest = min(highest, int(self._top() / self.fluid.costs[t]))
        highest = int(min(highest, self.fluid.most[t]))
        if lowest <= highest:
            doubling(lambda k: self._met(self._only(t, k)), lowest, highest)

    def _only(self, t: int, count: int) -> Counts:
        return tuple(count if i == t else 0 for i in range(len(self.bound)))

    def _climb(self, step: float) -> float:
        """Costs in steps that double until one is enough; the last that is not."""
        missed, budget = self.fluid.cost(self.bound) - step, self.fluid.cost(self.bound)
        while budget <= self._top():
            if self._improve(budget):
                break
            missed, budget, step = budget, budget + step, 2.0 * step
        return missed

    def _improve(self, cost: float, *, last: bool = False) -> bool:
        """Try the likeliest mix up to a cost; whether it meets the targets."""
        counts = self.fluid.best(cost, self._failed)
        if counts is None:
            self.complete = self.complete or last
            return False
        return self._met(counts)

    def _met(self, counts: Counts) -> bool:
        """Whether a mix meets the targets; the cheapest that does is the answer."""
        merged = self.fluid.merged(counts)
        if any(all(own <= most for own, most in zip(merged, one, strict=True))
               for one in self._failed):
            return False
        trial = self.tried(merged)
        self.trials.append((counts, trial))
        if not trial.met:
            self._failed.append(merged)
        elif self.answer is None or self.fluid.cost(counts) < self._cost:
            self.answer = counts
        return trial.met


def _try_mix(
    types: Sequence[WorkerType], kinds: Counts, merged: Counts, load: ConstantLoad,
    targets: Targets, *, spec: PolicyScheme, slo_ms: float, scheme: str, service: str,
    seeds: Sequence[int],
) -> Trial:
    """What policies do on some workers of each kind."""
    workers = sum(merged)
    used: Mapping[str, WorkerType] = {
        types[kinds.index(kind)].name: types[kinds.index(kind)]
        for kind, count in enumerate(merged) if count}
    counts = [count for count in merged if count]
    if len(used) == 1:
        (one,) = used.values()
        return try_workers(one.profile, load, targets, workers, slo_ms=slo_ms, scheme=scheme,
                           service=service, seeds=seeds)
    settings = spec.settings(slo_ms=slo_ms, workers=workers, service=service)
    try:
        level = MixProblem([replace(one, count=count)
                            for one, count in zip(used.values(), counts, strict=True)],
                           [SloClass(slo_ms)], settings).level(load.load_qps)
    except InfeasibleError as error:
        return Trial(workers, None, None, targets, str(error))
    result = simulate_stations(
        [(station.policy, used[station.worker_types[0]].profile, scheme)
         for station in level.stations], load_qps=load.load_qps, level_qps=load.load_qps,
        duration_ms=load.duration_ms, service=service, seeds=seeds)
    promise = Rates(level.expected["expected_effective_accuracy"],
                    level.expected["expected_violation_rate"])
    return Trial(workers, promise, result, targets)
