"""Measuring times by count and size, and which law holds for batches of different sizes."""

import json
import sys
import types
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ramsis.cli.main import cli
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles import load
from ramsis.profiles.measure import (
    MeasureSettings,
    Observer,
    Options,
    StopRule,
    measure_profile,
    resume,
    sampling,
)
from ramsis.profiles.measure.backends import open_backend
from ramsis.profiles.measure.sizes import MixedBatches
from tests.profiles.samples import embedder

STOP = StopRule(min_samples=5, max_samples=5)
BY_SIZE = MeasureSettings("callable", (1, 4), STOP, size_points=(32, 8))
ASKED: list[list[int]] = []
CLOCK_MS = [0.0]
"""A clock of the functions' own: on a busy machine they would sleep too long."""


def _take_ms(time_ms: float) -> None:
    CLOCK_MS[0] += time_ms


def padded(sizes: list[int]) -> None:
    ASKED.append(sizes)
    _take_ms(0.1 * len(sizes) * max(sizes))


def packed(sizes: list[int]) -> None:
    _take_ms(0.1 * sum(sizes))


def short(sizes: list[int]) -> None:
    _take_ms(1.0)
    if max(sizes) > 8:
        raise ValueError("too long")


@pytest.fixture(autouse=True)
def _functions(monkeypatch):
    module = types.ModuleType("sized_functions")
    for function in (padded, packed, short):
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, "sized_functions", module)
    monkeypatch.setattr(sampling, "perf_counter_ns", lambda: round(1e6 * CLOCK_MS[0]))
    ASKED.clear()


def measured(models: Sequence[str], settings: MeasureSettings = BY_SIZE, **options: Any) -> Any:
    accuracy = dict.fromkeys(models, 0.5)
    return measure_profile([f"sized_functions:{name}" for name in models], settings,
                           accuracy=accuracy, **options)


@pytest.mark.parametrize("order", ["random", "model"])
def test_each_count_is_measured_at_each_size(tmp_path, order):
    out = tmp_path / "sized.json"
    profile = measured(["padded", "packed"], replace(BY_SIZE, order=order), out=out)
    assert load(out) == profile
    for model in profile.models:
        sized = model.sized
        assert (sized.counts, sized.sizes, sized.law) == ((1, 4), (8, 32), model.name)
        assert sized.measured_ms("mean") == pytest.approx(np.array([[0.8, 3.2], [3.2, 12.8]]))
        assert [batch.mean_ms for batch in model.batches] == [row[-1] for row in sized.mean_ms]
        assert [batch.n for batch in model.batches] == [5, 5]
    assert {tuple(sizes) for sizes in ASKED} == {
        (8,), (32,), (8,) * 4, (32,) * 4, (8, 8, 32, 32), (20,) * 4}
    laws = profile.measurement["laws"]
    assert {name: note["law"] for name, note in laws.items()} == {
        "padded": "padded", "packed": "packed"}
    assert profile.measurement["settings"]["size_points"] == [8, 32]


def test_a_law_that_is_stated_counts(tmp_path):
    profile = measured(["padded"], replace(BY_SIZE, law="packed"))
    assert profile.models[0].sized.law == "packed"
    assert profile.measurement["laws"]["padded"]["law"] == "padded"


def test_cells_beyond_the_limit_are_left_out_and_named():
    rule = replace(STOP, max_latency_ms=8.0)
    profile = measured(["padded"], replace(BY_SIZE, batches=(1, 4, 8), stop=rule))
    sized = profile.models[0].sized
    assert np.isfinite(sized.measured_ms("mean")).tolist() == [
        [True, True], [True, True], [True, False]]
    assert profile.measurement["notes"]["padded"] == (
        "size 32: no batch sizes above 4, which takes longer than 8 ms")


def test_sizes_that_fail_are_left_out():
    with pytest.raises(InputFileError, match=r"not measured at two sizes or more: size 32: no "
                                             r"batch sizes from 1 on, which failed \(ValueError"):
        measured(["short"])
    profile = measured(["short"], replace(BY_SIZE, size_points=(4, 8, 32)))
    assert profile.models[0].sized.sizes == (4, 8)


def test_an_interrupted_measurement_goes_on(tmp_path, monkeypatch):
    class Interrupting(Observer):
        def batch_finished(self, model: str, batch: int) -> None:
            assert model == "padded"
            raise KeyboardInterrupt

    out = tmp_path / "sized.json"
    monkeypatch.setattr(resume, "_KEPT_EACH_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        measured(["padded"], out=out, observer=Interrupting())
    runs = json.loads((tmp_path / "sized.json.runs").read_text())["runs"]
    assert set(runs["models"]) == {"padded@8", "padded@32"}
    ASKED.clear()
    profile = measured(["padded"], out=out)
    assert profile.models[0].batches[0].n == 5
    assert ASKED.count([8]) < 5 + 3


@pytest.mark.parametrize(("settings", "message"), [
    ({"size_points": (8,)}, "size_points: one size, where times by size need two"),
    ({"size_points": (0, 8)}, "size_points: out of range: got 0; allowed: a whole number from 1"),
    ({"size_points": (), "law": "packed"}, "law: a law without sizes"),
])
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidValueError, match=message):
        replace(BY_SIZE, **settings)


def test_a_law_needs_a_smaller_error():
    assert MixedBatches((8, 32), 10.0, 10.1, 6.0).law == "padded"
    assert MixedBatches((8, 32), 6.2, 10.1, 6.0).law == "packed"
    alike = MixedBatches((8, 32), 8.0, 10.0, 6.0)
    assert alike.law == "padded"
    assert "relative errors: padded 25.0%, packed 25.0%" in alike.summary()


def test_the_command_prints_a_row_for_each_cell(tmp_path):
    (tmp_path / "accuracy.json").write_text('{"padded": 0.5}')
    done = CliRunner().invoke(cli, [
        "profile", "measure", "sized_functions:padded", "--backend", "callable", "--batches",
        "1,2", "--size-points", "8,32", "--min-samples", "2", "--max-samples", "2", "--accuracy",
        str(tmp_path / "accuracy.json"), "--out", str(tmp_path / "a.json"), "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [(row["size"], row["batch"]) for row in rows] == [(8, 1), (8, 2), (32, 1), (32, 2)]


def test_the_size_of_an_onnx_model_is_its_free_dimension(tmp_path):
    model = str(embedder(tmp_path / "a.onnx", ["batch", "sequence"]))
    opened = open_backend("onnx", Options(size_dimension="")).open(model)
    assert opened.prepare_sizes is not None
    assert opened.size_unit == "tokens"
    assert opened.input_shape == {"ids": ["batch", "size"], "mask": ["batch", "size"]}
    inputs = opened.prepare_sizes([2, 4])
    assert inputs["mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert inputs["ids"].shape == (2, 4)
    assert not inputs["ids"][0, 2:].any()
    assert opened.run(inputs)[0].shape == (2, 4)


def test_a_size_dimension_that_is_not_clear_is_refused(tmp_path):
    model = str(embedder(tmp_path / "a.onnx", ["batch", "height", "width"]))
    with pytest.raises(InvalidValueError, match="several dimensions have no fixed size: got "
                                                "'height, width'; allowed: --size-dim"):
        open_backend("onnx", Options(size_dimension="")).open(model)
    with pytest.raises(InvalidValueError, match="--size-dim: no input has such a dimension"):
        open_backend("onnx", Options(size_dimension="length")).open(model)
    opened = open_backend("onnx", Options(size_dimension="width", dimensions={"height": 3}))
    loaded = opened.open(model)
    assert loaded.prepare_sizes is not None
    assert loaded.prepare_sizes([5])["ids"].shape == (1, 3, 5)
    assert loaded.size_unit == "pixels"
    fixed = str(embedder(tmp_path / "b.onnx", ["batch", 7]))
    with pytest.raises(InvalidValueError, match="all dimensions have a fixed size"):
        open_backend("onnx", Options(size_dimension="")).open(fixed)
