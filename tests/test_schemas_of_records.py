"""The shipped JSON schemas allow, field by field, what the records' annotations allow."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import reduce
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator

from placement_milp import problem, result
from placement_milp.partitions import Instance, PartitionTable
from ramsis.errors import InputFileError
from ramsis.policy import records as policy
from ramsis.runtime.fields import Fields
from ramsis.runtime.records import Record, WrittenRecord, _readers
from ramsis.scenario import records as scenario
from ramsis.schemas import read_schema

PROBLEM = read_schema("placement_milp", "placement-problem-1")
PLACEMENT = read_schema("placement_milp", "placement-1")
POLICY = read_schema("ramsis.policy", "policy-1")
SCENARIO = read_schema("ramsis.scenario", "scenario-1")

EXPECTATIONS = "properties expectations properties"
GROUP = "properties groups items"
RECORDS = [
    (SCENARIO, "$defs worker_type", scenario.ScenarioWorkerType),
    (SCENARIO, "$defs latency", scenario.BatchTime),
    (SCENARIO, "$defs model", scenario.ScenarioModel),
    (SCENARIO, "$defs model properties inference", scenario.Inference),
    (SCENARIO, "$defs model properties load items", scenario.LoadTime),
    (SCENARIO, "$defs stream", scenario.Stream),
    (SCENARIO, "$defs start_state", scenario.StartState),
    (PROBLEM, "$defs family", problem.Family),
    (PROBLEM, "$defs worker_type", problem.WorkerType),
    (PROBLEM, "$defs variant", problem.Variant),
    (PROBLEM, "$defs variant properties latency items", problem.Latency),
    (PROBLEM, "$defs partitions", PartitionTable),
    (PROBLEM, "$defs partitions properties instances items", Instance),
    (PROBLEM, "properties rules", problem.Rules),
    (PROBLEM, "properties current items", problem.Holding),
    (read_schema("placement_milp", "value-table-1"), "properties rows items", problem.ValueRow),
    (PLACEMENT, GROUP, result.Group),
    (PLACEMENT, f"{GROUP} properties uses items", result.Use),
    (PLACEMENT, "properties gpus items", result.CutGpu),
    (POLICY, "properties expectations", policy.Expectations),
    (POLICY, f"{EXPECTATIONS} per_decision", policy.PerDecision),
    (POLICY, f"{EXPECTATIONS} batch_size", policy.Spread),
    (POLICY, f"{EXPECTATIONS} recovery", policy.Recovery),
    (POLICY, f"{EXPECTATIONS} interval", policy.Interval),
    (POLICY, "properties certificate", policy.CertificateRecord),
    (POLICY, "properties budget", policy.BudgetRecord),
    (POLICY, "properties replay", policy.Replay),
    (POLICY, "properties headroom", policy.HeadroomRecord),
]

# Values at and beyond the ends of the ranges, of each kind that JSON has.
VALUES: list[Any] = [
    None, True, -1, -1e-9, 0, 1e-9, 0.25, 1, 1 + 1e-9, 2, 15, 16, 17, 1000.5, 10**9, 10**13,
    10**30, "", "x", "beside", "blocking", "continuous", [], [0], [-1], [1, 0.5], [0.5, 1], ["x"],
    ["x", "x"], ["x", 1], {}, {"x": 0.5}, {"x": -1}]


# What a schema cannot say: numbers that rise, names of the shipped tables, names of instances.
BEYOND_SCHEMAS = {("Interval", "violation_rate"), ("Interval", "effective_accuracy"),
                  ("WorkerType", "partitions"), ("CutGpu", "instances")}
# A GPU that is cut has the memory of its largest instance; a variant states that it has no times.
NEEDED_BY_OTHERS = {"WorkerType": {"memory_mb"}, "Variant": {"latency"}}


def _found(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The part of a schema at a path, references followed."""
    def step(here: dict[str, Any], key: str) -> dict[str, Any]:
        inner: dict[str, Any] = here[key]
        return _meant(schema, inner)

    return reduce(step, path.split(), schema)


def _meant(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """An object that a part refers to, or that it allows beside null."""
    while "properties" not in part:
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rpartition("/")[2]]
        elif "anyOf" in part or "oneOf" in part:
            part = next(one for one in part.get("anyOf") or part["oneOf"]
                        if one.get("type") != "null")
        else:
            break
    return part


def _differences(
    schema: dict[str, Any], found: dict[str, Any], record: type[Record]
) -> Iterator[str]:
    """Fields and values that only one of the two allows."""
    readers = _readers(cast(Hashable, record))
    yield from (f"{name}: only one has it" for name in {*readers} ^ {*found["properties"]})
    for name in {*readers} & {*found["properties"]}:
        if (record.__name__, name) in BEYOND_SCHEMAS:
            continue
        kind = Draft202012Validator({"$defs": schema.get("$defs", {}),
                                     **found["properties"][name]})
        for value in VALUES:
            if kind.is_valid(value) != _is_read(readers[name][0], name, value):
                said = "the schema" if kind.is_valid(value) else "the record"
                yield f"{name}: only {said} allows {value!r}"


def _is_read(read: Any, name: str, value: Any) -> bool:
    try:
        read(Fields({name: value}, "f.json"), name)
    except InputFileError:
        return False
    return True


@pytest.mark.parametrize(("schema", "path", "record"), RECORDS,
                         ids=[record.__name__ for _, _, record in RECORDS])
def test_schema_and_record_allow_the_same(
    schema: dict[str, Any], path: str, record: type[Record]
) -> None:
    found = _found(schema, path)
    assert not list(_differences(schema, found, record))
    if not issubclass(record, WrittenRecord):
        needed = {name for name, (_, must) in _readers(cast(Hashable, record)).items() if must}
        assert needed ^ {*found.get("required", ())} == NEEDED_BY_OTHERS.get(
            record.__name__, set())
