"""How a policy does in simulation: its rates, and how exactly they are known.

What is simulated is the policy file alone: its table, its service times, its arrival process at
its load, each query judged by its own deadline, from when the workers, idle at first, have settled
until before they drain. The runs are independent; Student's t over their
means gives the 95 % intervals, and where hardly any query is late the interval of the violation
rate is at least 3 / queries wide (with none late in n independent queries the rate is below 3/n
with probability 0.95).
"""

from __future__ import annotations

import numpy as np

from ramsis.arrivals import Arrivals
from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy
from ramsis.policy.records import Simulated
from ramsis.profiles import LatencyTable
from ramsis.sim import ConstantLoad, Fleet, Policies, run_plan
from ramsis.sim.experiment import EngineName
from ramsis.sim.plan import Plan
from ramsis.sim.result import Estimate

__all__ = ["SETTLES", "Simulated", "prepared_policy", "simulated"]

_FOR_EVER_MS = 1e9
_RULE_OF_THREE = 3.0
_A_FEW = 4  # runs
SETTLES = 40.0
"""SLOs that workers, idle at first, have to settle before anything is measured."""
_DRAINS = 1.0  # SLOs after that


def simulated(
    policy: Policy, *, queries: int, runs: int, seed: int, hopeless: float = 1.0,
    own_arrivals: str | None = None, engine: EngineName = "auto",
) -> Simulated:
    """Simulate a policy at its own load.

    Parameters
    ----------
    queries : int
        In all runs together, on average.
    runs : int
        >= 2, with the seeds ``seed``, ``seed`` + 1, ….
    hopeless : float
        No more than four runs are made when these have a higher violation rate.
    own_arrivals : str, optional
        ``package.module:name`` of an arrival process of one's own.
    engine : str
        As for :func:`ramsis.sim.simulate`.

    Raises
    ------
    InvalidValueError
        The arrival process cannot be drawn from.
    """
    fleet, plan = prepared_policy(policy)
    since_ms = SETTLES * policy.slo_ms
    until_ms = since_ms + 1000.0 * queries / runs / policy.load_qps
    workload = ConstantLoad(policy.load_qps, until_ms + _DRAINS * policy.slo_ms,
                            Arrivals.of(policy.arrivals, own=own_arrivals))
    late, earned = list[float](), list[float]()
    for one in range(seed, seed + runs):
        run = run_plan(fleet, plan, workload, seed=one, engine=engine)
        first, last = np.searchsorted(run.arrival_ms, [since_ms, until_ms])
        late.append(1.0 - float(run.in_time[first:last].mean()))
        earned.append(float(run.reward[first:last].mean()))
        if len(late) == _A_FEW and Estimate.of(late).mean > hopeless:
            break
    made = queries * len(late) // runs
    violations, effective = Estimate.of(late), Estimate.of(earned)
    return Simulated(
        violation_rate=violations.mean,
        violation_half_width=max(violations.half_width or 0.0, _RULE_OF_THREE / made),
        effective_accuracy=effective.mean,
        effective_half_width=effective.half_width or 0.0,
        queries=made, runs=len(late), seed=seed,
    )


def prepared_policy(policy: Policy) -> tuple[Fleet, Plan]:
    """The workers that a policy's file describes, and the policy ready to be replayed on them."""
    names = tuple(model.name for model in policy.models)
    quantiles = policy.service_ms
    times = ServiceTimes(names, policy.accuracy,
                         np.where(np.isfinite(quantiles), quantiles, _FOR_EVER_MS),
                         policy.service, policy.levels)
    table = LatencyTable.measured(names, policy.accuracy.tolist(),
                                  np.maximum.accumulate(times.mean_ms, axis=1))
    fleet = Fleet(table, times, policy.workers, policy.slo_ms, classes=policy.slo_classes)
    return fleet, Policies((policy,)).prepare(fleet)
