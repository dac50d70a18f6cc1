"""Promises of finite samples: intervals that cover the truth, and budgets that they support."""

from dataclasses import replace

import numpy as np
import pytest

from ramsis.analysis.sampled import Effect, Evidence, evidence_of_effects, rate_interval
from ramsis.bounds import fluid_bound
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.policy import Policy
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.profiles.tails import Tail, Tails
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.sim.raw_replay import replayed
from tests.sim.raw_samples import LAWS, Measured, one_model
from tests.slow import slow_after

SMALL = SynthesisSettings(slo_ms=40.0, workers=1, max_queue=2, late="drop", grid="fixed:20")


def promised(law: str, count: int, seed: int) -> Policy:
    """The policy of that profile at 20 QPS."""
    return generate_policy(one_model(law, count, seed), 20.0, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "fewest"), [("log-normal", 18), ("bimodal", 18)])
def test_the_interval_covers_the_truth_of_a_known_distribution(law, fewest):
    """Of 20 here; of 100 by ``scripts/promises.py coverage``: 98, 99, and 98 with outliers.

    The rates scatter as the influence of the samples says.
    """
    truth = promised(law, 400_000, 10**6).expectations.violation_rate
    covered, rates, predicted = 0, [], []
    for seed in range(20):
        expected = promised(law, 500, seed).expectations
        interval = expected.interval
        assert interval is not None
        covered += interval.violation_rate[0] <= truth <= interval.violation_rate[1]
        rates.append(expected.violation_rate)
        predicted.append((expected.violation_rate / interval.samples) ** 0.5)
    assert covered >= fewest
    assert np.std(rates, ddof=1) == pytest.approx(np.mean(predicted), rel=0.5)


def test_the_interval_narrows_as_there_are_more_samples():
    few, many = (promised("log-normal", n, 3).expectations.interval for n in (200, 20_000))
    assert many.samples == pytest.approx(100 * few.samples, rel=0.5)
    width = [high - low for low, high in (few.violation_rate, many.violation_rate)]
    assert width[1] < 0.2 * width[0]
    for one in (few, many):
        assert one.effective_accuracy[0] <= one.effective_accuracy[1] <= 0.8


def test_an_interval_is_jeffreys_of_a_count():
    one = Evidence(1000.0, 0.5e-3, 0.5**0.5 * 1e-3)
    low, high = rate_interval(0.01, one, 0.95)
    rng = np.random.default_rng(0)
    drawn = np.quantile(rng.gamma(10.5, 1 / 1000.0, 400_000), [0.025, 0.975])
    assert (low, high) == pytest.approx(drawn.tolist(), rel=0.01)
    assert rate_interval(0.0, one)[0] == 0.0
    none = np.quantile(rng.gamma(0.5, 1e-3, 400_000), 0.975)
    assert rate_interval(0.0, one)[1] == pytest.approx(none, rel=0.02)


def test_samples_not_seen_yet_raise_the_upper_end_alone():
    same, heavy = Evidence(1000.0, 5e-4, 7e-4), Evidence(1000.0, 2.5e-3, 3.5e-3)
    assert rate_interval(0.01, same)[0] == rate_interval(0.01, heavy)[0]
    assert rate_interval(0.01, same)[1] + 0.002 < rate_interval(0.01, heavy)[1]


def evidence(rate: float, variance: float) -> Evidence:
    """Of 100 samples, each of which makes all late that is beyond 50 ms."""
    effect = Effect("m", np.full(10, 20.0), 100, np.array([0.0, 50.0, 50.1]),
                    np.array([0.0, 0.0, 1.0]), 0.0)
    found = evidence_of_effects(rate, variance, [effect], np.full(10, 0.1), None, 40.0)
    assert found is not None
    return found


def test_a_rate_of_the_size_of_rounding_counts_as_none():
    """Of a violation rate of 2e-13 any number of samples could be stated."""
    none = evidence(0.0, 0.0)
    assert evidence(2.0e-13, 6.6e-31) == none
    assert none[:3] == pytest.approx((100.0, 0.005, 0.01 / 2.0**0.5))
    assert evidence(1e-8, 1e-14).samples == pytest.approx(1e6)


def of_tail(late_ms: float, median_ms: tuple[float, ...], samples: int = 4000) -> Evidence:
    """Of a batch of 50 ms that is late beyond a time; one in 1,000 takes 11 times as long."""
    effect = Effect("m", np.full(10, 50.0), 100, np.array([0.0, late_ms, late_ms + 1e-6]),
                    np.array([0.0, 0.0, 1.0]), 0.0)
    tail = Tail(samples, 1.2, (1.5, 11.0), (0.03, 0.001), median_ms)
    found = evidence_of_effects(0.0, 0.0, [effect], np.full(10, 0.1), Tails(tail, {"m": tail}),
                                400.0)
    assert found is not None
    return found


def test_what_stalls_a_short_batch_stalls_a_longer_one_for_as_long():
    """Batches of 5 ms took 55: so 50 ms may be 100, ten times as often, and seldom more."""
    assert of_tail(90.0, (5.0, 5.0)).unseen == pytest.approx(10 * 0.001 + 0.5 / 4000, rel=0.01)
    unseen = 0.5 * (50.0 / (120.0 - 50.0)) ** 2 / 4000
    assert of_tail(120.0, (5.0, 5.0)).unseen == pytest.approx(unseen, rel=0.1)
    for known in ((), (80.0, 80.0)):  # a longer batch's is longer in proportion
        assert of_tail(500.0, known).unseen == pytest.approx(0.001 + 0.5 / 4000, rel=0.01)


def test_few_pooled_samples_do_not_bound_what_was_not_seen():
    """With fewer than 2,000 a sample may take one and a half SLOs."""
    assert of_tail(590.0, (5.0, 5.0), 1999).unseen == pytest.approx(0.5 / 1999)
    assert of_tail(590.0, (5.0, 5.0), 2000).unseen < 0.02 / 2000


def test_confidence_is_stated_and_widens_the_interval():
    profile = one_model("log-normal", 500, 1)
    wide = generate_policy(profile, 20.0, replace(SMALL, confidence=0.999))
    usual = promised("log-normal", 500, 1)
    assert wide.expectations.interval.confidence == 0.999
    assert wide.expectations.interval.violation_rate[1] \
        > usual.expectations.interval.violation_rate[1]
    assert wide.inputs.settings != usual.inputs.settings


def test_no_interval_where_the_number_of_samples_is_not_known():
    sketch = tuple(np.linspace(10.0, 20.0, 20))
    profile = ProfileSet("p", (ModelProfile("m", 0.8, (BatchProfile(1, quantiles_ms=sketch),)),))
    assert generate_policy(profile, 20.0, SMALL).expectations.interval is None


def test_a_confidence_outside_0_and_1_is_refused():
    with pytest.raises(InvalidValueError, match=r"^confidence: not a confidence"):
        SynthesisSettings(slo_ms=40.0, workers=1, confidence=1.0)


def test_a_budget_beyond_the_samples_names_how_many_would_do():
    with pytest.raises(InfeasibleError, match=r"max_violation at 20 QPS: 200 samples of each "
                                              r"batch cannot support.*a profile of \d+ samples"):
        generate_policy(one_model("log-normal", 200, 1), 20.0, replace(SMALL, max_violation=1e-4))


@pytest.mark.parametrize(("law", "dispatch"), slow_after(2, [
    ("log-normal", "round-robin"), ("bimodal", "central-queue"), ("outlier", "round-robin")]))
def test_a_policy_delivers_on_raw_samples_what_it_promises(law, dispatch):
    """A batch of 3 is slower than one of 4: promise and lookup rest on padding."""
    measured = Measured.of(LAWS[law])
    policy = generate_policy(measured.profile, 100.0, SynthesisSettings(
        slo_ms=60.0, workers=2, dispatch=dispatch, max_queue=8, late="drop"))
    assert {size for model in policy.models for size in (model.run_as or ())} > {4}
    violations, effective, error = replayed(policy, measured.samples, 60_000, 1)
    interval = policy.expectations.interval
    low, high = interval.violation_rate
    assert min(0.75 * low, low - 2e-4) <= violations <= max(1.25 * high, high + 2e-4)
    assert effective == pytest.approx(policy.expectations.effective_accuracy,
                                      abs=0.002 + 2.0 * error)


def test_batches_that_share_a_tail_rest_on_the_samples_of_all():
    """A hundred samples of each of 51 batches support what 1,000 of each do by themselves."""
    settings = SynthesisSettings(slo_ms=100.0, workers=2, max_queue=8, grid="fixed:25")
    ends = []
    for count in (100, 1000):
        profile = Measured.of(LAWS["log-normal"], count, 5, dip=False).profile
        for alone in (False, True):
            if alone:
                profile = profile.subset(["large"])
                profile = replace(profile, models=tuple(
                    replace(model, batches=model.batches[:1]) for model in profile.models))
            expected = generate_policy(profile, 40.0, settings).expectations
            ends.append(expected.interval.violation_rate[1])
    shared, alone, _, more = ends
    assert shared < 0.1 * alone
    assert shared < 1.5 * more


def test_a_rare_slowness_that_other_batches_show_is_in_the_interval():
    """One run in 500 is slow; in most profiles of 100 no sample of the batches in use is."""
    settings = SynthesisSettings(slo_ms=60.0, workers=1, max_queue=8, grid="fixed:40", headroom=0)
    measured = Measured.of(LAWS["outlier"], 100, 4, dip=False)
    many = Measured.of(LAWS["outlier"], 20_000, 10**6, dip=False)
    policy = generate_policy(measured.profile, 60.0, settings)
    truth, _, _ = replayed(policy, many.samples, 400_000, 1)
    interval = policy.expectations.interval
    assert interval is not None
    assert policy.expectations.violation_rate < 0.2 * truth
    assert truth < interval.violation_rate[1] < 5.0 * truth


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", ["round-robin", "central-queue"])
def test_a_budget_of_one_percent_is_met_with_a_hundred_samples(dispatch):
    measured = Measured.of(LAWS["bimodal"], 100, 2, dip=False)
    many = Measured.of(LAWS["bimodal"], 20_000, 10**6, dip=False)
    policy = generate_policy(measured.profile, 100.0, SynthesisSettings(
        slo_ms=90.0, workers=2, max_queue=8, grid="fixed:30", dispatch=dispatch,
        max_violation=0.01))
    found = replayed(policy, many.samples, 200_000, 1)
    assert found.violation_rate - 2.0 * found.error <= 0.01


def test_the_error_of_a_simulation_is_in_the_interval():
    policy = generate_policy(one_model("outlier", 2000, 1), 60.0, SynthesisSettings(
        slo_ms=40.0, workers=1, max_queue=3, dispatch="central-queue"))
    replay, interval = policy.replay, policy.expectations.interval
    assert interval.effective_error == replay.effective_half_width > 0.0
    assert interval.violation_error == replay.violation_half_width
    low, high = rate_interval(policy.expectations.violation_rate, Evidence.behind(interval))
    assert interval.violation_rate == pytest.approx(
        (max(low - interval.violation_error, 0.0), high + interval.violation_error))
    assert interval.effective_accuracy[1] == pytest.approx(
        policy.expectations.effective_accuracy + interval.effective_error + (
            policy.expectations.accuracy or 0.0) * (policy.expectations.violation_rate - low)
        + interval.accuracy_error)


@pytest.mark.parametrize("dispatch", ["round-robin", "central-queue"])
def test_the_interval_of_effective_accuracy_has_the_error_of_mean_times(dispatch):
    """The bound rests on the same samples: true times may be shorter than their means."""
    profile = Measured.of(LAWS["log-normal"], 100, 3, dip=False).profile
    expected = generate_policy(profile, 250.0, SynthesisSettings(
        slo_ms=60.0, workers=2, max_queue=8, dispatch=dispatch, headroom=0)).expectations
    times = ServiceTimes.of(profile, DISTRIBUTION, 8)
    deviation_ms = np.sqrt((times.quantiles_ms - times.mean_ms[..., None])**2 @ times.weights)
    factor = 1.0 - deviation_ms / np.sqrt(100) / times.mean_ms
    shorter = replace(times, quantiles_ms=times.quantiles_ms * factor[..., None])
    bounds = [fluid_bound(law, slo_ms=60.0, workers=2, load_qps=250.0).effective_accuracy
              for law in (times, shorter)]
    interval = expected.interval
    assert interval.accuracy_error == pytest.approx(bounds[1] - bounds[0], rel=1e-3)
    assert interval.accuracy_error > 1e-4
    high = interval.effective_accuracy[1]
    assert high > expected.effective_accuracy + interval.accuracy_error - 1e-9
