"""A policy's expectations: closed forms, Monte Carlo, and what the numbers owe each other."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.analysis import WorkerAnalysis, analyse_worker
from ramsis.arrivals import Poisson
from ramsis.policy import read, write
from ramsis.profiles import LatencyTable
from ramsis.synthesis import analyse_policy, generate_policy
from ramsis.synthesis.generate import modelled_policy
from ramsis.synthesis.recipes.recipe import DELAY_PRICE
from ramsis.worker.explicit import build_explicit
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve import solve_worker
from tests.synthesis import samples


def analysis_of(problem: WorkerProblem) -> WorkerAnalysis:
    """Of the best policy."""
    solved = solve_worker(problem)
    return analyse_worker(problem, solved.policy, solved.frequency, solved.excess)


@pytest.mark.parametrize("load_qps", [1.0, 20.0, 60.0, 400.0])
def test_one_slack_value_has_a_closed_form(load_qps):
    """K = 1, N = 1, D = 1, every batch takes l: decisions do not depend on the state.

    Of all decisions p0 = exp(−λl) find one request that has just come, in time; λl·p0 one late
    request; the others the full state, which holds all but these: E[n] = p0 + λl per decision.
    """
    problem = samples.one_model([20.0, 20.0], load_qps=load_qps, slo_ms=50.0, grid="fixed:1")
    found = analysis_of(problem)
    arrivals = load_qps / 1000 * 20.0
    none = math.exp(-arrivals)
    expected = [[arrivals * none, none], [1 - none - arrivals * none, 0.0]]
    np.testing.assert_allclose(found.decisions, expected, atol=1e-6)
    served = none + arrivals
    assert found.queries_per_decision == pytest.approx(served, rel=1e-4)
    assert found.violation_rate == pytest.approx(1 - none / served, abs=1e-4)
    assert found.effective_accuracy == pytest.approx(0.8 * none / served, abs=1e-4)
    assert found.accuracy == pytest.approx(0.8, abs=1e-12)
    assert found.per_decision.violation_rate == pytest.approx(1 - none, abs=1e-6)
    assert found.full_queue_rate == pytest.approx(expected[1][0], abs=1e-6)
    assert found.utilisation == pytest.approx(arrivals / served, rel=1e-4)


@pytest.mark.parametrize("load_qps", [5.0, 50.0, 120.0])
def test_one_worker_with_a_constant_service_meets_poisson_batches(load_qps):
    """What gathers in a service of l is Poisson(λl); nothing of it, and the next comes alone."""
    problem = samples.one_model([20.0] * 31, load_qps=load_qps, slo_ms=60.0)
    found = analysis_of(problem)
    mean = load_qps / 1000 * 20.0
    law = np.array([math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(31)])
    decisions = law[1:]
    decisions[0] += law[0]
    queued, probability = found.distributions()["queue_length"]
    np.testing.assert_allclose(probability[:30], decisions, atol=1e-9)
    by_query = queued[:30] * decisions / (queued[:30] * decisions).sum()
    np.testing.assert_allclose(found.distributions()["batch_size"][1][:30], by_query, atol=1e-9)
    assert found.violation_rate == pytest.approx(0.0, abs=1e-12)
    assert found.effective_accuracy == pytest.approx(0.8, abs=1e-12)
    assert found.utilisation == pytest.approx(mean / (mean + math.exp(-mean)), abs=1e-9)


@pytest.mark.parametrize("workers", [1, 4, 1000])
def test_a_light_load_gets_the_most_accurate_model_that_fits_and_rate_times_service(workers):
    load_qps = 0.01 * workers
    policy = modelled_policy(samples.tiny_profile(), load_qps, samples.settings(workers=workers))
    expected = policy.expectations
    assert expected.accuracy == pytest.approx(0.9, abs=1e-6)
    assert expected.violation_rate == pytest.approx(0.0, abs=1e-6)
    assert expected.utilisation == pytest.approx(load_qps / 1000 * 20.0 / workers, rel=1e-3)
    assert expected.model_share["large"] == pytest.approx(1.0, abs=1e-6)
    assert (expected.batch_size.p50, expected.batch_size.p99) == (1.0, 1.0)
    assert (expected.slack_ms.p50, expected.slack_ms.p99) == (100.0, 100.0)
    assert not expected.overloaded


def test_a_model_that_never_fits_is_not_used_however_accurate():
    expected = generate_policy(samples.tiny_profile(), 1.0,
                               samples.settings(slo_ms=15.0)).expectations
    assert expected.accuracy == pytest.approx(0.75, abs=1e-3)
    assert "large" not in expected.model_share


@pytest.mark.parametrize(("load_qps", "objective"), [(300.0, "per-query"), (900.0, "per-query"),
                                                     (1500.0, "per-decision")])
def test_expectations_are_those_of_walking_the_chain(load_qps, objective):
    """Walks of the written-out chain, each a sample: within 5 standard errors."""
    problem = WorkerProblem.create(
        samples.tiny_profile().latency_table("p95", 6), slo_ms=60.0, workers=2,
        arrivals=Poisson(load_qps), grid="fixed:12", max_queue=5, objective=objective,
    )
    found = analysis_of(problem)
    explicit = build_explicit(problem)
    rows = explicit.mdp.pairs_of(explicit.labels(found.policy))
    step = np.cumsum(explicit.mdp.transition[rows].toarray(), axis=1)
    in_time = np.vstack([problem.in_time(found.policy), np.zeros((1, 13), dtype=bool)])
    earned = np.where(in_time[:-1], problem.latency.accuracy[found.policy], 0.0)
    worth = np.concatenate([[0.0], earned.ravel(), [0.0]])
    late = np.concatenate([[0.0], (~in_time[:-1]).ravel(), [1.0]])
    served = np.concatenate([[0.0], np.repeat(np.arange(1.0, 6.0), 13), [6.0]])

    rng = np.random.default_rng(7)
    state = np.zeros(800, dtype=np.int64)
    totals = np.zeros((3, 800))
    beyond = explicit.excess[rows]
    for round_ in range(500):
        draw = rng.random(800)
        state = np.minimum((step[state] < draw[:, None]).sum(axis=1), len(step) - 1)
        if round_ >= 50:
            totals += [served[state] * worth[state],
                       served[state] * late[state] + beyond[state],
                       served[state] + beyond[state]]
    for total, value in ((totals[0], found.effective_accuracy), (totals[1], found.violation_rate)):
        ratio = total.sum() / totals[2].sum()
        error = (total - ratio * totals[2]).std(ddof=1) / totals[2].mean() / math.sqrt(800)
        assert abs(ratio - value) < 5 * error + 1e-4


@settings(max_examples=30, deadline=None)
@given(profile=samples.linear_profiles(), workers=st.integers(1, 5),
       demand=st.sampled_from([0.05, 0.5, 0.9, 1.5, 4.0]),
       objective=st.sampled_from(["per-query", "per-decision"]))
def test_distributions_and_rates_fit_together(profile, workers, demand, objective):
    fastest = float(profile.latency_table("p95", 1).latency_ms.min())
    chosen = samples.settings(slo_ms=3 * fastest, workers=workers, objective=objective,
                              grid="fixed:12", max_queue=5)
    policy = modelled_policy(profile, demand * workers * 1000 / fastest, chosen)
    found, expected = analyse_policy(policy), policy.expectations
    for values, probabilities in found.distributions().values():
        assert len(values) == len(probabilities)
        assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert probabilities.min() >= 0
    assert sum(expected.model_share.values()) == pytest.approx(1.0, abs=1e-9)
    assert expected.effective_accuracy == pytest.approx(
        (expected.accuracy or 0.0) * (1 - expected.violation_rate), abs=1e-9)
    of = expected if objective == "per-query" else expected.per_decision
    gain = ((of.accuracy or 0.0) * (1 - of.violation_rate)
            - chosen.violation_price * of.violation_rate)
    given_up = gain - policy.certificate.gain  # for early answers
    assert -1e-8 <= given_up <= (DELAY_PRICE if objective == "per-query" else 0.0) + 1e-8
    assert expected.upper_bound is not None
    assert expected.effective_accuracy <= expected.upper_bound + 1e-9
    assert 0 < expected.utilisation <= 1
    for spread in (expected.batch_size, expected.queue_length):
        assert 1 <= spread.p50 <= spread.p99 <= chosen.max_queue + 1
        assert 1 <= spread.mean <= chosen.max_queue + 1


def test_spreads_are_the_mean_and_the_least_values_that_reach_the_level():
    problem = samples.one_model([10.0] * 4, load_qps=10.0, slo_ms=40.0, grid="fixed:2")
    visits = np.array([[0.0, 3.0, 3.0], [2.0, 1.0, 0.0], [0.9, 0.0, 0.0], [0.1, 0.0, 0.0]])
    found = analyse_worker(problem, np.zeros((3, 3), dtype=np.int64), visits, 0.6)
    expected = found.expectations()
    assert (expected.queue_length.p50, expected.queue_length.p99) == (1.0, 3.0)
    assert expected.queue_length.mean == pytest.approx((6 + 2 * 3 + 3 * 0.9 + 4 * 0.1) / 10)
    assert (expected.slack_ms.p50, expected.slack_ms.p99) == (20.0, 40.0)
    assert expected.slack_ms.mean == pytest.approx((4 * 20 + 3 * 40) / 10)
    total = 6 + 2 * 3 + 3 * 0.9 + 4 * 0.1 + 0.6
    assert found.queries_per_decision == pytest.approx(total / 10)
    assert expected.batch_size.mean == pytest.approx((6 + 4 * 3 + 9 * 0.9 + 4 * 1.0) / total)
    assert expected.violation_rate == pytest.approx((2 * 2 + 3 * 0.9 + 1.0) / total)
    assert expected.per_decision.violation_rate == pytest.approx((2 + 0.9 + 0.1) / 10)
    assert expected.full_queue_rate == pytest.approx(0.01)


def test_overload_is_flagged_above_capacity_and_above_a_tenth_of_violations():
    table = LatencyTable.measured(["only"], [0.8], [[10.0, 11.0, 12.0]])
    problem = WorkerProblem.create(table, slo_ms=30.0, workers=1, arrivals=Poisson(10.0),
                                   grid="fixed:3", max_queue=2)
    light = analysis_of(problem)
    assert not light.expectations(capacity_qps=11.0).overloaded
    assert not light.expectations().overloaded
    assert light.expectations(capacity_qps=9.0).overloaded
    visits = np.zeros((3, 4))
    visits[0, 3], visits[1, 0] = 1.0, 0.1  # 0.2 of 1.2 queries are late
    late = analyse_worker(problem, light.policy, visits, 0.0)
    assert late.expectations(capacity_qps=11.0).overloaded
    visits[1, 0] = 0.01
    assert not analyse_worker(problem, light.policy, visits, 0.0).expectations().overloaded


def test_an_accuracy_of_nothing_is_undefined():
    problem = samples.one_model([10.0] * 3, load_qps=10.0, slo_ms=30.0)
    visits = np.zeros((3, 11))
    visits[0, 0] = 1.0
    found = analyse_worker(problem, problem.fastest_policy(), visits, 0.0)
    assert found.accuracy is None
    assert found.per_decision.accuracy is None
    assert (found.violation_rate, found.effective_accuracy) == (1.0, 0.0)


def test_the_frame_holds_every_distribution_in_long_form(tiny):
    found = analyse_policy(generate_policy(tiny, 600.0, samples.SETTINGS))
    frame = found.to_frame()
    assert list(frame.columns) == ["quantity", "value", "probability"]
    sums = frame.groupby("quantity")["probability"].sum()
    assert set(sums.index) == {"batch_size", "queue_length", "slack_ms", "model"}
    np.testing.assert_allclose(sums, 1.0, atol=1e-12)
    slack = frame[frame["quantity"] == "slack_ms"]
    np.testing.assert_array_equal(slack["value"].astype(float), found.problem.slack_ms)
    shares = frame[frame["quantity"] == "model"]
    assert dict(zip(shares["value"], shares["probability"], strict=True)) == found.model_share


def test_a_policy_file_is_analysed_as_it_was_generated(tiny, tmp_path):
    made = modelled_policy(tiny, 700.0, samples.settings(objective="per-decision"))
    write(made, tmp_path / "policy.json")
    again = analyse_policy(read(tmp_path / "policy.json"))
    expected = made.expectations
    assert again.effective_accuracy == pytest.approx(expected.effective_accuracy, abs=1e-9)
    assert again.violation_rate == pytest.approx(expected.violation_rate, abs=1e-9)
    assert again.utilisation == pytest.approx(expected.utilisation, abs=1e-9)
