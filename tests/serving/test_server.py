"""A server in a process of its own: the protocol, bad requests, and clients nobody here wrote."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramsis import plugins
from ramsis.audit.request_log import read_request_log
from ramsis.errors import InputFileError
from ramsis.plugins import trusting
from ramsis.serving.policies import check_served, read_policies
from ramsis.serving.variants import read_variants
from ramsis.serving.workers.worker import Runner
from tests.cli.command import refused as refused_in_a_line
from tests.serving.servers import ROOT, VARIANTS, Running, command, make, running

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

INFER = "/v2/models/sums/infer"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = make(tmp_path_factory.mktemp("server"))
    with running(folder, "--request-log", str(folder / "log.csv"), "--max-body-mb", "1") as found:
        assert found.metric("ramsis_queries_total") == 0  # without those of the calibration
        yield found


def binary(*arrays: np.ndarray[Any, Any], **more: Any) -> tuple[bytes, dict[str, str]]:
    """A request with its data as bytes."""
    inputs = [{"name": "x", "datatype": "FP32", "shape": list(array.shape),
               "parameters": {"binary_data_size": array.nbytes}} for array in arrays]
    head = json.dumps({"inputs": inputs, **more}).encode()
    return (head + b"".join(array.tobytes() for array in arrays),
            {"Inference-Header-Content-Length": str(len(head))})


def test_health_and_metadata(server):
    assert server.ask("GET", "/v2/health/live")[0] == 200
    assert server.ask("GET", "/v2/health/ready")[0] == 200
    assert server.ask("GET", "/v2/models/sums/ready")[0] == 200
    assert server.ask("GET", "/v2/models/sums/versions/1")[0] == 200
    assert server.ask("GET", "/v2/models/other")[0] == 404
    assert server.ask("POST", "/v2/models/sums/versions/2/infer", "{}")[0] == 404
    assert json.loads(server.ask("GET", "/v2")[2])["extensions"] == ["binary_tensor_data"]
    found = json.loads(server.ask("GET", "/v2/models/sums")[2])
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert found["outputs"] == [{"name": "sum", "datatype": "FP32", "shape": [-1]},
                                {"name": "size", "datatype": "INT32", "shape": [-1]}]


def test_a_json_request_is_answered_with_the_variant_and_how_it_was_served(server):
    begun = time.monotonic()
    status, found = server.infer([[1, 2, 3]], id="seven")
    took_ms = 1000.0 * (time.monotonic() - begun)
    assert status == 200
    assert (found["model_name"], found["id"]) == ("sums", "seven")
    assert found["outputs"][0] == {"name": "sum", "datatype": "FP32", "shape": [1], "data": [6.0]}
    parameters = found["parameters"]
    assert parameters["variant"] == "slow"  # the load is low
    assert (parameters["batch"], parameters["worker"], parameters["in_time"]) == (1, 0, True)
    assert 0 <= parameters["waiting_ms"] <= took_ms - parameters["service_ms"]
    assert parameters["service_ms"] >= 5


def test_the_queries_of_a_request_are_one_batch_in_their_order(server):
    status, found = server.infer([[1, 0, 0], [2, 0, 0], [3, 0, 0]])
    assert status == 200
    assert found["outputs"][0]["data"] == [1.0, 2.0, 3.0]
    assert found["outputs"][1]["data"] == [3, 3, 3]
    assert found["parameters"]["batch"] == "3,3,3"


def test_data_may_be_bytes_both_ways(server):
    body, headers = binary(np.array([[1, 2, 4]], np.float32), parameters={
        "binary_data_output": True})
    status, answered, found = server.ask("POST", INFER, body, headers)
    assert status == 200
    end = int(answered["inference-header-content-length"])
    outputs = json.loads(found[:end])["outputs"]
    assert [output["parameters"]["binary_data_size"] for output in outputs] == [4, 4]
    assert np.frombuffer(found[end:end + 4], "<f4").tolist() == [7.0]


def test_only_the_outputs_that_are_asked_for_come(server):
    _, found = server.infer([[1, 2, 3]], outputs=[{"name": "size"}])
    assert [output["name"] for output in found["outputs"]] == ["size"]


def test_deadlines_come_as_parameter_triton_timeout_or_header(server):
    """One that no model can keep is refused at once, and says when to try again."""
    for parameters, headers in (({"deadline_ms": 0.5}, {}), ({"timeout": 500}, {}),
                                ({}, {"X-Deadline-Ms": "0.5"})):
        document = {"parameters": parameters, "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
        status, answered, body = server.ask("POST", INFER, json.dumps(document), headers)
        assert (status, answered["retry-after"]) == (503, "1")
        assert "deadline" in json.loads(body)["error"]


GOOD = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}


@pytest.mark.parametrize(("document", "said"), [
    ("{", "body: not JSON"),
    ("[]", "body: not an object"),
    ({}, "inputs: not a list of tensors"),
    ({"inputs": [7]}, r"inputs[0]: not an object"),
    ({"inputs": [{**GOOD, "name": "y"}]}, "inputs[0].name: not an input of the model"),
    ({"inputs": [GOOD, GOOD]}, "inputs[1].name"),
    ({"inputs": [{**GOOD, "datatype": "FP64"}]}, "allowed: FP32"),
    ({"inputs": [{**GOOD, "shape": [1, 4]}]}, "inputs[0].shape: not the input's shape"),
    ({"inputs": [{**GOOD, "shape": [0, 3]}]}, "inputs[0].shape"),
    ({"inputs": [{**GOOD, "shape": [-1, 3]}]}, "inputs[0].shape"),
    ({"inputs": [{**GOOD, "shape": [10**12, 3]}]}, "inputs[0].shape"),
    ({"inputs": [{**GOOD, "data": [1, 2]}]}, "not as many numbers as the shape says: got 2"),
    ({"inputs": [{**GOOD, "data": ["a", "b", "c"]}]}, "not numbers of the input's type"),
    ({"inputs": [{**GOOD, "data": [[1], [2, 3]]}]}, "not numbers of the input's type"),
    ({"inputs": [{**GOOD, "data": None}]}, "not numbers of the input's type"),
    ({"inputs": [{**GOOD, "parameters": {"binary_data_size": 12}}]}, "data of the inputs end"),
    ({"inputs": [{**GOOD, "parameters": {"binary_data_size": 13}}]}, "binary_data_size"),
    ({"inputs": [GOOD], "id": 7}, "id: not a text"),
    ({"inputs": [GOOD], "parameters": {"deadline_ms": -1}}, "deadline_ms: not a length of"),
    ({"inputs": [GOOD], "parameters": {"deadline_ms": True}}, "deadline_ms"),
    ({"inputs": [GOOD], "outputs": [{"name": "z"}]}, "outputs[0].name"),
    ({"inputs": [GOOD], "outputs": [{"name": "sum", "parameters": {"classification": 2}}]},
     "classification"),
    ({"inputs": [{**GOOD, "shape": [3000, 3], "data": [0] * 9000}]}, "more queries than"),
])
def test_a_wrong_request_is_told_what_is_wrong(server, document, said):
    body = document if isinstance(document, str) else json.dumps(document)
    status, _, answer = server.ask("POST", INFER, body)
    assert status == 400
    assert said in json.loads(answer)["error"]


def test_metrics_are_read_by_prometheus_own_parsers(server):
    from prometheus_client.parser import text_string_to_metric_families

    _, headers, text = server.ask("GET", "/metrics", headers={"Accept": "text/plain"})
    assert headers["content-type"].startswith("text/plain")
    assert "ramsis_queries" in {one.name for one in text_string_to_metric_families(text.decode())}
    assert server.ask("GET", "/metrics")[1]["content-type"].startswith(
        "application/openmetrics-text")
    before = server.metric("ramsis_queries_total")
    server.infer([[1, 2, 3], [4, 5, 6]])
    assert server.metric("ramsis_queries_total") == before + 2
    assert server.metric("ramsis_queued") == 0
    assert server.metric("ramsis_workers_up") == 1
    assert server.metric("ramsis_level_qps") > 0


TRITON = """
import sys
import numpy as np
import tritonclient.http as triton
client = triton.InferenceServerClient(sys.argv[1])
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("sums")
assert client.get_model_metadata("sums")["inputs"][0]["name"] == "x"
for binary in (True, False):
    given = triton.InferInput("x", [2, 3], "FP32")
    given.set_data_from_numpy(np.array([[1, 2, 3], [4, 5, 6]], np.float32), binary_data=binary)
    wanted = [triton.InferRequestedOutput("sum", binary_data=binary)]
    answer = client.infer("sums", [given], outputs=wanted, request_id="r")
    assert answer.as_numpy("sum").tolist() == [6.0, 15.0]
    assert answer.get_response()["id"] == "r"
answer = client.infer("sums", [given], timeout=1_000_000)
assert answer.as_numpy("size").tolist() == [2, 2]
try:
    client.infer("sums", [given], timeout=100)
except triton.InferenceServerException as error:
    assert "deadline" in str(error)
else:
    raise SystemExit("an answer")
print("good")
"""


def test_tritons_client_gets_right_answers(server):
    pytest.importorskip("tritonclient.http")
    ran = subprocess.run([sys.executable, "-c", TRITON, f"{server.host}:{server.port}"],
                         capture_output=True, text=True, check=False)
    assert ran.stdout == "good\n", ran.stderr


KSERVE = """
import asyncio, sys
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig

async def main(url):
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_live(url) and await client.is_server_ready(url)
    assert await client.is_model_ready(url, "sums")
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    for binary in (False, True):
        given = InferInput("x", [2, 3], "FP32")
        given.set_data_from_numpy(numbers, binary_data=binary)
        asked = InferRequest("sums", [given], request_id=f"binary {binary}")
        answer = await client.infer(url, asked, model_name="sums")
        assert answer.id == f"binary {binary}" and answer.model_name == "sums"
        found = {one.name: one.as_numpy() for one in answer.outputs}
        assert found["sum"].tolist() == [3.0, 12.0] and found["size"].tolist() == [2, 2]
    await client.close()

asyncio.run(main(sys.argv[1]))
print("good")
"""


def test_kserves_client_gets_right_answers(server):
    pytest.importorskip("kserve")
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", KSERVE,
                          f"http://{server.host}:{server.port}"],
                         capture_output=True, text=True, check=False)
    assert ran.stdout.endswith("good\n"), ran.stderr


def test_the_log_has_a_line_for_each_query(server):
    server.infer([[1, 2, 3], [4, 5, 6]])
    server.infer([[1, 2, 3]], parameters={"deadline_ms": 0.5})
    answered = server.metric("ramsis_queries_total")
    ends = time.monotonic() + 60.0
    path = server.folder / "log.csv"
    while len(path.read_text().splitlines()) - 1 < answered:  # less the header
        assert time.monotonic() < ends, "lines reach the file once a second"
        time.sleep(0.05)
    log = read_request_log(path)
    assert len(log) == answered
    assert server.metric("ramsis_overhead_answer_ms") > 0.0
    assert {"served", "dropped"} <= set(log.outcome.tolist())
    served = log.only(log.outcome == "served")
    assert (served.start_s >= served.arrival_s).all()
    assert (served.finish_s > served.start_s).all()
    assert set(served.model.tolist()) == {"slow"}


def test_the_overhead_is_measured_at_first(server):
    server.wait_for("overhead")
    first = next(event["overhead_ms"] for event in server.events()
                 if event["event"] == "overhead")  # other tests' requests may have changed it
    assert 0.0 <= first <= 1000.0  # some milliseconds, unless the machine is busy
    assert server.wait_for("ready")["overhead_ms"] == first


@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2,
                    reason="needs a core for the worker and one for the front end")
def test_the_front_end_leaves_the_workers_core_alone(server):
    (worker,) = server.wait_for("ready")["processes"]
    theirs = os.sched_getaffinity(worker)
    assert len(theirs) == 1
    assert os.sched_getaffinity(server.process.pid) == os.sched_getaffinity(0) - theirs


def test_a_port_in_use_is_an_error(server, run):
    ran = run(*command(server.folder, "--port", str(server.port))[3:])
    refused_in_a_line(ran, 2, "cannot listen there")


@pytest.mark.parametrize(("option", "value", "said"), [
    ("--max-body-mb", "nan", "--max-body-mb"), ("--max-body-mb", "0", "--max-body-mb"),
    ("--batch-timeout-s", "nan", "timeout_s"), ("--drain-s", "-1", "--drain-s"),
    ("--drain-s", "inf", "--drain-s"), ("--slots", "10000000000", "slots"),
    ("--worker-memory-mb", "0", "memory_mb"), ("--calibrate-seconds", "nan", "seconds"),
    ("--replan", "'", "--replan: not options"), ("--calibrate", "", "no name of a file"),
    ("--request-log", ".", "is a folder"),
])
def test_numbers_out_of_range_are_refused_before_anything_starts(server, run, option, value, said):
    refused_in_a_line(run(*command(server.folder, option, value)[3:]), 2, said)


def changed(server: Running, folder: Path, before: str, after: str) -> Path:
    """The server's folder, with another variants file."""
    assert before in VARIANTS
    (folder / "policies").symlink_to(server.folder / "policies")
    (folder / "summing.py").write_text((server.folder / "summing.py").read_text())
    (folder / "variants.toml").write_text(VARIANTS.replace(before, after, 1))
    return folder


def test_a_server_does_not_start_with_a_variant_that_does_not_load(server, run, tmp_path):
    folder = changed(server, tmp_path, '"summing:slow"', '"summing:missing"')
    refused_in_a_line(run(*command(folder)[3:]), 3, "worker 0: variant slow: not loaded: model: "
                      "cannot import function")


def test_functions_that_only_the_file_names_are_not_imported(server, run, tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "_words", ())  # other tests trust them
    folder = changed(server, tmp_path, '"summing:slow"', '"summing:slow"')
    (folder / "summing.py").write_text("open('imported', 'w').close()\n")
    monkeypatch.chdir(folder)
    words = command(folder)[3:]
    at = words.index("--code")
    refused_in_a_line(run(*words[:at], *words[at + 2:]), 3,
                      "allowed: --code summing:fast, if you trust that code")
    assert not (folder / "imported").exists()


@pytest.mark.parametrize(("before", "after", "said"), [
    ('"summing:slow"', '"summing:broken"', "it does not run (RuntimeError: always)"),
    ('"summing:slow"', '"summing:bent"', "outputs: not those of the first variant"),
    ('"summing:slow"', '"summing"', "not loaded"),
])
def test_variants_that_do_not_run_or_fit_are_refused(
    server, monkeypatch, before, after, said, tmp_path
):
    found = read_variants(changed(server, tmp_path, before, after) / "variants.toml")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "summing", raising=False)
    with trusting([one.model for one in found.variants]), \
            pytest.raises(InputFileError, match=re.escape(said)):
        Runner([asdict(one) for one in found.variants], found.inputs)
    monkeypatch.delitem(sys.modules, "summing", raising=False)


@pytest.mark.parametrize(("before", "after", "said"), [
    ("shape = [3]", "shape = [0]", "inputs[0].shape: not a shape"),
    ("[[inputs]]", "[[input]]", "input: unknown field"),
    ('backend = "callable"', 'backend = "tf"', "unknown backend"),
    ('name = "slow"', 'name = "fast"', "variant appears twice"),
    ("accuracy = 0.6", "accuracy = 60", "a fraction in [0, 1]"),
    ('name = "sums"', 'name = "a/b"', "not a part of a URL"),
    ("[[variants]]", "[[variants", "not valid TOML"),
])
def test_bad_variants_files_are_refused(server, tmp_path, before, after, said):
    with pytest.raises(InputFileError, match=re.escape(said)):
        read_variants(changed(server, tmp_path, before, after) / "variants.toml")


def test_policies_must_fit_the_variants(server):
    policies = read_policies(server.folder / "policies")
    with pytest.raises(InputFileError, match="models that have no variant"):
        check_served(policies, ["fast"], None, "here")
    with pytest.raises(InputFileError, match="larger batches than the workers run"):
        check_served(policies, ["fast", "slow"], 2, "here")


def test_the_dashboard_asks_for_metrics_that_there_are(server):
    dashboard = json.loads((ROOT / "docs/serving/grafana-dashboard.json").read_text())
    asked = {name for panel in dashboard["panels"] for target in panel["targets"]
             for name in re.findall(r"ramsis_\w+", target["expr"])}
    server.infer([[1, 2, 3]])
    text = server.ask("GET", "/metrics", headers={"Accept": "text/plain"})[2].decode()
    known = set(re.findall(r"^# HELP (\w+)", text, re.M))
    for name in asked:
        assert {name, re.sub(r"_(bucket|sum|count)$", "", name)} & known, name
    assert len(asked) > 10


def test_without_the_extra_it_says_what_is_missing(run, server, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = run("serve", str(server.folder / "policies"), "--variants", "none.toml")
    assert ran.code == 2
    assert "serving needs uvicorn, which is not installed" in ran.err
    assert "pip install 'ramsis[serve]'" in ran.err
    assert run("serve", "--help").code == 0
