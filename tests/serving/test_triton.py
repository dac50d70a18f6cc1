"""The model for Triton, in a real Triton; and its refusals without one."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving.servers import body, make
from tests.serving.tritons import export, triton, triton_command

EXPLICIT = ("--model-control-mode=explicit", "--load-model=sums")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A Triton that serves two workers by policies."""
    triton_command()
    folder = make(tmp_path_factory.mktemp("triton"), workers=2)
    with triton(export(folder), *EXPLICIT) as running:
        assert running.process.poll() is None, running.log()
        yield running


@pytest.mark.slow
def test_http_answers_name_the_variant(served):
    status, outputs = served.infer(1, 2, deadline_ms=5000)
    assert (status, outputs["sum"]) == (200, [3.0, 6.0])
    assert set(outputs["variant"]) <= {"fast", "slow"}
    assert len(outputs["variant"]) == 2
    assert '"event": "overhead"' in served.log()  # measured, since none is stated


@pytest.mark.slow
def test_grpc_and_its_streams_answer_alike(served):
    grpc = pytest.importorskip("tritonclient.grpc")
    with grpc.InferenceServerClient(served.grpc) as client:
        tensor = grpc.InferInput("x", [1, 3], "FP32")
        tensor.set_data_from_numpy(np.array([[1.0, 2.0, 4.5]], np.float32))
        answer = client.infer("sums", [tensor], parameters={"deadline_ms": 5000})
        assert answer.as_numpy("sum").tolist() == [[7.5]]
        assert answer.as_numpy("variant").tolist()[0][0] in (b"fast", b"slow")
        with pytest.raises(grpc.InferenceServerException, match="deadline cannot be kept"):
            client.infer("sums", [tensor], timeout=1)  # in microseconds
        told = queue.SimpleQueue[tuple[Any, Any]]()
        client.start_stream(lambda result, error: told.put((result, error)))
        for number in range(200):
            tensor.set_data_from_numpy(np.full((1, 3), number, np.float32))
            client.async_stream_infer("sums", [tensor], request_id=str(number),
                                      parameters={"deadline_ms": 20_000})
        answers = [told.get(timeout=30) for _ in range(200)]
        client.stop_stream()
    assert [error for _, error in answers if error is not None] == []
    assert sorted((int(result.get_response().id), float(result.as_numpy("sum")[0, 0]))
                  for result, _ in answers) == [(k, 3.0 * k) for k in range(200)]


@pytest.mark.slow
def test_what_cannot_be_answered_is_refused_as_by_our_own_server(served):
    assert served.infer(1, deadline_ms=0.001) == (503, "the deadline cannot be kept")
    status, error = served.infer(1, deadline_ms=-1)
    assert status == 400
    assert "parameters.deadline_ms: not a length of time: got -1" in error
    status, error = served.infer(888, deadline_ms=5000)
    assert status == 500
    assert "no room" in error
    assert served.infer(1, deadline_ms=5000)[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("tensors", ["auto", "binary", "json"])
def test_the_load_generator_reads_each_form_of_answers(run, served, tmp_path, tensors):
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    np.savez(tmp_path / "data.npz", x=x, sum=x.sum(axis=1, keepdims=True))
    ran = run("load", f"http://127.0.0.1:{served.port}", "--model", "sums", "--slo-ms", 20_000,
              "--load", 50, "--duration-s", 0.5, "--data", tmp_path / "data.npz", "--json",
              "--tensors", tensors)
    (row,) = ran.rows
    assert (row["failed"], row["accuracy"]) == (0, 1.0), ran.err
    assert set(row["model_share"]) <= {"fast", "slow"}


def _ask_many(port: int, numbers: range) -> list[tuple[int, float | None]]:
    """One client's requests, one after the other: statuses and sums."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    found = []
    for number in numbers:
        connection.request("POST", "/v2/models/sums/infer",
                           json.dumps(body(number, deadline_ms=50_000)))
        answer = connection.getresponse()
        document = json.loads(answer.read())
        found.append((answer.status, document["outputs"][0]["data"][0]
                      if answer.status == 200 else None))
    connection.close()
    return found


@pytest.mark.slow
def test_no_request_of_ten_thousand_is_lost(served):
    clients, each = 50, 200
    with concurrent.futures.ThreadPoolExecutor(clients) as threads:
        answers = list(threads.map(lambda k: _ask_many(
            served.port, range(k * 7, k * 7 + each)), range(clients)))
    for k, found in enumerate(answers):
        assert found == [(200, 3.0 * n) for n in range(k * 7, k * 7 + each)]


@pytest.mark.slow
def test_requests_that_wait_long_are_answered(served):
    """While they wait, Triton is asked whether their clients are gone."""
    (served.folder / "LAGGING").touch()
    try:
        with concurrent.futures.ThreadPoolExecutor(200) as threads:
            answers = list(threads.map(
                lambda k: served.infer(*[k] * 8, deadline_ms=100_000), range(600)))
    finally:
        (served.folder / "LAGGING").unlink()
    assert [outputs["sum"] for _, outputs in answers] == [[3.0 * k] * 8 for k in range(600)]


@pytest.mark.slow
def test_clients_that_are_gone_hold_nobody_up(served):
    grpc = pytest.importorskip("tritonclient.grpc")
    (served.folder / "LAGGING").touch()
    tensor = grpc.InferInput("x", [16, 3], "FP32")
    tensor.set_data_from_numpy(np.ones((16, 3), np.float32))
    with grpc.InferenceServerClient(served.grpc) as client:
        calls = [client.async_infer("sums", [tensor], lambda result, error: None,
                                    parameters={"deadline_ms": 60_000}) for _ in range(120)]
        time.sleep(0.5)
        for call in calls:
            call.cancel()
        begun = time.monotonic()
        status, outputs = served.infer(5, deadline_ms=90_000)  # it is due after all of these
    assert (status, outputs["sum"]) == (200, [15.0])
    assert time.monotonic() - begun < 2.0
    (served.folder / "LAGGING").unlink()


@pytest.mark.slow
def test_what_waits_is_answered_when_the_model_is_unloaded(served):
    with concurrent.futures.ThreadPoolExecutor(40) as threads:
        asked = [threads.submit(served.infer, k, deadline_ms=50_000) for k in range(400)]
        time.sleep(0.2)
        assert served.post("/v2/repository/models/sums/unload", {})[0] == 200
        answers = [one.result() for one in asked]
    assert {status for status, _ in answers} <= {200, 400, 404, 503}
    assert Counter(status for status, _ in answers)[200] > 0
    assert all(outputs["sum"] == [3.0 * k] for k, (status, outputs) in enumerate(answers)
               if status == 200)
    assert served.infer(1)[0] in (400, 404, 503)
    assert served.post("/v2/repository/models/sums/load", {})[0] == 200
    assert served.infer(1, deadline_ms=5000)[0] == 200


def _runs(process: int) -> bool:
    """Whether there is such a process, and has not ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _left(processes: Sequence[int], seconds: float = 20.0) -> list[int]:
    """Which of these processes still run, after so long at most."""
    ends, left = time.monotonic() + seconds, list(processes)
    while left and time.monotonic() < ends:
        time.sleep(0.1)
        left = [one for one in left if _runs(one)]
    return left


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_a_worker_that_crashes_is_started_anew(served):
    status, error = served.infer(666, deadline_ms=5000)
    assert (status, "its worker was lost" in error) == (500, True)
    numbers = range(40)
    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda k: served.infer(k, deadline_ms=20_000), numbers))
    assert [outputs["sum"] for _, outputs in answers] == [[3.0 * k] for k in numbers]
    ends = time.monotonic() + 30.0
    while '"worker back"' not in served.log():
        assert time.monotonic() < ends, served.log()
        time.sleep(0.1)


@pytest.mark.slow
def test_workers_end_with_the_model_and_with_the_server(served):
    repository = served.folder / "repository"
    with triton(repository, *EXPLICIT) as running:
        first = running.workers()
        assert len(first) == 2
        assert all(map(_runs, first))
        assert running.post("/v2/repository/models/sums/unload", {})[0] == 200
        assert _left(first) == []
        assert running.post("/v2/repository/models/sums/load", {})[0] == 200
        second = running.workers()
        assert set(second).isdisjoint(first)
        assert running.infer(2, deadline_ms=5000)[1]["sum"] == [6.0]
        processes = [*second, _parent(second[0])]
        with concurrent.futures.ThreadPoolExecutor(40) as threads:
            asked = [threads.submit(running.infer, k, deadline_ms=50_000) for k in range(400)]
            time.sleep(0.3)
            running.process.kill()
            running.process.wait(20)
            for one in asked:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    one.result()
        assert _left(processes) == []


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_restart_leaves_nothing_behind(served, end):
    repository = served.folder / "repository"
    with triton(repository) as running, concurrent.futures.ThreadPoolExecutor(20) as threads:
        asked = [threads.submit(running.infer, k, deadline_ms=50_000) for k in range(40)]
        time.sleep(0.1)
        workers = running.workers()
        if end == signal.SIGINT:  # Ctrl-C reaches the whole group
            os.kill(_parent(workers[0]), end)
        running.process.send_signal(end)
        for one in asked:
            try:
                assert one.result(45)[0] in (200, 400, 503)
            except OSError:  # it came after the end
                continue
        assert running.process.wait(45) == 0
        assert _left(workers) == []
    with triton(repository) as running:
        assert running.infer(2, deadline_ms=5000)[1]["sum"] == [6.0]


def setting(name: str, value: str) -> str:
    """A setting of the model, before the comment on paths."""
    return f'parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}\n# Paths'


WRONG = {
    "lacking": ('"policies" value', '"policy" value', "settings are missing: got ['policies']"),
    "twice": ("count: 1", "count: 2", "more than one dispatcher: got 2; allowed: count: 1"),
    "none": ("variants.toml", "none.toml", "none.toml: cannot read file"),
    "shapes": ("dims: [ 3 ]", "dims: [ 4 ]", "shapes/config.pbtxt: input: not the inputs of the "),
    "load": ("# Paths", setting("load_qps", "many"),
             "load/config.pbtxt: load_qps: not a number: got 'many'"),
}


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_says_why(tmp_path):
    triton_command()
    repository = export(make(tmp_path))
    text = (repository / "sums" / "config.pbtxt").read_text()
    for name, (before, after, _) in WRONG.items():
        shutil.copytree(repository / "sums", repository / name)
        assert before in text
        (repository / name / "config.pbtxt").write_text(
            text.replace(before, after).replace('"sums"', f'"{name}"'))
    with triton(repository) as running:
        running.process.wait(45)
    for name, (_, _, message) in WRONG.items():
        assert message in running.log(), name


WITHOUT_TRITON = """
import sys, types
for name in ("c_python_backend_utils", "triton_python_backend_utils"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["triton_python_backend_utils"].TritonModelException = RuntimeError
"""
LOOKED_AT = WITHOUT_TRITON + """
import asyncio, threading
from ramsis.serving.triton import _Sends

class Sender:
    may_end, fails = threading.Event(), False
    def is_cancelled(self):
        said.append("asked")
        self.may_end.wait(30)
        said.append("told")
        if self.fails:
            raise RuntimeError("Triton is going")
        return True

async def main():
    sends, first, second = _Sends(), Sender(), Sender()
    asking = asyncio.create_task(sends.is_cancelled(first))
    while not said:
        await asyncio.sleep(0.01)
    for name, sender in (("first", first), ("second", second)):
        sends.add(sender, lambda name=name: said.append(name))
    while len(said) < 2:
        await asyncio.sleep(0.01)
    Sender.may_end.set()
    said.append(await asking)
    second.fails = True
    said.append(await sends.is_cancelled(second))
    sends.stop()

said = []
asyncio.run(main())
print(*said)
"""
OLD = WITHOUT_TRITON + """
from ramsis.serving.triton import TritonPythonModel
try:
    TritonPythonModel().initialize({})
except RuntimeError as error:
    print(error)
"""


def test_an_answer_is_held_while_triton_is_asked_about_its_client():
    said = subprocess.run([sys.executable, "-c", LOOKED_AT], check=True, capture_output=True,
                          text=True)
    words = said.stdout.split()
    assert words[:4] == ["asked", "second", "told", "True"]
    assert words.index("first") > 2
    assert [word for word in words[4:] if word != "first"] == ["asked", "told", "False"]


def test_a_triton_that_is_too_old_is_refused():
    said = subprocess.run([sys.executable, "-c", OLD], check=True, capture_output=True, text=True)
    assert said.stdout == ("this Triton takes no answer after execute() has returned; "
                           "allowed: 24.06 (2.47) or later\n")
