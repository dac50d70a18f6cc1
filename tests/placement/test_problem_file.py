"""Problem files: what is read, what is refused, and in which words."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from placement_milp import place, problem_from_document, read_problem, read_values
from placement_milp.io import schema, shipped_problems
from ramsis.errors import InfeasibleError, InputFileError
from tests.placement.samples import document, documents, variant
from tests.placement.samples import value_row as row

Change = Callable[[dict[str, Any]], object]


def valid(found: dict[str, Any], name: str = "placement-problem-1") -> bool:
    return Draft202012Validator(schema(name)).is_valid(found)


@pytest.mark.parametrize("name", ["placement-problem-1", "value-table-1", "placement-1"])
def test_schemas_are_schemas(name):
    Draft202012Validator.check_schema(schema(name))


@given(found=documents(sharing=True))
@settings(max_examples=20, deadline=None)
def test_what_is_read_keeps_the_schema(found):
    assert valid(found)
    assert problem_from_document(found).name == "sample"


def test_the_reference_instances_are_valid(reference_dir):
    for workers in (20, 100):
        path = reference_dir / f"placement_{workers}_workers.json"
        assert valid(json.loads(path.read_text()))
        assert sum(item.count for item in read_problem(path).worker_types) == workers


@pytest.mark.parametrize("name", shipped_problems())
def test_shipped_problems_are_found_by_name(name):
    problem = read_problem(name)
    assert problem.name == name
    assert place(problem).status == "optimal"


def test_defaults_are_those_of_the_documentation():
    problem = problem_from_document(document(objective={"kind": "effective-accuracy"}))
    assert problem.objective.unserved_penalty == 0.0
    assert (problem.rules.latency_share_of_slo, problem.rules.variants_per_worker) == (0.5, 1)
    assert problem.families[0].weight == 1.0
    assert problem.worker_types[0].worker_names() == ("gpu-1", "gpu-2")


SCHEMA_TOO: dict[str, tuple[Change, str]] = {
    "no demand": (lambda d: d["families"][0].update(demand_qps=0),
                  "families[0].demand_qps: not a valid number: got 0; allowed: a finite "
                  "number > 0"),
    "negative demand": (lambda d: d["families"][1].update(demand_qps=-5),
                        "families[1].demand_qps: not a valid number: got -5"),
    "an accuracy in percent": (lambda d: d["variants"][0].update(accuracy=70),
                               "variants[0].accuracy: not a valid number: got 70; allowed: a "
                               "fraction in [0, 1]"),
    "a least share over 1": (lambda d: d["families"][0].update(min_served=1.2),
                             "families[0].min_served: not a valid number: got 1.2"),
    "a latency share over 1": (lambda d: d.update(rules={"latency_share_of_slo": 1.5}),
                               "rules.latency_share_of_slo: not a valid number: got 1.5"),
    "three variants on a worker": (lambda d: d.update(rules={"variants_per_worker": 3}),
                                   "rules.variants_per_worker: not a valid number: got 3"),
    "an unknown objective": (lambda d: d.update(objective={"kind": "best"}),
                             "objective.kind: unknown kind: got 'best'; allowed: "),
    "another kind's parameter": (
        lambda d: d.update(objective={"kind": "cheapest", "points": 3}),
        "objective.points: unknown field"),
    "an unknown metric": (
        lambda d: d.update(objective={"kind": "lexicographic", "order": ["speed"]}),
        "objective.order[0]: unknown or repeated metric: got 'speed'"),
    "an unknown field": (lambda d: d["families"][0].update(qps=3), "families[0].qps: unknown"),
    "half a worker": (lambda d: d["worker_types"][0].update(count=1.5),
                      "worker_types[0].count: not a valid number: got 1.5"),
    "no families": (lambda d: d.update(families=[]), "families: not a list: got []"),
    "a batch of none": (lambda d: d["variants"][0]["latency"][0].update(batch=0),
                        "variants[0].latency[0].batch: not a valid number: got 0"),
    "a speed relative to nothing": (
        lambda d: d["worker_types"][0].update(relative_speed=2.0),
        "worker_types[0].relative_speed: relative to nothing: got 2.0"),
    "a rule about one": (
        lambda d: d.update(colocation=[{"kind": "apart", "members": ["text"]}]),
        "colocation[0].members: too few members"),
    "a table nowhere": (lambda d: d.update(values=[{"family": "text"}]),
                        "values[0].rows: the table stands nowhere, or twice"),
    "another version": (lambda d: d.update(format="ramsis.placement-problem/2"),
                        "format: this version of ramsis.placement-problem is not known here: "
                        "got 'ramsis.placement-problem/2'"),
}
BEYOND: dict[str, tuple[Change, str]] = {
    "an infinite latency": (
        lambda d: d["variants"][0]["latency"][0].update(latency_ms=float("inf")),
        "variants[0].latency[0].latency_ms: not a valid number: got inf"),
    "a weight that is no number": (lambda d: d["families"][0].update(weight=float("nan")),
                                   "families[0].weight: not a valid number: got nan"),
    "an unknown family": (lambda d: d["variants"][1].update(family="audio"),
                          "variants[1].family: unknown family: got 'audio'; allowed: text, "
                          "vision"),
    "an unknown worker type": (
        lambda d: d["variants"][1]["latency"][0].update(worker_type="tpu"),
        "variants[1].latency[0].worker_type: unknown worker type: got 'tpu'; allowed: cpu, gpu"),
    "a family twice": (lambda d: d["families"][1].update(name="vision"),
                       "families[1].name: name is used twice: got 'vision'"),
    "a batch twice": (lambda d: d["variants"][1]["latency"][1].update(batch=2),
                      "variants[1].latency[1]: listed twice: got 'gpu, batch 2, 1 processes'"),
    "a worker that is not there": (
        lambda d: d.update(current=[{"worker": "gpu-3", "variants": ["small"]}]),
        "current[0].worker: unknown worker: got 'gpu-3'; allowed: cpu-1, cpu-2, gpu-1, gpu-2"),
    "a worker that holds what is not there": (
        lambda d: d.update(current=[{"worker": "gpu-1", "variants": ["huge"]}]),
        "current[0].variants[0]: unknown variant: got 'huge'"),
    "a rule on who is not there": (
        lambda d: d.update(colocation=[{"kind": "alone", "members": ["audio"]}]),
        "colocation[0].members[0]: unknown family or variant: got 'audio'"),
    "a type like one that is not there": (
        lambda d: d["worker_types"][0].update(latency_like="tpu"),
        "worker_types[0].latency_like: unknown worker type: got 'tpu'"),
    "names for other workers": (
        lambda d: d["worker_types"][0].update(workers=["one"]),
        "worker_types[0].workers: not a name for each worker: got '1 names'; allowed: 2"),
    "two workers of one name": (
        lambda d: d["worker_types"][0].update(workers=["cpu-1", "x"]),
        "name is used twice: got 'cpu-1'"),
    "a front without prices": (
        lambda d: (d.update(objective={"kind": "pareto"}),
                   [item.pop("cost_per_hour") for item in d["worker_types"]]),
        "worker_types: no worker costs anything, and the objective is its cost"),
    "a table for another SLO": (
        lambda d: d.update(values=[{"family": "text", "rows": [row(slo_ms=50)]}]),
        "values[0].rows: no row is for the family's SLO: got [50.0]"),
    "a table of unknown models": (
        lambda d: d.update(values=[{"family": "text", "rows": [row(model_set=["gpt"])]}]),
        "values[0].rows[0].model_set: unknown variant of text: got 'gpt'; allowed: bert"),
    "an impossible promise": (
        lambda d: d.update(values=[{"family": "text", "rows": [
            row(expected_effective_accuracy=0.9, expected_violation_rate=0.2)]}]),
        "values[0].rows[0].expected_effective_accuracy: above the share answered in time"),
}


@pytest.mark.parametrize("name", [*SCHEMA_TOO, *BEYOND])
def test_a_bad_problem_is_refused_with_place_and_value(name):
    change, says = (SCHEMA_TOO | BEYOND)[name]
    found = document()
    change(found)
    with pytest.raises(InputFileError) as error:
        problem_from_document(found, "p.json")
    assert str(error.value).startswith("p.json: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert valid(found) == (name in BEYOND)


HOPELESS: dict[str, tuple[Change, str]] = {
    "memory that fits nothing": (
        lambda d: [item.update(memory_mb=250) for item in d["worker_types"]],
        "family text: memory of no worker holds any of its variants: got '250 MB'; allowed: at "
        "least 300 MB"),
    "an SLO that no variant meets": (
        lambda d: d["families"][1].update(slo_ms=60),
        "family text: no variant meets the SLO: got '60 ms'; allowed: at least 80 ms"),
    "a family without variants": (
        lambda d: d["variants"].pop(),
        "family text: no variant has a latency on a worker type that it may run on"),
    "no workers": (
        lambda d: [item.update(count=0) for item in d["worker_types"]],
        "family vision: no variant has a latency on a worker type"),
    "a table that nothing fits": (
        lambda d: d.update(values=[{"family": "text", "rows": [row(workers=3)]}]),
        "family text: no row of its value table fits the workers"),
    "an accuracy that no variant has": (
        lambda d: d["families"][0].update(min_accuracy=0.95, min_served=0.5),
        "family vision reaches accuracy 0.9 instead of 0.95"),
    "more demand than workers": (
        lambda d: d["families"][0].update(demand_qps=1000, min_served=1),
        "of its demand instead of 1"),
    "contradictory minima": (
        lambda d: (d["families"][0].update(min_served=1), d.update(rules={"max_workers": 0})),
        "what binds: max_workers"),
    "too little money": (
        lambda d: (d["families"][0].update(min_served=1),
                   d.update(rules={"max_cost_per_hour": 2})),
        "max_cost_per_hour"),
    "too few workers for a family": (
        lambda d: d["families"][0].update(min_served=1, max_workers=0),
        "what binds: max_workers of family vision"),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_what_cannot_be_met_is_refused_with_the_reason(name):
    change, says = HOPELESS[name]
    found = document()
    change(found)
    with pytest.raises(InfeasibleError) as error:
        place(problem_from_document(found))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_the_shortfall_says_how_much_and_what_binds():
    """Two workers at 100 QPS each: 200 of 300 QPS, whatever else is asked."""
    found = document(
        families=[{"name": "vision", "demand_qps": 300, "slo_ms": 100, "min_served": 1}],
        worker_types=[{"name": "gpu", "count": 2, "memory_mb": 1000}],
        variants=[variant("only", "vision", 0.7, 100, {("gpu", 4): 40})])
    with pytest.raises(InfeasibleError) as error:
        place(problem_from_document(found))
    assert str(error.value) == (
        "no placement meets all minima: family vision serves 0.6667 of its demand instead of 1 "
        "(100 QPS short); what binds: workers of type gpu (2)")


def test_value_tables_are_read_beside_the_problem(tmp_path):
    table = {"format": "ramsis.value-table/1", "made_by": "sweep", "rows": [{**row(), "grid": 1}]}
    assert valid(table, "value-table-1")
    (tmp_path / "text.json").write_text(json.dumps(table))
    (tmp_path / "problem.json").write_text(json.dumps(
        document(values=[{"family": "text", "file": "text.json"}])))
    problem = read_problem(tmp_path / "problem.json")
    assert problem.values[0].rows == read_values(tmp_path / "text.json")
    assert problem.values[0].rows[0].model_set == ("bert",)


@pytest.mark.parametrize(("change", "says"), [
    ({"workers": 0}, "rows[0].workers: not a valid number"),
    ({"model_set": "bert"}, "rows[0].model_set: not a list"),
    ({"load_qps": -1}, "rows[0].load_qps: not a valid number"),
    ({"expected_violation_rate": 2}, "rows[0].expected_violation_rate: not a valid number"),
])
def test_bad_value_tables_are_refused(tmp_path, change, says):
    path = tmp_path / "values.json"
    table = {"format": "ramsis.value-table/1", "rows": [row(**change)]}
    assert not valid(table, "value-table-1")
    path.write_text(json.dumps(table))
    with pytest.raises(InputFileError, match=str(path)) as error:
        read_values(path)
    assert says in str(error.value)
