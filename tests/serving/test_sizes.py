"""Requests with a size: tensors of different lengths, padded to the longest of their batch."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ramsis.audit.request_log import read_request_log
from ramsis.cli.main import cli
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.serving.sizes import SizeReader
from ramsis.serving.tensors import TensorSpec
from ramsis.serving.variants import read_variants
from tests.serving.servers import Running, make, running

FUNCTIONS = '''
import time
import numpy as np

def fast(inputs):
    """The sum of each query's numbers within its mask, and the length of the batch."""
    x, mask = inputs["x"], inputs["mask"]
    time.sleep(0.004)
    return {"sum": (x * mask).sum(axis=1), "length": np.full(len(x), x.shape[1], np.int32),
            "all": x.sum(axis=1)}

slow = fast
'''
VARIANTS = """
name = "sums"
size = "{size}"
max_size = 16
[[variants]]
name = "fast"
backend = "callable"
model = "summing:fast"
[[variants]]
name = "slow"
backend = "callable"
model = "summing:slow"
[[inputs]]
name = "x"
datatype = "FP32"
shape = [-1]
[[inputs]]
name = "mask"
datatype = "INT64"
shape = [-1]
"""


def written(folder: Path, size: str = "x:1") -> Path:
    make(folder, variants=VARIANTS.format(size=size))
    (folder / "summing.py").write_text(FUNCTIONS)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(written(tmp_path_factory.mktemp("sizes"))) as server:
        yield server


def document(*rows: list[float], sizes: list[int] | None = None, **more: Any) -> dict[str, Any]:
    """A request of queries that are padded to one length, each with its mask."""
    length = max(map(len, rows))
    x = [row + [0.0] * (length - len(row)) for row in rows]
    mask = [[1] * size + [0] * (length - size) for size in sizes or map(len, rows)]
    return {"inputs": [
        {"name": "x", "datatype": "FP32", "shape": [len(rows), length], "data": x},
        {"name": "mask", "datatype": "INT64", "shape": [len(rows), length], "data": mask}],
        "parameters": {"deadline_ms": 20_000}, **more}  # however busy the machine is


def asked(server: Running, request: dict[str, Any]) -> tuple[int, Any]:
    status, _, answer = server.ask("POST", "/v2/models/sums/infer", json.dumps(request))
    return status, json.loads(answer)


def values(server: Running, request: dict[str, Any]) -> dict[str, list[float]]:
    status, answer = asked(server, request)
    assert status == 200, answer
    return {output["name"]: output["data"] for output in answer["outputs"]}


def test_requests_of_any_length_are_answered(server):
    for length in (1, 5, 16, 3):
        answer = values(server, document([1.0] * length))
        assert answer["sum"] == [length]
        assert answer["length"] == [length]


def test_a_batch_is_padded_to_its_longest_with_zeros(server):
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, 5, rng.integers(1, 17)).astype(float).tolist() for _ in range(80)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: values(server, document(row)), rows))
    assert [answer["sum"][0] for answer in answers] == [sum(row) for row in rows]
    assert [answer["all"][0] for answer in answers] == [sum(row) for row in rows]
    lengths = [answer["length"][0] for answer in answers]
    assert all(length >= len(row) for length, row in zip(lengths, rows, strict=True))
    assert any(length > len(row) for length, row in zip(lengths, rows, strict=True))


POLICY = {
    "format": "ramsis.sized-policy/1", "models": [{"name": "fast", "accuracy": 0.75}],
    "slo_ms": 400.0, "workers": 1, "load_qps": 50.0, "unit": "tokens", "inputs": {},
    "expectations": {"violation_rate": 0.0, "effective_accuracy": 0.75,
                     "by_class": [{"sizes": [1, 4], "share": 0.25, "in_time_rate": 1.0},
                                  {"sizes": [5, 16], "share": 0.75, "in_time_rate": 1.0}]},
    "rule": {
        "law": "padded", "edges": [4, 16], "mean_size": [2.0, 9.0], "work_us": [5000, 5000],
        "level_us": 10**9, "bins": 4, "reward": [[750_000, 750_000]],
        "values": [[[0] * 4, [0] * 4]], "aging": [[[0] * 4, [0] * 4]], "price": [0.001],
        "sizes": [4, 16], "times_ms": [[[8.0] * 8, [16.0] * 8]]}}


@pytest.fixture(scope="module")
def by_size(tmp_path_factory):
    folder = written(tmp_path_factory.mktemp("by-size"), size="mask")
    shutil.rmtree(folder / "policies")
    (folder / "policies").write_text(json.dumps(POLICY))
    with running(folder) as server:
        yield server


def test_a_policy_for_sizes_serves_and_loses_none(by_size):
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, 5, rng.integers(1, 17)).astype(float).tolist() for _ in range(200)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: asked(by_size, document(row)), rows))
    assert {status for status, _ in answers} <= {200, 503}
    served = [(row, answer) for row, (status, answer) in zip(rows, answers, strict=True)
              if status == 200]
    assert len(served) > 150
    for row, answer in served:
        outputs = {output["name"]: output["data"] for output in answer["outputs"]}
        assert outputs["sum"] == [sum(row)]
        assert outputs["length"][0] >= len(row)
    assert any("batch" in answer["parameters"] and int(answer["parameters"]["batch"]) > 1
               for _, answer in served)
    assert by_size.metric("ramsis_promised_effective_accuracy") == 0.75


def test_a_load_sends_samples_of_their_sizes(by_size, tmp_path):
    size = np.array([3, 16, 7, 1], dtype=np.int64)
    mask = np.arange(16) < size[:, None]
    np.savez(tmp_path / "texts.npz", x=np.where(mask, 2.0, 9.0), mask=np.ones((4, 16)), size=size,
             sum=2.0 * size)
    log, url = tmp_path / "client.csv", f"http://{by_size.host}:{by_size.port}"
    ran = CliRunner().invoke(cli, [
        "load", url, "--model", "sums", "--slo-ms", "20000", "--load", "40",
        "--duration-s", "1", "--data", str(tmp_path / "texts.npz"), "--request-log", str(log),
        "--json"])
    assert ran.exit_code == 0, ran.output
    client = read_request_log(log)
    assert sorted(np.unique(client.size).tolist()) == [1, 3, 7, 16]
    assert (client.correct[client.answered] == 1.0).all()
    assert int((client.outcome == "failed").sum()) == 0
    np.savez(tmp_path / "wrong.npz", x=np.ones((2, 16)), mask=np.ones((2, 16)), size=[3, 17])
    ran = CliRunner().invoke(cli, [
        "load", url, "--model", "sums", "--slo-ms", "200", "--load", "40",
        "--duration-s", "1", "--data", str(tmp_path / "wrong.npz")])
    assert isinstance(ran.exception, InputFileError)
    assert "size: not the sizes of the samples: got [3, 17]; allowed: whole numbers from 1 to 16" \
        in str(ran.exception)


def test_a_policy_for_sizes_needs_a_source_of_them(by_size, tmp_path):
    for change, message in (
            (('size = "x:1"\nmax_size = 16\n', ""), "does not say where sizes come from"),
            (("max_size = 16", "max_size = 32"), "max_size: sizes beyond those of the policy: got "
                                                 "32; allowed: at most 16")):
        text = VARIANTS.format(size="x:1").replace(*change, 1)
        text = text if "size" in text else text.replace("[-1]", "[3]")
        (tmp_path / "variants.toml").write_text(text)
        (tmp_path / "summing.py").write_text(FUNCTIONS)
        ran = CliRunner().invoke(cli, [
            "serve", str(by_size.folder / "policies"), "--variants",
            str(tmp_path / "variants.toml"), "--code", "summing:fast", "--check"])
        assert isinstance(ran.exception, InputFileError)
        assert message in str(ran.exception)


def test_the_metadata_says_that_the_length_is_free(server):
    answer = json.loads(server.ask("GET", "/v2/models/sums")[2])
    assert [entry["shape"] for entry in answer["inputs"]] == [[-1, -1], [-1, -1]]


@pytest.mark.parametrize(("request_", "message"), [
    (document([1.0] * 17), "inputs: an input that is longer than the largest size: got 17; "
                           "allowed: at most 16"),
    ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 0], "data": []}]},
     "not the input's shape"),
    ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]},
                 {"name": "mask", "datatype": "INT64", "shape": [1, 3], "data": [1, 1, 1]}]},
     "inputs: inputs of different lengths: got [2, 3]"),
])
def test_a_size_that_is_not_served_is_refused(server, request_, message):
    status, answer = asked(server, request_)
    assert status == 400
    assert message in answer["error"]
    assert values(server, document([2.0]))["sum"] == [2.0]


def test_a_mask_ends_the_padding_of_clients(by_size):
    answer = values(by_size, document([1.0] * 3 + [0.0] * 9, [2.0] + [0.0] * 11, sizes=[3, 1]))
    assert answer["sum"] == [3.0, 2.0]
    assert answer["length"] in ([3, 3], [3, 1])  # in one batch, or each in its own


SPECS = (TensorSpec("ids", "INT64", (-1,)), TensorSpec("pixels", "FP32", (3, -1)),
         TensorSpec("count", "INT32", (1,)))


def arrays(length: int, queries: int = 2, count: int = 4) -> list[Any]:
    return [np.ones((queries, length), np.int64), np.ones((queries, 3, length), np.float32),
            np.full((queries, 1), count, np.int32)]


@pytest.mark.parametrize(("source", "sizes"), [
    ("ids:1", [5, 5]), ("pixels:2", [5, 5]), ("ids", [5, 5]), ("count", [4, 4]),
    ("parameters.tokens", [7, 7]),
])
def test_sizes_are_read_from_their_source(source, sizes):
    assert SizeReader(source, SPECS, 9, "file")(arrays(5), {"tokens": 7}) == sizes


@pytest.mark.parametrize(("source", "parameters", "message"), [
    ("parameters.tokens", {}, "parameters.tokens: not a size that is served: got None"),
    ("parameters.tokens", {"tokens": 0}, "got 0; allowed: a whole number from 1 to 9"),
    ("parameters.tokens", {"tokens": 2.5}, "got 2.5"),
    ("parameters.tokens", {"tokens": True}, "got True"),
    ("parameters.tokens", {"tokens": 10}, "got 10"),
    ("count", {}, "count: not a size that is served: got 40"),
])
def test_what_is_no_size_is_refused(source, parameters, message):
    with pytest.raises(InvalidValueError, match=message):
        SizeReader(source, SPECS, 9, "file")(arrays(5, count=40), parameters)


def test_padding_before_the_end_is_refused():
    given = arrays(3)
    given[0][1] = [0, 1, 1]
    with pytest.raises(InvalidValueError, match="ids: a mask with padding before the end"):
        SizeReader("ids", SPECS, 9, "file")(given, {})


@pytest.mark.parametrize(("source", "message"), [
    ("words:1", r"file: size: no such input: got 'words:1'; .*ids \['n', -1\], pixels"),
    ("ids:2", "not a dimension of the input without a fixed size: got 'ids:2'"),
    ("pixels:1", "not a dimension of the input"),
    ("pixels:x", "not a dimension of the input"),
])
def test_a_source_that_tells_no_size_is_refused(source, message):
    with pytest.raises(InputFileError, match=message):
        SizeReader(source, SPECS, 9, "file")


@pytest.mark.parametrize(("change", "message"), [
    (("max_size = 16", ""), "max_size: missing; allowed: size and max_size, or neither"),
    (('size = "x:1"', ""), "size: missing"),
    (("max_size = 16", "max_size = 70000"), "max_size: size is too large: got 70000"),
    (("shape = [-1]", "shape = [0]"), "shape: not a shape.*or -1 for the size"),
])
def test_variants_files_of_no_sizes_are_refused(tmp_path, change, message):
    path = tmp_path / "variants.toml"
    path.write_text(VARIANTS.format(size="x:1").replace(*change, 1))
    with pytest.raises(InputFileError, match=message):
        read_variants(path)


def test_other_servers_refuse_sizes(tmp_path):
    path = tmp_path / "variants.toml"
    path.write_text(VARIANTS.format(size="x:1"))
    with pytest.raises(InputFileError, match="size: Triton serves requests of one size only"):
        read_variants(path).refuse_sizes("Triton")
