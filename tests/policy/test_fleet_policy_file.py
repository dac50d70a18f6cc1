"""Fleet policies in files: the same back, small, and refused where they break the format."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ramsis import policy
from ramsis.errors import InputFileError
from ramsis.policy.schema import schema
from tests.central import samples
from tests.reference.fleet_lookup import POLICY


def test_a_policy_comes_back_as_it_was_written(tmp_path: Path) -> None:
    made = samples.policy(6000.0)
    text = policy.write(made, tmp_path / "p.json")
    found = policy.validate(tmp_path / "p.json")
    assert isinstance(found, policy.FleetPolicy)
    assert (found.table == made.table).all()
    assert policy.policy_text(found) == text
    assert found.expectations == made.expectations


def test_the_file_stays_small_with_the_fleet(tmp_path: Path) -> None:
    sizes = [len(policy.policy_text(samples.policy(300.0 * workers, workers=workers)))
             for workers in (20, 2000)]
    assert max(sizes) < 200_000
    assert sizes[1] < 4 * sizes[0]


def test_the_schema_and_the_code_know_the_same_fields() -> None:
    properties = schema("fleet-policy-1")["properties"]
    assert tuple(properties["service"]["enum"]) == policy.FLEET_SERVICES
    assert set(properties) == {*POLICY, "slo_classes", "mixture", "budget", "uneven_ends"}


@pytest.mark.parametrize(("path", "value", "message"), [
    (("service",), "p42", "service: unknown service"),
    (("violation_price",), -1.0, "violation_price: not a valid number"),
    (("models", 0, "service_ms", 1), [14.0, 15.0], r"models\[0\].service_ms\[1\]: list has"),
    (("models", 0, "service_ms", 1), [0.0], r"service_ms\[1\]\[0\]: not a valid number"),
    (("models", 2, "accuracy"), 80, r"models\[2\].accuracy: not a valid number"),
    (("options", 3), [1, 3], r"options\[3\]: no service time for this batch"),
    (("spare_idle",), -1, "spare_idle: not a valid number"),
    (("colour",), "red", "colour: unknown field"),
    (("arrivals",), {}, "arrivals.process: field is missing"),
])
def test_bad_files_are_refused(
    tmp_path: Path, path: tuple[Any, ...], value: Any, message: str
) -> None:
    document = copy.deepcopy(POLICY)
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    file = tmp_path / "p.json"
    file.write_text(json.dumps(document))
    with pytest.raises(InputFileError, match=message):
        policy.read(file)


def test_models_stand_fastest_first(tmp_path: Path) -> None:
    document = copy.deepcopy(POLICY)
    document["models"][0]["service_ms"][0] = [400.0]
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(InputFileError, match=r"models\[1\].*not fastest first"):
        policy.validate(tmp_path / "p.json")
