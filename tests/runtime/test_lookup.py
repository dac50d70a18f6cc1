"""The lookup: total, exact on every edge, as the specification and its vectors say."""

from __future__ import annotations

import json
import math
import timeit
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis import runtime
from ramsis.errors import InvalidValueError
from ramsis.policy import WorkerPolicy, write
from ramsis.runtime.fields import Fields
from ramsis.runtime.table import arrivals_label, lookup_table
from tests.policy.samples import large_policy, policies
from tests.reference import lookup as twin

VECTORS_FILE = Path(__file__).parents[2] / "docs" / "conformance" / "vectors.json"
VECTORS = json.loads(VECTORS_FILE.read_text())


def selector_for(document: dict[str, Any]) -> runtime.Selector:
    """The selector of a policy document."""
    return runtime.Selector(lookup_table(Fields(document, "vectors")))


def answer(selector: runtime.Selector, queued: int, slack_ms: float) -> dict[str, Any]:
    """A selector's answer in the form of the vectors."""
    try:
        found = selector(queued, slack_ms)
        return {"drop": True} if found == runtime.DROP else found._asdict()
    except InvalidValueError:
        return {"error": True}


def test_the_vectors_are_those_of_the_independent_twin() -> None:
    assert VECTORS_FILE.read_text() == twin.vectors_text()


@pytest.mark.parametrize(
    ("policy", "lookups"), [("policy", "lookups"), ("dropping_policy", "dropping_lookups")]
)
def test_every_lookup_vector_holds(policy: str, lookups: str) -> None:
    selector = selector_for(VECTORS[policy])
    for case in VECTORS[lookups]:
        given_, expected = {"queued", "slack_ms"}, dict(case)
        arguments = {key: expected.pop(key) for key in given_}
        found = answer(selector, arguments["queued"], float(arguments["slack_ms"]))
        assert found == expected, case


def test_every_policy_set_vector_holds() -> None:
    for vector in VECTORS["sets"]:
        called: list[float] = []
        selectors = [
            selector_for({**VECTORS["policy"], "load_qps": level["load_qps"],
                          "arrivals": level["arrivals"]})
            for level in vector["levels"]
        ]
        policies = runtime.PolicySet(selectors, on_above_highest=called.append)
        for level in vector["levels"]:
            assert arrivals_label(level["arrivals"]) == level["label"]
        for case in vector["cases"]:
            called.clear()
            load = float(case["load_qps"])
            try:
                choice = policies.at(load, case["process"])
            except InvalidValueError:
                assert case.get("error"), case
                continue
            assert choice.level_qps == choice.selector.table.load_qps == case["level_qps"], case
            assert choice.above_highest == case["above_highest"], case
            assert called == ([load] if case["calls_back"] else []), case


def test_every_load_monitor_vector_holds() -> None:
    for vector in VECTORS["monitors"]:
        monitor = runtime.LoadMonitor(vector["window_ms"])
        for step in vector["steps"]:
            try:
                if "record_ms" in step:
                    monitor.record(float(step["record_ms"]), step["count"])
                else:
                    load = monitor.load_qps(float(step["load_at_ms"]))
                    assert load == pytest.approx(step.get("load_qps"), rel=1e-12), step
            except InvalidValueError:
                assert step.get("error"), step
            else:
                assert "error" not in step, step


@given(sample=policies(), queued=st.integers(-2, 12), slack=st.floats(), data=st.data())
def test_any_policy_answers_as_a_linear_scan_does(
    sample: WorkerPolicy, queued: int, slack: float, data: st.DataObject
) -> None:
    edge = data.draw(st.sampled_from(sample.slack_ms.tolist()))
    document = sample.to_document()
    selector = selector_for(document)
    for slack_ms in (slack, edge, math.nextafter(edge, -1), math.nextafter(edge, math.inf)):
        assert answer(selector, queued, slack_ms) == twin.decide(document, queued, slack_ms)


@pytest.mark.parametrize(
    ("queued", "slack_ms", "message"),
    [
        (0, 10.0, "queued: nothing queued: got 0; allowed: 1 or more"),
        (-3, 10.0, "queued: nothing queued: got -3"),
        (1.0, 10.0, "queued: not a whole number: got 1.0"),
        (99.5, 10.0, "queued: not a whole number: got 99.5"),
        (None, 10.0, "queued: not a whole number: got None"),
        (1, math.nan, "slack_ms: slack is not a number: got nan"),
        (99, math.nan, "slack_ms: slack is not a number: got nan"),
        (1, None, "slack_ms: slack is not a number: got None"),
        (99, "soon", "slack_ms: slack is not a number: got 'soon'"),
    ],
)
def test_questions_without_an_answer_are_refused(
    queued: Any, slack_ms: Any, message: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        selector_for(VECTORS["policy"])(queued, slack_ms)
    assert str(caught.value).startswith(message)


def test_numpy_numbers_are_taken() -> None:
    selector = selector_for(VECTORS["policy"])
    assert selector(np.int64(2), np.float64(70.0)) == selector(2, 70.0) == ("medium", 2)  # type: ignore[arg-type]


def test_one_slack_bin_has_one_answer() -> None:
    document = {**VECTORS["policy"], "slack_ms": [0],
                "table": {"model": [[2]] * 3, "batch": [[1]] * 3}}
    selector = selector_for(document)
    assert {selector(n, s) for n in (1, 3) for s in (-5.0, 0.0, 1e9)} == {("large", 1)}


def test_a_lookup_takes_a_microsecond_or_less(tmp_path: Path) -> None:
    write(large_policy(), tmp_path / "policy.json")
    selector = runtime.load_selector(tmp_path / "policy.json")
    count = 20_000
    seconds = min(timeit.repeat(lambda: selector(17, 83.3), number=count, repeat=9))
    assert seconds / count <= 1e-6
