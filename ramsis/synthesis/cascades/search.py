"""Search for the numbers of an index policy by simulation.

All candidates meet the same requests (common random numbers): those of the stated load, and with a
weight of a tenth those of a load a tenth higher, so that the rule does not tip into overload where
more first answers are unsure than in the profile. There queues are full at first: a rule may be
good as long as they are short, and never make long ones short again. What counts is effective
accuracy by *expected* increments, less the price of violations, less two standard errors by the
samples. So of two rules with the same expected value, the one with fewer second opinions is
better, and more likely to pass the gate. The best of a grid of starts, for the most promising
second models, is varied a few numbers at a time; a variation that is better is kept. The search
stops when variations gain nothing any more. Of these rules and the best ones with one threshold at
all times, which the numbers do not quite contain, the best on further requests comes first.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from itertools import product
from operator import itemgetter

import numpy as np

from ramsis.arrays import BoolArray, FloatArray
from ramsis.arrivals import Arrivals
from ramsis.policy import Policy
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim import ConstantLoad, Fleet
from ramsis.sim._cascade_kernels import CascadeRoom, cascade, earned
from ramsis.sim._kernels import RunTerms
from ramsis.sim.cascades import Outcomes, room_for
from ramsis.sim.experiment import streams
from ramsis.sim.tables import CascadeTables, PlacedCascade
from ramsis.synthesis.cascades.rule import STEPS, CascadeProblem, Numbers
from ramsis.synthesis.simulated import SETTLES, bursty_queries, one_worker

_STARTS = tuple(
    Numbers(price=price, work=work, gather=(gather, gather), least=(least, least),
            fresh_least=(fresh, fresh))
    for price, work, gather, least, fresh in product(
        (-0.6, -0.2, 0.0), (0.3, 0.6), (0.5, 1.0), (0.3, 1.03), (0.0, 1.0))
    # Half of the grid suffices; it has each combination of two of the last four values as often.
    if ((work == 0.3) + (gather == 0.5) + (least == 0.3) + (fresh == 0.0)) % 2 == 0)
_REQUESTS, _MOST_BURSTY = 48_000, 200_000  # of the stated load; most where these come in bursts
_IN_GRID = 5, 12  # share of the requests in the grid of starts
_IN_CHOICE = 4  # times the requests in the choice among the rules found
_HEAVIER, _WEIGHT = 1.1, 0.1
_SECONDS, _NEAR = 2, 0.001  # second models that are tried, and varied if as near to the best
_THRESHOLDS, _PLAYED_AGAIN = 60, 4  # fixed ones that are tried, and tried with all requests
_VARIATIONS, _AT_MOST = 200, 3  # and numbers that are varied at a time
_LITTLE, _PATIENCE = 2e-5, 50  # variations in turn that gain less end the search
_LUCK = 0.001  # that chance may add to a rule's value at the heavier load
_LONGER, _SHORTER = 1.3, 0.95  # factors on a step that was better, or was not
_SHORT_WARM_UP, _DRAINS = 10.0, 2.0  # SLOs; short in the search
_SURE = 2.0  # standard errors by the samples that a rule is charged
_SEED = 1 << 27


class Sample:
    """Requests of a load, with ranks of their confidences; those after a warm-up are counted.

    After the warm-up of so many SLOs ``requests`` arrive in the mean, at the load of all workers.
    Only one in ``every`` is served: those of one of so many queues, which are joined in turn. If
    ``full``, as many as arrive within the SLO wait at the start.
    """

    def __init__(
        self, policy: Policy, fleet: Fleet, load_qps: float, requests: int, seed: int,
        warm_up: float = SETTLES, every: int = 1, full: bool = False,
    ) -> None:
        since_ms = warm_up * policy.slo_ms
        until_ms = since_ms + 1000.0 * requests / load_qps
        arrivals, service, confidence, _ = streams(seed)
        workload = ConstantLoad(load_qps, until_ms + _DRAINS * policy.slo_ms,
                                Arrivals.of(policy.arrivals))
        self.duration_ms = workload.duration_ms
        waiting = math.ceil(load_qps / 1000.0 * policy.slo_ms) if full else 0
        times_ms = np.concatenate([np.zeros(waiting), workload.arrivals_ms(arrivals)])
        drawn = fleet.requests(times_ms[::every], rng=service)
        self.requests = replace(drawn, sureness=confidence.random(len(drawn)))
        first, last = np.searchsorted(drawn.arrival_ms, [since_ms, until_ms])
        self.counted = slice(int(first), int(last))
        self._arrival_ms = np.ascontiguousarray(drawn.arrival_ms)
        self._terms = RunTerms.of(fleet, self.requests)
        self._accuracy = np.ascontiguousarray(fleet.table.accuracy)

    @cached_property
    def _room(self) -> CascadeRoom:
        """Output arrays that all runs reuse."""
        return room_for(len(self.requests))

    def worth(self, placed: PlacedCascade, price: float) -> tuple[float, FloatArray]:
        """Return the mean reward of a request at a price of violations, and the second opinions.

        The second opinions are shares of the requests, as :meth:`opinions` returns them.
        """
        room, opinions = self._room, np.empty(placed.increment.shape, dtype=np.int64)
        cascade(self._arrival_ms, self.requests.sureness, placed.tables, self._terms, room)
        counted = self.counted.start, self.counted.stop
        worth = earned(self._arrival_ms, counted, room, self._accuracy, placed.increment,
                       (self._terms.slo_ms, price), opinions)
        return worth, opinions / (counted[1] - counted[0])

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


def best_rules(
    policy: Policy, problems: list[CascadeProblem], price: float
) -> list[tuple[CascadeProblem, CascadeTables]]:
    """Return rules at a price of violations, each with the problem of its second model.

    The best comes first. Where workers have queues of their own, one of them serves in the
    simulations.
    """
    fleet, queues = problems[0].fleet, policy.rule.queues(policy.workers)
    requests = max(_REQUESTS, min(bursty_queries(policy, 1) // queues, _MOST_BURSTY))
    alone = one_worker(policy)
    if alone is not None:  # the same arrivals at a worker, without those at the others
        policy, queues = alone, 1
    few, many, others = (
        [Sample(policy, fleet, policy.load_qps * factor, int(count * queues * part), seed,
                _SHORT_WARM_UP, every=queues, full=factor > 1.0)
         for factor, part in ((1.0, 1.0), (_HEAVIER, 0.5))]
        for count, seed in ((requests * _IN_GRID[0] // _IN_GRID[1], _SEED), (requests, _SEED),
                            (requests * _IN_CHOICE, _SEED + 1)))
    tried = [max(((_worth(problem, problem.tables(numbers), few, price), problem, numbers)
                  for numbers in _STARTS), key=itemgetter(0)) for problem in problems[:_SECONDS]]
    near = max(worth for worth, _, _ in tried) - _NEAR
    rules = [_varied(problem, start, many, price) for worth, problem, start in tried
             if worth >= near]
    most = max(worth for worth, _, _ in rules)
    rules += [_best_threshold(problem, few, many, price, most) for problem in problems[:_SECONDS]]
    # A rule that is only lucky with the requests by which it was varied loses on others.
    rules.sort(key=lambda rule: -_worth(rule[1], rule[2], others, price))
    return [(problem, tables) for _, problem, tables in rules]


def _worth(
    problem: CascadeProblem, tables: CascadeTables, samples: list[Sample], price: float,
    floor: float = -np.inf,
) -> float:
    """Return a rule's value over all samples by expected increments, less two standard errors.

    It is −∞ if the simulation at the stated load already shows that the value is below ``floor``.
    """
    placed = PlacedCascade(tables, problem.expected_increment)
    at_load, opinions = samples[0].worth(placed, price)
    _, error = problem.by_all_samples(opinions)
    if at_load + _WEIGHT * _LUCK - _SURE * error <= floor:
        return -np.inf
    heavier, _ = samples[1].worth(placed, price)
    return (1.0 - _WEIGHT) * at_load + _WEIGHT * heavier - _SURE * error


def _best_threshold(
    problem: CascadeProblem, few: list[Sample], many: list[Sample], price: float, floor: float
) -> tuple[float, CascadeProblem, CascadeTables]:
    """Return the best rule with a fixed threshold, and its value.

    The rules tried are the most accurate ones of those whose work fits the time of the workers and
    whose value may exceed ``floor``.
    """
    available_ms = 1000.0 * problem.fleet.workers / problem.load_qps
    rules = sorted((rule for rule in problem.fixed_thresholds()
                    if rule.bins and rule.work_ms <= available_ms
                    and rule.accuracy + _LUCK > floor),
                   key=lambda rule: -rule.accuracy)
    tables = sorted(map(problem.fixed_tables, rules[:_THRESHOLDS]),
                    key=lambda tables: -_worth(problem, tables, few, price, floor - _NEAR))
    return max(((_worth(problem, rule, many, price), problem, rule)
                for rule in tables[:_PLAYED_AGAIN]), key=itemgetter(0),
               default=(-np.inf, problem, problem.tables(Numbers())))


def _varied(
    problem: CascadeProblem, start: Numbers, samples: list[Sample], price: float
) -> tuple[float, CascadeProblem, CascadeTables]:
    """Vary a rule's numbers at random; return the best value, with its problem and tables."""
    rng = np.random.default_rng(_SEED)
    best, steps, tables = start.to_array(), STEPS.copy(), problem.tables(start)
    most, still = _worth(problem, tables, samples, price), 0
    for _ in range(_VARIATIONS):
        changed = rng.choice(len(best), rng.integers(1, _AT_MOST + 1), replace=False)
        candidate = best.copy()
        candidate[changed] += steps[changed] * rng.normal(size=len(changed))
        varied = problem.tables(Numbers.of_array(candidate))
        # One in five variations changes no table.
        same = all(np.array_equal(getattr(varied, name), getattr(tables, name))
                   for name in tables._fields)
        worth = -np.inf if same else _worth(problem, varied, samples, price, most)
        better, still = worth > most, 0 if worth > most + _LITTLE else still + 1
        steps[changed] *= _LONGER if better else _SHORTER
        if better:
            most, best, tables = worth, candidate, varied
        if still == _PATIENCE:
            break
    return most, problem, tables
