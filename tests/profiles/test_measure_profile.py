"""Measuring whole sets: functions, records, failures, resumption, and each back end's names."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ramsis.errors import InputFileError, InvalidValueError, OutputError
from ramsis.profiles import load, save
from ramsis.profiles.measure import (
    BACKENDS,
    MeasureSettings,
    Observer,
    Options,
    StopRule,
    measure_profile,
)
from ramsis.profiles.measure.backends import open_backend
from ramsis.profiles.measure.resume import _digest
from tests.profiles.samples import embedder

QUICK = MeasureSettings("callable", (1, 2), StopRule(min_samples=20, max_samples=20))
IN_TURN = replace(QUICK, order="model")
MODULE = """
import json
calls = []
def small(batch): calls.append(("small", batch)); sum(range(1000 * batch))
def large(batch): calls.append(("large", batch)); sum(range(3000 * batch))
def double(batch): return [0] * 2 * batch
def takes_list(items): calls.append(("list", len(items))); sum(range(1000))
def full(batch):
    if batch > 1: raise MemoryError
    sum(range(1000))
def broken(batch): raise RuntimeError("always")
def stopped(batch): raise KeyboardInterrupt
number = 7
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of functions to measure, as ``measured_here``."""
    (tmp_path / "measured_here.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("measured_here", None)
    import measured_here  # type: ignore[import-not-found]

    yield measured_here
    sys.modules.pop("measured_here", None)


def functions(*names: str) -> list[str]:
    return [f"measured_here:{name}" for name in names]


ACCURACY = {"small": 0.6, "large": 0.7, "full": 0.8, "broken": 0.9, "stopped": 0.5,
            "takes_list": 0.4}


def test_functions_are_measured_and_recorded(module, tmp_path):
    out = tmp_path / "new" / "set.json"
    found = measure_profile(functions("small", "large"), QUICK, name="mine", accuracy=ACCURACY,
                            accuracy_source="a table", out=out)
    assert load(out) == found
    assert [(model.name, model.accuracy) for model in found.models] == [("small", 0.6),
                                                                       ("large", 0.7)]
    assert {batch.n for model in found.models for batch in model.batches} == {20}
    assert found.models[0].batches[0].quantiles_ms is not None
    assert found.hardware["threads"] == 1
    assert found.hardware["cpu"]
    assert found.measurement["accuracy"] == {"small": "a table", "large": "a table"}
    assert found.measurement["settings"]["min_samples"] == 20
    assert {"python", "numpy", "ramsis"} <= set(found.measurement["versions"])
    assert found.measurement["date"][:2] == "20"
    assert [path.name for path in out.parent.iterdir()] == ["set.json"]


def test_a_function_can_be_given_prepared_input(module):
    settings = MeasureSettings("callable", (1, 2), QUICK.stop,
                               options=Options(inputs="measured_here:double"))
    measure_profile(functions("takes_list"), settings, accuracy=ACCURACY)
    assert set(module.calls) == {("list", 2), ("list", 4)}


def test_what_fails_is_noted_and_the_rest_is_kept(module):
    seen: list[tuple[str, str | None]] = []

    class Notes(Observer):
        def model_finished(self, model: str, note: str | None) -> None:
            seen.append((model, note))

    found = measure_profile(functions("broken", "full", "small"), QUICK, accuracy=ACCURACY,
                            observer=Notes())
    assert [(model.name, len(model.batches)) for model in found.models] == [("full", 1),
                                                                           ("small", 2)]
    notes = found.measurement["notes"]
    assert notes["broken"] == "no batch sizes from 1 on, which failed (RuntimeError: always)"
    assert notes["full"] == "no batch sizes from 2 on, which failed (MemoryError)"
    assert seen == [("broken", notes["broken"]), ("full", notes["full"]), ("small", None)]


def test_nothing_is_written_when_every_model_fails(module, tmp_path):
    out = tmp_path / "out" / "set.json"
    with pytest.raises(InputFileError, match=r"broken: no model could be measured: .*always"):
        measure_profile(functions("broken"), QUICK, accuracy=ACCURACY, out=out)
    assert list(out.parent.iterdir()) == []


def interrupted(out: Path) -> Path:
    """A measurement that stopped at its second model; the file of the first."""
    with pytest.raises(KeyboardInterrupt):
        measure_profile(functions("small", "stopped", "large"), IN_TURN, accuracy=ACCURACY,
                        out=out)
    assert not out.exists()
    return Path(f"{out}.partial")


def test_an_interrupted_measurement_goes_on_where_it_stopped(module, tmp_path):
    out = tmp_path / "set.json"
    kept = load(interrupted(out))
    assert [model.name for model in kept.models] == ["small"]
    module.calls.clear()
    found = measure_profile(functions("large", "small"), IN_TURN, out=out,
                            accuracy=ACCURACY | {"small": 0.61})
    assert {name for name, _ in module.calls} == {"large"}
    assert found.models[1].batches == kept.models[0].batches
    assert found.models[1].accuracy == 0.61
    assert found.measurement["input_shapes"] == {"large": ["batch"], "small": ["batch"]}
    assert not Path(f"{out}.partial").exists()


@pytest.mark.parametrize("changed", [[], ["large"]])
def test_runs_in_a_random_order_go_on_but_for_models_whose_file_has_changed(
        module, tmp_path, monkeypatch, changed):
    monkeypatch.setattr("ramsis.profiles.measure.resume._KEPT_EACH_S", -1.0)
    digests = {"measured_here:small": "s", "measured_here:large": "l"}
    monkeypatch.setattr("ramsis.profiles.measure.resume._digest", digests.get)
    out, kept = tmp_path / "set.json", tmp_path / "set.json.runs"
    with monkeypatch.context() as stopped:
        stopped.setattr(StopRule, "finished", _interrupting(20))
        with pytest.raises(KeyboardInterrupt):
            measure_profile(functions("small", "large"), QUICK, accuracy=ACCURACY, out=out)
    runs = json.loads(kept.read_text())["runs"]
    assert not out.exists()
    assert len(runs["latency_ms"]) == len(runs["model"])
    unchanged = sum(runs["models"][model] not in changed for model in runs["model"])
    assert 0 < unchanged <= len(runs["model"])
    digests |= {f"measured_here:{name}": "another" for name in changed}
    told = list[str]()

    class Told(Observer):
        def model_changed(self, model: str) -> None:
            told.append(model)

    module.calls.clear()
    found = measure_profile(functions("large", "small"), QUICK, accuracy=ACCURACY, out=out,
                            observer=Told())
    assert told == changed
    taken = sum(batch.n for model in found.models for batch in model.batches)
    probes = 3 * sum(len(model.batches) for model in found.models)
    assert len(module.calls) == taken - unchanged + probes
    assert not kept.exists()


def test_a_model_is_known_by_the_content_of_its_file(module, tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(b"one")
    before = _digest(str(path))
    os.utime(path, (1, 1))  # copied anew, say
    assert _digest(str(path)) == before
    path.write_bytes(b"two")
    assert _digest(str(path)) != before
    assert _digest("measured_here:small") == hashlib.sha256(
        Path(module.__file__).read_bytes()).hexdigest()
    assert _digest("resnet18") is None
    (tmp_path / "config.json").write_text("{}")
    assert _digest(str(tmp_path)) == hashlib.sha256(b"{}").hexdigest()


def _interrupting(after: int) -> Any:
    """The stop rule, which Ctrl-C interrupts when it is asked so often."""
    asked, whole = iter(range(after)), StopRule.finished

    def finished(self: StopRule, samples: Any) -> bool:
        if next(asked, None) is None:
            raise KeyboardInterrupt
        return whole(self, samples)

    return finished


@pytest.mark.parametrize("content", [
    '{"runs"', '{"runs": 3}', "{}",
    '{"runs": {"models": ["a"], "model": [0], "batch": [1], "latency_ms": []}}',
    '{"runs": {"models": ["a"], "model": [0], "batch": [1], "latency_ms": [-1]}}'])
def test_damaged_runs_are_refused(module, tmp_path, content):
    kept = tmp_path / "set.json.runs"
    kept.write_text(content)
    with pytest.raises(InputFileError, match="not the runs of an interrupted measurement"):
        measure_profile(functions("small"), QUICK, accuracy=ACCURACY, out=tmp_path / "set.json")
    assert kept.read_text() == content
    measure_profile(functions("small"), QUICK, accuracy=ACCURACY, out=tmp_path / "set.json",
                    restart=True)
    assert not kept.exists()


def test_runs_of_other_settings_are_not_gone_on_from(module, tmp_path):
    kept = tmp_path / "set.json.runs"
    kept.write_text('{"runs": {"models": [], "model": [], "batch": [], "latency_ms": []}, '
                    '"hardware": {"cpu": "another"}, "backend": "callable"}')
    with pytest.raises(InvalidValueError, match=r"differs in .*hardware"):
        measure_profile(functions("small"), QUICK, accuracy=ACCURACY, out=tmp_path / "set.json")


def test_other_settings_or_hardware_do_not_go_on_with_it_unless_it_is_discarded(module, tmp_path):
    out = tmp_path / "set.json"
    partial = interrupted(out)
    other = MeasureSettings("callable", (1, 2, 3), StopRule(min_samples=20, max_samples=30),
                            order="model")
    before = partial.read_bytes()
    with pytest.raises(InvalidValueError, match=r"settings\.batches, settings\.max_samples"):
        measure_profile(functions("small"), other, accuracy=ACCURACY, out=out)
    assert partial.read_bytes() == before
    kept = load(partial)
    save(replace(kept, hardware={**kept.hardware, "cpu": "another"}), partial)
    with pytest.raises(InvalidValueError, match=r"differs in hardware\.cpu"):
        measure_profile(functions("small"), IN_TURN, accuracy=ACCURACY, out=out)
    found = measure_profile(functions("small"), other, accuracy=ACCURACY, out=out, restart=True)
    assert len(found.models[0].batches) == 3


def test_an_accuracy_that_is_missing_is_found_before_anything_runs(module, tmp_path):
    with pytest.raises(InputFileError, match=r"no accuracy for model 'small'.*--accuracy"):
        measure_profile(functions("large", "small"), QUICK, accuracy={"large": 0.5},
                        out=tmp_path / "x.json")
    assert module.calls == []


def test_a_file_that_cannot_be_written_is_found_before_anything_runs(module, tmp_path):
    for out in (tmp_path, tmp_path / "measured_here.py" / "x.json"):
        with pytest.raises(OutputError):
            measure_profile(functions("small"), QUICK, accuracy=ACCURACY, out=out)
    assert module.calls == []


@pytest.mark.parametrize(("model", "message"), [
    ("measured_here:smal", "'smal'.: got 'measured_here:smal'; allowed: small"),
    ("measured_here:number", "not callable"),
    ("measured_here", "allowed: module:function"),
    ("no_such_module_here:f", "cannot import function .No module named")
])
def test_an_unknown_function_lists_near_ones(module, model, message):
    with pytest.raises(InvalidValueError, match=message):
        measure_profile([model], QUICK, accuracy=ACCURACY)


def test_two_models_of_one_name_are_refused(module):
    with pytest.raises(InvalidValueError, match="two models of one name: got 'small'"):
        measure_profile(functions("small", "small"), QUICK, accuracy=ACCURACY)


@pytest.mark.parametrize("change", [
    {"batches": ()}, {"batches": (2, 4)}, {"batches": (0, 1)}, {"quantiles": 1},
    {"options": Options(threads=0)}, {"options": Options(tokens=0)}
])
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(InvalidValueError, match="allowed: "):
        MeasureSettings(**change)


def test_an_unknown_back_end_lists_those_there_are():
    with pytest.raises(InvalidValueError, match="allowed: onnx, torchvision"):
        open_backend("tensorflow", Options())


@pytest.mark.parametrize(("backend", "library", "extra"), [
    ("onnx", "onnxruntime", "measure"), ("torchvision", "torch", "torch"),
    ("transformers", "torch", "torch")
])
def test_a_missing_library_names_the_extra(monkeypatch, backend, library, extra):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidValueError, match=rf"{library}.*pip install 'ramsis\[{extra}\]'"):
        open_backend(backend, Options())


@pytest.fixture
def stand_ins(monkeypatch):
    """As much of the optional libraries as looking names up takes."""
    torch = SimpleNamespace(set_num_threads=int, manual_seed=int,
                            cuda=SimpleNamespace(is_available=bool, is_initialized=bool))
    models = SimpleNamespace(list_models=lambda module: ["resnet18", "resnet50", "vgg11"])
    runtime = SimpleNamespace(get_available_providers=lambda: ["CPUExecutionProvider"])
    for name, module in (("torch", torch), ("torchvision.models", models),
                         ("transformers", SimpleNamespace()), ("onnxruntime", runtime)):
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(("backend", "wrong", "near"), [
    ("torchvision", "resnet19", "resnet18, resnet50"), ("transformers", "bert-tyny", "bert-tiny"),
    ("onnx", "{}/smal.onnx", "{}/small.onnx")
])
def test_unknown_models_list_near_ones(tmp_path, backend, wrong, near):
    (tmp_path / "small.onnx").touch()
    with pytest.raises(InvalidValueError) as refused:
        measure_profile([wrong.format(tmp_path)], MeasureSettings(backend))
    assert f"allowed: {near.format(tmp_path)}" in str(refused.value)


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_device_that_is_not_there_is_refused(backend):
    with pytest.raises(InvalidValueError, match=r"^device: .*got 'cuda'; allowed: (cpu|CPU)"):
        open_backend(backend, Options(device="cuda"))


@pytest.mark.usefixtures("stand_ins")
def test_an_instance_of_a_gpu_becomes_the_only_one_that_is_seen(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(InvalidValueError, match=r"^device: .*allowed: cpu"):
        open_backend("torchvision", Options(device="MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"


def test_a_real_instance_is_measured(tmp_path):
    pytest.importorskip("torchvision")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False
                            ).stdout if shutil.which("nvidia-smi") else ""
    found = re.search(r"UUID: (MIG-[^)]+)", listed)
    if found is None:
        pytest.skip("no MIG instance on this machine")
    code = ("from ramsis.profiles.measure import MeasureSettings, measure_profile, Options; "
            f"found = measure_profile(['resnet18'], MeasureSettings('torchvision', (1,), "
            f"options=Options(device={found[1]!r}))); "
            "assert 'mig_device' in str(found.measurement)")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def onnx_file(tmp_path):
    """Makes an ONNX file of a model with named dimensions."""
    pytest.importorskip("onnxruntime")
    return lambda *shape: embedder(tmp_path / "product.onnx", ["batch", *shape])


def test_named_dimensions_of_an_onnx_model_need_a_size(onnx_file):
    path = str(onnx_file("width"))
    with pytest.raises(InputFileError, match=r"no fixed size: got 'width'.*--dim width=SIZE"):
        measure_profile([path], MeasureSettings("onnx", (1,)), accuracy={"product": 0.5})
    settings = MeasureSettings("onnx", (1, 2), QUICK.stop,
                               options=Options(dimensions={"width": 8}))
    found = measure_profile([path], settings, accuracy={"product": 0.5})
    assert found.measurement["input_shapes"] == {
        "product": {"ids": ["batch", 8], "mask": ["batch", 8]}}
    assert found.models[0].memory_mb
    assert found.models[0].load_ms


def test_whole_numbers_are_made_for_onnx_models_that_want_them(onnx_file):
    loaded = open_backend("onnx", Options()).open(str(onnx_file(8)))
    prepared = loaded.prepare(50)["ids"]
    assert (prepared.shape, prepared.dtype) == ((50, 8), "int64")
    assert set(prepared.flat) == {0, 1}
    assert loaded.run(loaded.prepare(3))[0].shape == (3, 8)


def test_an_output_of_another_shape_than_stated_is_no_warning_in_each_run(tmp_path, capfd):
    pytest.importorskip("onnxruntime")
    loaded = open_backend("onnx", Options()).open(str(
        embedder(tmp_path / "stated.onnx", ["batch", 8], [1, 8])))
    assert loaded.run(loaded.prepare(3))[0].shape == (3, 8)
    assert capfd.readouterr().err == ""


def test_a_file_that_is_not_onnx_is_noted(tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "broken.onnx").write_text("nonsense")
    with pytest.raises(InputFileError, match="broken: no model could be measured: not loaded"):
        measure_profile([str(tmp_path / "broken.onnx")], MeasureSettings("onnx", (1,)),
                        accuracy={"broken": 0.5})


def test_torchvision_models_come_with_input_size_and_accuracy():
    pytest.importorskip("torchvision")
    settings = MeasureSettings("torchvision", (1,), QUICK.stop)
    found = measure_profile(["squeezenet1_1"], settings)
    assert found.models[0].accuracy == pytest.approx(0.58178)
    assert found.models[0].memory_mb == pytest.approx(4.94, rel=0.01)  # 1.235 million × 4 bytes
    assert "SqueezeNet1_1_Weights.IMAGENET1K_V1" in found.measurement["accuracy"]["squeezenet1_1"]
    assert found.measurement["input_shapes"]["squeezenet1_1"] == ["batch", 3, 224, 224]


def test_berts_have_their_published_sizes():
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    backend = open_backend("transformers", Options(tokens=16))
    millions = {"bert-tiny": 4.4, "bert-mini": 11.3, "bert-small": 29.1, "bert-medium": 41.7,
                "bert-base": 110.1}
    for name, size in millions.items():
        loaded = backend.open(name)
        assert loaded.memory_mb == pytest.approx(4 * size, rel=0.02)
    assert loaded.fetch(loaded.run(loaded.prepare(2)))["logits"].shape == (2, 2)
