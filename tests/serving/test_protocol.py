"""Requests of the Open Inference Protocol are read and checked."""

import json

import numpy as np
import pytest

pytest.importorskip("orjson")

from ramsis.errors import InvalidValueError
from ramsis.serving.protocol import RequestLimits, parse_request
from ramsis.serving.tensors import TensorSpec

INPUTS = (TensorSpec("x", "FP32", (2,)), TensorSpec("y", "INT16", ()))
OUTPUTS = (TensorSpec("z", "FP32", ()),)
HEAD = json.dumps({"inputs": [
    {"name": "y", "datatype": "INT16", "shape": [3], "parameters": {"binary_data_size": 6}},
    {"name": "x", "datatype": "FP32", "shape": [3, 2], "parameters": {"binary_data_size": 24}}],
}).encode()


def test_requests_with_one_document_have_their_own_data_and_deadlines():
    for seed, header in enumerate(("20", "20", None, "30")):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((3, 2)).astype("<f4"), rng.integers(-9, 9, 3).astype("<i2")
        body = HEAD + y.tobytes() + x.tobytes()
        found = parse_request(body, str(len(HEAD)), header, INPUTS, OUTPUTS)
        assert [part.tolist() for part in found.inputs] == [x.tolist(), y.tolist()]
        assert found.queries == 3
        assert found.deadline_ms == (None if header is None else float(header))
        found.inputs.clear()  # as the server does


@pytest.mark.parametrize(("rest", "inputs", "limits", "says"), [
    (29, INPUTS, RequestLimits(), "data of the inputs end early: got 23; allowed: 24"),
    (31, INPUTS, RequestLimits(), "bytes after the data of the inputs: got 1; allowed: 0"),
    (30, INPUTS, RequestLimits(queries=2), "more queries than the server holds: got 3"),
    (30, INPUTS[:1], RequestLimits(), "not an input of the model, each once: got 'y'"),
])
def test_a_document_that_was_right_is_checked_again_where_the_rest_is_another(
    rest, inputs, limits, says
):
    assert parse_request(HEAD + bytes(30), str(len(HEAD)), None, INPUTS, OUTPUTS).queries == 3
    with pytest.raises(InvalidValueError, match=says):
        parse_request(HEAD + bytes(rest), str(len(HEAD)), None, inputs, OUTPUTS, limits)
