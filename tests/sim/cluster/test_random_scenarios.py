"""Requests are conserved, memory is not exceeded, and nothing runs that is not loaded."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.cluster.random_scenarios import check


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_what_must_hold_of_every_run(seed):
    check(seed)


def test_the_random_runs_do_something():
    runs = [check(seed) for seed in range(12)]
    assert sum(int(run.answered.sum()) for run in runs) > 100
    assert sum(len(run.load_model) for run in runs) > 20
    assert sum(len(run.unload_ms) for run in runs) > 5
    assert sum(len(run.scaled_ms) for run in runs) > 5
