"""A central queue of few workers: no worse than workers with queues of their own, or greedy."""

from functools import cache

import numpy as np
import pytest

from ramsis.policy import Policy
from ramsis.profiles import load
from ramsis.sim import ConstantLoad, Greedy, Policies
from ramsis.sim.plan import ClusterScheduler
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.runs import simulate_profile
from tests.slow import slow_after

SLO_MS, PRICE = 25.0, 1.0
CASES = [(1, 200.0), (1, 400.0), (1, 1600.0), (2, 500.0), (3, 6000.0)]


@cache
def made(dispatch: str, workers: int, load_qps: float) -> Policy:
    late = {"late": "drop"} if dispatch == "round-robin" else {}
    chosen = SynthesisSettings(dispatch=dispatch, slo_ms=SLO_MS, workers=workers, max_queue=12,
                               violation_price=PRICE, **late)
    return generate_policy(load("digits-cpu"), load_qps, chosen)


def gain(scheduler: ClusterScheduler, workers: int, load_qps: float) -> float:
    """Effective accuracy less price times violation rate, in simulation."""
    workload = ConstantLoad(load_qps, 40_000 * 1000 / load_qps)
    found = simulate_profile(load("digits-cpu"), scheduler, workload, workers=workers,
                             slo_ms=SLO_MS, service="distribution", seeds=range(50, 54))
    return float(np.mean([one.effective_accuracy - PRICE * one.violation_rate
                          for one in found.metrics]))


@pytest.mark.parametrize(("workers", "load_qps"), slow_after(1, CASES))
def test_it_is_no_worse_than_other_schemes(workers, load_qps):
    mine = gain(Policies((made("central-queue", workers, load_qps),)), workers, load_qps)
    own_queues = gain(Policies((made("round-robin", workers, load_qps),)), workers, load_qps)
    assert mine >= own_queues - 5e-4
    assert mine >= gain(Greedy(), workers, load_qps) - 5e-4


@pytest.mark.parametrize(("workers", "load_qps"), slow_after(2, CASES))
def test_what_is_promised_is_delivered(workers, load_qps):
    policy = made("central-queue", workers, load_qps)
    promised, replay = policy.expectations, policy.replay
    assert promised.violation_rate == replay.violation_rate
    assert promised.effective_accuracy == min(replay.effective_accuracy,
                                              promised.upper_bound or 1.0)
    mine = gain(Policies((policy,)), workers, load_qps)
    assert mine == pytest.approx(
        promised.effective_accuracy - PRICE * promised.violation_rate, abs=1e-3)
