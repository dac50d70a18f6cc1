"""Policies within a budget of violations: they keep to it, and give no accuracy away."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from ramsis import policy as files
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.policy import Policy
from ramsis.synthesis import SynthesisSettings, budget, generate_policy
from ramsis.synthesis.simulated import simulated
from tests.sim.raw_samples import LAWS, Measured
from tests.slow import slow_after
from tests.synthesis.samples import linear_profile
from tests.verify.mutations import derived_once, failures

PROFILE = linear_profile((0.3, 10.0, 2.0), (0.9, 13.0, 3.0))
FLEET = SynthesisSettings(dispatch="central-queue", slo_ms=60.0, workers=20, max_queue=4,
                          headroom=0.0)
WORKER = SynthesisSettings(slo_ms=60.0, workers=2, max_queue=8, grid="fixed:20", late="drop",
                           headroom=0.0)
CASES = {"fleet": (4400.0, FLEET), "worker": (400.0, WORKER)}
QUERIES, RUNS = 200_000, 8


@pytest.fixture(autouse=True)
def _short_runs(monkeypatch, request):
    queries = QUERIES if request.node.get_closest_marker("slow") else QUERIES // 5
    monkeypatch.setattr(budget, "_FEWEST", queries)
    monkeypatch.setattr(budget, "_MOST", queries)
    monkeypatch.setattr(budget, "RUNS", RUNS)


def within(kind: str, max_violation: float) -> Policy:
    return _within(kind, max_violation, budget._MOST)


@cache
def _within(kind: str, max_violation: float, queries: int) -> Policy:
    load_qps, settings = CASES[kind]
    return generate_policy(PROFILE, load_qps, replace(settings, max_violation=max_violation))


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("most", [0.01, 0.03])
def test_the_budget_is_met_by_other_arrivals_too(kind, most):
    made = within(kind, most)
    stated = made.budget
    assert stated.violation_rate + stated.violation_half_width <= most
    assert made.replay is not None  # the promise is measured in another simulation
    assert made.replay.seed != stated.seed
    assert made.expectations.violation_rate <= most
    assert made.expectations.violation_rate == pytest.approx(stated.violation_rate, abs=2 * (
        made.replay.violation_half_width + stated.violation_half_width))
    other = simulated(made, queries=QUERIES, runs=RUNS, seed=5)
    assert other.violation_rate - other.violation_half_width <= most
    assert other.violation_rate == pytest.approx(
        stated.violation_rate, abs=2 * (other.violation_half_width + stated.violation_half_width))


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_a_larger_budget_buys_accuracy_up_to_the_unconstrained_policy(kind):
    free = generate_policy(PROFILE, CASES[kind][0], replace(CASES[kind][1], violation_price=0.0))
    small, large, all_of_it = (within(kind, most) for most in (0.01, 0.05, 1.0))
    accuracies = [p.expectations.effective_accuracy for p in (small, large, all_of_it)]
    assert accuracies[0] + 0.005 < accuracies[1] < accuracies[2] + 1e-12
    for name in ("actions", "codes"):
        assert np.array_equal(getattr(all_of_it, name), getattr(free, name))


@pytest.mark.slow
def test_the_budget_is_used_up_where_it_binds():
    """By states of two policies: no price has a violation rate between 1 and 10 per cent."""
    made = within("fleet", 0.05)
    assert made.budget is not None
    assert made.expectations.violation_rate > 0.04


@pytest.mark.slow
def test_longer_times_are_those_of_the_table_within_the_budget(tmp_path):
    load_qps, settings = CASES["worker"]
    made = generate_policy(PROFILE, load_qps, replace(settings, headroom=0.02, max_violation=0.01))
    own = simulated(made, queries=4 * QUERIES, runs=RUNS, seed=77, slower=1.1)
    assert made.headroom.slower_violation_rate == pytest.approx(own.violation_rate, rel=0.2)
    assert made.headroom.slower_effective_accuracy == pytest.approx(
        own.effective_accuracy, abs=0.01)
    assert failures(made, tmp_path) == []


@pytest.mark.parametrize("kind", slow_after(1, ["worker", "fleet"]))
def test_what_cannot_be_reached_names_what_can(kind):
    with pytest.raises(InfeasibleError, match="no policy keeps the violation rate") as caught:
        within(kind, 1e-5)
    reachable = float(str(caught.value).split("at least ")[1])
    made = within(kind, reachable)
    assert made.budget.violation_rate <= reachable


def test_a_budget_is_a_share():
    with pytest.raises(InvalidValueError, match="not a violation rate"):
        replace(WORKER, max_violation=0.0)


@pytest.mark.parametrize("kind", CASES)
def test_files_hold_the_budget_and_verify(kind, tmp_path):
    made = within(kind, 0.03)
    path = tmp_path / "policy.json"
    text = files.write(made, path)
    assert len(text) < 200_000
    found = files.validate(path)
    assert found.budget == made.budget
    assert files.policy_text(found) == text
    assert failures(made, tmp_path) == []


def test_a_promise_that_was_not_measured_fails(tmp_path):
    made = within("worker", 0.03)
    assert made.budget is not None
    rate = made.expectations.violation_rate / 2
    better = made.expectations.effective_accuracy / (1 - made.expectations.violation_rate)
    expected = replace(made.expectations, violation_rate=rate, accuracy=better,
                       effective_accuracy=better * (1 - rate))
    claimed = replace(made.budget, violation_rate=rate, effective_accuracy=better * (1 - rate),
                      max_violation_rate=0.015)
    failed = failures(replace(made, expectations=expected, budget=claimed), tmp_path)
    assert {"expected violation rate", "violation rate by a simulator of its own",
            "budget with other seeds"} <= set(failed)


@pytest.mark.parametrize("dispatch", ["round-robin", "central-queue"])
def test_what_an_interval_rests_on_is_derived_again(dispatch, tmp_path):
    """A policy for few samples, within a budget that these support."""
    made = generate_policy(
        Measured.of(LAWS["log-normal"], 300).profile, 150.0, SynthesisSettings(
            dispatch=dispatch, slo_ms=60.0, workers=2, max_queue=4, grid="fixed:20",
            headroom=0.0, max_violation=0.3))
    document = made.to_document()
    interval = document["expectations"]["interval"]
    # At this load the fluid bound is the best accuracy at any times, and their error 0.
    with derived_once() as derived:
        assert derived.anew(failures, document, tmp_path) == []
        for name, value, words in (
                ("samples", 0.5 * interval["samples"], "effective samples"),
                ("unseen", 0.5 * interval["unseen"], "unseen violations"),
                ("unseen_deviation", 0.5 * interval["unseen_deviation"],
                 "deviation of unseen violations"),
                ("accuracy_error", interval["accuracy_error"] + 0.001,
                 "error of mean service times")):
            changed = json.loads(json.dumps(document))
            changed["expectations"]["interval"][name] = value
            assert words in derived.anew(failures, changed, tmp_path)


def test_what_is_beyond_the_budget_in_its_second_replay_is_never_stated(monkeypatch):
    second, tried = budget.replayed, list[Policy]()

    def beyond(policy: Policy, **given: Any) -> Policy:
        tried.append(policy)
        found = second(policy, **given)
        return replace(found, expectations=replace(found.expectations, violation_rate=0.031))

    monkeypatch.setattr(budget, "replayed", beyond)
    with pytest.raises(InfeasibleError, match=r"within the budget.*at least 0\.03"):
        generate_policy(PROFILE, 400.0, replace(WORKER, max_violation=0.03))
    assert max(policy.violation_price for policy in tried) > 100.0  # no fewer are possible


def test_the_settings_without_a_budget_keep_their_fingerprint():
    for settings in (FLEET, WORKER):
        assert "max_violation" not in settings.as_dict()
        assert replace(settings, max_violation=0.1).as_dict()["max_violation"] == 0.1
