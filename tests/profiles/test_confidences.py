"""Confidences of models: bins, stated accuracies, expected increments, and what is refused."""

import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.profiles import (
    Confidences,
    ProfileError,
    ProfileSet,
    check_profile,
    interpolate_front,
    load,
)
from ramsis.profiles.confidences import choosing_part
from tests.profiles.samples import drawn_samples, model

SAMPLES = drawn_samples()
ANSWERS = Path(__file__).resolve().parents[2] / "docs" / "results" / "digits-answers.npz"


def accuracies(profile: ProfileSet) -> dict[str, float]:
    return {model.name: model.accuracy for model in profile.models}


def two_models(confidences: Confidences | None = None) -> ProfileSet:
    """Models small and large, of the accuracies of the drawn samples."""
    accuracy = {name: float(right.mean()) for name, (right, _) in SAMPLES.items()}
    return ProfileSet("two", (model("small", accuracy["small"], {1: 5.0}),
                              model("large", accuracy["large"], {1: 20.0}),
                              model("other", 0.99, {1: 50.0})), confidences=confidences)


def test_bins_are_quantiles_of_one_part_and_stated_on_the_other():
    confidences = Confidences.of(SAMPLES)
    chooses = choosing_part(np.arange(4000))
    assert (confidences.chosen_samples, confidences.stated_samples) == (2000, 2000)
    right, sure = SAMPLES["small"]
    small = confidences.model("small")
    quantiles = np.quantile(sure[chooses], np.arange(1, 20) / 20)
    np.testing.assert_allclose(small.thresholds, quantiles, rtol=1e-8)
    edges = [-np.inf, *small.thresholds, np.inf]
    pair = confidences.pair("small", "large")
    for i in range(20):
        inside = ~chooses & (edges[i] <= sure) & (sure < edges[i + 1])
        assert small.share[i] == pytest.approx(inside.sum() / 2000, abs=2e-6)
        assert small.accuracy[i] == pytest.approx(right[inside].mean(), abs=1e-6)
        assert pair.accuracy[i] == pytest.approx(SAMPLES["large"][0][inside].mean(), abs=1e-6)
    assert sum(small.share) == pytest.approx(1, abs=1e-12)
    increment = confidences.increment("small", "large")
    np.testing.assert_allclose(increment, np.subtract(pair.accuracy, small.accuracy))
    # The whole gain is that of asking the second model always.
    gain = SAMPLES["large"][0][~chooses].mean() - right[~chooses].mean()
    assert small.share @ increment == pytest.approx(gain, abs=1e-5)


def test_what_is_expected_is_smooth_and_near_the_truth():
    """Of 400 samples: the truth is the mean over many."""
    truth = drawn_samples(400_000, seed=2)
    errors: dict[str, list[float]] = {"curves": [], "means of bins": []}
    for seed in range(8):
        samples = drawn_samples(400, seed=10 + seed)
        confidences = Confidences.of(samples, bins=8)
        pair, small = confidences.pair("small", "large"), confidences.model("small")
        assert np.abs(np.diff(pair.expected_increment, 2)).max() < 0.15
        chooses = choosing_part(np.arange(400))
        bins = [np.searchsorted(small.thresholds, sure, side="right")
                for sure in (truth["small"][1], samples["small"][1][chooses])]
        gains = [truth["large"][0].astype(float) - truth["small"][0],
                 (samples["large"][0].astype(float) - samples["small"][0])[chooses]]
        exact, noisy = (np.bincount(bin_of, gain) / np.bincount(bin_of)
                        for bin_of, gain in zip(bins, gains, strict=True))
        errors["curves"].append(float(np.square(pair.expected_increment - exact).mean()))
        errors["means of bins"].append(float(np.square(noisy - exact).mean()))
    assert np.mean(errors["curves"]) < np.mean(errors["means of bins"]) / 3


def test_copies_of_an_item_stay_in_one_part():
    groups = np.repeat([f"item-{i}" for i in range(200)], 20)
    samples = drawn_samples(4000, groups=200)
    chooses = choosing_part(groups)
    assert chooses.reshape(200, 20).all(axis=1).sum() == chooses.sum() / 20 == 100
    assert Confidences.of(samples, groups=groups).chosen_samples == 2000
    assert Confidences.of(samples, groups=groups) != Confidences.of(samples)
    assert Confidences.of(samples, seed=1) != Confidences.of(samples)


def test_few_samples_have_fewer_bins_and_too_few_are_refused_with_how_many_would_do():
    assert Confidences.of(drawn_samples(300)).model("small").bins == 6
    assert Confidences.of(drawn_samples(200)).model("small").bins == 4
    with pytest.raises(ProfileError, match=r"^samples: too few samples .*got 199; allowed: 200 or "
                                           r"more samples \(1000 for 20 bins\)$"):
        Confidences.of(drawn_samples(199))
    with pytest.raises(ProfileError, match=r"too few.*got 4000; .* in groups of like size"):
        Confidences.of(SAMPLES, groups=np.zeros(4000))
    with pytest.raises(ProfileError, match=r"^groups: too few items .*got 49; .*50 or more$"):
        Confidences.of(SAMPLES, groups=np.arange(4000) % 49)


def test_tied_confidences_share_a_bin():
    samples = {name: (right, np.clip(np.round(sure), 0, 2)) for name, (right, sure)
               in SAMPLES.items()}
    small = Confidences.of(samples).model("small")
    assert small.bins == 3
    assert small.share[0] == pytest.approx((SAMPLES["small"][1] <= 0.5).mean(), abs=0.03)
    assert list(small.accuracy) == sorted(small.accuracy)


@pytest.mark.parametrize("always", [True, False])
def test_a_model_that_is_always_right_or_always_wrong_has_a_finite_curve(always):
    samples = {**SAMPLES, "large": (np.full(4000, always), SAMPLES["large"][1])}
    confidences = Confidences.of(samples)
    assert confidences.model("large").accuracy == (float(always),) * 20
    assert len(confidences.pairs) == 1  # neither corrects one that is always right
    pair = confidences.pairs[0]
    assert (pair.first, pair.second) == (("small", "large") if always else ("large", "small"))
    low, *_, high = pair.expected_increment
    right = SAMPLES["small"][0]
    assert 0 < high < low < 1 if always else 0 < low < 1
    assert np.mean(pair.expected_increment) == pytest.approx(
        1 - right.mean() if always else right.mean(), abs=0.02)


@pytest.mark.parametrize("copies", [1, 4])
def test_the_error_of_a_gain_is_that_of_many_draws_of_samples(copies):
    """Of 1,200 samples whose models have the accuracies of the truth, by 100 draws."""
    truth = drawn_samples(400_000, seed=2)
    wrong = {name: float(1.0 - right.mean()) for name, (right, _) in truth.items()}
    size, gains, stated = 1200, [], []
    for seed in range(100):
        samples = drawn_samples(size, 100 + seed, size // copies)
        confidences = Confidences.of(samples, groups=np.repeat(np.arange(size // copies), copies),
                                     bins=8)
        small, pair = confidences.model("small"), confidences.pair("small", "large")
        bin_of = np.searchsorted(small.thresholds, samples["small"][1], side="right")
        errs = {name: ~right for name, (right, _) in samples.items()}
        lowest = {name: np.cumsum(np.bincount(bin_of[err], minlength=8)) / err.sum()
                  for name, err in errs.items()}
        gains.append(wrong["small"] * lowest["small"] - wrong["large"] * lowest["large"])
        stated.append(pair.gain_error)
    spread, mean = np.std(gains, axis=0), np.mean(stated, axis=0)
    np.testing.assert_allclose(mean[:6], spread[:6], rtol=0.2)
    assert mean[-1] < 0.001 > spread[-1]  # all bins: the known difference of accuracies
    # Where only the accuracies were known on which the models differ, the error would be larger.
    unpaired = np.sqrt(sum(share * (1.0 - share) for share in wrong.values()) / size)
    assert mean.max() < 0.7 * unpaired * np.sqrt(copies)


def test_gain_and_accuracy_are_sums_over_bins():
    confidences = Confidences.of(SAMPLES)
    small, increment = confidences.model("small"), confidences.increment("small", "large")
    share = np.array(small.share)
    assert confidences.gain("small", "large", 1.0) == pytest.approx(share @ increment)
    part = share[0] + share[1] / 2
    assert confidences.gain("small", "large", part) == pytest.approx(
        share[0] * increment[0] + share[1] * increment[1] / 2)
    assert confidences.accuracy("small") == pytest.approx(share @ small.accuracy)
    assert confidences.summary() == (
        "confidences: 4000 samples, of which 2000 choose and 2000 state; models: 2, pairs: 1, "
        "bins: 20",
        "largest gain: large on the least sure 20% of small adds "
        f"{confidences.gain('small', 'large', 0.2):.4f} of accuracy")


def test_a_set_takes_the_confidences_of_samples_that_fit_it():
    profile = two_models().with_confidences(SAMPLES, source="drawn")
    assert profile.confidences == Confidences.of(SAMPLES, source="drawn").calibrated(
        accuracies(two_models()))
    assert [item for item in check_profile(profile) if item.kind == "contradiction"] == []
    with pytest.raises(ProfileError, match=r"^model: no such model in profile set 'two': got "):
        two_models().with_confidences({"smal": SAMPLES["small"]})
    with pytest.raises(ProfileError, match=r"^model other: accuracy on the samples contradicts th"
                                           r"at of the profile: got 0.8\d*; allowed: 0.99 ± 0.0"):
        two_models().with_confidences({"other": SAMPLES["large"]})
    other = replace(profile, models=tuple(replace(item, accuracy=0.5) for item in profile.models))
    assert [(item.kind, item.model) for item in check_profile(other)
            if item.kind == "contradiction"] == [
        ("contradiction", "small"), ("contradiction", "large")]


def sample(name: str, part: int, at: int, value: object) -> dict[str, Any]:
    """The samples with one value of a model changed."""
    values = [np.array(item, dtype=float) for item in SAMPLES[name]]
    values[part][at] = value
    return {**SAMPLES, name: tuple(values)}


@pytest.mark.parametrize(("samples", "message"), [
    (sample("large", 0, 7, 0.5), "model large, sample 7, correct: neither right nor wrong: got 0"),
    (sample("small", 1, 3, np.nan), "model small, sample 3, confidence: not finite: got nan"),
    ({**SAMPLES, "large": tuple(item[:9] for item in SAMPLES["large"])},
     "model large, correct: not the same samples as of the other models: got 9; allowed: 4000 "),
    ({**SAMPLES, "large": (SAMPLES["large"][0], np.full(4000, 0.5))},
     "model large, confidence: equally sure of all samples, which tells none apart: got 0.5; "),
    ({**SAMPLES, "large": (SAMPLES["large"][0], np.arange(4000) == 17)},
     "model large, confidence: equally sure of almost all samples"),
    ({**SAMPLES, "large": (np.array(["yes"] * 4000), SAMPLES["large"][1])},
     "model large, correct: not a list of numbers"),
    ({}, "samples: no models"),
])
def test_samples_that_say_nothing_are_refused_in_one_line(samples, message):
    with pytest.raises(ProfileError, match=f"^{message}") as caught:
        Confidences.of(samples)
    assert "\n" not in str(caught.value)


def test_arguments_out_of_range_are_refused():
    with pytest.raises(InvalidValueError, match="bins"):
        Confidences.of(SAMPLES, bins=3)
    with pytest.raises(InvalidValueError, match="seed"):
        Confidences.of(SAMPLES, seed=-1)
    with pytest.raises(InvalidValueError, match=r"groups: not a group for each sample.*\(4000,\)"):
        Confidences.of(SAMPLES, groups=[1, 2])


def test_a_set_keeps_the_confidences_of_the_models_that_it_keeps():
    confidences = Confidences.of(SAMPLES)
    profile = two_models(confidences)
    assert profile.subset(["large", "small"]).confidences == confidences
    small = profile.subset(["small", "other"]).confidences
    assert (small.models, small.pairs) == ((confidences.model("small"),), ())
    assert profile.subset(["other"]).confidences is None
    for changed in (profile.slower(2.0), profile.with_overhead(1.0),
                    pickle.loads(pickle.dumps(profile)), interpolate_front(profile, 0.05)):
        assert changed.confidences == confidences
    with pytest.raises(InvalidValueError, match="no confidences of this model: got 'other'"):
        confidences.model("other")
    with pytest.raises(InvalidValueError, match="no such pair: got 'large, other'"):
        confidences.pair("large", "other")


def test_confidences_do_not_change_the_fingerprint_of_a_set():
    """Policies without cascades stay those of the profile."""
    confidences = Confidences.of(SAMPLES)
    assert two_models(confidences).fingerprint == two_models().fingerprint
    assert confidences.fingerprint != replace(confidences, pairs=()).fingerprint


def of_answers(names: Iterable[str], seed: int = 0) -> Confidences:
    """Confidences by the answers that are kept for the shipped set ``digits-cpu``."""
    with np.load(ANSWERS) as answers:
        return Confidences.of({
            name: (answers[f"{name}/correct"], answers[f"{name}/margin"] / 1000)
            for name in names}, groups=answers["digit"], seed=seed)


def test_the_shipped_confidences_are_those_of_the_kept_answers():
    shipped = load("digits-cpu").confidences
    accuracy = accuracies(load("digits-cpu"))
    derived = of_answers(accuracy).calibrated(accuracy)
    assert (derived.chosen_samples, derived.stated_samples, derived.items) == (
        shipped.chosen_samples, shipped.stated_samples, shipped.items) == (5400, 5400, 540)
    assert derived.models == shipped.models
    for pair, kept in zip(derived.pairs, shipped.pairs, strict=True):
        assert (pair.first, pair.second, pair.accuracy) == (kept.first, kept.second, kept.accuracy)
        np.testing.assert_allclose(pair.expected_increment, kept.expected_increment, atol=2e-6)
        np.testing.assert_allclose(pair.gain_error, kept.gain_error, atol=2e-6)


def test_every_more_accurate_model_corrects_every_less_accurate_one():
    digits = load("digits-cpu")
    accuracy = accuracies(digits)
    assert {(pair.first, pair.second) for pair in digits.confidences.pairs} == {
        (first, second) for first in accuracy for second in accuracy
        if accuracy[first] < accuracy[second]}
    for pair in digits.confidences.pairs:
        increment = digits.confidences.increment(pair.first, pair.second)
        error = np.abs(increment - pair.expected_increment)
        assert error.mean() < 0.04  # 270 samples or so in each bin, copies of each other
    assert not [finding for finding in check_profile(digits) if finding.kind == "contradiction"]


def test_calibrated_confidences_add_up_to_the_accuracies_of_the_profile():
    """A cheap model lacks as much as it can gain, whatever it does on the samples."""
    accuracy = accuracies(load("digits-cpu"))
    raw = of_answers(accuracy, seed=7)
    once = raw.calibrated(accuracy)
    for name, stated in accuracy.items():
        assert abs(once.accuracy(name) - stated) < 1e-5
        assert abs(raw.accuracy(name) - stated) < 0.05
    for pair in once.pairs:
        share = once.model(pair.first).share
        total = accuracy[pair.second] - accuracy[pair.first]
        assert abs(np.dot(share, once.increment(pair.first, pair.second)) - total) < 2e-3
    twice = once.calibrated(accuracy)
    for pair, again in zip(once.pairs, twice.pairs, strict=True):
        np.testing.assert_allclose(again.accuracy, pair.accuracy, atol=1e-4)
        np.testing.assert_allclose(again.expected_increment, pair.expected_increment, atol=1e-4)
