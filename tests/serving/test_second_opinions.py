"""The server gives second opinions with real workers, and loses no first answer."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InputFileError
from ramsis.policy import write_set
from ramsis.policy.policy_set import set_of
from ramsis.serving.confidences import ConfidenceReader
from ramsis.serving.tensors import TensorSpec
from tests.serving.opinions import SHARE, policy_with_opinions
from tests.serving.servers import Running, running

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

FUNCTIONS = '''
import os, time
import numpy as np

def fast(x):
    """Numbers of a request: how sure the first answer is, what befalls the second, any."""
    return {"sum": x.sum(axis=1), "sure": x[:, 0].copy(), "by": np.full(len(x), 1, np.int32)}

def slow(x):
    if x[:, 1].max() == 7: time.sleep(2.0)
    if x[:, 1].max() == 8: raise RuntimeError("no second opinion")
    if x[:, 1].max() == 9: os.abort()
    time.sleep(0.004 + 0.001 * len(x))
    return {**fast(x), "by": np.full(len(x), 2, np.int32)}
'''
VARIANTS = """
name = "sums"
confidence = "sure"
[[variants]]
name = "fast"
backend = "callable"
model = "opinions:fast"
[[variants]]
name = "slow"
backend = "callable"
model = "opinions:slow"
[[inputs]]
name = "x"
datatype = "FP32"
shape = [3]
"""
def written(folder: Path, variants: str = VARIANTS, dispatch: str = "central-queue") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "opinions.py").write_text(FUNCTIONS)
    (folder / "variants.toml").write_text(variants)
    write_set(folder / "policies", set_of([policy_with_opinions(dispatch=dispatch)]),
              created_by="tests")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(written(tmp_path_factory.mktemp("opinions"))) as server:
        yield server


def answered(
    server: Running, *rows: tuple[float, float], deadline_ms: float = 60_000.0
) -> dict[str, Any]:
    """Stages and parameters of a request's answers, which must be right."""
    status, document = server.infer([[sure, fate, 1.0] for sure, fate in rows],
                                    parameters={"deadline_ms": deadline_ms})
    assert status == 200, document
    values = {output["name"]: output["data"] for output in document["outputs"]}
    assert values["sum"] == pytest.approx([sure + fate + 1.0 for sure, fate in rows])
    parameters = document["parameters"]
    stages = parameters["stage"].split(",")
    assert [{1: "first", 2: "second"}[by] for by in values["by"]] == stages
    assert parameters["variant"].split(",") == [
        {"first": "fast", "second": "slow"}[stage] for stage in stages]
    return {"stages": stages, **parameters}


def unsure(server: Running, stage: str) -> float:
    text = server.ask("GET", "/metrics", headers={"Accept": "text/plain"})[2].decode()
    lines = [line for line in text.splitlines()
             if line.startswith(f'ramsis_unsure_queries_total{{stage="{stage}"}}')]
    return float(lines[0].split()[-1]) if lines else 0.0


def test_unsure_requests_get_a_second_opinion_and_others_do_not(server):
    assert answered(server, (0.3, 0.0))["stages"] == ["second"]
    assert answered(server, (0.5, 0.0))["stages"] == ["first"]
    assert answered(server, (0.1, 0.0), (0.9, 0.0), (0.39, 0.0))["stages"] == [
        "second", "first", "second"]
    assert answered(server, (float(np.float32(0.4)), 0.0))["stages"] == ["first"]


def test_under_load_none_is_lost_and_the_unsure_ones_are_asked_again(server):
    sures, before = np.random.default_rng(0).random(240), unsure(server, "second")
    with ThreadPoolExecutor(4) as clients:
        stages = list(clients.map(lambda sure: answered(server, (sure, 0.0))["stages"],
                                  sures.tolist()))
    assert stages == [["second"] if sure < SHARE else ["first"] for sure in sures]
    assert unsure(server, "second") - before == (sures < SHARE).sum()


def test_with_queues_of_workers_own_none_is_lost(tmp_path):
    with running(written(tmp_path / "opinions", dispatch="round-robin")) as server:
        test_unsure_requests_get_a_second_opinion_and_others_do_not(server)
        test_under_load_none_is_lost_and_the_unsure_ones_are_asked_again(server)


def test_metrics_promise_what_the_policy_delivers_with_second_opinions(server):
    policy = policy_with_opinions()
    assert policy.rates.effective_accuracy != policy.expectations.effective_accuracy
    assert server.metric("ramsis_promised_effective_accuracy") == policy.rates.effective_accuracy


def test_the_load_generator_counts_second_opinions(run, server):
    """Inputs are normal numbers, of which 65.5 % are below 0.4."""
    pytest.importorskip("httptools")
    before = unsure(server, "second")
    (row,) = run("load", f"http://{server.host}:{server.port}", "--model", "sums", "--slo-ms",
                 5000, "--load", 60, "--duration-s", 2, "--json").rows
    assert row["second_opinions"] == pytest.approx(0.655, abs=0.15)
    assert row["second_opinions"] * row["requests"] == pytest.approx(
        unsure(server, "second") - before)
    assert row["model_share"]["slow"] == pytest.approx(row["second_opinions"])


def test_a_first_answer_is_sent_at_the_deadline_at_the_latest(server):
    for _ in range(3):  # a timer may ring late on a busy machine
        before = unsure(server, "first")
        parameters = answered(server, (0.1, 7.0), deadline_ms=1000.0)
        assert parameters["stages"] == ["first"]
        assert parameters["service_ms"] < 2000.0
        assert unsure(server, "first") == before + 1
        if parameters["in_time"]:
            return
        server.wait_for_batch(running=False)
    raise AssertionError("three answers were late")


def test_first_answers_stand_where_the_second_model_fails(server):
    assert answered(server, (0.1, 8.0), (0.2, 0.0))["stages"] == ["first", "first"]
    assert server.wait_for("batch failed")["variant"] == "slow"
    assert answered(server, (0.1, 9.0))["stages"] == ["first"]
    server.wait_for("worker back")
    assert answered(server, (0.1, 0.0))["stages"] == ["second"]


def test_stopping_answers_what_waits(server):
    """The last test of this server."""
    server.wait_for_batch(running=False)  # a second opinion that an earlier test left behind
    answers = list[tuple[int, dict[str, Any]]]()
    client = threading.Thread(target=lambda: answers.append(server.infer(
        [[0.1, 7.0, 1.0]], parameters={"deadline_ms": 1000.0})))
    client.start()
    server.wait_for_batch()
    server.process.terminate()
    client.join()
    ((status, document),) = answers
    assert (status, document["parameters"]["stage"]) == (200, "first")


def test_without_a_confidence_the_table_serves_and_the_log_says_so(tmp_path):
    with running(written(tmp_path, VARIANTS.replace('confidence = "sure"\n', ""))) as server:
        event = server.wait_for("no second opinions")
        assert "variants.toml: confidence: not stated" in event["reason"]
        status, document = server.infer([[0.1, 0.0, 1.0]])
        assert status == 200
        assert "stage" not in document["parameters"]
        promised = policy_with_opinions().expectations
        assert server.metric("ramsis_promised_effective_accuracy") == promised.effective_accuracy
        assert server.metric("ramsis_promised_violation_rate") == promised.violation_rate
        assert len([event for event in server.events()
                    if event["event"] == "no second opinions"]) == 1


SPECS = (TensorSpec("label", "INT64", ()), TensorSpec("scores", "FP32", (10,)),
         TensorSpec("pair", "FP32", (1,)))


@pytest.mark.parametrize(("source", "outputs", "message"), [
    ("entropy", SPECS, "variants.toml: confidence: no such output: got 'entropy'; allowed: max, "
                       "margin, label, scores, pair"),
    ("scores", SPECS, "output has not one number for each sample"),
    ("max", SPECS[:1], "outputs do not tell max"),
    ("margin", (*SPECS, TensorSpec("more", "FP32", (3,))), "outputs do not tell margin"),
])
def test_outputs_that_tell_no_confidence_are_refused(source, outputs, message):
    with pytest.raises(InputFileError) as refused:
        ConfidenceReader(source, outputs, "variants.toml")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_confidences_of_a_batch():
    outputs = {"scores": np.array([[0.0, 3.0, 1.0], [2.0, 2.0, 2.0]], np.float32),
               "pair": np.array([[0.25], [0.5]], np.float32)}
    specs = (TensorSpec("scores", "FP32", (3,)), SPECS[2])
    assert ConfidenceReader("margin", specs, "file")(outputs) == [2.0, 0.0]
    assert ConfidenceReader("pair", specs, "file")(outputs) == [0.25, 0.5]
    largest = np.exp(3.0) / (np.exp(3.0) + np.exp(1.0) + 1.0)
    assert ConfidenceReader("max", specs, "file")(outputs) == pytest.approx([largest, 1 / 3])
