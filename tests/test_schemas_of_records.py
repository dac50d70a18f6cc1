"""JSON schemas allow, field by field, what the records' annotations allow."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, ClassVar

import pytest
from jsonschema import Draft202012Validator

from placement_milp import problem, result
from placement_milp.partitions import Instance, PartitionTable
from ramsis.errors import InputFileError
from ramsis.fields import Fields
from ramsis.policy import records as policy
from ramsis.policy.cascade import CascadePromise
from ramsis.profiles import (
    BatchProfile,
    Confidences,
    ModelConfidence,
    ModelProfile,
    Pair,
    ProfileSet,
    SizedTimes,
)
from ramsis.records import EMPTY, Fraction, Positive, Record, Whole, readers_of
from ramsis.runtime.scaling_table import Steering
from ramsis.scaling import policy_file as scaling
from ramsis.scaling.promise import Promise
from ramsis.scenario import records as scenario
from ramsis.schemas import read_schema


@dataclass(frozen=True)
class Sample(Record):
    """A record of every kind of field."""

    FORMAT: ClassVar[str] = "ramsis.sample/1"

    name: Annotated[str, "Unique."]
    share: Fraction
    kind: Annotated[str, ("beside", "blocking"), "How it is loaded."] = "beside"
    count: Annotated[int, Whole(1, 16)] = 2
    times: tuple[Positive, ...] = ()
    names: Annotated[tuple[str, ...], EMPTY, "Names of models."] = ()
    prices: dict[str, float] | None = None
    bounded: bool = False
    interval: policy.Spread | None = None


POLICY = read_schema("ramsis.policy", "policy-1")

EXPECTATIONS = "properties expectations properties"
RECORDS = [
    (POLICY, "properties expectations", policy.Expectations),
    (POLICY, f"{EXPECTATIONS} per_decision", policy.PerDecision),
    (POLICY, f"{EXPECTATIONS} batch_size", policy.Spread),
    (POLICY, f"{EXPECTATIONS} interval", policy.Interval),
    (POLICY, "properties certificate", policy.CertificateRecord),
    (POLICY, "properties budget", policy.BudgetRecord),
    (POLICY, "properties replay", policy.Replay),
    (POLICY, "properties headroom", policy.HeadroomRecord),
    (POLICY, "properties cascade properties promise", CascadePromise),
]

DERIVED = [
    Sample, scenario.ScenarioWorkerType, scenario.BatchTime, scenario.ScenarioModel,
    scenario.Inference, scenario.LoadTime, scenario.Stream, scenario.StartState, problem.Family,
    problem.WorkerType, problem.Variant, problem.Latency, problem.Rules, problem.Holding,
    problem.ValueRow, PartitionTable, Instance, result.Group, result.Use, result.CutGpu,
    scaling.ScalingFile, Promise, scaling.StatedDynamics, Steering, ProfileSet, ModelProfile,
    BatchProfile, SizedTimes, Confidences, ModelConfidence, Pair,
]
RECORDS += [(record.schema(), "", record) for record in DERIVED]

# Values at and beyond the ends of the ranges, of each kind that JSON has.
VALUES: list[Any] = [
    None, True, -1, -1e-9, 0, 1e-9, 0.25, 1, 1 + 1e-9, 2, 15, 16, 17, 1000.5, 10**9, 10**13,
    10**30, "", "x", "beside", "blocking", "continuous", [], [0], [-1], [1, 0.5], [0.5, 1], ["x"],
    ["x", "x"], ["x", 1], {}, {"x": 0.5}, {"x": -1}]


# What a schema cannot say: numbers that rise, names of the shipped tables.
BEYOND_SCHEMAS = {("Interval", "violation_rate"), ("Interval", "effective_accuracy"),
                  ("WorkerType", "partitions")}


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
    readers = readers_of(record)
    yield from (f"{name}: only one has it"
                for name in {*readers} ^ ({*found["properties"]} - {"format"}))
    for name in {*readers} & {*found["properties"]}:
        if (record.__name__, name) in BEYOND_SCHEMAS:
            continue
        kind = Draft202012Validator({"$defs": schema.get("$defs", {}),
                                     **found["properties"][name]})
        for value in VALUES:
            if kind.is_valid(value) != _is_read(readers[name].read, name, value):
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
def test_schema_and_record_allow_the_same(schema, path, record):
    found = _found(schema, path)
    assert not list(_differences(schema, found, record))


def test_a_schema_has_format_descriptions_and_defaults():
    schema = Sample.schema()
    Draft202012Validator.check_schema(schema)
    assert schema["required"] == ["format", "name", "share"]
    assert schema["properties"]["format"] == {"const": "ramsis.sample/1"}
    assert schema["properties"]["kind"] == {
        "enum": ["beside", "blocking"], "description": "How it is loaded.", "default": "beside"}
    assert schema["properties"]["count"] == {
        "type": "integer", "minimum": 1, "maximum": 16, "default": 2}
