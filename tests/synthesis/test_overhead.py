"""What a batch takes besides its model: in policies, their files, bounds and simulation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis import profiles
from ramsis.cluster import Cluster
from ramsis.errors import InvalidValueError
from ramsis.policy import read
from ramsis.profiles import BatchProfile
from ramsis.sim import ConstantLoad, Policies, SimulationSettings, simulate
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.verify.mutations import failures

OVERHEAD_MS = 0.3
WAYS: dict[str, dict[str, Any]] = {
    "drawn": {}, "fixed": {"service": "p95"},
    "central": {"dispatch": "central-queue", "grid": "fixed:30"},
}


def settings(**more: Any) -> SynthesisSettings:
    return SynthesisSettings(**{"slo_ms": 25.0, "workers": 2, "grid": "fixed:30", **more})


def test_every_latency_of_a_profile_is_longer():
    before = BatchProfile(1, n=9, mean_ms=2.0, std_ms=0.5, min_ms=1.0, p50_ms=2.0, p95_ms=3.0,
                          max_ms=4.0, quantiles_ms=(1.5, 2.0, 2.5))
    after = before.longer(0.25)
    assert after.quantiles_ms == (1.75, 2.25, 2.75)
    assert (after.mean_ms, after.min_ms, after.p95_ms, after.max_ms) == (2.25, 1.25, 3.25, 4.25)
    assert (after.std_ms, after.n, after.batch) == (0.5, 9, 1)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_policy_states_the_overhead_and_keeps_to_it(way, tmp_path):
    profile, given = profiles.load("digits-cpu"), settings(**WAYS[way])
    policy = generate_policy(profile, 800.0, replace(given, overhead_ms=OVERHEAD_MS))
    slower = generate_policy(profile.with_overhead(OVERHEAD_MS), 800.0, given)
    none = generate_policy(profile, 800.0, given)
    assert policy.overhead_ms == OVERHEAD_MS
    assert policy.inputs.profile == none.inputs.profile != slower.inputs.profile
    for mine, other in ((policy, none), (slower, policy)):  # the models' own times
        model = other.models[0]
        extra = OVERHEAD_MS if mine is slower else 0.0
        assert np.array(mine.models[0].latency_ms[:4]) == pytest.approx(
            np.array(model.latency_ms[:4]) + extra, abs=2e-6)
    for name in ("effective_accuracy", "violation_rate", "utilisation", "upper_bound"):
        assert getattr(policy.expectations, name) == pytest.approx(
            getattr(slower.expectations, name), abs=1e-5)
    assert policy.expectations.capacity_qps < none.expectations.capacity_qps
    assert policy.expectations.effective_accuracy < none.expectations.effective_accuracy
    assert failures(policy, tmp_path) == []
    assert read(tmp_path / "policy.json").to_document() == policy.to_document()
    assert failures(replace(policy, overhead_ms=2 * OVERHEAD_MS), tmp_path)


def test_the_promise_holds_where_batches_take_that_much_longer():
    profile, load_qps = profiles.load("digits-cpu"), 1000.0
    given = settings(overhead_ms=1.0)
    policy = generate_policy(profile, load_qps, given)
    slow = Cluster.of(profile.with_overhead(1.0), workers=2, slo_ms=25.0)
    found = simulate(slow, Policies((policy,)), ConstantLoad(load_qps, 60_000.0),
                     SimulationSettings(service="distribution"))
    expected = policy.expectations
    assert found.estimate("effective_accuracy").mean == pytest.approx(
        expected.effective_accuracy, abs=0.003)


def test_an_overhead_is_not_negative():
    for refused in (lambda: settings(overhead_ms=-0.1),
                    lambda: profiles.load("digits-cpu").with_overhead(-0.1)):
        with pytest.raises(InvalidValueError, match=r"overhead_ms: not an overhead: .*from 0 to"):
            refused()
