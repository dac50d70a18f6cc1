"""Check what a fleet policy's file claims, from what the file holds.

Promise and table are derived twice: by solving the file's problem again, which must give the
same to rounding; and by an independent path that shares nothing with that model: the table is
replayed, lookup by lookup, on simulated Poisson arrivals with its service times, each query judged
by its own deadline, from when the fleet, idle at first, has settled until before it drains. The
second must agree up to the model's measured error (0.005 with 60 to 100 workers and less than 1 %
violations, else 0.02) and the confidence interval of the simulation. The upper bound is derived
without a linear program; the certified gap is
1 − expected effective accuracy / upper bound: no scheme can be better by more than that share.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from ramsis.errors import InvalidValueError
from ramsis.policy import FleetPolicy
from ramsis.profiles import LatencyTable
from ramsis.sim import Fleet, FleetPolicies, PoissonLoad, Run, run_plan
from ramsis.synthesis.checks import Check, close, least_dual
from ramsis.synthesis.fleet import fleet_expectations_of, fleet_problem_of

__all__ = ["verify_fleet"]

_QUERIES = 100_000  # of each run at least
_SEEDS, _FEWEST_SEEDS = 8, 3
_MOST_QUERIES = 8_000_000  # of all runs, but for the fewest seeds
_SETTLES, _LASTS, _DRAINS = 40.0, 12.0, 1.0  # of a run, in SLOs
_FEW_VIOLATIONS = 0.01
_HELD_TO_LESS = range(60, 101)  # workers
_FOR_EVER_MS = 1e9


def verify_fleet(policy: FleetPolicy, where: str, tolerance: float) -> tuple[Check, ...]:
    """Every claim of a fleet policy's file, checked; ``where`` names the file.

    Raises
    ------
    InputFileError
        The file makes no problem.
    """
    problem = fleet_problem_of(policy, where)
    derived, solution = fleet_expectations_of(problem)
    same = float((solution.table == policy.table).mean()) if (
        solution.table.shape == policy.table.shape) else 0.0
    stated = policy.expectations
    simulated, half_width, violations = _replayed(policy)
    closely = policy.workers in _HELD_TO_LESS and violations < _FEW_VIOLATIONS
    error = 0.005 if closely else 0.02
    bound = _bound(policy)
    effective = stated.effective_accuracy
    gap = None if bound <= 0 else 1.0 - effective / bound
    return (
        close("expected effective accuracy", effective, derived.effective_accuracy, tolerance),
        close("expected violation rate", stated.violation_rate, derived.violation_rate,
              tolerance),
        close("utilisation", stated.utilisation, derived.utilisation, tolerance),
        close("gain", policy.certificate.gain, solution.totals.gain, tolerance),
        Check("table entries that are derived again", 1.0, same, same >= 1.0 - tolerance),
        Check("effective accuracy in simulation", effective, simulated,
              abs(effective - simulated) <= error + half_width),
        Check("violation rate in simulation", stated.violation_rate, violations,
              abs(stated.violation_rate - violations) <= 2 * error + half_width),
        close("upper bound", stated.upper_bound, bound, tolerance),
        Check("effective accuracy within the bound", effective, bound,
              effective <= bound + tolerance),
        Check("certified_gap", gap, gap, gap is None or gap >= -tolerance),
    )


def _replayed(policy: FleetPolicy) -> tuple[float, float, float]:
    """Effective accuracy in simulation, half of its 95 % interval, and violation rate."""
    quantiles = fleet_problem_of(policy).law.quantiles_ms
    quantiles = np.where(np.isfinite(quantiles), quantiles, _FOR_EVER_MS)
    table = LatencyTable.measured(
        [model.name for model in policy.models], [model.accuracy for model in policy.models],
        np.maximum.accumulate(quantiles.mean(axis=2), axis=1),
    )
    fleet = Fleet(table, np.ascontiguousarray(quantiles), policy.workers, policy.slo_ms,
                  service=policy.service)
    plan = FleetPolicies((policy,)).prepare(fleet)
    window_ms = max(1000.0 * _QUERIES / policy.load_qps, _LASTS * policy.slo_ms)
    until_ms = _SETTLES * policy.slo_ms + window_ms
    workload = PoissonLoad(load_qps=policy.load_qps,
                           duration_ms=until_ms + _DRAINS * policy.slo_ms)
    queries = policy.load_qps * workload.duration_ms / 1000.0
    seeds = min(_SEEDS, max(_FEWEST_SEEDS, int(_MOST_QUERIES / queries)))
    found = np.array([_share_in_time(run_plan(fleet, plan, workload, seed=seed),
                                     until_ms - window_ms, until_ms) for seed in range(seeds)])
    effective, in_time = found.T
    half_width = float(stdtrit(seeds - 1, 0.975) * effective.std(ddof=1) / np.sqrt(seeds))
    return float(effective.mean()), half_width, 1.0 - float(in_time.mean())


def _share_in_time(run: Run, since_ms: float, until_ms: float) -> tuple[float, float]:
    """Effective accuracy, and share in time, of the queries that arrived between two instants."""
    between = (run.arrival_ms >= since_ms) & (run.arrival_ms < until_ms)
    answered = between & (run.batch_of >= 0)
    batch = run.batch_of[answered]
    met = run.finish_ms[batch] <= run.arrival_ms[answered] + run.fleet.slo_ms
    earned = run.fleet.table.accuracy[run.model[batch]][met].sum()
    return float(earned / between.sum()), float(met.sum() / between.sum())


def _bound(policy: FleetPolicy) -> float:
    """The fluid bound by its dual, one number found by bisection."""
    law = fleet_problem_of(policy).law
    mean_ms, in_time = law.mean_ms, law.within(policy.slo_ms)
    model, column = np.nonzero(in_time > 0)
    queries, run = column + 1.0, column
    for m in range(len(law.models)):
        for b in range(law.max_batch):
            fewer = np.flatnonzero(mean_ms[m, :b] > mean_ms[m, b])  # padding saves time
            model = np.append(model, np.full(len(fewer), m))
            queries, run = np.append(queries, fewer + 1.0), np.append(run, np.full(len(fewer), b))
    reward = law.accuracy[model] * in_time[model, run]
    price = mean_ms[model, run] / queries * policy.load_qps / 1000.0 / policy.workers
    if not reward.size:
        raise InvalidValueError("no batch can be in time")
    return least_dual(reward, price)
