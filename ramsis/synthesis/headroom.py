"""The most robust policy that gives up no more than a little accuracy.

**Why.** A policy that is optimal for service times as profiled keeps workers busy all the time for
the last 0.01 % of accuracy, and misses deadlines by the hundred as soon as service takes a little
longer: in a mix of models, in slow spells, on a machine that does other things besides.

**What.** A policy may be *planned* as if all service times were longer by a factor f >= 1. What it
promises is for the true times all the same, and differs from the optimum there by a loss, in
effective accuracy and in the gain that is maximised. Among f = 1.025, 1.05, 1.075 and 1.1 the
largest is taken whose loss, the larger of the two, is at most the *headroom*, and which has no
more violations than the optimum but for 0.0001: near the capacity a plan for longer times may
wait, or drop, where it need not. The loss rises with f, about as the square of f − 1, as the
optimum is stationary, and faster near the capacity. So the first to be tried is the largest that
leaves the load below 85 % of the capacity, or the smallest, and then what the last loss makes of
that square, until the largest is known; where none is within the headroom the policy is the pure
optimum. A headroom of 0 looks for none.

**What it saves** is stated too: effective accuracy and violations of the policy and of the pure
optimum when service takes 10 % longer than profiled.

All of this is measured: both tables are replayed on the same arrivals, with the same draws, so
that their differences are known better than either. Under Markov-modulated arrivals each run
lasts for 20 bursts, as those of promises do. Where a replay would take too many requests, or the
arrivals cannot be drawn, it is the model's. Under round robin it is that of one worker by itself
(:func:`ramsis.synthesis.simulated.one_worker`), but for a file whose promise is that of all
workers.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from ramsis.policy import Policy
from ramsis.policy.records import HeadroomRecord
from ramsis.sim.compiled import DrawnRequests
from ramsis.synthesis.replayed import settles
from ramsis.synthesis.simulated import bursty_queries, can_be_drawn, one_worker, simulated

FACTORS = (1.025, 1.05, 1.075, 1.1)
"""Factors on service times that policies are planned with."""
SLOWER = 1.1
"""How much longer service takes where it is stated what headroom saves."""
MORE_VIOLATIONS = 1e-4
"""Of all requests, that a plan for longer times may have more than the optimum."""

_QUERIES, _RUNS = 200_000, 4  # fewer runs spend less on settling
_OF_ONE = 50_000  # queries of one worker with fixed times, which tell as much
_LONGER = 8  # times as many queries where runs differ much
_ROUGH, _ROUGH_POINTS = 0.2, 5e-4  # share of the violations, and points, that they may differ by
_MOST_QUERIES = 2e6  # of a run until the workers have settled
_MOST_BURSTY = 1e7  # of all runs by their bursts
_NEAR_CAPACITY = 0.85  # share of the capacity, from which on losses rise fast
_SEEDS = 1 << 28  # seeds are at least this, and less than twice this

Plan = TypeVar("Plan")
Drawn = dict[tuple[float, float, int], DrawnRequests]
"""What replays of several tables are given, which is drawn once."""


class PlayedFigures(NamedTuple):
    """Figures of a policy under other service times."""

    effective_accuracy: float
    violation_rate: float
    gain: float  # of its objective
    # of a 95 % interval of the effective accuracy; 0 where it is not measured
    half_width: float = 0.0


def replayed_at(
    policy: Policy, slower: float, *, own_arrivals: str | None = None, drawn: Drawn | None = None
) -> PlayedFigures | None:
    """Measure a policy's table when service takes a factor longer.

    None where that would take long, or the arrivals cannot be drawn. Runs last for 20 bursts at
    least, as those of promises.

    The seeds follow from the load, the SLO and the workers: tables for the same are replayed on
    the same arrivals, which ``drawn`` keeps.
    """
    if not (settles(policy.load_qps, policy.slo_ms, _MOST_QUERIES)
            and can_be_drawn(policy, own_arrivals)):
        return None
    given = repr((policy.load_qps, policy.slo_ms, policy.workers)).encode()
    seed = _SEEDS + zlib.crc32(given) % (_SEEDS - _RUNS)
    alone = None if policy.replay and policy.replay.workers is None else one_worker(policy)
    # Long services are as rare among one worker's requests as among all.
    queries = _QUERIES if alone is None or policy.quantiles_ms is not None else _OF_ONE
    bursty = bursty_queries(policy, _RUNS)
    if bursty > _MOST_BURSTY:
        return None
    queries, policy = max(queries, bursty), alone or policy
    found = simulated(policy, queries=queries, runs=_RUNS, seed=seed, slower=slower,
                      own_arrivals=own_arrivals, drawn=drawn)
    # What is overloaded for a while, and then not, needs longer to show how often it is.
    rough = max(_ROUGH * found.violation_rate, _ROUGH_POINTS)
    if slower != 1.0 and found.violation_half_width > rough:
        found = simulated(policy, queries=_LONGER * queries, runs=_RUNS, seed=seed,
                          slower=slower, own_arrivals=own_arrivals, drawn=drawn)
    return PlayedFigures(found.effective_accuracy, found.violation_rate,
                         found.effective_accuracy - policy.violation_price * found.violation_rate,
                         found.effective_half_width)


def restated(policy: Policy, own_arrivals: str | None = None) -> Policy:
    """A policy whose table was changed after planning, saying what its own table comes to then.

    As it was where that is not measured.
    """
    record = policy.headroom
    if record is None:
        return policy
    found = replayed_at(policy, record.slower, own_arrivals=own_arrivals)
    if found is None:
        return policy
    return replace(policy, headroom=replace(record, effective_accuracy=found.effective_accuracy,
                                            violation_rate=found.violation_rate))


class Chosen(NamedTuple, Generic[Plan]):
    """A chosen plan, and its record for the policy file."""

    plan: Plan
    record: HeadroomRecord


def most_robust(
    pure: Plan, planned: Callable[[float], Plan | None],
    played: Callable[[Plan, float], PlayedFigures], headroom: float,
    policy: Policy | None = None,
) -> Chosen[Plan]:
    """Return the plan for the longest service times whose loss is within the headroom.

    Parameters
    ----------
    pure : Plan
        The optimum for the true times.
    planned : callable
        The optimum where service takes a factor longer; None where there is none.
    played : callable
        What a plan comes to when service takes a factor longer than its true times.
    headroom : float
        Largest loss, in units of accuracy, > 0.
    policy : Policy, optional
        Any for the load that knows its capacity, by which the first factor is chosen.
    """
    best_there = played(pure, 1.0)
    chosen, factor, loss = pure, 1.0, 0.0
    low, high, at = 0, len(FACTORS), _first(policy)
    while low < high:
        plan = planned(FACTORS[at])
        there = None if plan is None else played(plan, 1.0)
        lost = None if there is None else loss_of(best_there, there)
        if plan is not None and there is not None and lost is not None and lost <= headroom and (
                there.violation_rate <= best_there.violation_rate + MORE_VIOLATIONS):
            chosen, factor, loss, low = plan, FACTORS[at], lost, at + 1
        else:
            high = at
        at = _next(FACTORS[at], lost, headroom, (low, high))
    without = played(pure, SLOWER)
    slower = without if chosen is pure else played(chosen, SLOWER)
    return Chosen(chosen, HeadroomRecord(
        allowed_loss=headroom, factor=factor, loss=loss, slower=SLOWER,
        effective_accuracy=slower.effective_accuracy, violation_rate=slower.violation_rate,
        effective_accuracy_without=without.effective_accuracy,
        violation_rate_without=without.violation_rate))


def _first(policy: Policy | None) -> int:
    """Index of the factor to try first."""
    if policy is None or not policy.expectations.capacity_qps:
        return len(FACTORS) - 1
    most = _NEAR_CAPACITY * policy.expectations.capacity_qps / policy.load_qps
    return max(bisect_right(FACTORS, most) - 1, 0)


def _next(factor: float, lost: float | None, headroom: float, among: tuple[int, int]) -> int:
    """Index of the factor to try after one that lost so much; from ``among``, its end left out."""
    low, high = among
    if lost is None or low >= high:
        return (low + high) // 2
    square = headroom / lost if lost > 0.0 else math.inf
    guess = bisect_right(FACTORS, 1.0 + (factor - 1.0) * math.sqrt(square)) - 1
    return min(max(guess, low), high - 1)


def loss_of(best: PlayedFigures, given: PlayedFigures) -> float:
    """Return the loss against the optimum: of effective accuracy, or of gain if larger."""
    return max(best.effective_accuracy - given.effective_accuracy, best.gain - given.gain)
