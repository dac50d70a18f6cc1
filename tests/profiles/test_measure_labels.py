"""Labelled samples: accuracies and confidences of models, and what is refused."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError, RamsisError
from ramsis.profiles import Confidences, load
from ramsis.profiles.measure import MeasureSettings, Options, StopRule, measure_profile
from ramsis.profiles.measure.backends import LoadedModel
from ramsis.profiles.measure.labels import LabelledSamples

RNG = np.random.default_rng(0)
LABEL = RNG.integers(0, 3, 400)
INPUT = np.eye(3)[LABEL] + RNG.normal(0, 0.6, (400, 3))
ARRAYS: dict[str, Any] = {"x": INPUT, "label": LABEL}
MODELS = """\
import numpy as np
def inputs(batch): return np.zeros((batch, 3))
def large(x): return 4 * x
def small(x): return {"scores": 4 * np.round(x), "sure": np.abs(x[:, :1])}
"""


def labelled(folder: Path, **arrays: Any) -> LabelledSamples:
    """Samples in a file."""
    np.savez(folder / "labels.npz", **{**ARRAYS, **arrays})
    return LabelledSamples.read(folder / "labels.npz")


def loaded(run: Callable[[Any], Any], inputs: Any = None) -> LoadedModel:
    """A model that a function is."""
    return LoadedModel(int, run, ["batch"], inputs=inputs)


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(scores)
    result: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return result


def test_scores_tell_answer_and_confidence(tmp_path):
    samples = labelled(tmp_path)
    right, largest = samples.answered("m", loaded(lambda x: 4 * x), "max")
    np.testing.assert_array_equal(right, INPUT.argmax(axis=1) == LABEL)
    np.testing.assert_allclose(largest, softmax(4 * INPUT).max(axis=1))
    # Probabilities are taken as they are.
    _, same = samples.answered("m", loaded(lambda x: softmax(4 * x)), "max")
    np.testing.assert_allclose(same, largest)
    _, margin = samples.answered("m", loaded(lambda x: 4 * x), "margin")
    ordered = np.sort(4 * INPUT, axis=1)
    np.testing.assert_allclose(margin, ordered[:, 2] - ordered[:, 1])


def test_outputs_may_be_the_answer_and_the_confidence(tmp_path):
    samples = labelled(tmp_path, label=np.array(["no", "yes", "perhaps"])[LABEL])
    model = loaded(lambda x: {"label": np.where(x[:, :1] > 0.5, "no", "yes"), "sure": x[:, 1]})
    right, sure = samples.answered("m", model, "sure")
    np.testing.assert_array_equal(right, np.where(INPUT[:, 0] > 0.5, LABEL == 0, LABEL == 1))
    np.testing.assert_allclose(sure, INPUT[:, 1])
    with pytest.raises(InvalidValueError, match=r"model m has no scores that tell max"):
        samples.answered("m", model, "max")


def test_inputs_are_converted_to_the_types_of_a_model(tmp_path):
    kinds = []

    def run(x: NDArray[Any]) -> NDArray[Any]:
        kinds.append(x.dtype)
        return x

    labelled(tmp_path).answered("m", loaded(run, {"image": ("float32", (3,))}), "max")
    assert set(kinds) == {np.dtype("float32")}


@pytest.mark.parametrize(("arrays", "run", "confidence", "message"), [
    ({}, lambda x: x, "entropy", "confidence: no such output of model m: got 'entropy'; allowed: "
                                 "max, margin, output"),
    ({}, lambda x: x[:, 0], "max", r"labels: outputs of model m tell no answer: got 'output "
                                   r"\(400,\)'; allowed: one output of shape \(400, classes\)"),
    ({}, lambda x: {"a": x, "b": x}, "max", "labels: outputs of model m tell no answer"),
    ({}, lambda x: {"a": x, "b": x}, "a", r"output of model m is not a number for each sample: "
                                          r"got 'a \(400, 3\)'"),
    ({"label": LABEL + 1}, lambda x: x, "max", "labels.npz: label: not classes of model m: got "
                                               "'int64 from 1 to 3'; allowed: .* from 0 to 2"),
    ({"label": LABEL[:9]}, lambda x: x, "max", r"x: not of the same samples as the labels: got "
                                               r"\(400, 3\); allowed: an array of 9 samples"),
    ({"group": LABEL[:9]}, lambda x: x, "max", "group: not of the same samples as the labels"),
])
def test_what_does_not_fit_is_refused(tmp_path, arrays, run, confidence, message):
    with pytest.raises(RamsisError, match=message):
        labelled(tmp_path, **arrays).answered("m", loaded(run), confidence)


def test_files_and_inputs_that_do_not_fit_are_refused(tmp_path):
    np.savez(tmp_path / "none.npz", x=INPUT)
    with pytest.raises(InputFileError, match=r"none.npz: no labelled samples: got 'x'; all"):
        LabelledSamples.read(tmp_path / "none.npz")
    with pytest.raises(InputFileError, match=r"x: not the input of model m: got .*; allowed: "):
        labelled(tmp_path).answered("m", loaded(lambda x: x, {"x": ("float32", (4,))}), "max")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two models and labelled samples."""
    (tmp_path / "labelled_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "labelled_models", raising=False)
    labelled(tmp_path)
    return tmp_path


NAMES = ["labelled_models:small", "labelled_models:large"]
SETTINGS = MeasureSettings("callable", (1,), StopRule(min_samples=20, max_samples=20),
                           options=Options(inputs="labelled_models:inputs"))


def test_a_measurement_with_labels_has_accuracies_and_confidences(folder, run):
    ran = run("profile", "measure", *NAMES, "--backend", "callable", "--labels", "labels.npz",
              "--inputs", "labelled_models:inputs", "--batches", "1", "--min-samples", "20",
              "--max-samples", "20", "--confidence", "margin", "--out", "out.json")
    assert ran.code == 0, ran.err
    assert "\nconfidences: 400 samples, of which 200 choose and 200 state; models: 2" in ran.out
    profile = load("out.json")
    scores = {"small": 4 * np.round(INPUT), "large": 4 * INPUT}
    samples = {}
    for model in profile.models:
        right = scores[model.name].argmax(axis=1) == LABEL
        assert model.accuracy == pytest.approx(right.mean())
        ordered = np.sort(scores[model.name], axis=1)
        samples[model.name] = right, ordered[:, 2] - ordered[:, 1]
    assert profile.confidences == Confidences.of(samples, source="labels.npz; margin").calibrated(
        {model.name: model.accuracy for model in profile.models})
    assert profile.measurement["accuracy"]["small"] == (
        "share of right answers to 400 samples of labels.npz")


def test_labels_that_do_not_do_are_refused_before_anything_is_measured(folder):
    with pytest.raises(InvalidValueError, match="functions are called with batch sizes, not with"):
        measure_profile(NAMES, MeasureSettings("callable", (1,)), labels="labels.npz")
    with pytest.raises(InputFileError, match=r"labels.npz: model large: accuracy on the samples "
                                             r"contradicts that of the profile: .*allowed: 0.3 "):
        measure_profile(NAMES, SETTINGS, labels="labels.npz", accuracy={"large": 0.3})
    labelled(folder, x=INPUT[:150], label=LABEL[:150])
    with pytest.raises(InputFileError, match=r"labels.npz: samples: too few samples .*got 150"):
        measure_profile(NAMES, SETTINGS, labels="labels.npz")
