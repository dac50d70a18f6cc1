"""Promises of finite samples: intervals that cover the truth, and budgets that they support."""

from __future__ import annotations

import numpy as np
import pytest

from ramsis.analysis.sampled import Evidence, lowest_upper, rate_interval
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.policy import Policy
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.sim.raw_replay import replayed
from tests.sim.raw_samples import LAWS, Measured, one_model

SMALL = SynthesisSettings(slo_ms=40.0, workers=1, max_queue=2, late="drop", grid="fixed:20")


def promised(law: str, count: int, seed: int) -> Policy:
    """The policy of that profile at 20 QPS."""
    return generate_policy(one_model(law, count, seed), 20.0, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "fewest"), [("log-normal", 18), ("bimodal", 18)])
def test_the_interval_covers_the_truth_of_a_known_distribution(law: str, fewest: int) -> None:
    """Of 20 here; of 100 by ``scripts/interval_coverage.py``: 98, 99, and 98 with outliers.

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


def test_the_interval_narrows_as_there_are_more_samples() -> None:
    few, many = (promised("log-normal", n, 3).expectations.interval for n in (200, 20_000))
    assert few is not None
    assert many is not None
    assert many.samples == pytest.approx(100 * few.samples, rel=0.5)
    width = [high - low for low, high in (few.violation_rate, many.violation_rate)]
    assert width[1] < 0.2 * width[0]
    for one in (few, many):
        assert one.effective_accuracy[0] <= one.effective_accuracy[1] <= 0.8


def test_an_interval_is_jeffreys_of_a_count() -> None:
    one = Evidence(1000.0, 1e-3)
    low, high = rate_interval(0.01, one, 0.95)
    rng = np.random.default_rng(0)
    drawn = np.quantile(rng.gamma(10.5, 1 / 1000.0, 400_000), [0.025, 0.975])
    assert (low, high) == pytest.approx(drawn.tolist(), rel=0.01)
    assert rate_interval(0.0, one)[0] == 0.0
    assert lowest_upper(one) == pytest.approx(np.quantile(rng.gamma(0.5, 1e-3, 400_000), 0.975),
                                              rel=0.02)


def test_samples_not_seen_yet_raise_the_upper_end_alone() -> None:
    same, heavy = Evidence(1000.0, 1e-3), Evidence(1000.0, 5e-3)
    assert rate_interval(0.01, same)[0] == rate_interval(0.01, heavy)[0]
    assert rate_interval(0.01, same)[1] + 0.002 < rate_interval(0.01, heavy)[1]
    assert Evidence.of(0.01, 1e-5, 0.0) == pytest.approx((1000.0, 1e-3))
    assert Evidence.of(0.0, 0.0, 0.01) == (100.0, 0.01)


def test_a_rate_of_the_size_of_rounding_counts_as_none() -> None:
    """Of a violation rate of 2e-13 any number of samples could be stated."""
    assert Evidence.of(2.0e-13, 6.6e-31, 0.01) == Evidence.of(0.0, 0.0, 0.01)
    assert Evidence.of(1e-8, 1e-14, 0.01).samples == pytest.approx(1e6)


def test_confidence_is_stated_and_widens_the_interval() -> None:
    profile = one_model("log-normal", 500, 1)
    wide = generate_policy(profile, 20.0, SynthesisSettings(
        slo_ms=40.0, workers=1, max_queue=2, late="drop", grid="fixed:20", confidence=0.999))
    usual = promised("log-normal", 500, 1)
    assert wide.expectations.interval is not None
    assert usual.expectations.interval is not None
    assert wide.expectations.interval.confidence == 0.999
    assert wide.expectations.interval.violation_rate[1] \
        > usual.expectations.interval.violation_rate[1]
    assert wide.inputs.settings != usual.inputs.settings


def test_no_interval_where_the_number_of_samples_is_not_known() -> None:
    sketch = tuple(np.linspace(10.0, 20.0, 20))
    profile = ProfileSet("p", (ModelProfile("m", 0.8, (BatchProfile(1, quantiles_ms=sketch),)),))
    assert generate_policy(profile, 20.0, SMALL).expectations.interval is None


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_a_confidence_outside_0_and_1_is_refused(confidence: float) -> None:
    with pytest.raises(InvalidValueError, match=r"^confidence: not a confidence"):
        SynthesisSettings(slo_ms=40.0, workers=1, confidence=confidence)


def test_a_budget_beyond_the_samples_names_how_many_would_do() -> None:
    settings = SynthesisSettings(slo_ms=40.0, workers=1, max_queue=2, late="drop",
                                 grid="fixed:20", max_violation=1e-4)
    with pytest.raises(InfeasibleError, match=r"max_violation at 20 QPS: 200 samples of each "
                                              r"batch cannot support.*a profile of \d+ samples"):
        generate_policy(one_model("log-normal", 200, 1), 20.0, settings)


@pytest.mark.parametrize(("law", "dispatch"), [("log-normal", "round-robin"),
                                               ("outlier", "round-robin"),
                                               ("bimodal", "central-queue")])
def test_a_policy_delivers_on_raw_samples_what_it_promises(law: str, dispatch: str) -> None:
    """A batch of 3 is slower than one of 4: promise and lookup rest on padding."""
    measured = Measured.of(LAWS[law])
    policy = generate_policy(measured.profile, 100.0, SynthesisSettings(
        slo_ms=60.0, workers=2, dispatch=dispatch, max_queue=8, late="drop"))
    assert {size for model in policy.models for size in (model.run_as or ())} > {4}
    violations, effective, error = replayed(policy, measured.samples, 60_000, 1)
    interval = policy.expectations.interval
    assert interval is not None
    low, high = interval.violation_rate
    assert min(0.75 * low, low - 2e-4) <= violations <= max(1.25 * high, high + 2e-4)
    assert effective == pytest.approx(policy.expectations.effective_accuracy,
                                      abs=0.002 + 2.0 * error)
