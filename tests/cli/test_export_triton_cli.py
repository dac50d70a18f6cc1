"""``ramsis export triton``: what is written, and what is refused; Triton is not needed."""

import json
from pathlib import Path

import pytest

from ramsis.plugins import trusting
from tests.cli.command import Ran, Run, refused
from tests.serving.servers import VARIANTS, make

for name in ("orjson", "prometheus_client"):
    pytest.importorskip(name)


def export(run: Run, folder: Path, *more: object) -> tuple[Path, Ran]:
    out = folder / "repository"
    with trusting(["summing:fast", "summing:slow", "summing:bent", "summing:broken"]):
        return out, run("export", "triton", folder / "policies", "--variants",
                        folder / "variants.toml", "--out", out, *more)


def test_a_repository_is_written_and_written_anew(run, tmp_path):
    make(tmp_path)
    out, ran = export(run, tmp_path, "--overhead-ms", 2.5)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{out}: tritonserver --model-repository={out}\n")
    config = (out / "sums" / "config.pbtxt").read_text()
    for line in ('name: "sums"', "  { name: \"x\" data_type: TYPE_FP32 dims: [ 3 ] }",
                 "  { name: \"sum\" data_type: TYPE_FP32 dims: [ 1 ] },",
                 "  { name: \"size\" data_type: TYPE_INT32 dims: [ 1 ] },",
                 "  { name: \"variant\" data_type: TYPE_STRING dims: [ 1 ] }",
                 'parameters { key: "policies" value: { string_value: '
                 f'"{tmp_path}/policies" }} }}',
                 'parameters { key: "code" value: { string_value: "summing:fast summing:slow" } }',
                 'parameters { key: "overhead_ms" value: { string_value: "2.5" } }'):
        assert line in config.splitlines(), line
    compile((out / "sums" / "1" / "model.py").read_text(), "model.py", "exec")
    (out / "sums" / "config.pbtxt").write_text("edited")
    assert export(run, tmp_path, "--overhead-ms", 2.5)[1].code == 0
    assert (out / "sums" / "config.pbtxt").read_text() == config
    assert [one.name for one in out.iterdir()] == ["sums"]
    assert export(run, tmp_path)[1].code == 0  # the model measures what is not stated
    assert "overhead_ms" not in (out / "sums" / "config.pbtxt").read_text()


def test_a_model_of_somebody_else_stays(run, tmp_path):
    make(tmp_path)
    theirs = tmp_path / "repository" / "sums" / "1" / "model.onnx"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    _, ran = export(run, tmp_path)
    refused(ran, 2, "--out", "a model that this command has not written", "another folder")
    assert theirs.read_text() == "theirs"


@pytest.mark.parametrize(("before", "after", "words"), [
    ('name = "slow"', 'name = "other"', ("no variant", "slow")),
    ("summing:slow", "summing:bent", ("variant slow: outputs", "not those of the first variant")),
    ("summing:slow", "summing:broken", ("variant slow", "it does not run", "always")),
    ('name = "sums"', 'name = "two words"', ("not a name of a model in Triton", "two words")),
    ("shape = [3]", "shape = [0]", ("not a shape", "[0]")),
])
def test_variants_that_do_not_fit_are_refused(run, tmp_path, before, after, words):
    make(tmp_path)
    assert before in VARIANTS
    (tmp_path / "variants.toml").write_text(VARIANTS.replace(before, after))
    out, ran = export(run, tmp_path)
    refused(ran, 3, *words)
    assert not out.exists()


def test_an_axis_that_is_not_known_is_named(run, tmp_path):
    make(tmp_path)
    file = next((tmp_path / "policies").glob("round*.json"))
    document = json.loads(file.read_text())
    document["table"]["axes"]["tokens"] = [0, 1]
    file.write_text(json.dumps(document))
    out, ran = export(run, tmp_path)
    assert ran.code == 3
    assert not out.exists()
    (tmp_path / "policies" / "manifest.json").unlink()
    ran = run("export", "triton", file, "--variants", tmp_path / "variants.toml", "--out", out)
    refused(ran, 3, "table.axes.tokens", "unknown axis", "idle, queued, slack_ms")
    assert not out.exists()


def test_what_cannot_be_written_is_refused(run, tmp_path):
    make(tmp_path)
    (tmp_path / "file").write_text("")
    with trusting(["summing:fast", "summing:slow"]):
        ran = run("export", "triton", tmp_path / "policies", "--variants",
                  tmp_path / "variants.toml", "--out", tmp_path / "file" / "repository")
    refused(ran, 2, "repository")
