"""Policies of a central queue, simulated: compiled loop, plain engine and a slow twin agree."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.policy import Policy
from ramsis.sim import Fleet, Policies, Recorded
from tests.central import samples
from tests.reference.fleet_queue import replay
from tests.runs import run_plan
from tests.sim.samples import both_engines, lattice_arrivals, same, tiny


def any_table(load_qps: float, workers: int, rng: np.random.Generator) -> Policy:
    """A policy with any answers that a lookup may give."""
    policy = samples.policy(load_qps, workers=workers, grid="fixed:20")
    shape = policy.codes.shape
    table = rng.integers(-2, len(policy.actions), shape)
    size = policy.actions[np.maximum(table, 0), 1]
    table = np.where((table >= 0) & (size > policy.queue_levels[1:, None]), -1, table)
    longest = int(np.argmax(policy.actions[:, 1]))
    return dataclasses.replace(policy, codes=table, longer_queue=int(rng.choice([-2, longest])))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(arrivals=lattice_arrivals(), seed=st.integers(0, 2**32), workers=st.integers(1, 5),
       load=st.sampled_from([None, 0.0, 150.0, 400.0, 1e5]),
       network_ms=st.sampled_from([0.0, 1.5]), slowness=st.sampled_from([1.0, 1.3]))
def test_engines_agree_with_any_tables(arrivals, seed, workers, load, network_ms, slowness):
    if not len(arrivals):
        return
    rng = np.random.default_rng(seed)
    levels = tuple(any_table(qps, workers, rng) for qps in (150.0, 300.0, 900.0))
    fleet = dataclasses.replace(Fleet.of(tiny(), workers=workers, slo_ms=100.0),
                                network_ms=network_ms).slower(slowness, slowness)
    same(*both_engines(fleet, Policies(levels).prepare(fleet), arrivals, load))


@pytest.mark.parametrize(("load_qps", "workers"), [(300.0, 1), (900.0, 4), (2500.0, 4)])
def test_a_slow_twin_gets_the_same(load_qps, workers):
    policy = samples.policy(load_qps, workers=workers)
    arrivals = np.cumsum(np.random.default_rng(3).exponential(1000 / load_qps, 1000))
    fleet = Fleet.of(tiny(), workers=workers, slo_ms=100.0)
    run = run_plan(fleet, Policies((policy,)).prepare(fleet), Recorded(arrivals, duration_ms=1e6))
    earned, in_time, dropped = replay(policy.to_document(), arrivals.tolist())
    good = run.batch_of >= 0
    batch = run.batch_of[good]
    met = run.finish_ms[batch] <= arrivals[good] + 100.0
    assert (met.sum(), (run.batch_of == -2).sum()) == (in_time, dropped)
    assert fleet.table.accuracy[run.model[batch]][met].sum() == pytest.approx(earned)
