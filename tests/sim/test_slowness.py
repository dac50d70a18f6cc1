"""Batches that take longer than profiled, with schedulers that are told so."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import ramsis
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.sim import ConstantLoad, Fleet, Greedy, Policies, Recorded, SimulationSettings
from tests.runs import run_plan, simulate_profile
from tests.sim.samples import tiny, tiny_policy, with_table

PROFILE = ramsis.load_profile("digits-cpu")


@cache
def policy(load_qps: float, dispatch: str = "central-queue") -> Policy:
    settings = ramsis.SynthesisSettings(slo_ms=25, workers=4, dispatch=dispatch)
    return ramsis.generate_policy(PROFILE, load_qps, settings)


def late(policies: list[Policy], load_qps: float, **settings: float) -> float:
    result = simulate_profile(PROFILE, Policies(policies), ConstantLoad(load_qps, 20_000),
                              workers=4, slo_ms=25, **settings)
    return result.violation_rate


def test_when_time_is_stretched_workers_decide_as_they_did():
    """Times, deadlines and service twice as long are the same problem in other units."""
    rng = np.random.default_rng(3)
    base = with_table(tiny_policy(), 400.0, rng, variable=True)
    fleet = Fleet.of(tiny(), workers=4, slo_ms=base.slo_ms, service="p95")
    arrivals_ms = np.cumsum(rng.exponential(1000.0 / base.load_qps, 20_000))
    slow = replace(fleet.slower(2.0, 2.0), slo_ms=2.0 * base.slo_ms)
    one = run_plan(fleet, Policies([base]).prepare(fleet), Recorded(arrivals_ms))
    two = run_plan(slow, Policies([replace(base, slo_ms=slow.slo_ms)]).prepare(slow),
                   Recorded(2.0 * arrivals_ms))
    assert len(one.size) > 1000
    assert (one.batch_of == two.batch_of).all()
    assert (one.model == two.model).all()
    np.testing.assert_allclose(two.start_ms, 2.0 * one.start_ms, atol=4e-6)


@pytest.mark.parametrize(("load_qps", "slowness"), [
    (1600.0, 1.3), (6400.0, 1.3), (25_000.0, 1.5)])
def test_slower_service_makes_hardly_any_request_late_where_it_is_told(load_qps, slowness):
    assert late([policy(load_qps)], load_qps, slowness=slowness, stated_slowness=1.0) > 0.03
    assert late([policy(load_qps)], load_qps, slowness=slowness) < 0.0002


@pytest.mark.parametrize(("load_qps", "slowness"), [(6400.0, 1.3), (25_000.0, 1.5)])
def test_a_slow_central_queue_recovers_from_a_pause(load_qps, slowness):
    """Heads with little slack and few behind them were run one by one, for ever."""
    own = policy(load_qps)
    fleet = Fleet.of(PROFILE, workers=4, slo_ms=25, service="distribution").slower(
        slowness, slowness)
    rng = np.random.default_rng(2)
    arrivals_ms = np.cumsum(rng.exponential(1000.0 / load_qps, 100_000))
    arrivals_ms = np.maximum(arrivals_ms, 100.0)  # what came in the first 100 ms comes at once
    run = run_plan(fleet, Policies([own]).prepare(fleet), Recorded(arrivals_ms))
    answered = np.zeros(len(arrivals_ms), dtype=bool)
    good = run.batch_of >= 0
    answered[good] = run.finish_ms[run.batch_of[good]] <= arrivals_ms[good] + 25.0
    assert not answered[arrivals_ms == 100.0].all()
    assert answered[arrivals_ms > 300.0].mean() > 0.9998


def test_faster_service_leaves_policies_as_they_are():
    workload = ConstantLoad(1600.0, 5_000)
    runs = [simulate_profile(PROFILE, Policies([policy(1600.0)]), workload, workers=4, slo_ms=25,
                             slowness=0.8, stated_slowness=told, keep_runs=True).runs[0]
            for told in (0.8, 1.0)]
    assert (runs[0].batch_of == runs[1].batch_of).all()
    assert runs[0].start_ms.tolist() == runs[1].start_ms.tolist()


def test_other_schedulers_see_the_longer_times():
    fleet = Fleet.of(PROFILE, workers=4, slo_ms=25).slower(1.3, 1.2)
    base = Fleet.of(PROFILE, workers=4, slo_ms=25)
    assert (fleet.table.latency_ms == 1.2 * base.table.latency_ms).all()
    rates = [simulate_profile(PROFILE, Greedy(), ConstantLoad(1600.0, 20_000), workers=4,
                              slo_ms=25, slowness=1.3, stated_slowness=told).violation_rate
             for told in (1.0, 1.3)]
    assert rates[1] < rates[0]


def test_a_slowness_out_of_range_is_refused():
    for name in ("slowness", "stated_slowness"):
        for value in (0.0, -1.0, float("inf"), float("nan")):
            with pytest.raises(InvalidValueError, match=name):
                SimulationSettings(**{name: value})
