"""The load generator against a small server of the protocol that others' libraries make."""

import asyncio
import json
import shlex
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from ramsis.audit.request_log import read_request_log
from ramsis.cli.main import cli
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.serving.load.client import RemoteModel
from ramsis.serving.load.settings import LoadSettings, model_url
from ramsis.serving.tensors import TensorSpec
from ramsis.sim import ConstantLoad
from ramsis.sim.experiment import streams
from tests.cli.command import refused
from tests.cli.test_help_examples import examples

for name in ("httptools", "orjson", "starlette", "uvicorn"):
    pytest.importorskip(name)

pytestmark = pytest.mark.usefixtures("soon")


@dataclass
class Server:
    """Adds numbers up; ``status(i)`` and ``delay_s(i)`` say how it treats the i-th request.

    It compresses answers for clients that announce it, as Triton does. Answers have their tensors
    as bytes where a client asks for that.
    """

    binary: bool = True
    status: Callable[[int], int] = lambda number: 200
    delay_s: Callable[[int], float] = lambda number: 0.0
    stall: range = range(0)  # requests that are answered when the one after them has come
    seen: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, total: float) -> dict[str, Any]:
        return {"model_name": "sums", "outputs": [
            {"name": "variant", "datatype": "BYTES", "shape": [1], "data": ["adder"]},
            {"name": "sum", "datatype": "FP32", "shape": [1], "data": [total]}],
            "parameters": {"batch": 2, "run_as": 4, "worker": 0}}

    def application(self) -> Any:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.gzip import GZipMiddleware
        from starlette.requests import Request
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Route

        async def about(request: Request) -> Response:
            return JSONResponse({"name": "test", "extensions":
                                 ["binary_tensor_data"] if self.binary else []})

        async def metadata(request: Request) -> Response:
            return JSONResponse({
                "name": "sums", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
                "outputs": [{"name": "variant", "datatype": "BYTES", "shape": [-1]},
                            {"name": "sum", "datatype": "FP32", "shape": [-1]}]})

        async def infer(request: Request) -> Response:
            body = await request.body()
            end = request.headers.get("inference-header-content-length")
            document = json.loads(body[:int(end)] if end else body)
            tensor = document["inputs"][0]
            assert tensor["shape"] == [1, 3]
            numbers = (np.frombuffer(body[int(end):], "<f4") if end else np.array(tensor["data"]))
            number = len(self.seen)
            asked = {one["name"]: one["parameters"]["binary_data"]
                     for one in document.get("outputs", ())}
            self.seen.append({**document.get("parameters", {}), "binary": bool(end), **asked,
                              "accepts": request.headers["accept-encoding"]})
            await asyncio.sleep(self.delay_s(number))
            while number in self.stall and len(self.seen) <= self.stall.stop:
                await asyncio.sleep(0.002)
            if self.status(number) != 200:
                return JSONResponse({"error": "no"}, self.status(number))
            answer, values = self.answer(float(numbers.sum())), b""
            if asked.get("sum"):
                del answer["outputs"][1]["data"]
                answer["outputs"][1]["parameters"] = {"binary_data_size": 4}
                values = struct.pack("<f", numbers.sum())
            head = json.dumps(answer).encode()
            headers = {"Inference-Header-Content-Length": str(len(head))} if values else {}
            return Response(head + values, headers=headers)

        return Starlette(middleware=[Middleware(GZipMiddleware, minimum_size=1)], routes=[
            Route("/v2", about), Route("/v2/models/sums", metadata),
            Route("/v2/models/sums/infer", infer, methods=["POST"])])


@pytest.fixture
def serving():
    import uvicorn

    started: list[tuple[Any, threading.Thread]] = []

    def start(**terms: Any) -> Server:
        server = Server(**terms)
        listening = socket.create_server(("127.0.0.1", 0))
        server.port = listening.getsockname()[1]
        running = uvicorn.Server(uvicorn.Config(
            server.application(), log_config=None, log_level="error"))
        thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
        thread.start()
        started.append((running, thread))
        return server

    yield start
    for running, thread in started:
        running.should_exit = True
        thread.join(10)


def row(out: str) -> dict[str, Any]:
    (only,) = json.loads(out)["rows"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("binary", [True, False])
def test_the_arrivals_are_those_of_a_simulation(run, serving, tmp_path, binary):
    server = serving(binary=binary)
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    right = x.sum(axis=1)
    right[0] = -1.0  # one sample in ten is answered wrongly
    np.savez(tmp_path / "data.npz", x=x, sum=right)
    log = tmp_path / "log.csv"
    ran = run("load", server.url, "--model", "sums", "--slo-ms", 20_000, "--load", 100,
              "--duration-s", 0.6, "--seed", 3, "--data", tmp_path / "data.npz",
              "--request-log", log, "--json")
    assert ran.code == 0, ran.err
    found, read = row(ran.out), read_request_log(log)
    wanted = ConstantLoad(100.0, 600.0).arrivals_ms(streams(3)[0])
    assert np.allclose(read.arrival_s, wanted / 1000.0, atol=1e-9)
    assert found["requests"] == found["served"] == len(wanted) == len(server.seen)
    assert set(read.model) == {"adder"}
    assert (set(read.batch), set(read.run_as), set(read.worker)) == ({2}, {4}, {0})
    assert 0.75 < found["accuracy"] < 1.0
    assert found["accuracy"] == pytest.approx(float(read.correct.mean()))
    assert found["effective_accuracy"] == pytest.approx(found["accuracy"])
    assert {one["deadline_ms"] for one in server.seen} == {20_000.0}
    assert {one["binary"] for one in server.seen} == {binary}
    assert found["model_share"] == {"adder": 1.0}
    assert "second_opinions" not in found  # answers state no stage


def test_refusals_are_drops_and_errors_are_failures(run, serving, tmp_path):
    server = serving(status=lambda number: [200, 503, 429, 500][number % 4])
    ran = run("load", f"{server.url}/v2/models/sums", "--slo-ms", 20_000, "--load", 400,
              "--duration-s", 0.3, "--no-deadline", "--json")
    assert ran.code == 0, ran.err
    found = row(ran.out)
    quarter = found["requests"] / 4
    assert abs(found["served"] - quarter) < 1
    assert abs(found["dropped"] - 2 * quarter) < 2
    assert abs(found["failed"] - quarter) < 1
    assert found["violation_rate"] == pytest.approx(1 - found["served"] / found["requests"])
    assert "the first of" in ran.err
    assert "500" in ran.err
    assert "deadline_ms" not in server.seen[0]


def test_a_stall_of_the_server_is_not_omitted(run, serving, tmp_path):
    """A hundred requests are answered when a later one comes; a closed loop would send only one.

    Each then waits for at least the time to that one, however busy the machine is.
    """
    server, log = serving(stall=range(20, 120)), tmp_path / "log.csv"
    ran = run("load", server.url, "--model", "sums", "--slo-ms", 100, "--load", 200,
              "--arrivals", "fixed-rate", "--duration-s", 0.7, "--request-log", log, "--json")
    assert ran.code == 0, ran.err
    found, read = row(ran.out), read_request_log(log)
    assert found["requests"] == 140
    waited = np.sort(read.finish_s - read.arrival_s)[-100:]
    # Requests on connections of their own may come in another order.
    assert (waited >= 0.005 * np.arange(100) - 0.02).all()
    assert found["late"] >= 75
    assert found["response_p99_ms"] > 450


def test_requests_without_an_answer_fail(run, serving):
    server = serving(delay_s=lambda number: 6.0 if number == 0 else 0.0)
    ran = run("load", server.url, "--model", "sums", "--slo-ms", 1000, "--load", 20,
              "--duration-s", 0.5, "--timeout-s", 2, "--json")
    assert ran.code == 0, ran.err
    assert row(ran.out)["failed"] == 1
    assert "TimeoutError" in ran.err


@pytest.mark.parametrize("tensors", ["auto", "binary", "json"])
def test_answers_are_read_as_they_were_asked_for(run, serving, tmp_path, tensors):
    server = serving(binary=tensors == "auto")
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    np.savez(tmp_path / "data.npz", x=x, sum=x.sum(axis=1))
    ran = run("load", server.url, "--model", "sums", "--slo-ms", 20_000, "--load", 100,
              "--duration-s", 0.1, "--data", tmp_path / "data.npz", "--tensors", tensors,
              "--json")
    assert ran.code == 0, ran.err
    found = row(ran.out)
    assert (found["failed"], found["accuracy"]) == (0, 1.0), ran.err
    assert found["model_share"] == {"adder": 1.0}
    for one in server.seen:
        assert (one["accepts"], one["binary"]) == ("identity", tensors != "json")
        assert one.get("sum", False) == (tensors == "binary")
        assert not one.get("variant", False)


def test_settings_that_are_none_are_refused():
    with pytest.raises(InvalidValueError, match="not a way of sending"):
        LoadSettings(np.ones(1), tensors="text")


def test_classes_are_drawn_as_in_a_simulation(run, serving):
    server = serving()
    ran = run("load", server.url, "--model", "sums", "--slo-ms", "500:0.3,900:0.7", "--load", 500,
              "--duration-s", 0.4, "--json")
    assert ran.code == 0, ran.err
    slos = [one["deadline_ms"] for one in server.seen]
    assert set(slos) == {500.0, 900.0}
    assert slos.count(500.0) / len(slos) == pytest.approx(0.3, abs=0.12)


def test_what_cannot_be_sent_is_refused_in_one_line(run, serving, tmp_path):
    server = serving()
    base = ["--slo-ms", 100, "--load", 10, "--duration-s", 1]
    refused(run("load", "localhost:1", "--model", "sums", *base), 2, "not the URL")
    for url in ("http://[", "http://x:99999", "http://:80", "https://a:b"):
        refused(run("load", url, "--model", "sums", *base), 2, "not the URL")
    refused(run("load", server.url, *base), 2, "no model is named")
    refused(run("load", server.url, "--model", "other", *base), 3, "404")
    refused(run("load", "http://127.0.0.1:9", "--model", "sums", *base), 3, "no answer")
    refused(run("load", server.url, "--model", "sums", "--slo-ms", 100, "--load", "10,20"), 2,
            "one --load")
    np.savez(tmp_path / "bad.npz", x=np.zeros((4, 2), np.float32))
    refused(run("load", server.url, "--model", "sums", *base, "--data", tmp_path / "bad.npz"), 3,
            "not the input's shape", "[4, 2]")
    np.savez(tmp_path / "bad.npz", y=np.zeros((4, 2)))
    refused(run("load", server.url, "--model", "sums", *base, "--data", tmp_path / "bad.npz"), 3,
            "input is missing")
    np.savez(tmp_path / "bad.npz", x=np.zeros((4, 3), np.float32), z=np.zeros(4))
    refused(run("load", server.url, "--model", "sums", *base, "--data", tmp_path / "bad.npz"), 3,
            "neither an input nor the one output")
    (tmp_path / "pickled.npy").write_bytes(b"no array")
    refused(run("load", server.url, "--model", "sums", *base, "--data", tmp_path / "pickled.npy"),
            3, "cannot read an .npz file")
    assert server.seen == []


def test_labelled_samples_of_a_measurement_can_be_sent():
    model = RemoteModel("http://x", (TensorSpec("x", "FP32", (3,)),), (
        TensorSpec("scores", "FP32", (4,)), TensorSpec("energy", "FP32", (1,))), False, False)
    labels, groups = np.array([3, 0]), np.array([0, 0])
    samples = model.samples({"x": np.zeros((2, 3)), "label": labels, "group": groups}, "file")
    assert samples.right == {"scores": pytest.approx(labels)}
    named = replace(model, outputs=(TensorSpec("label", "INT64", ()),
                                    TensorSpec("scores", "FP32", (4,))))
    assert list(named.samples({"x": np.zeros((2, 3)), "label": labels}, "file").right) == ["label"]
    two = replace(model, outputs=(*model.outputs, TensorSpec("more", "FP32", (4,))))
    with pytest.raises(InputFileError, match="neither an input nor the one output"):
        two.samples({"x": np.zeros((2, 3)), "label": labels}, "file")


def test_without_the_extra_help_works_and_running_says_what_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "httptools", None)
    assert cli.get_command(None, "load") is not None  # type: ignore[arg-type]
    refused(run("load", "http://127.0.0.1:9", "--model", "x", "--slo-ms", 1, "--load", 1), 2,
            "httptools", "pip install 'ramsis[serve]'")


def test_the_examples_of_the_help_page_run(run, serving, tmp_path, monkeypatch):
    server = serving()
    monkeypatch.chdir(tmp_path)
    np.savez("digits.npz", x=np.zeros((4, 3), np.float32), sum=np.zeros(4))
    command = cli.get_command(None, "load")  # type: ignore[arg-type]
    lines = examples(command.help)
    assert len(lines) == 2
    for line in lines:
        words = [word.replace("http://localhost:8000", server.url).replace("digits", "sums")
                 for word in shlex.split(line.replace("digits.npz", "DATA"))]
        words = [word.replace("DATA", "digits.npz") for word in words]
        ran = run(*words, "--duration-s", 0.2, "--scale", 0.05)
        assert ran.code == 0, ran.err
        assert "violations" in ran.out


def test_names_of_models_in_urls():
    for url, model in (("http://h:1/v2/models/m", None), ("http://h:1/", "m"),
                       ("http://h:1/v2", "m"), ("http://h:1/v2/models/m/infer", None)):
        assert model_url(url, model) == "http://h:1/v2/models/m"
    with pytest.raises(InvalidValueError):
        model_url("ftp://h", "m")
