"""Promises hold where an answer needs all of the slack that a request comes with."""


import pytest

from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.simulated import simulated
from tests.synthesis.samples import linear_profile, tiny_profile


@pytest.mark.parametrize("changes", [
    {"slo_ms": 4.0, "max_queue": 4},  # what the fastest model takes
    {"slo_ms": 4.0, "max_queue": 4, "late": "drop"},
    {"slo_ms": 25.1, "grid": "fixed:1", "late": "drop"},  # 0 and all of the slack
    {"slo_ms": 4.0, "dispatch": "central-queue"},
    {"slo_ms": 25.1, "grid": "fixed:2", "dispatch": "central-queue"},
])
def test_a_fresh_request_has_all_of_its_slack(changes):
    policy = generate_policy(tiny_profile(), 20.0, SynthesisSettings(workers=4, **changes))
    found = simulated(policy, queries=20_000, runs=4, seed=1)
    expected = policy.expectations
    assert expected.violation_rate == pytest.approx(found.violation_rate, abs=0.005)
    assert expected.effective_accuracy == pytest.approx(found.effective_accuracy, abs=0.005)


def test_a_table_planned_with_longer_times_runs_what_is_in_time_within_the_tolerance():
    """With times a tenth longer, 5e-7 ms beyond an edge of the grid."""
    profile = linear_profile((0.8, (11.0 + 5e-7) / 1.1, 2.0), (0.9, 30.0, 20.0))
    policy = generate_policy(profile, 20.0, SynthesisSettings(
        slo_ms=100.0, workers=2, grid="fixed:100", max_queue=4, headroom=0.1))
    assert policy.headroom is not None
