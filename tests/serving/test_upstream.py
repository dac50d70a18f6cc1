"""Policies in front of another server: `ramsis serve --upstream` and the back end `upstream`."""

import json
import threading
from typing import Any

import numpy as np
import pytest

from ramsis.cli.main import main
from ramsis.errors import RamsisError
from ramsis.profiles import load
from ramsis.profiles.measure import Options
from ramsis.profiles.measure.backends import ModelLostError, open_backend
from tests.serving.servers import make, running
from tests.serving.tritons import triton
from tests.serving.upstreams import upstream

TRITON_MODEL = """
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        arrays = [utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        return [utils.InferenceResponse([utils.Tensor("sum", x.sum(axis=1, keepdims=True))])
                for x in arrays]
"""
TRITON_CONFIG = """backend: "python"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [3] }]
output [{ name: "sum" data_type: TYPE_FP32 dims: [1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""


def ramsis(*words: str) -> int:
    """The exit code of a command in this process."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def variants(url: str) -> str:
    """A variants file of the models of an upstream."""
    return 'name = "sums"\n' + "".join(
        f'[[variants]]\nname = "{name}"\nbackend = "upstream"\nmodel = "{url}/v2/models/{name}"\n'
        for name in ("fast", "slow"))


def opened(url: str, name: str = "fast", timeout_s: float = 60.0) -> Any:
    return open_backend("upstream", Options(timeout_s=timeout_s)).open(f"{url}/v2/models/{name}")


@pytest.mark.parametrize("binary", [True, False])
def test_tensors_go_there_and_back(binary):
    with upstream() as server:
        server.binary = binary
        model = opened(server.url)
        assert model.inputs == {"x": ("float32", (3,))}
        x = np.arange(12, dtype=np.float32).reshape(4, 3)
        answer = model.fetch(model.run(model.feed({"x": x})))
        np.testing.assert_array_equal(answer["sum"], x.sum(axis=1))
        assert answer["sum"].dtype == np.float32
        assert model.run(model.prepare(7))["sum"].shape == (7,)


@pytest.mark.parametrize(("change", "message"), [
    ({"shapes": {}}, "/v2/models/fast: status 404: unknown model: fast"),
    ({"shapes": {"fast": [8, 3]}}, "the model takes no batches: got [8, 3]"),
    ({"datatype": "BYTES"}, "input x: a type that is not served: got 'BYTES'"),
])
def test_models_that_cannot_be_served(change, message):
    with upstream() as server:
        vars(server).update(change)
        with pytest.raises((RamsisError, ModelLostError)) as caught:
            opened(server.url)
    assert message in str(caught.value)


def test_failures_of_a_batch_and_of_the_upstream_differ():
    with upstream() as server:
        model, hasty = opened(server.url), opened(server.url, timeout_s=1.0)
        batch = model.prepare(1)
        for status in (400, 500):
            server.failure = status, "a bad batch"
            with pytest.raises(RamsisError, match=f"status {status}: a bad batch"):
                model.run(batch)
        for status, reason in ((503, "full"), (404, "gone"),
                               (400, "Request for unknown model: 'fast' is not found")):
            server.failure = status, reason
            with pytest.raises(ModelLostError, match=f"status {status}: {reason}"):
                model.run(batch)
        server.failure, server.delay_s = None, 3.0
        with pytest.raises(ModelLostError, match=r"no answer within 1 s"):
            hasty.run(batch)
        server.delay_s = 0.0
        assert model.run(batch)["sum"].shape == (1,)
    with pytest.raises(ModelLostError, match="Connection refused"):
        opened(server.url)


@pytest.mark.parametrize("model", ["fast", "http://h/fast", "ftp://h/v2/models/a", "http://[/"])
def test_not_the_url_of_a_model(model):
    with pytest.raises(RamsisError, match="not the URL of a model"):
        open_backend("upstream", Options()).name(model)


@pytest.mark.parametrize(("change", "message"), [
    (None, "Connection refused"),
    ({"shapes": {"fast": [-1, 3], "slow": [-1, 4]}}, "slow: inputs: not those of the first"),
    ({"most": 4}, "a batch of 8 does not run"),
    ({"delay_s": 2.0}, "no answer within 0.5 s"),
])
def test_an_upstream_that_does_not_fit_ends_the_start(tmp_path, capsys, change, message):
    make(tmp_path)
    with upstream() as server:
        vars(server).update(change or {})
        url = "http://127.0.0.1:1" if change is None else server.url
        code = ramsis("serve", str(tmp_path / "policies"), "--upstream", url, "--port", "0",
                      "--batch-timeout-s", "0.5" if server.delay_s else "60")
    said = capsys.readouterr().err
    assert code == 3, said
    assert message.format(url=url) in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(("options", "message"), [
    ([], "Give either --variants or --upstream"),
    (["--upstream", "http://h:1", "--variants", "v.toml"],
     "Give either --variants or --upstream"),
    (["--upstream", "h:1"], "not the URL of a server: got 'h:1'; allowed: http://HOST:PORT"),
])
def test_options(tmp_path, capsys, options, message):
    make(tmp_path)
    assert ramsis("serve", str(tmp_path / "policies"), *options) == 2
    assert message in capsys.readouterr().err


def test_batches_go_to_the_upstream_and_a_restart_of_it_is_survived(tmp_path):
    make(tmp_path, workers=2)
    with upstream() as server:
        (tmp_path / "variants.toml").write_text(variants(server.url))
        server.delay_s = 0.005
        with running(tmp_path) as proxy:
            answers: list[tuple[int, Any]] = []

            def send(count: int) -> None:
                for number in range(count):
                    answers.append(proxy.infer([[number, 1, 1]]))

            threads = [threading.Thread(target=send, args=(20,)) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert {status for status, _ in answers} == {200}
            assert sorted(document["outputs"][0]["data"][0] for _, document in answers) == sorted(
                6 * [number + 2.0 for number in range(20)])
            assert server.most_busy <= 2
            assert proxy.metric("ramsis_workers_up") == 2
            # It goes: what runs has failed, what waits gets the reason, and all comes back.
            server.failure = 503, "it restarts"
            status, document = proxy.infer([[1, 2, 3]])
            assert (status, "status 503: it restarts" in document["error"]) == (500, True)
            proxy.infer([[1, 2, 3]])
            proxy.wait_for("worker not started")
            status, document = proxy.infer([[1, 2, 3]])
            assert status == 503
            assert "no worker can run the model" in document["error"]
            assert "status 503: it restarts" in document["error"]
            server.failure = None
            proxy.wait_for("worker back", 2)
            assert proxy.infer([[1, 2, 3]])[0] == 200


def test_a_profile_is_measured_through_the_upstream(tmp_path):
    (tmp_path / "accuracy.json").write_text(json.dumps({"fast": 0.6}))
    with upstream() as server:
        assert ramsis(
            "profile", "measure", f"{server.url}/v2/models/fast", "--backend", "upstream",
            "--batches", "1,4", "--accuracy", str(tmp_path / "accuracy.json"), "--min-samples",
            "5", "--max-samples", "5", "--out", str(tmp_path / "m.json")) == 0
    assert [batch.batch for batch in load(str(tmp_path / "m.json")).models[0].batches] == [1, 4]


@pytest.mark.slow
def test_a_real_triton_is_killed_and_comes_back(tmp_path):
    make(tmp_path)
    for name in ("fast", "slow"):
        place = tmp_path / "repository" / name
        (place / "1").mkdir(parents=True)
        (place / "1" / "model.py").write_text(TRITON_MODEL)
        (place / "config.pbtxt").write_text(TRITON_CONFIG)
    with triton(tmp_path / "repository") as first:
        (tmp_path / "variants.toml").write_text(variants(f"http://127.0.0.1:{first.port}"))
        with running(tmp_path) as proxy:
            status, document = proxy.infer([[1, 2, 3], [4, 5, 6]])
            assert (status, document["outputs"][0]["data"]) == (200, [6.0, 15.0])
            first.process.kill()
            first.process.wait()
            status, document = proxy.infer([[1, 2, 3]])
            assert status in (500, 503)
            proxy.wait_for("worker not started")
            assert proxy.infer([[1, 2, 3]])[0] == 503
            with triton(tmp_path / "repository", port=first.port):
                proxy.wait_for("worker back")
                assert proxy.infer([[1, 2, 3]])[0] == 200
