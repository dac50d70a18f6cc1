"""``ramsis export triton --batching``: the library joins what the runtime's rule joins."""

import ctypes
import json
import subprocess
from pathlib import Path
from random import Random

import pytest

from ramsis.fields import Fields
from ramsis.runtime.sized import ArrivalBatch, SizedRule, SizedTables
from ramsis.serving.export.triton import batching_source
from tests.cli.command import refused
from tests.cli.test_export_code_cli import sized_document
from tests.codegen.programs import WARNINGS, needs
from tests.reference import sized_lookup
from tests.serving.tritons import triton, triton_command

# What a library needs of Triton, for requests of our own.
FAKE = """
#include <stdint.h>
#include <stddef.h>
#include <string.h>
typedef struct { int64_t shape[2]; int64_t tokens; } request;
void TRITONSERVER_ErrorDelete(void *problem) { (void)problem; }
void *TRITONBACKEND_RequestInputByIndex(void *asked, uint32_t index, void **input)
{ *input = asked; return index == 0 ? NULL : asked; }
void *TRITONBACKEND_RequestInput(void *asked, const char *name, void **input)
{ *input = asked; return strcmp(name, "X") == 0 ? NULL : asked; }
void *TRITONBACKEND_InputProperties(void *input, const char **name, int *datatype,
    const int64_t **shape, uint32_t *dimensions, uint64_t *bytes, uint32_t *buffers)
{ (void)name; (void)datatype; (void)bytes; (void)buffers;
  *shape = ((request *)input)->shape; *dimensions = 2; return NULL; }
void *TRITONBACKEND_RequestParameterCount(void *asked, uint32_t *count)
{ *count = ((request *)asked)->tokens > 0 ? 2 : 1; return NULL; }
void *TRITONBACKEND_RequestParameter(void *asked, uint32_t index, const char **name, int *type,
    const void **value)
{ *name = index == 0 ? "other" : "tokens"; *type = 1; *value = &((request *)asked)->tokens;
  return NULL; }
"""


class Request(ctypes.Structure):
    _fields_ = [("shape", ctypes.c_int64 * 2), ("tokens", ctypes.c_int64)]


def tables(law: str = "padded") -> SizedTables:
    return SizedTables.from_fields(Fields(sized_lookup.policy(Random(2), law, 1, 1), "policy"))


class Library:
    """A compiled library, and the calls of Triton's scheduler."""

    def __init__(self, folder: Path, held: SizedTables, size: str, limit_ms: float | None) -> None:
        needs("gcc")
        (folder / "batching.c").write_text(batching_source(held, size, limit_ms))
        (folder / "fake.c").write_text(FAKE)
        subprocess.run(["gcc", "-std=c99", *WARNINGS, "-O2", "-shared", "-fPIC", "-o",
                        folder / "batching.so", folder / "batching.c", folder / "fake.c", "-lm"],
                       check=True)
        self.calls = ctypes.CDLL(str(folder / "batching.so"))
        self.calls.TRITONBACKEND_ModelBatcherFinalize.argtypes = [ctypes.c_void_p]
        self.calls.TRITONBACKEND_ModelBatchIncludeRequest.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.batcher = ctypes.c_void_p()
        self.calls.TRITONBACKEND_ModelBatcherInitialize(ctypes.byref(self.batcher), None)

    def begin(self, slot: ctypes.c_void_p) -> None:
        self.calls.TRITONBACKEND_ModelBatchInitialize(self.batcher, ctypes.byref(slot))

    def joins(self, slot: ctypes.c_void_p, request: Request) -> bool:
        answer = ctypes.c_bool(True)
        assert self.calls.TRITONBACKEND_ModelBatchIncludeRequest(
            ctypes.addressof(request), slot, ctypes.addressof(answer)) == 0
        return answer.value


@pytest.mark.parametrize(("law", "size"), [
    ("padded", "X:1"), ("packed", "X:1"), ("padded", "parameters.tokens")])
def test_requests_join_as_by_the_runtime(law, size, tmp_path):
    held, limit_ms = tables(law), 33.0
    rule, rng = SizedRule(held), Random(3)
    library = Library(tmp_path, held, size, limit_ms)
    batch, joined, counts = ArrivalBatch(rule, limit_ms), 0, []
    slots = [ctypes.c_void_p() for _ in range(400)]
    slot = slots.pop()
    library.begin(slot)
    for _ in range(2000):
        queries, tokens = rng.choice([1, 1, 1, 2]), min(110, int(rng.lognormvariate(2.3, 1.2)) + 1)
        by_shape = size == "X:1"
        request = Request((queries, tokens if by_shape else 7), 0 if by_shape else tokens)
        if rng.random() < 0.1:  # the batch waits for its instance, and may grow meanwhile
            library.calls.TRITONBACKEND_ModelBatchFinalize(slot)
            library.begin(slot)
        expected = batch.joins(tokens, queries)
        assert library.joins(slot, request) == expected
        if expected:
            joined += 1
            continue
        counts.append(joined)
        batch, joined = ArrivalBatch(rule, limit_ms), 1
        slots.insert(0, slot)  # Triton takes another one than that of the batch before
        slot = slots.pop()
        library.begin(slot)
        assert batch.joins(tokens, queries)
        assert library.joins(slot, request)
    library.calls.TRITONBACKEND_ModelBatcherFinalize(library.batcher)
    assert max(counts) > 2


def test_a_request_without_a_size_is_a_batch_of_its_own(tmp_path):
    library, slot = Library(tmp_path, tables(), "Y:1", None), ctypes.c_void_p()
    library.begin(slot)
    assert library.joins(slot, Request((1, 3), 0))
    assert not library.joins(slot, Request((1, 3), 0))


def test_the_rule_keeps_its_limit_and_never_takes_longer_than_alone():
    rule = SizedRule(tables())
    batch = ArrivalBatch(rule, 25.0)
    assert batch.joins(100)  # the first always
    assert not batch.joins(8)  # it would be padded to 100
    batch = ArrivalBatch(rule, rule.time_ms(0, 3, 8))
    assert [batch.joins(8) for _ in range(4)] == [True, True, True, False]
    batch = ArrivalBatch(rule, 1000.0)
    assert batch.joins(1000)  # beyond the tables: alone
    assert not batch.joins(1)


def test_the_command_writes_a_library_and_its_settings(run, tmp_path):
    needs("cc")
    (tmp_path / "policy.json").write_text(json.dumps(sized_document()))
    out = tmp_path / "batching"
    ran = run("export", "triton", tmp_path / "policy.json", "--batching", "--size", "X:1",
              "--out", out)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{out / 'batching.so'}: a batching library for small\n")
    assert "int64_t" in (out / "batching.c").read_text()
    settings = (out / "batching.pbtxt").read_text()
    assert f'string_value: "{out / "batching.so"}"' in settings
    assert "default_timeout_microseconds: 60000\n" in settings  # 80 ms less a quarter


@pytest.mark.parametrize(("words", "message"), [
    (("--batching",), "--size: missing"),
    (("--batching", "--size", "X"), "--size: no source of the size of a request"),
    (("--batching", "--size", "X:0"), "--size: no source of the size of a request"),
    (("--batching", "--size", "X:1", "--limit-ms", "90"), "--limit-ms: not a time of a batch"),
    (("--batching", "--size", "X:1", "--overhead-ms", "1"), "--overhead-ms: the models stay"),
    (("--batching", "--size", "X:1", "--variants", "v"), "--variants: the models stay"),
    (("--size", "X:1"), "--size: for a batching library only"),
    ((), "--variants: missing"),
])
def test_options_that_do_not_fit_are_refused(run, tmp_path, words, message):
    (tmp_path / "policy.json").write_text(json.dumps(sized_document()))
    refused(run("export", "triton", tmp_path / "policy.json", *words, "--out", tmp_path / "out"),
            2, message)


def test_policies_that_do_not_fit_are_refused(run, tmp_path):
    document = sized_lookup.policy(Random(1), "padded", 2, 1)
    (tmp_path / "policy.json").write_text(json.dumps(sized_document() | {
        "models": document["models"], "rule": document["rule"]}))
    words = ("--batching", "--size", "X:1", "--out", tmp_path / "out")
    refused(run("export", "triton", tmp_path / "policy.json", *words), 2,
            "--batching: Triton batches for one model at a time", "small, large")
    refused(run("export", "triton", "policies_out/example", *words), 2,
            "batches are limited by the sizes of requests", "generate --sizes")
    refused(run("export", "triton", tmp_path / "none", *words), 3, "none: cannot read file")


MODEL = """
import numpy as np
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        sizes = [utils.get_input_tensor_by_name(one, "X").shape()[1] for one in requests]
        return [utils.InferenceResponse([utils.Tensor(
            "batch", np.array([[len(sizes), max(sizes)]], np.int32))]) for _ in requests]
"""
CONFIG = """backend: "python"
max_batch_size: 64
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }]
output [{ name: "batch" data_type: TYPE_INT32 dims: [2] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""


@pytest.mark.slow
def test_a_stock_triton_keeps_the_limit(run, tmp_path):
    triton_command()
    (tmp_path / "policy.json").write_text(json.dumps(sized_document()))
    assert run("export", "triton", tmp_path / "policy.json", "--batching", "--size", "X:1",
               "--limit-ms", 20, "--out", tmp_path / "batching").code == 0
    place = tmp_path / "repository" / "encoder"
    (place / "1").mkdir(parents=True)
    (place / "1" / "model.py").write_text(MODEL)
    (place / "config.pbtxt").write_text(
        CONFIG + (tmp_path / "batching" / "batching.pbtxt").read_text())
    rule = SizedRule(tables())
    with triton(tmp_path / "repository") as running:
        assert running.process.poll() is None, running.log()
        for size in (3, 20, 100) * 10:
            status, answer = running.post("/v2/models/encoder/infer", {"inputs": [{
                "name": "X", "datatype": "FP32", "shape": [1, size], "data": [1.0] * size}]})
            assert status == 200
            count, longest = answer["outputs"][0]["data"]
            assert count == 1 or rule.time_ms(0, count, longest) <= 20.0
        assert "Loading custom batching strategy" in running.log()
