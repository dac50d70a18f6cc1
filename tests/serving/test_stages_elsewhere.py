"""Second opinions inside Triton and Ray Serve: as by `ramsis serve`, stages included."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ramsis.plugins import trusting
from tests.cli.command import Run, refused
from tests.serving.adapters import Handle
from tests.serving.servers import ROOT
from tests.serving.test_second_opinions import FUNCTIONS, VARIANTS, written

for library in ("starlette", "prometheus_client", "orjson"):
    pytest.importorskip(library)

CODE = ["opinions:fast", "opinions:slow"]
SAMPLES = [[[0.3, 0.0, 1.0]], [[0.5, 0.0, 1.0]],
           [[0.1, 0.0, 1.0], [0.9, 0.0, 1.0], [0.39, 0.0, 1.0]], [[0.1, 8.0, 1.0]]]
STAGES = [["second"], ["first"], ["second", "first", "second"], ["first"]]
"""Of each request; the second model fails on the last one, whose first answer stands."""


def check(stages: list[list[str]], variants: list[list[str]], by: list[list[int]]) -> None:
    assert stages == STAGES
    assert variants == [[{"first": "fast", "second": "slow"}[stage] for stage in of]
                        for of in STAGES]
    assert by == [[{"first": 1, "second": 2}[stage] for stage in of] for of in STAGES]


def in_triton(folder: Path) -> list[Any]:
    """Outputs, or errors, of the requests in a stand-in for Triton."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.serving.adapters", folder / "repository", "sums"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
        input="".join(f"{json.dumps(samples)}\n" for samples in SAMPLES))
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def exported(run: Run, folder: Path) -> str:
    """Export a repository and return its configuration."""
    with trusting(CODE):
        ran = run("export", "triton", folder / "policies", "--variants",
                  folder / "variants.toml", "--out", folder / "repository")
    assert ran.code == 0, ran.err
    return (folder / "repository" / "sums" / "config.pbtxt").read_text()


def test_an_output_of_triton_names_the_stage(run, tmp_path):
    config = exported(run, written(tmp_path))
    assert '  { name: "stage" data_type: TYPE_STRING dims: [ 1 ] }\n]' in config
    answers = in_triton(tmp_path)
    check([answer["stage"] for answer in answers], [answer["variant"] for answer in answers],
          [answer["by"] for answer in answers])


@pytest.mark.slow
def test_without_a_confidence_triton_has_no_stage(run, tmp_path):
    without = VARIANTS.replace('confidence = "sure"\n', "")
    assert "stage" not in exported(run, written(tmp_path, without))
    assert all("stage" not in answer for answer in in_triton(tmp_path))
    (tmp_path / "variants.toml").write_text(VARIANTS)  # stated after the export
    (message,) = in_triton(tmp_path)
    assert message == ("sums/config.pbtxt: output: not the outputs of the variants: got ['by', "
                       "'sum', 'sure', 'variant']; allowed: variant, stage among them; export "
                       "once more")


def test_outputs_that_clash_or_tell_no_confidence_are_refused(run, tmp_path):
    for name, (old, new), words in (
            ("stage", ('"by"', '"stage"'), ("the output that is to name the stage", "stage")),
            ("confidence", ('"sure"', '"surely"'), ("confidence: no such output", "sure"))):
        folder = written(tmp_path / name)
        (folder / "opinions.py").write_text(FUNCTIONS.replace(old, new))
        with trusting(CODE):
            ran = run("export", "triton", folder / "policies", "--variants",
                      folder / "variants.toml", "--out", folder / "repository")
        refused(ran, 3, *words)
        assert not (folder / "repository").exists()


def test_answers_through_ray_name_the_stage(tmp_path):
    from starlette.requests import Request

    from ramsis.serving.ray import Ingress, Worker

    folder = written(tmp_path)

    async def ask(front: Ingress, samples: list[list[float]]) -> Any:
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "data": samples,
                                       "shape": [len(samples), 3]}],
                           "parameters": {"deadline_ms": 60_000}}).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        response = await front(Request({
            "type": "http", "method": "POST", "path": "/v2/models/sums/infer", "headers": [],
            "query_string": b"", "http_version": "1.1"}, receive))
        assert response.status_code == 200, response.body
        return json.loads(response.body)

    async def answers() -> list[Any]:
        with trusting(CODE):
            handle = Handle(Worker(str(folder / "variants.toml")))
            front = Ingress(handle, str(folder / "policies"), str(folder / "variants.toml"), {})
            return [await ask(front, samples) for samples in SAMPLES]

    documents = asyncio.run(answers())
    parameters = [document["parameters"] for document in documents]
    check([of["stage"].split(",") for of in parameters],
          [of["variant"].split(",") for of in parameters],
          [output["data"] for document in documents for output in document["outputs"]
           if output["name"] == "by"])
