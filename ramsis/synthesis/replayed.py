"""Measure the promise of a policy by replaying its table in simulation.

The decision problems are made to distinguish better tables from worse ones. They predict the
figures of a table only within some per cent. The problem of a worker
(:mod:`ramsis.worker.problem`) rounds slack down and counts requests beyond the table as late. That
of a central queue (:mod:`ramsis.central.problem`) lets batches end at random, so that its
violation rate may be wrong by a factor where workers are mostly idle. So the finished table is
replayed in simulation, at its load and with its service times. All figures of its behaviour are
measured there, with half of a 95 % interval for each. The computed gain stays in the certificate.

**Runs.** Under round robin one worker is replayed by itself, if it has the figures of all
(:func:`ramsis.synthesis.simulated.one_worker`). Runs are independent; each starts from idle
workers and records a given number of requests after these have settled. If intervals are wide,
everything is repeated once with up to six times as many requests in twice as many runs; of one
worker, which settles within few requests, as many further runs are added instead. The seeds
follow from the table and its load. They differ from the seeds by which policies are chosen, so
that the choice does not bias the promise, and from those of other policies, so that errors are
independent. A measurement above the upper bound is stated as the bound.

**Warm-up.** Where late requests are dropped, some runs start from a full queue. From 95 % of the
capacity on half of all runs do. Below, four more runs do, as a check; if their figures differ from
those of idle workers by more than chance, half of all runs start full, too. As long as the two
starts differ, the warm-up is made four times as long, unless that of a run would take more than
2e6 requests (:mod:`ramsis.synthesis.simulated`). The violation rate is never stated below the
share of the load that exceeds the capacity.

**Bursts.** A run of Markov-modulated arrivals lasts for at least 20 bursts and the quiet times
between them, as far as 1e7 requests in all runs allow it. Shorter runs could all be quiet, and
would then agree on wrong figures.

**Not measured** are policies for arrivals that cannot be drawn, and policies for which settling
takes more than 1e7 requests. They state the figures computed by the decision problem.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ramsis.analysis.sampled import Evidence, at_confidence
from ramsis.analysis.worker import OVERLOAD_VIOLATION_RATE
from ramsis.arrays import ratio
from ramsis.policy import Expectations, PerDecision, Policy, Spread
from ramsis.policy.records import Replay, Simulated
from ramsis.synthesis.headroom import Replays, with_slower_figures
from ramsis.synthesis.simulated import (
    SETTLES,
    KnownRuns,
    bursty_queries,
    can_be_replayed,
    measured,
    one_worker,
    tolerance_of,
)
from ramsis.worker.problem.actions import LateRule

QUERIES, RUNS = 200_000, 8  # requests and runs of the first measurement
_OF_ONE = 100_000  # requests of one worker with fixed times
_ENOUGH, _LONGER = 1_000_000, 6  # fewer requests are made up to so many times as many
_MORE_RUNS = 2  # times as many then, from which an interval is a quarter shorter
_AS_GUESSED = 1.25  # times the requests that an interval asks for, which is itself a guess
_LASTS = 12.0  # a run at least, in SLOs
_MANY, _FEWER_RUNS = 1e4, 4  # requests within the SLO with which runs are fewer
_NEAR = 0.95  # share of the capacity from which on queues take long to settle
_SLOW = 4  # times the requests there, as what a run has seen of a queue's swings is little
_FULL_RUNS = 4  # from a full queue, of as many requests as those from idle workers
_UNLIKE = 1.5  # times the half-widths of both, by which the figures of the two differ
_WARMER, _MOST_WARM = 4.0, 2e6  # times the warm-up, until a run's takes so many requests
_SEEDS = 1 << 30  # seeds of promises are at least this, and less than twice this


def replayed(
    policy: Policy, *, queries: int | None = None, runs: int = RUNS,
    replays: Replays | None = None,
) -> Policy:
    """Return the policy with a promise measured by replaying its table.

    With headroom its figures at longer service times are measured, too
    (:mod:`ramsis.synthesis.headroom`); ``replays``, by which it was chosen, are reused for that.
    The first measurement has so many ``queries`` and ``runs``, by default 200,000 requests, half
    as many of one worker with fixed times.
    """
    # Requests and runs of the first measurement: more near the capacity, fewer runs where a run is
    # long, and no run shorter than a few SLOs or 20 bursts.
    alone = one_worker(policy)
    workers = None if alone is None else alone.workers
    within_slo = (alone or policy).load_qps / 1000.0 * policy.slo_ms
    if within_slo > _MANY:
        runs = min(runs, _FEWER_RUNS)
    if not can_be_replayed(policy):
        return policy
    gives_up = policy.late == LateRule.DROP.value
    near = policy.load_qps >= _NEAR * (policy.expectations.capacity_qps or math.inf)
    drawn = policy.quantiles_ms is not None  # long services are as rare among one worker's
    queries = queries or (QUERIES if alone is None or drawn else _OF_ONE) * (_SLOW if near else 1)
    queries, seed = max(queries, int(_LASTS * runs * within_slo)), first_seed(policy)
    queries = max(queries, bursty_queries(policy, runs))
    known: KnownRuns = {}
    measure = partial(measured, policy, seed=seed, workers=workers, known=known)
    warm_up_slos, precise = SETTLES if gives_up and near else None, False
    while True:
        figures, replay = measure(queries=queries, runs=runs, warm_up_slos=warm_up_slos)
        # ``settled``: idle and full starts agree. With ``warm_up_slos`` the runs have both starts;
        # without, the first measurement is compared with further runs that start full.
        if warm_up_slos is None:
            settled = not gives_up or precise or _agree(
                figures, replay, *measure(queries=queries * _FULL_RUNS // runs, runs=_FULL_RUNS,
                                          full=True))
        else:
            settled = replay.settled is not False
        warmer = _WARMER * (warm_up_slos or SETTLES)
        longer = _too_wide(figures, replay.half_widths)
        # Repeat with a longer warm-up while the starts differ, then once for wide intervals.
        if not settled and (warm_up_slos is None or warmer * within_slo <= _MOST_WARM):
            warm_up_slos = min(warmer, max(SETTLES, _MOST_WARM / within_slo))
            # Runs grow with the warm-up, or they would consist mostly of it.
            queries = max(queries, int(runs * warm_up_slos * within_slo / _WARMER))
        elif queries < _ENOUGH and longer > 1.0 and not precise:
            longer, precise = min(max(_AS_GUESSED * longer, 2.0), _LONGER), True
            if alone is None:
                queries, runs = int(queries * longer), runs * _MORE_RUNS
            else:  # its warm-up is short, so the runs that are at hand count
                more = math.ceil(runs * longer)
                queries, runs = queries // runs * more, more
        else:
            break
    return with_slower_figures(as_stated_by(policy, figures, replay), replays or Replays())


def as_stated_by(policy: Policy, figures: Mapping[str, float], replay: Replay) -> Policy:
    """Return the policy with the figures of a replay as its promise."""
    expectations = as_measured(policy.expectations, figures, policy.load_qps, replay)
    return replace(policy, expectations=expectations,
                   replay=replace(replay, violation_rate=expectations.violation_rate))


def _agree(
    idle: Mapping[str, float], by_idle: Replay, full: Mapping[str, float], by_full: Replay
) -> bool:
    """Return whether runs from idle workers and from a full queue differ by chance alone."""
    for name, half_width in by_idle.half_widths.items():
        small = tolerance_of(name, idle[name])
        if small is not None and name in by_full.half_widths:
            chance = _UNLIKE * math.hypot(half_width, by_full.half_widths[name])
            if abs(full[name] - idle[name]) > max(small, chance):
                return False
    return True


def _too_wide(figures: Mapping[str, float], half_widths: Mapping[str, float]) -> float:
    """Return by what factor more requests would make every figure exact enough; <= 1 if all are.

    A figure is exact enough if its half-width is within :func:`tolerance_of`.
    """
    allowed = {name: bound for name in half_widths
               if (bound := tolerance_of(name, figures[name])) is not None}
    return max((math.inf if bound == 0.0 < half_widths[name] else
                (half_widths[name] / bound)**2 if bound else 0.0
                for name, bound in allowed.items()), default=0.0)


def first_seed(policy: Policy) -> int:
    """Return the first seed for measuring a policy's promise, a hash of its table and load."""
    content = policy.codes.tobytes() + repr((policy.load_qps, policy.slo_ms)).encode()
    return _SEEDS + zlib.crc32(content) % (_SEEDS - 1000)


def as_measured(
    expected: Expectations, figures: Mapping[str, float], load_qps: float, simulated: Simulated
) -> Expectations:
    """Return a promise with measured figures and their interval.

    Capacity, bound and evidence of the promise that the decision problem computed, ``expected``,
    stay. They limit the figures: by chance a simulation can exceed the bound, or have fewer
    violations than the load beyond the capacity must cause. The figures are those of
    :func:`ramsis.sim.stationary.in_steady_state`, except those without observations; those that
    grow for as long as a run lasts are infinite. The half-widths of ``simulated`` are in the
    interval.
    """
    violations, capacity_qps = figures["violation_rate"], expected.capacity_qps
    effective = figures["effective_accuracy"]
    # Neither better than the bounds, nor more accurate than requests in time allow.
    if capacity_qps is not None and violations < 1.0 - capacity_qps / load_qps:
        violations = 1.0 - capacity_qps / load_qps
        effective = figures.get("accuracy", 0.0) * (1.0 - violations)
    in_time = 1.0 - violations
    effective = min(effective, in_time)
    if expected.upper_bound is not None:
        effective = min(effective, expected.upper_bound)
    above = capacity_qps is not None and load_qps > capacity_qps
    grows = math.isinf(figures.get("queue_length.mean", 0.0))
    measured = replace(
        expected,
        accuracy=ratio(effective, in_time),
        violation_rate=violations,
        effective_accuracy=effective,
        per_decision=PerDecision(figures.get("per_decision.accuracy"),
                                 figures.get("per_decision.violation_rate", violations)),
        batch_size=_spread(figures, "batch_size") or expected.batch_size,
        queue_length=(None if grows else
                      _spread(figures, "queue_length") or expected.queue_length),
        slack_ms=None if grows else _spread(figures, "slack_ms") or expected.slack_ms,
        model_share=_shares(figures) or expected.model_share,
        utilisation=figures["utilisation"],
        full_queue_rate=figures.get("full_queue_rate", 0.0),
        overloaded=above or violations > OVERLOAD_VIOLATION_RATE,
        response_mean_ms=figures.get("response_mean_ms"),
        response_p50_ms=figures.get("response_p50_ms"),
        response_p95_ms=figures.get("response_p95_ms"),
        response_p99_ms=figures.get("response_p99_ms"))
    interval = expected.interval
    if interval is None:
        return measured
    evidence = Evidence.behind(interval)._replace(
        violation_error=simulated.violation_half_width,
        effective_error=simulated.effective_half_width)
    return at_confidence(measured, evidence, interval.confidence)


def _spread(figures: Mapping[str, float], name: str) -> Spread | None:
    """Return measured mean, median and 99th percentile of a figure, if there are any."""
    if f"{name}.mean" not in figures:
        return None
    return Spread(*(figures[f"{name}.{part}"] for part in ("mean", "p50", "p99")))


def _shares(figures: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of the models that serve any request; they sum to 1."""
    prefix = "model_share."
    served = {name.removeprefix(prefix): share for name, share in figures.items()
              if name.startswith(prefix) and share > 0.0}
    total = sum(served.values())
    return {name: min(share / total, 1.0) for name, share in served.items()}
