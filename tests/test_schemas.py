"""The schema of policy files, which other programs go by, beside their reader."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ramsis.errors import InputFileError
from ramsis.policy import Policy
from ramsis.schemas import read_schema
from tests.policy.samples import document
from tests.reference import lookup

VALUES = [None, True, -1, 0.5, "x", [], 10**30]
LENIENT = {"expectations queue_length", "expectations slack_ms"}  # read as null where absent


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value in a document; of long lists the first, second and last."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i in sorted({0, 1, len(value) - 1} & set(range(len(value)))):
            yield from places(value[i], (*path, i))


def damaged(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Documents in each of which one value is another, absent or added, with its place."""
    for place in list(places(json.loads(text)))[1:]:
        for change in (*VALUES, "drop", "add"):
            damaged = json.loads(text)
            parent = damaged
            for step in place[:-1]:
                parent = parent[step]
            if change == "drop":
                del parent[place[-1]]
            elif change != "add":
                parent[place[-1]] = change
            elif isinstance(parent[place[-1]], dict):
                parent[place[-1]]["unknown"] = 1
            else:
                continue
            yield " ".join(map(str, place)), damaged


@pytest.mark.parametrize("policy", [document(), lookup.CENTRAL], ids=["round-robin", "central"])
def test_the_reader_takes_nothing_that_the_schema_refuses(policy):
    schema = Draft202012Validator(read_schema("ramsis.policy", "policy-1"))
    taken = refused = 0
    for place, damage in damaged(json.dumps(policy)):
        try:
            Policy.from_document(damage, "a.json")
        except InputFileError:
            refused += 1
        else:
            taken += 1
            assert place in LENIENT or schema.is_valid(damage), place
    assert refused > 3 * taken > 0
