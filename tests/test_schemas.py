"""What a schema refuses, beside the package that defines what schemas mean."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ramsis.errors import InputFileError
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
def test_an_array_of_numbers_is_refused_as_the_package_does(
    path: tuple[Any, ...], values: Any
) -> None:
    given = document()
    part: Any = given
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = values
    errors = Draft202012Validator(read_schema("ramsis.policy", "policy-1")).iter_errors(given)
    places = [one.json_path.removeprefix("$.") for one in errors]
    if not places:
        check_schema(given, "ramsis.policy", "policy-1", "a.json")
        return
    with pytest.raises(InputFileError, match=f"^a.json: {re.escape(min(places))}: breaks the"):
        check_schema(given, "ramsis.policy", "policy-1", "a.json")
