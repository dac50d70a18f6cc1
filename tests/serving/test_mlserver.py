"""The MLServer runtime, in MLServer as its own command starts it."""

import asyncio
import concurrent.futures
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import servers
from tests.serving.servers import body, make
from tests.serving.test_second_opinions import written

pytest.importorskip("mlserver")

PORT = 18_100
MODEL = {"name": "sums", "implementation": "ramsis.serving.mlserver.PolicyRuntime",
         "parameters": {"uri": "policies", "extra": {
             "variants": "variants.toml", "code": ["summing:fast", "summing:slow"]}}}


def ask(document: Any, path: str = "/infer", method: str = "POST",
        headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Status and document of an answer of the model."""
    return servers.ask(PORT, f"/v2/models/sums{path}", document, method, headers)


@contextlib.contextmanager
def mlserver(folder: Path, port: int, **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """MLServer on a folder, when it is ready or has ended."""
    (folder / "settings.json").write_text(json.dumps({
        "parallel_workers": 0, "http_port": port, "grpc_port": port + 1,
        "metrics_port": port + 2, "host": "127.0.0.1", **settings}))
    line = [Path(sys.executable).parent / "mlserver", "start", folder]
    with servers.started(line, folder / "log.txt", port, "/v2/models/sums/ready") as process:
        yield process


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder that MLServer serves."""
    folder = make(tmp_path_factory.mktemp("mlserver"), workers=2)
    (folder / "model-settings.json").write_text(json.dumps(MODEL))
    with mlserver(folder, PORT) as process:
        assert process.poll() is None, (folder / "log.txt").read_text()
        yield folder


@pytest.mark.slow
def test_requests_are_answered_in_time_by_the_policy(served):
    status, answer = ask({**body(1, 2, deadline_ms=10_000), "id": "seven"})
    assert (status, answer["id"]) == (200, "seven")
    sums = next(one for one in answer["outputs"] if one["name"] == "sum")
    assert (sums["data"], sums["datatype"], sums["shape"][0]) == ([3.0, 6.0], "FP32", 2)
    assert answer["parameters"]["in_time"]
    assert set(answer["parameters"]["variant"].split(",")) <= {"fast", "slow"}
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda k: ask(body(k, deadline_ms=5000)), range(200)))
    assert [status for status, _ in answers] == [200] * 200
    assert [next(one for one in answer["outputs"] if one["name"] == "sum")["data"]
            for _, answer in answers] == [[3.0 * k] for k in range(200)]


@pytest.mark.slow
def test_what_cannot_be_answered_is_refused_as_by_our_own_server(served):
    status, answer = ask(body(1, deadline_ms=0.001))
    assert status == 503, answer
    assert ask(body(1), headers={"X-Deadline-Ms": "0.001"})[0] == 503
    for wrong in ({**body(1), "inputs": []}, body(1, deadline_ms=-1),
                  {"inputs": [{**body(1)["inputs"][0], "shape": [1, 4], "data": [0] * 4}]},
                  {"inputs": [{**body(1)["inputs"][0], "datatype": "INT32"}]},
                  {**body(1), "outputs": [{"name": "none"}]}):
        assert ask(wrong)[0] == 400, wrong
    status, answer = ask(body(888, deadline_ms=5000))
    assert status == 500
    assert "no room" in answer["error"]
    assert ask(body(1, deadline_ms=5000))[0] == 200


@pytest.mark.slow
def test_the_tensors_are_those_of_the_variants(served):
    status, answer = ask(None, "", "GET")
    assert status == 200
    assert [(one["name"], one["datatype"], one["shape"]) for one in answer["inputs"]] == [
        ("x", "FP32", [-1, 3])]
    assert {one["name"] for one in answer["outputs"]} == {"sum", "size"}


@pytest.mark.slow
def test_grpc_is_answered_alike(served):
    import grpc
    from mlserver.grpc import dataplane_pb2 as messages
    from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub

    request = messages.ModelInferRequest(model_name="sums", inputs=[
        messages.ModelInferRequest.InferInputTensor(
            name="x", datatype="FP32", shape=[1, 3],
            contents=messages.InferTensorContents(fp32_contents=[1.0, 2.0, 4.5]))])
    request.parameters["deadline_ms"].int64_param = 5000
    with grpc.insecure_channel(f"127.0.0.1:{PORT + 1}") as channel:
        answer = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=20)
    sums = next(one for one in answer.outputs if one.name == "sum")
    assert list(sums.contents.fp32_contents) == [7.5]


def refusal(folder: Path, extra: dict[str, Any]) -> str:
    """What the runtime says when it is loaded with these settings."""
    from mlserver import ModelSettings

    from ramsis.errors import InputFileError
    from ramsis.serving.mlserver import PolicyRuntime

    settings = ModelSettings(name="sums", implementation=PolicyRuntime, parameters={
        "uri": str(folder / "policies"), "extra": extra})
    with pytest.raises(InputFileError) as caught:
        asyncio.run(PolicyRuntime(settings).load())
    return str(caught.value)


@pytest.mark.slow
def test_settings_that_are_none_are_refused(tmp_path):
    make(tmp_path)
    for extra, message in (({}, "unknown or missing settings: got []"),
                           ({"variants": "variants.toml", "colour": 1}, "got ['colour'"),
                           ({"variants": "variants.toml", "code": "summing:fast"},
                            "code: not a list of names: got 'summing:fast'"),
                           ({"variants": "none.toml"}, "none.toml: cannot read file")):
        assert message in refusal(tmp_path, extra)


@pytest.mark.slow
def test_worker_processes_of_mlserver_are_refused(tmp_path):
    make(tmp_path)
    (tmp_path / "model-settings.json").write_text(json.dumps(MODEL))
    with mlserver(tmp_path, PORT + 10, parallel_workers=1) as process:
        process.wait(20)
    log = (tmp_path / "log.txt").read_text()
    if "There is no current event loop" in log:
        pytest.skip("this MLServer's worker processes do not start with this uvloop")
    assert "settings.json: parallel_workers: the runtime has workers of its own" in log


@pytest.mark.slow
def test_answers_state_whether_they_are_second_opinions(tmp_path):
    written(tmp_path)
    code = ["opinions:fast", "opinions:slow"]
    (tmp_path / "model-settings.json").write_text(json.dumps(
        {**MODEL, "parameters": {"uri": "policies", "extra": {"variants": "variants.toml",
                                                              "code": code}}}))
    port = PORT + 10
    with mlserver(tmp_path, port) as process:
        assert process.poll() is None, (tmp_path / "log.txt").read_text()
        status, answer = servers.ask(port, "/v2/models/sums/infer", {"inputs": [
            {"name": "x", "datatype": "FP32", "shape": [3, 3],
             "data": [0.1, 0, 1, 0.9, 0, 1, 0.39, 0, 1]}]})
    assert status == 200, answer
    assert answer["parameters"]["stage"] == "second,first,second"
    assert answer["parameters"]["variant"] == "slow,fast,slow"
