"""Simulation of a policy file: its figures, and their errors.

The simulation uses the policy file alone: its table, its service times, and its arrival process at
its load. Each request is judged by its own deadline. Requests are counted from when the workers,
idle at first, have settled, and until the workers drain. The runs are independent; Student's t
over their means gives the 95 % intervals. If hardly any request is late, the runs hardly differ;
so the half-widths of violation rate and effective accuracy are at least 3·b/n. With none late in n
independent requests the rate is below 3/n with probability 0.95, and requests are late in batches,
which have b requests on average.

**One worker.** Under round robin with Poisson arrivals every worker sees the same process: the
gaps between every K-th request are sums of K exponential gaps, with a gamma distribution. So one
worker by itself has the same figures as all. With the same number of requests its figures are more
exact, since workers of a fleet are busy at the same times, and it settles sooner.

**Warm-up.** Near the capacity a queue that starts empty grows for hundreds of SLOs before it
reaches its steady state, and one that starts full shrinks for as long. So runs may start
alternately from idle workers and from a full queue: as many waiting requests as arrive within the
SLO. The figures of the steady state lie between those of the two. If they differ by more than
chance, the warm-up was too short; then intervals cover both, and response times have no figures.

**Unstable queues.** Under the late rule ``serve``, a queue longer than the table is served by a
single action. If requests arrive faster than that action serves them, such a queue grows without
end: the longer a run lasts, the more of its requests are late, so its figures are not those of a
steady state. If more than half of the requests are late, the limit is stated in place of the
measurement: every request is late, all workers are busy with that action, and queue, slack and
response times have no finite mean. If fewer are late, such a queue is rarely reached, and the
figures are those of runs of this length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ramsis.arrays import BoolArray, FloatArray
from ramsis.arrivals import Arrivals
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.policy.records import RESPONSES, Replay, Simulated
from ramsis.profiles import LatencyTable
from ramsis.sim import ConstantLoad, Fleet, Policies, Requests
from ramsis.sim.compiled import replay
from ramsis.sim.experiment import streams
from ramsis.sim.fleet import drawn_slos
from ramsis.sim.plan import Plan
from ramsis.sim.result import Estimate
from ramsis.sim.run import Run
from ramsis.sim.stationary import in_steady_state, rates
from ramsis.worker.problem.actions import LateRule

__all__ = ["MOST_BURSTY", "SETTLES", "Drawn", "KnownRuns", "Simulated", "bursty_queries",
           "can_be_replayed", "measured", "one_worker", "prepared_policy", "settles", "simulated",
           "tolerance_of"]

Drawn = dict[tuple[float, float, int], Requests]
"""Arrivals and service draws of runs, kept for further policies, by load, duration and seed."""

KnownRuns = dict[tuple[int, bool, int, float | None], tuple[float, Mapping[str, float]]]
"""Excess load and figures of runs by seed, start from a full queue, requests and warm-up."""

_FOR_EVER_MS = 1e9  # service time of batches that are never run; kernels need finite times
_RULE_OF_THREE = 3.0
_PER_REQUEST = ("violation_rate", "effective_accuracy")  # means over requests
_A_FEW = 4  # runs after which a hopeless policy is given up
_FEWEST_TO_FIT = 5  # runs, for a line through them
_COLLAPSED = 0.5  # violation rate above which the limits of unstable queues stand for runs
_MOST_OF_ONE = 1_000_000  # largest fleet of which one worker is replayed by itself
SETTLES = 40.0
"""SLOs that workers, idle at first, have to settle before anything is measured."""
_DRAINS = 1.0  # SLOs after that
_MOST_QUERIES = 1e7  # of a run until the workers have settled
MOST_BURSTY = 1e7
"""Requests of all runs that bursts or a trace may ask for."""
_BURSTS = 20.0  # bursts, each with its quiet time, that a run has at least
_SURE = 0.995  # confidence at which runs from idle and from busy workers differ
# Errors that are small enough for a figure: absolute, and as a share of it.
_WIDE = {"effective_accuracy": 3e-4, "violation_rate": 3e-4, "utilisation": 2e-3}
_WIDE_SHARE = {"violation_rate": 0.1, "utilisation": 3e-3, "batch_size.mean": 6e-3,
               "queue_length.mean": 6e-3, "response_p50_ms": 0.01, "response_p99_ms": 0.03}


def simulated(
    policy: Policy, *, queries: int, runs: int, seed: int, hopeless: float = 1.0,
    slower: float = 1.0, drawn: Drawn | None = None,
) -> Simulated:
    """Simulate a policy at its own load and return its rates.

    All runs together have ``queries`` requests in the mean; their seeds are ``seed``, ``seed`` +
    1, …. If the violation rate of the first four runs is above ``hopeless``, these are all.
    Service times are ``slower`` times as long as the policy's.
    """
    late, earned = list[float](), list[float]()
    for run, first, last in _windows(policy, queries // runs, range(seed, seed + runs), slower,
                                     drawn):
        violations, effective = rates(run, first, last)
        late.append(violations)
        earned.append(effective)
        if len(late) == _A_FEW and Estimate.of(late).mean > hopeless:
            break
    return Simulated(**_rates(Estimate.of(late), Estimate.of(earned),
                              queries // runs * len(late)),
                     queries=queries // runs * len(late), runs=len(late), seed=seed)


def tolerance_of(name: str, value: float) -> float | None:
    """Return the error that is small enough for a figure; None for figures without a limit."""
    if name not in _WIDE and name not in _WIDE_SHARE:
        return None
    return max(_WIDE.get(name, 0.0), _WIDE_SHARE.get(name, 0.0) * abs(value))


def measured(
    policy: Policy, *, queries: int, runs: int, seed: int, workers: int | None = None,
    warm_up_slos: float | None = None, full: bool = False,
    known: KnownRuns | None = None,
) -> tuple[dict[str, float], Replay]:
    """Simulate a policy at its own load and return all figures of its promise with errors.

    With ``workers`` one worker is simulated by itself, if :func:`one_worker` gives one. With
    ``warm_up_slos`` runs start alternately from idle workers and from a full queue; by default all
    start from idle workers (with ``full`` from a full queue), and warm up for :data:`SETTLES`
    SLOs. Runs that are ``known`` are not repeated; others are added there.

    The figures are those of :func:`ramsis.sim.stationary.in_steady_state` over all runs, at the
    stated load. Their half-widths are 0 where queues are unstable: the limit is exact.
    """
    # Each figure is collected with the excess load of its run, for the fit at the stated load.
    alone = None if workers is None else one_worker(policy)
    by_requests = () if policy.arrivals["process"] == "poisson" else _PER_REQUEST
    policy = policy if alone is None else alone
    known = {} if known is None else known
    starts = [full or (warm_up_slos is not None and i % 2 == 1) for i in range(runs)]
    kinds = [(seed + i, starts[i], queries // runs, warm_up_slos) for i in range(runs)]
    new = [kind for kind in kinds if kind not in known]
    for kind, (run, first, last) in zip(new, _windows(
            policy, queries // runs, [kind[0] for kind in new],
            warm_up_slos=warm_up_slos or SETTLES, full=[kind[1] for kind in new]), strict=True):
        arrived = np.diff(np.searchsorted(run.arrival_ms, [first, last])).item()
        excess = arrived / (policy.load_qps / 1000.0 * (last - first)) - 1.0
        known[kind] = excess, in_steady_state(run, first, last, policy.max_queue)
    seen: dict[str, list[tuple[float, float]]] = {}
    for excess, run_figures in map(known.__getitem__, kinds):
        for name, value in run_figures.items():
            seen.setdefault(name, []).append((excess, value))
    total = queries // runs * runs
    simulated_workers = None if alone is None else 1
    late = float(np.mean([late for _, late in seen["violation_rate"]]))
    if late > _COLLAPSED and (limit := _unstable_limit(policy)) is not None:
        widths = {name: 0.0 for name, value in limit.items() if math.isfinite(value)}
        return limit, Replay(violation_rate=1.0, violation_half_width=0.0, effective_accuracy=0.0,
                             effective_half_width=0.0, queries=total, runs=runs, seed=seed,
                             half_widths=widths, workers=simulated_workers)
    estimates: dict[str, Estimate] = {}
    for name, pairs in seen.items():
        excess_of_runs, values = np.array(pairs).T
        estimates[name] = _at_load(excess_of_runs, values, by_requests=name in by_requests)
    figures = {name: estimate.mean for name, estimate in estimates.items()}
    # Requests of a batch are late together, so only the batches are independent events.
    rates = _rates(estimates["violation_rate"], estimates["effective_accuracy"],
                   total / figures.get("batch_size.mean", 1.0))
    widths = {name: estimate.half_width or 0.0 for name, estimate in estimates.items()
              if name.startswith("model_share.") <= (estimate.mean > 0.0)}
    widths["violation_rate"] = rates["violation_half_width"]
    widths["effective_accuracy"] = rates["effective_half_width"]
    # Starts that differ by more than chance, and by more than is tolerated: widen the intervals by
    # half of the difference, and state no response times.
    settled = None
    if warm_up_slos is not None:
        effects = {name: _start_effect(np.array(starts), *np.array(seen[name]).T)
                   for name in widths if len(seen[name]) == runs}
        if any(effect > half_width and effect > (tolerance_of(name, figures[name]) or math.inf)
               for name, (effect, half_width) in effects.items()):
            settled = False
            for name, (effect, half_width) in effects.items():
                widths[name] = max(widths[name], (effect + half_width) / 2.0)
            figures, widths = ({name: value for name, value in values.items()
                                if name not in RESPONSES} for values in (figures, widths))
            rates |= {"violation_half_width": widths["violation_rate"],
                      "effective_half_width": widths["effective_accuracy"]}
    return figures, Replay(**rates, queries=total, runs=runs, seed=seed, half_widths=widths,
                           workers=simulated_workers, warm_up_slos=warm_up_slos, settled=settled)


def _start_effect(
    full: BoolArray, excess: FloatArray, values: FloatArray
) -> tuple[float, float]:
    """Return the effect of a full queue at the start on a figure, and its half-width.

    It is fitted by least squares, with the excess load of each run as the other regressor
    (:func:`_at_load`).
    """
    design = np.column_stack([np.ones(len(values)), excess, full])
    freedom = len(values) - design.shape[1]
    if freedom < 1:
        return 0.0, math.inf
    inverse = np.linalg.pinv(design.T @ design)
    estimate = inverse @ design.T @ values
    residual = values - design @ estimate
    error = math.sqrt(float(residual @ residual) / freedom * float(inverse[2, 2]))
    return abs(float(estimate[2])), float(stdtrit(freedom, (1.0 + _SURE) / 2.0)) * error


def _unstable_limit(policy: Policy) -> dict[str, float] | None:
    """Return the limits of all figures of a policy whose queues grow for ever, or None."""
    if policy.late == LateRule.DROP.value or policy.longer_queue < 0:
        return None
    model, batch = policy.actions[policy.longer_queue].tolist()
    fleet, _ = prepared_policy(policy)
    service_ms = float(fleet.service_times.mean_ms[model, batch - 1])
    if policy.load_qps < 1000.0 * policy.workers * batch / service_ms:
        return None
    parts = ("mean", "p50", "p99")
    return {"violation_rate": 1.0, "effective_accuracy": 0.0, "utilisation": 1.0,
            **{f"batch_size.{part}": float(batch) for part in parts},
            f"model_share.{policy.models[model].name}": 1.0,
            **{f"queue_length.{part}": math.inf for part in parts},
            **{f"slack_ms.{part}": -math.inf for part in parts},
            "full_queue_rate": 1.0, "per_decision.violation_rate": 1.0}


def one_worker(policy: Policy) -> Policy | None:
    """Return the policy for a single worker with its share of the arrivals.

    None unless each worker sees the same process: Poisson arrivals that are dispatched in turn.
    """
    in_turn = policy.rule.own_queues and policy.rule.in_turn
    if not (in_turn and policy.arrivals["process"] == "poisson"
            and 1 < policy.workers <= _MOST_OF_ONE):
        return None
    return replace(policy, workers=1, load_qps=policy.load_qps / policy.workers,
                   arrivals={"process": "renewal", "cv": policy.workers**-0.5})


def bursty_queries(policy: Policy, runs: int) -> int:
    """Return how many requests ``runs`` need to last for 20 bursts, or a whole trace, each.

    0 for other arrivals, and at most 1e7.
    """
    wanted = 0.0
    if policy.arrivals["process"] == "mmpp":
        burst_ms, share = (float(policy.arrivals[name]) for name in ("burst_ms", "share"))
        wanted = _BURSTS * policy.load_qps / 1000.0 * burst_ms / share
    elif policy.arrivals["process"] == "trace":
        wanted = float(policy.arrivals["requests"])
    return math.ceil(min(runs * wanted, MOST_BURSTY))


def settles(load_qps: float, slo_ms: float, slos: float = SETTLES) -> bool:
    """Return whether ``slos`` SLOs of warm-up have no more requests than a run may simulate."""
    return load_qps / 1000.0 * slo_ms * slos <= _MOST_QUERIES


def can_be_replayed(policy: Policy) -> bool:
    """Return whether a policy's arrivals can be drawn, in runs that are not too long."""
    try:
        Arrivals.of(policy.arrivals).drawn(policy.load_qps)
    except InvalidValueError:
        return False
    return settles(policy.load_qps, policy.slo_ms)


def _windows(
    policy: Policy, queries: int, seeds: Iterable[int], slower: float = 1.0,
    drawn: Drawn | None = None,
    *, warm_up_slos: float = SETTLES, full: Iterable[bool] = repeat(False),
) -> Iterator[tuple[Run, float, float]]:
    """Yield each run with the start and end in ms of its steady state."""
    fleet, plan = prepared_policy(policy, slower)
    assert plan.compiled is not None  # every dispatch rule has a kernel
    since_ms = warm_up_slos * policy.slo_ms
    until_ms = since_ms + 1000.0 * queries / policy.load_qps
    workload = ConstantLoad(policy.load_qps, until_ms + _DRAINS * policy.slo_ms,
                            Arrivals.of(policy.arrivals))
    for seed, starts_full in zip(seeds, full, strict=False):
        key = policy.load_qps, workload.duration_ms, seed
        requests = None if drawn is None else drawn.get(key)
        if requests is None:
            requests = _requests(policy, fleet, workload, seed, starts_full)
            if drawn is not None:
                drawn[key] = requests
        yield (replay(fleet, plan.compiled, requests, workload.duration_ms, policy.load_qps),
               since_ms, until_ms)


def _requests(
    policy: Policy, fleet: Fleet, workload: ConstantLoad, seed: int, full: bool
) -> Requests:
    """Draw the requests of a run, the same as for any run of the workload with that seed.

    Where the queue is ``full`` at first, as many requests as arrive within the SLO come before.
    """
    arrivals, service, classes, _ = streams(seed)
    times = workload.arrivals_ms(arrivals)
    if full:
        waiting = math.ceil(policy.load_qps / 1000.0 * policy.slo_ms)
        times = np.concatenate([np.zeros(waiting), times])
    return fleet.requests(times, slo_ms=drawn_slos(policy.classes, len(times), classes),
                          rng=service)


def _at_load(excess: FloatArray, values: FloatArray, by_requests: bool = False) -> Estimate:
    """Estimate a figure at the stated load from runs whose loads differ from it slightly.

    Near the capacity runs differ mostly by their loads. So the figure is read off a straight line
    through the runs, at an excess load of 0: the arrivals are a control variate (Law, Simulation
    Modeling and Analysis, 2015, §11.4). Its error follows from the residuals. It is clipped to the
    range of the values.

    A mean over requests counts runs ``by_requests``: under bursts, runs with more requests have
    more late ones, and a run at the mean load is better than the mean request.
    """
    if by_requests:
        values = values * (1.0 + excess)
    mean, off = float(values.mean()), float(excess.mean())
    runs, spread = len(values), excess - off
    moved = float(spread @ spread)
    if runs < _FEWEST_TO_FIT or moved == 0.0 or np.ptp(values) == 0.0:
        return Estimate.of(values.tolist())
    slope = float(spread @ values) / moved
    residual = values - mean - slope * spread
    deviation = math.sqrt(float(residual @ residual) / (runs - 2))
    error = deviation * math.sqrt(1.0 / runs + off**2 / moved)
    low, high = float(values.min()), float(values.max())
    return Estimate(min(max(mean - slope * off, low), high),
                    float(stdtrit(runs - 2, 0.975)) * error)


def _rates(violations: Estimate, effective: Estimate, independent: float) -> dict[str, Any]:
    """Return the rates of :class:`Simulated` with half-widths, as keyword arguments.

    An interval is no narrower than the rule of three for ``independent`` events.
    """
    least = min(_RULE_OF_THREE / independent, 1.0)
    return {"violation_rate": violations.mean,
            "violation_half_width": max(violations.half_width or 0.0, least),
            "effective_accuracy": effective.mean,
            "effective_half_width": max(effective.half_width or 0.0, least)}


def prepared_policy(policy: Policy, slower: float = 1.0) -> tuple[Fleet, Plan]:
    """Return the workers that a policy's file describes, and the policy ready to be replayed."""
    times = policy.service_times.scaled(slower)
    times = replace(times, quantiles_ms=np.where(
        np.isfinite(times.quantiles_ms), times.quantiles_ms, _FOR_EVER_MS))
    table = LatencyTable.measured(times.models, times.accuracy.tolist(),
                                  np.maximum.accumulate(times.mean_ms, axis=1))
    fleet = Fleet(table, times, policy.workers, policy.slo_ms, classes=policy.slo_classes,
                  slowness=policy.slowness)
    return fleet, Policies((policy,)).prepare(fleet)
