"""What a schema refuses, beside the package that defines what schemas mean."""

import math
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ramsis.errors import InputFileError
from ramsis.profiles import ProfileSet
from ramsis.schemas import check_schema, read_schema
from tests.policy.samples import document

_WHOLE = ("table", "axes", "queued")
_POSITIVE = ("models", 1, "latency_ms")
_NESTED = ("models", 1, "quantiles_ms")


@pytest.mark.parametrize("path", [_WHOLE, _POSITIVE, _NESTED])
@pytest.mark.parametrize("values", [
    [1, 2, 3], [1.0, 2.5, 3.0], [1, 2.5], [2, 0, 3], [2, -1, 3], [0.5, 2.0], [1e-300, 1e300],
    [1, True, 3], [1, "2", 3], [1, None], [1, [2], 3], [], [1.0, math.nan, -3.0], [1.0, math.inf],
    [-math.inf, 2.0], [2, math.nan], [10 ** 400, 1], {"0": 1}, "12", 3,
    [[1.0, 2], [3]], [[1.0], [2.0, -1.0]], [[1.0], []], [[], []], [[1.0], [[2.0]]], [[1.0], 2.0],
    [[1.0], [math.nan]], [[1.0], ["2"]]], ids=str)
def test_an_array_of_numbers_is_refused_as_the_package_does(path, values):
    given = document()
    part: Any = given
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = values
    refused_as_by_the_package(given, read_schema("ramsis.policy", "policy-1"))


@pytest.mark.parametrize("times", [
    [[1.0, None], [2, 3]], [[None, None]], [[1.0, None], [0.0, 2.0]], [[None, "2"]],
    [[1.0, 2.0], 3], [[1.0]], [[1.0, True]]], ids=str)
def test_times_of_sizes_may_be_null(monkeypatch, times):
    schema = ProfileSet.schema()
    monkeypatch.setattr("ramsis.schemas.read_schema", lambda *_: schema)
    sizes = {"unit": "tokens", "law": "padded", "counts": [1], "sizes": [1, 2], "p95_ms": times}
    refused_as_by_the_package(
        {"format": "ramsis.profile/1", "name": "a", "models": [{
            "name": "m", "accuracy": 0.5, "batches": [{"batch": 1, "p95_ms": 1.0}],
            "sized": sizes}]}, schema, "a profile")


def refused_as_by_the_package(
    given: dict[str, Any], schema: dict[str, Any], name: str = "policy-1"
) -> None:
    errors = Draft202012Validator(schema).iter_errors(given)
    places = [one.json_path.removeprefix("$.") for one in errors]
    if not places:
        check_schema(given, "ramsis.policy", name, "a.json")
        return
    with pytest.raises(InputFileError, match=f"^a.json: {re.escape(min(places))}: breaks the"):
        check_schema(given, "ramsis.policy", name, "a.json")
