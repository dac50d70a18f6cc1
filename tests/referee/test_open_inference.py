"""`ramsis serve` beside the Open Inference Protocol, in the OpenAPI text that MLServer ships.

The text is read where MLServer is installed. Three things are changed in it: ``type: bytes``,
which OpenAPI does not know; names, which are those of the model that is served; and paths that
MLServer adds to the protocol, which are left out.
"""

import importlib.metadata
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from tests.serving.servers import Running, make, running

schemathesis = pytest.importorskip("schemathesis")

pytestmark = pytest.mark.slow

_ADDED = ("infer_stream", "generate", "generate_stream")  # no part of the protocol
_EXAMPLES = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(make(tmp_path_factory.mktemp("protocol"))) as found:
        yield found


@pytest.fixture(scope="module")
def text():
    """The protocol as OpenAPI, for the model ``sums``."""
    try:
        files = importlib.metadata.files("mlserver") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("could not import 'mlserver'")
    (path,) = (each for each in files if each.name == "dataplane.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8").replace(
        '"type": "bytes"', '"type": "string"'))
    found["paths"] = {path: item for path, item in found["paths"].items()
                      if path.rpartition("/")[2] not in _ADDED}
    for item in found["paths"].values():
        for parameter in item.get("parameters", ()):
            named = {"model_name": "sums", "model_version": "1"}[parameter["name"]]
            parameter["schema"] = {"type": "string", "enum": [named]}
    return found


def _schema(text: dict[str, Any], name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": text["components"]}


def test_every_operation_answers_as_the_text_says(text, server):
    """Status, content type and document of answers to what fits the text and what does not."""
    schema = schemathesis.openapi.from_dict(text)
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) == 9
    modes = schemathesis.GenerationMode
    asked = 0
    for operation in operations:
        for mode in (modes if operation.body else [modes.POSITIVE]):

            @settings(max_examples=_EXAMPLES, deadline=None, database=None,
                      suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(mode))
            def holds(case: Any) -> None:
                nonlocal asked
                asked += 1
                # What fits the text need not fit the model, whose tensor has its own shape.
                case.call_and_validate(
                    base_url=f"http://{server.host}:{server.port}",
                    excluded_checks=[schemathesis.checks.positive_data_acceptance])

            holds()
    assert asked > 100


def _answer(server: Running, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    status, _, answer = server.ask(method, path, None if body is None else json.dumps(body))
    return status, json.loads(answer)


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_answers_are_documents_of_the_text(text, server, version):
    model = f"/v2/models/sums{version}"
    request = {"id": "seven", "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}]}
    jsonschema.validate(request, _schema(text, "InferenceRequest"))
    status, answer = _answer(server, "POST", f"{model}/infer", request)
    assert status == 200
    jsonschema.validate(answer, _schema(text, "InferenceResponse"))
    assert answer["id"] == "seven"
    sums = next(each for each in answer["outputs"] if each["name"] == "sum")
    assert sums["data"] == [6.0, 15.0]
    for path, name in ((model, "MetadataModelResponse"), ("/v2", "MetadataServerResponse")):
        status, answer = _answer(server, "GET", path)
        assert status == 200
        jsonschema.validate(answer, _schema(text, name))


@pytest.mark.parametrize("inputs", [
    [], [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}],
    [{"name": "x", "datatype": "INT8", "shape": [1, 3], "data": [1, 2, 3]}],
    [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}],
    [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2]}],
    [{"name": "x", "datatype": "FP32", "shape": [-1, 3], "data": []}]])
def test_refusals_are_documents_of_the_text(text, server, inputs):
    status, answer = _answer(server, "POST", "/v2/models/sums/infer", {"inputs": inputs})
    assert status == 400
    jsonschema.validate(answer, _schema(text, "InferenceErrorResponse"))
    assert answer["error"]


def test_metrics_are_open_metrics(server):
    """By prometheus_client's own strict reader where they are announced as such."""
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as strict

    status, headers, body = server.ask(
        "GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
    assert status == 200
    read = strict if "openmetrics" in headers["content-type"] else parser
    assert list(read.text_string_to_metric_families(body.decode()))
