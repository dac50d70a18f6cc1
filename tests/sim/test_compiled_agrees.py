"""Compiled kernels and the plain engine decide identically on the same arrivals."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.errors import InvalidValueError
from ramsis.sim import (
    Clipper,
    ClosedLoop,
    ConstantLoad,
    Fixed,
    Fleet,
    Greedy,
    Infaas,
    JellyfishPlus,
    ModelSwitching,
    Plan,
    Policies,
    RateTrace,
    Recorded,
    Run,
    SchedulerError,
)
from tests.runs import run_plan
from tests.sim.samples import both_engines, lattice_arrivals, same, tiny, tiny_policy, with_table

POLICY = tiny_policy(400.0)


def agree(fleet: Fleet, plan: Plan, workload: Any, monitored: bool, **more: Any) -> Run:
    """Both engines on one workload."""
    assert plan.compiled is not None
    plain, fast = (run_plan(fleet, plan, workload, seed=7, monitored=monitored, engine=engine,
                            **more)
                   for engine in ("plain", "compiled"))  # type: ignore[arg-type]
    same(plain, fast)
    return fast


def small_fleet(workers: int, **changes: Any) -> Fleet:
    return dataclasses.replace(Fleet.of(tiny(), workers=workers, slo_ms=100.0), **changes)


@settings(max_examples=60, deadline=None)
@given(
    arrivals=lattice_arrivals(), seed=st.integers(0, 2**32), workers=st.integers(1, 5),
    dispatch=st.sampled_from(["round-robin", "shortest-queue"]), variable=st.booleans(),
    drops=st.booleans(),
    load=st.sampled_from([None, 0.0, 150.0, 400.0, 1e5]), network_ms=st.sampled_from([0.0, 1.5]),
    slowness=st.sampled_from([1.0, 1.3]),
)
def test_worker_policies_with_any_tables(
    arrivals, seed, workers, dispatch, variable, drops, load, network_ms, slowness
):
    if not len(arrivals):
        return
    rng = np.random.default_rng(seed)
    own = dataclasses.replace(POLICY, workers=workers)
    levels = tuple(with_table(own, qps, rng, variable=variable, drops=drops)
                   for qps in (150.0, 300.0, 900.0))
    fleet = small_fleet(workers, network_ms=network_ms).slower(slowness, slowness)
    plan = Policies(levels, dispatch=dispatch).prepare(fleet)
    plain, fast = both_engines(fleet, plan, arrivals, load)
    same(plain, fast)
    assert drops or (fast.batch_of >= 0).all()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    arrivals=lattice_arrivals(), workers=st.integers(1, 5),
    spec=st.sampled_from([JellyfishPlus(), JellyfishPlus(3.0), Greedy(), Greedy("drop"),
                          Infaas(0.7), Fixed("medium"), Fixed("small", 3)]),
    load=st.sampled_from([None, 0.0, 100.0, 400.0, 1e5]),
)
def test_central_queue_schemes(arrivals, workers, spec, load):
    if not len(arrivals):
        return
    fleet = small_fleet(workers)
    same(*both_engines(fleet, spec.prepare(fleet), arrivals, load))


@pytest.mark.parametrize(("service", "monitored"), [("p95", False), ("distribution", True)])
@pytest.mark.parametrize("load_qps", [200.0, 900.0, 2500.0])
@pytest.mark.parametrize("name", ["round-robin", "shortest-queue", "jellyfish-plus",
                                  "model-switching", "greedy"])
def test_on_poisson_arrivals_below_and_above_capacity(name, load_qps, service, monitored):
    fleet = Fleet.of(tiny(), workers=4, slo_ms=100.0, service=service)
    spec: Any = {
        "jellyfish-plus": JellyfishPlus(), "greedy": Greedy(),
        "model-switching": ModelSwitching(profile_s=2.0, step_qps=100.0),
    }.get(name) or Policies((POLICY, tiny_policy(1000.0)), dispatch=name)  # type: ignore[arg-type]
    done = agree(fleet, spec.prepare(fleet), ConstantLoad(load_qps, 3000.0), monitored)
    assert done.requests > 400


@pytest.mark.parametrize("anticipated", [{"monitored": True, "monitor_ms": 40.0},
                                         {"monitored": True, "monitor_ms": 5000.0},
                                         {"monitored": False, "stated_load": 0.3}])
def test_slow_monitors_and_wrong_loads(anticipated):
    fleet = small_fleet(4)
    plan = Policies((tiny_policy(100.0), POLICY, tiny_policy(1000.0))).prepare(fleet)
    workload = RateTrace([0.0, 1000.0, 2000.0], [200.0, 900.0, 200.0])
    done = agree(fleet, plan, workload, **anticipated)
    usual = agree(fleet, plan, workload, anticipated["monitored"])
    assert done.arrival_ms.tolist() == usual.arrival_ms.tolist()
    assert len(done.model) != len(usual.model) or (done.model != usual.model).any()


def test_what_is_not_table_driven_says_so():
    fleet = small_fleet(2)
    plan = Clipper("small").prepare(fleet)
    with pytest.raises(InvalidValueError, match="not table-driven"):
        run_plan(fleet, plan, ConstantLoad(10.0, 100.0), engine="compiled")
    with pytest.raises(InvalidValueError, match="not table-driven"):
        run_plan(fleet, Fixed("small").prepare(fleet), ClosedLoop(1, 1.0, 10.0), monitored=True,
                 engine="compiled")


def test_tables_beyond_the_fleet_are_refused_by_both_engines():
    """A plan that was prepared for a larger fleet."""
    large = Fleet.of(tiny(), workers=2, slo_ms=1000.0, max_batch=60)
    plan = Fixed("small", 60).prepare(large)
    assert plan.max_batch == 60
    small = Fleet.of(tiny(), workers=2, slo_ms=1000.0, max_batch=8)
    burst = Recorded([0.0] * 100)
    for engine in ("plain", "compiled"):
        with pytest.raises(SchedulerError, match="no such batch"):
            run_plan(small, plan, burst, engine=engine)  # type: ignore[arg-type]


def test_no_arrivals_give_an_empty_run():
    class Silent:
        rate_per_ms = 0.1

        def sample(self, duration_ms: float, rng: np.random.Generator) -> np.ndarray:
            return np.empty(0)

    fleet = small_fleet(2)
    nobody = ConstantLoad(100.0, 100.0, lambda _: Silent())
    for spec in (Fixed("small"), Policies((dataclasses.replace(POLICY, workers=2),))):
        done = agree(fleet, spec.prepare(fleet), nobody, True)
        assert done.requests == 0
