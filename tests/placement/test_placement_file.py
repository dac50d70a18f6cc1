"""Placement files carry their problem, and are read back only where both agree."""

import json

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
from tests.changes import both, drop, put
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


USE = ("groups", 0, "uses", 0)


@pytest.mark.parametrize(("spoil", "words"), [
    (drop("problem"), "problem: the placement does not say what problem it answers"),
    (drop("groups"), "groups: "),
    (put(*USE, "variants", value=["huge"]), "not a variant of the family: got 'huge'"),
    (put(*USE, "family", value="sound"), "unknown family: got 'sound'"),
    (put("groups", 0, "worker_type", value="tpu"), "unknown worker type: got 'tpu'"),
    (put(*USE, "batch", value=3), "a batch that is not listed"),
    (put(*USE, "latency_ms", value=1.0), "a latency is not the listed one"),
    (put("problem", "families", 0, "demand_qps", value=1.0), "a family is sent too much"),
    (lambda found: found["groups"].append(found["groups"][0]), "a worker is used twice"),
    (both(put(*USE, "batch", value=None), put(*USE, "latency_ms", value=None)),
     "no row of a value table says so"),
    (put(*USE, "latency_ms", value=None), "without its latency"),
    (put(*USE, "batch", value=1.5), "groups[0].uses[0].batch: not a valid number: got 1.5"),
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
