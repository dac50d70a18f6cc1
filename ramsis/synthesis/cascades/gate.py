"""Test whether second opinions pay, with the promise of those that do.

The policy with second opinions and the one without serve the same requests, of other seeds than in
the search. In every other run queues are full at first, so that a rule that works only with short
ones loses. Second opinions are kept if they gain by *stated* increments, and if the gain by all
samples, those that chose and those that state, is more than two standard errors of the simulation
and of the samples (:meth:`~ramsis.synthesis.cascades.rule.CascadeProblem.by_all_samples`). If
they gain nothing in truth, one of the two rules that are tried is kept with a probability below
5 %. Near the capacity runs differ, since queues grow long in a few of them; where the promise is
known only within a wide interval, everything is measured once more, with more requests.

A budget of violations must hold at the upper end of the interval: that of the simulation and,
where service times are drawn, of the samples behind the policy without second opinions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ramsis.analysis.sampled import Evidence, rate_interval
from ramsis.arrays import FloatArray
from ramsis.policy import Policy
from ramsis.policy.cascade import Cascade, CascadePromise
from ramsis.sim import Fleet
from ramsis.sim.cascades import served
from ramsis.sim.compiled import replay
from ramsis.sim.result import Estimate
from ramsis.sim.tables import CascadeTables, Compiled, PlacedCascade
from ramsis.synthesis.cascades.rule import CascadeProblem
from ramsis.synthesis.cascades.search import Sample
from ramsis.synthesis.simulated import bursty_queries

_RUNS, _REQUESTS, _SEED = 8, 400_000, 1 << 26
_WIDE, _LONGER = 5e-4, 3_200_000  # half-width of effective accuracy that asks for more requests
_SURE = 2.0  # standard errors that the gain must exceed
_FEW = 1e-3  # share of second opinions below which they are not worth a rule
_RULE_OF_THREE = 3.0  # over n trials: 95 % upper end of a rate with no event in them


@dataclass
class _Measured:
    """Figures of independent simulation runs, an entry for each run."""

    opinions: FloatArray  # second opinions by first model and bin of confidence, of all runs
    effective: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    gain: list[float] = field(default_factory=list)
    response_ms: list[FloatArray] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)

    def by_request(self, values: list[float]) -> list[float]:
        """Return values of equal weight, whose mean is that of means of runs over all requests.

        Under bursts a run with more requests serves them worse. The spread of the returned values
        gives the error of this ratio (Cochran, Sampling Techniques, 1977, §6.4).
        """
        weight = np.divide(self.requests, np.mean(self.requests))
        mean = float(np.average(values, weights=weight))
        result: list[float] = (mean + weight * np.subtract(values, mean)).tolist()
        return result


def promised(
    policy: Policy, fleet: Fleet, without: Compiled, problem: CascadeProblem,
    tables: CascadeTables,
) -> Cascade | None:
    """Measure second opinions; return the cascade with its promise, or None if they do not pay.

    The promise lacks the upper bound, which the caller enters. ``without`` is the table of the
    policy without second opinions, ``tables`` their rule.
    """
    cascade = problem.cascade(tables, NO_PROMISE)
    placed = PlacedCascade.of(cascade, range(len(fleet.models)), len(fleet.models))
    requests = max(_REQUESTS, bursty_queries(policy, _RUNS))
    measure = partial(_measured, policy, fleet, without, placed)
    runs = measure(requests)
    if (Estimate.of(runs.effective).half_width or 0.0) > _WIDE and requests < _LONGER:
        runs = measure(_LONGER)
    gains = runs.by_request(runs.gain)
    effective, late, gain = map(Estimate.of, (
        runs.by_request(runs.effective), runs.by_request(runs.late), gains))
    queries = sum(runs.requests)
    opinions = runs.opinions / queries
    # Runs measure the gain by stated increments; the correction makes it that by all samples.
    correction, sample_error = problem.by_all_samples(opinions)
    error = math.hypot(float(np.std(gains, ddof=1)) / math.sqrt(_RUNS), sample_error)
    if opinions.sum() < _FEW or gain.mean <= 0.0 or gain.mean + correction <= _SURE * error:
        return None
    least = _RULE_OF_THREE / queries  # half-width at least, even without any violation
    late_half_width = max(late.half_width or 0.0, least)
    if not _within_budget(policy, late.mean, late_half_width):
        return None
    response_ms = np.concatenate(runs.response_ms)
    p50_ms, p95_ms, p99_ms = np.quantile(response_ms, (0.5, 0.95, 0.99)).tolist()
    return replace(cascade, promise=CascadePromise(
        effective_accuracy=effective.mean,
        effective_half_width=max(effective.half_width or 0.0, least), violation_rate=late.mean,
        violation_half_width=late_half_width,
        second_opinions=float(opinions.sum()), response_mean_ms=float(response_ms.mean()),
        response_p50_ms=p50_ms, response_p95_ms=p95_ms, response_p99_ms=p99_ms, gain=gain.mean,
        gain_error=error, upper_bound=1.0, queries=queries, runs=_RUNS, seed=_SEED))


def _measured(
    policy: Policy, fleet: Fleet, without: Compiled, placed: PlacedCascade, requests: int
) -> _Measured:
    """Simulate a policy with and without second opinions, on the same requests."""
    runs = _Measured(np.zeros(placed.increment.shape))
    for seed in range(_SEED, _SEED + _RUNS):
        sample = Sample(policy, fleet, policy.load_qps, requests // _RUNS, seed,
                        full=seed % 2 == 1)
        batches, outcomes = served(placed, fleet, sample.requests,
                                   policy.rule.queues(policy.workers))
        in_time = sample.in_time(outcomes.answered_ms, fleet.slo_ms)
        value = np.where(in_time, outcomes.accuracy[sample.counted], 0.0)
        compared = replay(fleet, without, sample.requests, sample.duration_ms,
                          policy.load_qps).reward[sample.counted]
        runs.effective.append(float(value.mean()))
        runs.late.append(1.0 - float(in_time.mean()))
        runs.gain.append(float((value - compared).mean()))  # paired: the same requests
        response_ms = (outcomes.answered_ms - sample.requests.arrival_ms)[sample.counted]
        runs.response_ms.append(response_ms[np.isfinite(response_ms)])
        runs.requests.append(len(value))
        runs.opinions += sample.opinions(batches, outcomes, placed.increment.shape) * len(value)
    return runs


def _within_budget(policy: Policy, violation_rate: float, half_width: float) -> bool:
    """Return whether violations are within the policy's budget; True without a budget."""
    if policy.budget is None:
        return True
    interval = policy.expectations.interval
    highest = violation_rate if interval is None else rate_interval(
        violation_rate, Evidence.behind(interval), interval.confidence)[1]
    return highest + half_width <= policy.budget.max_violation_rate


NO_PROMISE = CascadePromise(
    effective_accuracy=0.0, effective_half_width=0.0, violation_rate=1.0,
    violation_half_width=0.0, second_opinions=0.0, response_mean_ms=1.0, response_p50_ms=1.0,
    response_p95_ms=1.0, response_p99_ms=1.0, gain=0.0, gain_error=0.0, upper_bound=1.0,
    queries=1, runs=2, seed=0)
"""Placeholder for the promise of a cascade that is not measured yet."""
