"""The numbers of an index policy, chosen by simulation.

All candidates meet the same requests (common random numbers): those of the stated load, and with a
weight of a quarter those of a load a tenth higher, so that the rule does not tip into overload
where more first answers are unsure than in the profile. What counts is effective accuracy by
*expected* increments, less the price of violations, less two standard errors by the samples. So of
rules that are expected to deliver as much, the one that rests on fewer second opinions is better,
and passes the gate. The best of a grid of starts, for the most promising second models, is varied
a few numbers at a time; a variation that is better is kept. The search stops after a fixed number
of variations.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from operator import itemgetter

import numpy as np

from ramsis.arrays import BoolArray, FloatArray
from ramsis.arrivals import Arrivals
from ramsis.policy import Policy
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim import ConstantLoad, Fleet
from ramsis.sim._cascade_kernels import CascadeRoom
from ramsis.sim.cascades import Outcomes, served
from ramsis.sim.experiment import streams
from ramsis.sim.tables import PlacedCascade
from ramsis.synthesis.cascades.rule import STEPS, CascadeProblem, Numbers, padded

_STARTS = tuple(
    Numbers(price=price, work=work, gather=(gather, gather), least=(least, least),
            fresh_least=(fresh, fresh))
    for price, work, gather, least, fresh in product(
        (-0.6, -0.2, 0.0), (0.3, 0.6), (0.5, 1.0), (0.3, 1.03), (0.0, 1.0)))
_REQUESTS, _FEWER = 24_000, 10_000  # of the stated load, in the search and in the grid
_HEAVIER, _WEIGHT = 1.1, 0.25
_SECONDS, _NEAR = 2, 0.001  # second models that are tried, and varied if as near to the best
_VARIATIONS, _AT_MOST = 100, 3  # and numbers that are varied at a time
_LONGER, _SHORTER = 1.3, 0.95  # factors on a step that was better, or was not
_WARM_UP, _DRAINS = 20.0, 2.0  # SLOs
_SURE = 2.0  # standard errors by the samples that a rule is charged
_SEED = 1 << 27


class Sample:
    """Requests of a load with ranks of their confidences, some of which are counted.

    Parameters
    ----------
    requests : int
        Mean number of requests that are counted.
    own_arrivals : str, optional
        ``package.module:name`` of an arrival process of one's own.
    """

    def __init__(
        self, policy: Policy, fleet: Fleet, load_qps: float, requests: int, seed: int,
        own_arrivals: str | None = None,
    ) -> None:
        since_ms = _WARM_UP * policy.slo_ms
        until_ms = since_ms + 1000.0 * requests / load_qps
        arrivals, service, confidence, _ = streams(seed)
        workload = ConstantLoad(load_qps, until_ms + _DRAINS * policy.slo_ms,
                                Arrivals.of(policy.arrivals, own_arrivals=own_arrivals))
        self.duration_ms = workload.duration_ms
        drawn = fleet.requests(workload.arrivals_ms(arrivals), rng=service)
        self.requests = replace(drawn, sureness=confidence.random(len(drawn)))
        first, last = np.searchsorted(drawn.arrival_ms, [since_ms, until_ms])
        self.counted = slice(int(first), int(last))

    def in_time(self, answered_ms: FloatArray, slo_ms: float) -> BoolArray:
        """Return which of the counted requests are answered in time."""
        due_ms = self.requests.arrival_ms[self.counted] + slo_ms
        return np.less_equal(answered_ms[self.counted], due_ms + 2.0 * SLACK_TOLERANCE_MS)


    def opinions(
        self, room: CascadeRoom, outcomes: Outcomes, shape: tuple[int, ...]
    ) -> FloatArray:
        """Return the share of second opinions by first model and bin of confidence, (M, Q)."""
        again = np.flatnonzero(outcomes.second_opinion[self.counted]) + self.counted.start
        place = room.model[room.first[again]] * shape[1] + room.bin_of[again]
        counts = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
        return np.divide(counts, self.counted.stop - self.counted.start)


def best_numbers(
    policy: Policy, problems: list[CascadeProblem], own_arrivals: str | None
) -> tuple[CascadeProblem, Numbers]:
    """Return the best numbers found, and the problem with the second model they are for."""
    fleet = problems[0].fleet
    few, many = ([Sample(policy, fleet, policy.load_qps * factor, int(count * part), _SEED,
                         own_arrivals) for factor, part in ((1.0, 1.0), (_HEAVIER, 0.5))]
                 for count in (_FEWER, _REQUESTS))
    tried = [max(((_worth(problem, numbers, few, policy.violation_price), problem, numbers)
                  for numbers in _STARTS), key=itemgetter(0)) for problem in problems[:_SECONDS]]
    near = max(worth for worth, _, _ in tried) - _NEAR
    _, problem, numbers = max((_varied(problem, start, many, policy.violation_price)
                               for worth, problem, start in tried if worth >= near),
                              key=itemgetter(0))
    return problem, numbers


def _worth(
    problem: CascadeProblem, numbers: Numbers, samples: list[Sample], price: float
) -> float:
    """Return what numbers are worth by expected increments, less two standard errors."""
    placed = PlacedCascade(problem.tables(numbers), padded(problem.expected, 0.0))
    values, error = [], 0.0
    for sample in samples:
        room, outcomes = served(placed, problem.fleet, sample.requests)
        in_time = sample.in_time(outcomes.answered_ms, problem.fleet.slo_ms)
        values.append(float(np.where(in_time, outcomes.accuracy[sample.counted], -price).mean()))
        if sample is samples[0]:
            _, error = problem.by_all_samples(sample.opinions(room, outcomes, problem.upto.shape))
    return (1.0 - _WEIGHT) * values[0] + _WEIGHT * values[1] - _SURE * error


def _varied(
    problem: CascadeProblem, start: Numbers, samples: list[Sample], price: float
) -> tuple[float, CascadeProblem, Numbers]:
    """Vary numbers while that makes them better; return also what they are worth."""
    rng = np.random.default_rng(_SEED)
    best, steps = start.to_array(), STEPS.copy()
    most = _worth(problem, start, samples, price)
    for _ in range(_VARIATIONS):
        changed = rng.choice(len(best), rng.integers(1, _AT_MOST + 1), replace=False)
        candidate = best.copy()
        candidate[changed] += steps[changed] * rng.normal(size=len(changed))
        worth = _worth(problem, Numbers.of_array(candidate), samples, price)
        better = worth > most
        steps[changed] *= _LONGER if better else _SHORTER
        if better:
            most, best = worth, candidate
    return most, problem, Numbers.of_array(best)
