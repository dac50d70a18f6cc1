"""The simulator of verification against the one that promises are measured in."""

import numpy as np
import pytest

from ramsis.cluster import SloClass
from ramsis.policy import Policy
from ramsis.sim.compiled import replay
from ramsis.sim.stationary import in_steady_state
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.generate import modelled_policy
from ramsis.synthesis.simulated import prepared_policy
from ramsis.verify.simulator import Chance, figures, play
from tests.synthesis import samples

TWO = (SloClass(60.0, 0.4), SloClass(100.0, 0.6))
REQUESTS = 30_000

CASES = {
    "round robin": (900.0, {"grid": "fixed:12"}),
    "round robin, overload": (2_100.0, {"grid": "fixed:12", "violation_price": 0.5}),
    "round robin, late answers": (1_300.0, {"grid": "fixed:12", "late": "serve"}),
    "variable batching": (900.0, {"grid": "fixed:12", "batching": "variable"}),
    "shortest queue": (900.0, {"grid": "fixed:12", "dispatch": "shortest-queue"}),
    "central queue": (900.0, {"dispatch": "central-queue"}),
    "central queue, overload": (2_100.0, {"dispatch": "central-queue", "violation_price": 0.5}),
    "classes": (900.0, {"dispatch": "central-queue", "slo_classes": TWO}),
}


@pytest.fixture(params=CASES, scope="module")
def policy(request):
    load_qps, changes = CASES[request.param]
    settings = SynthesisSettings(**{"slo_ms": 100.0, "workers": 4, "max_queue": 6,
                                    "headroom": 0.0, **changes})
    return modelled_policy(samples.tiny_profile(), load_qps, settings)


def chance_of(policy: Policy, seed: int) -> Chance:
    rng = np.random.default_rng(seed)
    arrival_ms = np.cumsum(rng.exponential(1000.0 / policy.load_qps, REQUESTS))
    kind = rng.choice(len(policy.classes), REQUESTS, p=[one.share for one in policy.classes])
    slo_ms = np.array([one.slo_ms for one in policy.classes])[kind]
    return Chance(arrival_ms, slo_ms, kind, rng.random(REQUESTS))


def test_every_request_is_answered_at_the_same_instant_as_in_the_simulator(policy):
    chance = chance_of(policy, 1)
    fleet, plan = prepared_policy(policy)
    requests = fleet.requests(chance.arrival_ms,
                              slo_ms=chance.slo_ms if policy.slo_classes else None)
    run = replay(fleet, plan.compiled, requests, float(chance.arrival_ms[-1]), policy.load_qps)
    played = play(policy.to_document(), chance)
    expected = np.where(np.isfinite(run.answered_ms), run.answered_ms, np.nan)
    np.testing.assert_allclose(played.answer_ms, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(played.earned, run.reward, rtol=0, atol=1e-12)


def test_figures_of_a_window_are_those_of_another_count(policy):
    chance = chance_of(policy, 2)
    until_ms = float(chance.arrival_ms[-1]) - 200.0
    fleet, plan = prepared_policy(policy)
    requests = fleet.requests(chance.arrival_ms,
                              slo_ms=chance.slo_ms if policy.slo_classes else None)
    run = replay(fleet, plan.compiled, requests, until_ms, policy.load_qps)
    counted = in_steady_state(run, 500.0, until_ms, policy.max_queue)
    by_player = figures(policy.to_document(), chance, 500.0, until_ms)
    assert set(counted) == set(by_player)
    for name, value in counted.items():
        whole = 1.0 if name.startswith(("batch_size.p", "queue_length.p")) else 0.0
        assert by_player[name] == pytest.approx(value, rel=1e-9, abs=1e-9 + whole), name


def test_service_times_are_drawn_from_the_stated_quantiles():
    policy = modelled_policy(samples.varying_profile(), 900.0, SynthesisSettings(
        slo_ms=100.0, workers=4, max_queue=6, grid="fixed:12"))
    chance = chance_of(policy, 3)
    played = play(policy.to_document(), chance)
    batch = np.isfinite(played.end_ms)
    took_ms = (played.end_ms - played.at_ms)[batch]
    model, size = policy.actions[played.code[batch]].T
    for m, b in {(int(m), int(b)) for m, b in zip(model, size, strict=True)}:
        seen = took_ms[(model == m) & (size == b)]
        if len(seen) < 400:
            continue
        middle = np.interp(0.5, policy.levels, policy.service_ms[m, b - 1])
        assert abs(float((seen <= middle).mean()) - 0.5) < 4 * 0.5 / len(seen) ** 0.5
