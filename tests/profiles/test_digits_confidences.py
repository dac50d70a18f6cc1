"""The confidences of the shipped set ``digits-cpu`` follow from the answers that are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ramsis.profiles import Confidences, check_profile, load

ANSWERS = Path(__file__).resolve().parents[2] / "docs" / "results" / "digits-answers.npz"


def test_the_shipped_confidences_are_those_of_the_kept_answers() -> None:
    shipped = load("digits-cpu").confidences
    assert shipped is not None
    with np.load(ANSWERS) as answers:
        derived = Confidences.of({
            model.name: (answers[f"{model.name}/correct"], answers[f"{model.name}/margin"] / 1000)
            for model in load("digits-cpu").models}, groups=answers["digit"])
    assert (derived.chosen_samples, derived.stated_samples, derived.items) == (
        shipped.chosen_samples, shipped.stated_samples, shipped.items) == (5400, 5400, 540)
    assert derived.models == shipped.models
    for pair, kept in zip(derived.pairs, shipped.pairs, strict=True):
        assert (pair.first, pair.second, pair.accuracy) == (kept.first, kept.second, kept.accuracy)
        np.testing.assert_allclose(pair.expected_increment, kept.expected_increment, atol=2e-6)


def test_every_more_accurate_model_corrects_every_less_accurate_one() -> None:
    digits = load("digits-cpu")
    assert digits.confidences is not None
    accuracy = {model.name: model.accuracy for model in digits.models}
    assert {(pair.first, pair.second) for pair in digits.confidences.pairs} == {
        (first, second) for first in accuracy for second in accuracy
        if accuracy[first] < accuracy[second]}
    for pair in digits.confidences.pairs:
        increment = digits.confidences.increment(pair.first, pair.second)
        error = np.abs(increment - pair.expected_increment)
        assert error.mean() < 0.04  # 270 samples or so in each bin, copies of each other
    assert not [finding for finding in check_profile(digits) if finding.kind == "contradiction"]
