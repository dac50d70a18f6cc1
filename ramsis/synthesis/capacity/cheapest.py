"""The cheapest workers of several types that reach an accuracy and a violation rate.

The problem: find whole numbers K_t of workers of each type, of least cost Σ w_t·K_t, such that
policies made for them (:mod:`ramsis.synthesis.stations`) reach the targets for violations and
accuracy in simulation at a constant load. Four steps:

1. *Bound*: the fluid program for given targets (:mod:`ramsis.bounds.workers`) gives a lower bound
   on the cost of every scheduler, and rules out most combinations.
2. *Single types*: the fewest workers of each type alone, by doubling steps and bisection.
3. *Budgets*: costs from the bound on in steps that double, then bisection. For each cost, one
   combination is tried: the one within that cost that could carry the largest load by the fluid
   program.
4. *Cheaper ones*: combinations that cost less than the answer are tried in the same order. Each
   one that meets the targets is the new answer.

It stops when the fluid program allows no cheaper combination, or after MISSES in a row in the last
step. If a combination misses the targets, those with no more workers of any type are taken to miss
them, too, as policies serve better on more workers. Types that are alike count as one type for
policies, but not for cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ramsis.bounds import CheapestWorkers, Targets, smallest
from ramsis.cluster.cluster import SloClass, WorkerType, check_names
from ramsis.cluster.service_times import default_service
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.sim.fleet import MAX_BATCH
from ramsis.synthesis.capacity.trials import Trial

MISSES = 8
"""Number of cheaper combinations that may miss the targets in a row before the search stops."""
MOST_WORKERS = 10_000
"""Largest number of workers by the bound for which a search is begun."""
_CHEAPER = 1.0 - 1e-6

Counts = tuple[int, ...]
"""Workers of each type."""


def fluid_mixes(
    types: Sequence[WorkerType], load_qps: float, targets: Targets, *,
    slo_ms: float | Sequence[SloClass],
    service: str | None = None, max_batch: int = MAX_BATCH,
) -> CheapestWorkers:
    """Return the fluid bound over mixes of worker types, for batches up to ``max_batch``.

    Raises
    ------
    InvalidValueError
        A number out of range, or a name twice.
    InfeasibleError
        No mix meets the targets, or none of the workers that there are.
    """
    check_names(types, "types")
    for worker_type in types:
        if worker_type.count is not None and worker_type.count < 1:
            raise InvalidValueError(
                "not a number of workers", where="max_workers",
                value=f"{worker_type.name}={worker_type.count}", allowed=">= 1")
    chosen = service or default_service(*(worker_type.profile for worker_type in types))
    laws = [worker_type.service_times(chosen, max_batch) for worker_type in types]
    fluid = CheapestWorkers(
        laws, [worker_type.cost for worker_type in types], targets, slo_ms=slo_ms,
        load_qps=load_qps, most=[worker_type.count for worker_type in types])
    workers = sum(fluid.cheapest()[1])
    if workers > MOST_WORKERS:
        raise InfeasibleError("more workers than are searched for", where="workers",
                              value=math.ceil(workers), allowed=f"at most {MOST_WORKERS}")
    return fluid


class CombinationSearch:
    """Search for the cheapest workers of several types that meet the targets.

    ``tried`` gives the trial of some workers of each kind. ``bound`` are the cheapest whole
    workers by the bound; no mix of more than ``span`` times their cost is tried.
    """

    def __init__(
        self, fluid: CheapestWorkers, tried: Callable[[Counts], Trial], bound: Counts, span: int
    ) -> None:
        self.fluid, self.tried, self.bound, self.span = fluid, tried, bound, span
        self.answer: Counts | None = None
        self.trials: list[tuple[Counts, Trial]] = []
        self.complete = False
        self._failed: list[Counts] = []

    def run(self) -> None:
        """Run the search; afterwards :attr:`answer` is None if nothing met the targets."""
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
        """Return the largest cost of the mixes that are tried."""
        if self.answer is not None:
            return self._cost * _CHEAPER
        return self.span * self.fluid.cost(self.bound)

    def _alone(self, t: int) -> None:
        """Find the fewest workers of one type, if they are cheaper than the answer."""
        lowest = self.fluid.fewest_alone(t)
        if lowest is None:
            return
        highest = self.span * max(lowest, 10)
        if self.answer is not None:
            highest = min(highest, int(self._top() / self.fluid.costs[t]))
        highest = int(min(highest, self.fluid.most[t]))
        if lowest <= highest:
            types = range(len(self.bound))
            smallest(lambda k: self._met(tuple(k * (i == t) for i in types)), lowest, highest)

    def _climb(self, step: float) -> float:
        """Raise the cost in doubling steps until a mix meets the targets; return the last miss."""
        missed, budget = self.fluid.cost(self.bound) - step, self.fluid.cost(self.bound)
        while budget <= self._top():
            if self._improve(budget):
                break
            missed, budget, step = budget, budget + step, 2.0 * step
        return missed

    def _improve(self, cost: float, *, last: bool = False) -> bool:
        """Try the likeliest mix up to a cost, and return whether it meets the targets."""
        counts = self.fluid.best(cost, self._failed)
        if counts is None:
            self.complete = self.complete or last
            return False
        return self._met(counts)

    def _met(self, counts: Counts) -> bool:
        """Return whether a mix meets the targets; the cheapest such mix is the answer."""
        merged = self.fluid.merged(counts)
        if any(all(count <= most for count, most in zip(merged, failed, strict=True))
               for failed in self._failed):
            return False
        trial = self.tried(merged)
        self.trials.append((counts, trial))
        if not trial.met:
            self._failed.append(merged)
        elif self.answer is None or self.fluid.cost(counts) < self._cost:
            self.answer = counts
        return trial.met
