"""The confidences of the shipped set ``digits-cpu`` follow from the answers that are kept."""

from pathlib import Path

import numpy as np

from ramsis.profiles import Confidences, check_profile, load

ANSWERS = Path(__file__).resolve().parents[2] / "docs" / "results" / "digits-answers.npz"


def test_the_shipped_confidences_are_those_of_the_kept_answers():
    shipped = load("digits-cpu").confidences
    with np.load(ANSWERS) as answers:
        derived = Confidences.of({
            model.name: (answers[f"{model.name}/correct"], answers[f"{model.name}/margin"] / 1000)
            for model in load("digits-cpu").models}, groups=answers["digit"])
    derived = derived.calibrated({model.name: model.accuracy
                                  for model in load("digits-cpu").models})
    assert (derived.chosen_samples, derived.stated_samples, derived.items) == (
        shipped.chosen_samples, shipped.stated_samples, shipped.items) == (5400, 5400, 540)
    assert derived.models == shipped.models
    for pair, kept in zip(derived.pairs, shipped.pairs, strict=True):
        assert (pair.first, pair.second, pair.accuracy) == (kept.first, kept.second, kept.accuracy)
        np.testing.assert_allclose(pair.expected_increment, kept.expected_increment, atol=2e-6)
        np.testing.assert_allclose(pair.gain_error, kept.gain_error, atol=2e-6)


def test_every_more_accurate_model_corrects_every_less_accurate_one():
    digits = load("digits-cpu")
    accuracy = {model.name: model.accuracy for model in digits.models}
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
    digits = load("digits-cpu")
    accuracy = {model.name: model.accuracy for model in digits.models}
    with np.load(ANSWERS) as answers:
        raw = Confidences.of({
            name: (answers[f"{name}/correct"], answers[f"{name}/margin"] / 1000)
            for name in accuracy}, groups=answers["digit"], seed=7)
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
