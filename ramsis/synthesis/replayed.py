"""Measure the promise of a policy by replaying its table in simulation.

The decision problems are made to tell better tables from worse ones. What a table comes to they
know to some per cent only: that of a worker (:mod:`ramsis.worker.problem`) rounds slack down and
counts what is beyond the table as late; that of a central queue (:mod:`ramsis.central.problem`)
lets batches end at random, so that its figures may be off several times where workers are mostly
idle. So the finished table is replayed in simulation, at its load and with its service times, and
all that the promise says of its behaviour is measured there, with half of a 95 % interval for each
figure. The model's gain stays in the certificate.

**Runs.** Under round robin one worker is replayed by itself, where it tells what all do
(:func:`ramsis.synthesis.simulated.one_worker`). Runs are independent, each from idle workers on,
until these have settled, and then for so many requests. Where the intervals come out wide, once
more with up to six times as many requests in twice as many runs. The seeds follow from the table
and its load. They are not those by which policies are chosen, so that the choice does not flatter
the promise, and two policies do not err alike. A measurement that passes the upper bound by chance
counts for no more than the bound.

**Warm-up.** Where requests that are late are dropped, some runs start from a full queue. From
95 % of the capacity on half of them do, and below where their figures differ from those of idle
workers by more than chance. While they do, the warm-up is made four times as long, unless a run
would take more than 2e6 requests (:mod:`ramsis.synthesis.simulated`). No fewer violations are
stated than any scheduler has whose workers cannot answer all that comes.

**Bursts.** A run of Markov-modulated arrivals lasts for 20 bursts and the quiet times between them
at least. Shorter ones may all be quiet, and would agree with each other on what is not so.

**Not measured** are policies for arrivals that cannot be drawn, those of so many workers, or
of an SLO so long, that settling takes more than 1e7 requests, and those for so slow bursts that
all runs would take more. Their promise is the model's.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ramsis.analysis.measured import as_measured
from ramsis.policy import Policy
from ramsis.policy.records import Replay
from ramsis.synthesis.headroom import Replays, with_slower_figures
from ramsis.synthesis.simulated import (
    SETTLES,
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
    policy: Policy, *, own_arrivals: str | None = None, queries: int | None = None,
    runs: int = RUNS, replays: Replays | None = None,
) -> Policy:
    """Return the policy with a promise measured by replaying its table.

    With headroom its figures at longer service times are measured, too
    (:mod:`ramsis.synthesis.headroom`).

    Parameters
    ----------
    own_arrivals : str, optional
        ``package.module:name`` of an arrival process of one's own.
    queries, runs : int
        To begin with; 200,000 requests by default, half as many of one worker with fixed times.
    replays : Replays, optional
        Replays that its headroom was chosen by; one of these may be at longer service times.
    """
    alone = one_worker(policy)
    workers = None if alone is None else alone.workers
    within_slo = (alone or policy).load_qps / 1000.0 * policy.slo_ms
    if within_slo > _MANY:
        runs = min(runs, _FEWER_RUNS)
    if not can_be_replayed(policy, own_arrivals):
        return policy
    gives_up = policy.late == LateRule.DROP.value
    near = policy.load_qps >= _NEAR * (policy.expectations.capacity_qps or math.inf)
    drawn = policy.quantiles_ms is not None  # long services are as rare among one worker's
    queries = queries or (QUERIES if alone is None or drawn else _OF_ONE) * (_SLOW if near else 1)
    queries, seed = max(queries, int(_LASTS * runs * within_slo)), first_seed(policy)
    queries = max(queries, bursty_queries(policy, runs))
    measure = partial(measured, policy, seed=seed, own_arrivals=own_arrivals, workers=workers)
    warm_up_slos, precise = SETTLES if gives_up and near else None, False
    while True:
        figures, replay = measure(queries=queries, runs=runs, warm_up_slos=warm_up_slos)
        if warm_up_slos is None:
            settled = not gives_up or precise or _agree(
                figures, replay, *measure(queries=queries * _FULL_RUNS // runs, runs=_FULL_RUNS,
                                          full=True))
        else:
            settled = replay.settled is not False
        warmer = _WARMER * (warm_up_slos or SETTLES)
        longer = _too_wide(figures, replay.half_widths)
        if not settled and (warm_up_slos is None or warmer * within_slo <= _MOST_WARM):
            warm_up_slos = min(warmer, max(SETTLES, _MOST_WARM / within_slo))
            # Runs grow with the warm-up, of which they would consist otherwise.
            queries = max(queries, int(runs * warm_up_slos * within_slo / _WARMER))
        elif queries < _ENOUGH and longer > 1.0 and not precise:
            queries = int(queries * min(max(_AS_GUESSED * longer, 2.0), _LONGER))
            runs, precise = runs * _MORE_RUNS, True
        else:
            break
    return with_slower_figures(as_stated_by(policy, figures, replay),
                               replays or Replays(own_arrivals))


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
