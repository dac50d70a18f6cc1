"""Placement files carry their problem, and are read back only where both agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from placement_milp import (
    Limits,
    place,
    problem_from_document,
    read_placement,
    read_problem,
    schema,
    write_placement,
)
from placement_milp.presets import PRESETS
from ramsis.errors import InputFileError
from tests.placement.samples import document, documents, problem, value_row
from tests.placement.test_presets import SHARING


@given(documents(sharing=True))
def test_a_problem_is_what_its_document_says(given_document):
    known = problem_from_document(given_document)
    written = json.loads(json.dumps(known.to_document()))
    assert problem_from_document(written) == known
    assert Draft202012Validator(schema("placement-problem-1")).is_valid(written)


def test_shipped_problems_and_value_tables_come_back():
    values = [{"family": "text", "rows": [value_row()]}]
    for known in (read_problem("digits"), problem(values=values)):
        assert problem_from_document(known.to_document()) == known


@pytest.mark.parametrize("solve", [place, *PRESETS.values()])
def test_a_placement_is_read_back(solve, tmp_path):
    path = tmp_path / "placement.json"
    one_type = [{"name": "gpu", "count": 4, "memory_mb": 1000}]
    shares = document(worker_types=one_type)
    for variant in shares["variants"]:
        variant["latency"] = [e for e in variant["latency"] if e["worker_type"] == "gpu"]
        for entry in variant["latency"]:
            entry["compute_share"] = 0.4
    if solve in [PRESETS[name] for name in SHARING]:
        del shares["variants"][1]
    known = problem_from_document(shares)
    placement = solve(known, Limits())
    write_placement(placement, path)
    assert Draft202012Validator(schema("placement-1")).is_valid(json.loads(path.read_text()))
    assert read_placement(path) == (known, placement.groups, ())


def test_a_placement_without_workers_is_read_back(tmp_path):
    path = tmp_path / "placement.json"
    known = problem(rules={"max_workers": 0})
    write_placement(place(known), path)
    assert read_placement(path) == (known, (), ())


def _without_groups(found: dict[str, Any]) -> None:
    del found["groups"]


def _without_problem(found: dict[str, Any]) -> None:
    del found["problem"]


def _unknown_variant(found: dict[str, Any]) -> None:
    found["groups"][0]["uses"][0]["variants"] = ["huge"]


def _unknown_family(found: dict[str, Any]) -> None:
    found["groups"][0]["uses"][0]["family"] = "sound"


def _unknown_type(found: dict[str, Any]) -> None:
    found["groups"][0]["worker_type"] = "tpu"


def _unknown_batch(found: dict[str, Any]) -> None:
    found["groups"][0]["uses"][0]["batch"] = 3


def _faster(found: dict[str, Any]) -> None:
    found["groups"][0]["uses"][0]["latency_ms"] *= 0.5


def _more_than_the_demand(found: dict[str, Any]) -> None:
    found["problem"]["families"][0]["demand_qps"] = 1.0


def _worker_twice(found: dict[str, Any]) -> None:
    found["groups"].append(found["groups"][0])


def _policy_without_a_table(found: dict[str, Any]) -> None:
    found["groups"][0]["uses"][0].update(batch=None, latency_ms=None)


def _no_latency(found: dict[str, Any]) -> None:
    found["groups"][0]["uses"][0]["latency_ms"] = None


def _not_a_batch(found: dict[str, Any]) -> None:
    found["groups"][0]["uses"][0]["batch"] = 1.5


@pytest.mark.parametrize(("spoil", "words"), [
    (_without_problem, "problem: the placement does not say what problem it answers"),
    (_without_groups, "groups: "),
    (_unknown_variant, "not a variant of the family: got 'huge'"),
    (_unknown_family, "unknown family: got 'sound'"),
    (_unknown_type, "unknown worker type: got 'tpu'"),
    (_unknown_batch, "a batch that is not listed"),
    (_faster, "a latency is not the listed one"),
    (_more_than_the_demand, "a family is sent too much"),
    (_worker_twice, "a worker is used twice"),
    (_policy_without_a_table, "no row of a value table says so"),
    (_no_latency, "without its latency"),
    (_not_a_batch, "groups[0].uses[0].batch: not a valid number: got 1.5"),
])
def test_what_contradicts_the_problem_is_refused(spoil, words, tmp_path):
    path = tmp_path / "placement.json"
    found = json.loads(json.dumps(place(problem()).to_document()))
    spoil(found)
    path.write_text(json.dumps(found))
    with pytest.raises(InputFileError) as refused:
        read_placement(path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
