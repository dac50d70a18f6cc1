"""Shortest queues: the tables of round robin, routed otherwise, and what they promise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis import profiles
from ramsis.arrivals import Poisson
from ramsis.plugins import trusting
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.profiles.importers import import_profile
from ramsis.sim import ConstantLoad, SlowSpells
from ramsis.sim.workload import Burst, recovery_ms
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.simulated import Simulated, prepared_policy, simulated
from tests.runs import run_plan
from tests.slow import slow_after
from tests.synthesis import samples
from tests.verify.mutations import failures

BELOW = 0.001
"""Effective accuracy that a shortest queue may have less than round robin."""


class Drawn(Poisson):
    """A process of one's own that can be drawn from."""


def both(profile: ProfileSet, load_qps: float, **given: Any) -> tuple[Policy, Policy]:
    """The policies of round robin and of shortest queues."""
    in_turn, shortest = (
        generate_policy(profile, load_qps, SynthesisSettings(dispatch=dispatch, **given))
        for dispatch in ("round-robin", "shortest-queue"))
    return in_turn, shortest


def played(policy: Policy, queries: int = 200_000) -> Simulated:
    """With seeds of its own."""
    runs = 4
    shortest = int(12 * runs * policy.load_qps / 1000.0 * policy.slo_ms)
    return simulated(policy, queries=max(queries, shortest), runs=runs, seed=5 << 24)


def recovers_within_ms(policy: Policy) -> float:
    """Time to recover from a burst of 1,000 requests; infinite where it takes over 100 SLOs."""
    fleet, plan = prepared_policy(policy)
    load = Burst(ConstantLoad(policy.load_qps, 200.0 * policy.slo_ms), 1000)
    within_ms = recovery_ms(run_plan(fleet, plan, load), load.at_ms)
    return np.inf if within_ms is None else within_ms


def is_not_below(in_turn: Policy, shortest: Policy, queries: int = 200_000) -> None:
    """What a shortest queue may never be: worse than round robin, or off its promise."""
    one, other = played(in_turn, queries), played(shortest, queries)
    error = one.effective_half_width + other.effective_half_width
    assert other.effective_accuracy >= one.effective_accuracy - BELOW - error / 2
    assert shortest.expectations.effective_accuracy == pytest.approx(
        other.effective_accuracy,
        abs=1e-4 + other.effective_half_width + shortest.replay.effective_half_width)


def text_models() -> ProfileSet:
    return profiles.load("text-cpu").subset(["bert-tiny", "bert-mini", "bert-medium"])


@pytest.mark.parametrize(
    ("profile", "load_qps", "given"),
    [(text_models(), 10_600.0, {"slo_ms": 294.0, "workers": 12, "service": "mean"}),
     (profiles.load("image-cpu"), 475.0, {"slo_ms": 140.0, "workers": 3})],
    ids=["text", "image"])
def test_workers_near_capacity_do_not_collapse_and_recover_from_a_burst(profile, load_qps, given):
    in_turn, shortest = both(profile, load_qps, **given)
    is_not_below(in_turn, shortest)
    assert not shortest.expectations.overloaded
    assert recovers_within_ms(in_turn) < np.inf
    assert recovers_within_ms(shortest) < 2.0 * given["slo_ms"]


@pytest.mark.slow
def test_a_worker_that_joined_the_fewest_would_answer_less_where_many_are_late():
    """Half of all requests are late here: who has the fewest has just dropped the others."""
    in_turn, shortest = both(profiles.load("digits-cpu"), 1_044_000.0, slo_ms=1.18, workers=49)
    is_not_below(in_turn, shortest)


def test_workers_that_are_slow_for_a_while_are_passed_over():
    spells = SlowSpells(share=0.05, factor=4.0, length_ms=150.0)
    in_time = []
    for policy in both(profiles.load("digits-cpu"), 143_000.0, slo_ms=15.0, workers=8):
        fleet, plan = prepared_policy(policy)
        run = run_plan(fleet, plan, ConstantLoad(policy.load_qps, 600.0), slow_spells=spells)
        in_time.append(run.in_time.mean())
    assert in_time[1] > in_time[0] + 0.01


def test_the_table_is_that_of_round_robin():
    in_turn, shortest = both(samples.tiny_profile(), 900.0, slo_ms=100.0, workers=4,
                             grid="fixed:12", max_queue=6)
    assert np.array_equal(in_turn.codes, shortest.codes)
    assert in_turn.certificate == shortest.certificate
    assert shortest.replay is not None
    assert in_turn.replay != shortest.replay


@pytest.mark.parametrize(
    "changes",
    slow_after(1, [{"arrivals": "negative-binomial:4"}, {"arrivals": f"{__name__}:Drawn"},
     {"arrivals": "mmpp:ratio=4,burst-ms=500,share=0.2", "max_queue": 3, "grid": "fixed:6"},
     {"late": "serve"}, {"batching": "variable"}, {"violation_price": 0.5},
     {"objective": "per-decision"}, {"headroom": 0.01}, {"max_queue": 70, "grid": "fixed:4"},
     {"solver": "value-iteration"}]),
    ids=str)
def test_options_are_those_of_round_robin(changes, tmp_path):
    with trusting([f"{__name__}:Drawn"]):
        policy = generate_policy(samples.tiny_profile(), 700.0, samples.settings(
            **{"dispatch": "shortest-queue", "grid": "fixed:8", "max_queue": 6, **changes}))
        assert policy.replay is not None
        assert failures(policy, tmp_path) == []


@pytest.mark.slow
def test_service_times_are_drawn_and_a_budget_is_kept(tmp_path):
    policy = generate_policy(samples.varying_profile(), 900.0, samples.settings(
        dispatch="shortest-queue", grid="fixed:8", max_queue=6, max_violation=0.02))
    assert policy.service == "distribution"
    assert policy.budget is not None
    assert played(policy).violation_rate <= 0.02
    assert failures(policy, tmp_path) == []


def test_a_promise_without_its_replay_is_found(tmp_path):
    policy = generate_policy(samples.tiny_profile(), 900.0,
                             samples.settings(dispatch="shortest-queue"))
    failed = failures(replace(policy, replay=None), tmp_path)
    assert "figures are measured where they can be" in failed


@pytest.mark.slow
def test_it_is_nowhere_below_round_robin(reference_dir):
    """Twenty settings at random to 98 % of the capacity; where round robin recovers it does."""
    images = import_profile(reference_dir / "ramsis_image_profiles.csv")
    rng = np.random.default_rng(20)
    known = [profiles.load(name) for name in ("digits-cpu", "text-cpu", "image-cpu")] + [images]
    for setting in range(20):
        profile = known[setting % 4]
        service = "p95" if profile is images else ("p95", "mean", None)[rng.integers(3)]
        fastest_ms = float(profile.latency_table("p95", 1).latency_ms.min())
        given = {"slo_ms": round(1.5 * fastest_ms * 20.0 ** rng.random(), 2), "service": service,
                 "workers": round(2 * 40.0 ** rng.random())}
        capacity_qps = generate_policy(
            profile, 1.0, SynthesisSettings(**given)).expectations.capacity_qps
        assert capacity_qps is not None
        in_turn, shortest = both(profile, float(rng.uniform(0.3, 0.98)) * capacity_qps, **given)
        is_not_below(in_turn, shortest, 400_000)
        assert recovers_within_ms(in_turn) == np.inf or recovers_within_ms(shortest) < np.inf
