"""The lookup: total, exact on every edge, as the specification and its vectors say."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis import runtime
from ramsis.errors import InvalidValueError
from ramsis.runtime.cascade import CascadeRule, Keep, WaitForEither
from ramsis.runtime.selector import wake_slack
from ramsis.runtime.table import arrivals_label
from tests.central import samples as central
from tests.policy.samples import large_policy, policies
from tests.reference import lookup as twin
from tests.runtime.cascades import drawn_document, selector_of
from tests.work import lines_of

VECTORS_FILE = Path(__file__).parents[2] / "docs" / "conformance" / "vectors.json"
VECTORS = json.loads(VECTORS_FILE.read_text())


def selector_for(document: dict[str, Any]) -> runtime.Selector:
    """The selector of a policy document."""
    return runtime.selector_of(document, "vectors")


def answer(
    selector: runtime.Selector, queued: int, slack_ms: float, idle: int | None = None,
    slowness: float | None = None,
) -> dict[str, Any]:
    """A selector's answer in the form of the vectors."""
    try:
        found = (selector(queued, slack_ms, idle) if slowness is None
                 else selector.when_slow(slowness, queued, slack_ms / slowness, idle))
    except InvalidValueError:
        return {"error": True}
    if isinstance(found, runtime.Drop):
        return {"drop": True}
    if isinstance(found, runtime.Wait):
        return {"wait_below_ms": found.below_ms}
    return {**found._asdict(), "run_as": found.run_as}


def test_the_vectors_are_those_of_the_independent_twin():
    assert VECTORS_FILE.read_text() == twin.vectors_text()


@pytest.mark.parametrize("k", range(len(VECTORS["lookups"])))
def test_every_lookup_vector_holds(k):
    one = VECTORS["lookups"][k]
    selector = selector_for(one["policy"])
    for case in one["cases"]:
        expected = dict(case)
        idle, queued = expected.pop("idle", None), expected.pop("queued")
        slack_ms = float(expected.pop("slack_ms"))
        slowness = expected.pop("slowness", None)
        assert answer(selector, queued, slack_ms, idle, slowness) == expected, case


def opinion_answer(answer: object) -> dict[str, Any]:
    """An answer of a rule of second opinions in the form of the vectors."""
    if isinstance(answer, Keep):
        return {"keep": True, "level": answer.level}
    if isinstance(answer, WaitForEither):
        return {f"wait_{name}": None if ms == -math.inf else ms
                for name, ms in answer._asdict().items()}
    if isinstance(answer, runtime.Drop):
        return {"drop": True}
    assert isinstance(answer, runtime.Decision)
    return {**answer._asdict(), "run_as": answer.run_as, **(
        {"second": True} if answer.second else {})}


def asked(rule: CascadeRule, case: dict[str, Any]) -> object:
    """The answer of a rule to a vector."""
    slowness = case.get("slowness", 1.0)
    counts = (case["fresh"], float(case["slack_ms"]) / slowness, case["unsure"],
              float(case["unsure_slack_ms"]) / slowness, case.get("kept_at"))
    return rule.when_slow(slowness, *counts) if "slowness" in case else rule(*counts)


@pytest.mark.parametrize("k", range(len(VECTORS["second_opinions"])))
def test_every_vector_of_second_opinions_holds(k):
    vector, kinds = VECTORS["second_opinions"][k], set()
    rule = selector_for(vector["policy"]).cascade
    assert rule is not None
    for case in vector["cases"]:
        expected = {name: value for name, value in case.items() if name not in (
            "fresh", "slack_ms", "unsure", "unsure_slack_ms", "kept_at", "slowness")}
        found = opinion_answer(asked(rule, case))
        assert found == expected, case
        kinds.add(tuple(found))
    assert len(kinds) >= 4
    for case in vector["unsure"]:
        if "is_unsure" in case:
            assert rule.unsure(case["level"], case["model"],
                               float(case["confidence"])) == case["is_unsure"], case
        else:
            assert rule.level(case["fresh"], case["unsure"]) == case["level"], case


@pytest.mark.parametrize("seed", range(8))
def test_random_rules_of_second_opinions_answer_as_a_linear_scan_does(seed):
    rng = np.random.default_rng(seed)
    document = drawn_document(rng, workers=2)
    rule = selector_of(document).cascade
    assert rule is not None
    times_ms = [0.0, *document["cascade"]["second_ms"]]
    edges = [*times_ms, *(ms + document["cascade"]["last_call_ms"] for ms in times_ms),
             *(document["cascade"]["step_ms"] * np.arange(document["cascade"]["bins"]))]
    for _ in range(400):
        slacks = np.where(rng.random(2) < 0.5, rng.choice(edges, 2) - rng.choice(
            [0.0, twin.TOLERANCE_MS, -twin.TOLERANCE_MS], 2), rng.uniform(-5.0, 65.0, 2)).tolist()
        fresh, unsure = (int(n) for n in rng.integers(0, 12, 2))
        level = int(rng.integers(len(document["cascade"]["gather"])))
        for kept_at in (None, level):
            expected = twin.decide_opinion(document, fresh, slacks[0], unsure, slacks[1], kept_at)
            assert opinion_answer(rule(fresh, slacks[0], unsure, slacks[1], kept_at)) == expected
        slow = twin.decide_opinion_when_slow(document, 1.5, fresh, slacks[0], unsure, slacks[1])
        assert opinion_answer(rule.when_slow(1.5, fresh, slacks[0] / 1.5, unsure,
                                             slacks[1] / 1.5)) == slow
        confidence = rng.random()
        for model in ("m0", "m1", "m2"):
            assert rule.unsure(level, model, confidence) == twin.is_unsure(
                document, level, model, confidence)


def test_the_vectors_have_every_kind_of_policy():
    policies = [one["policy"] for one in VECTORS["lookups"]]
    assert {one["dispatch"] for one in policies} == {"round-robin", "central-queue"}
    assert any("slo_classes" in one for one in policies)


def test_every_dispatch_vector_holds():
    assert {vector["dispatch"] for vector in VECTORS["dispatch"]} == set(runtime.DISPATCHES)
    for vector in VECTORS["dispatch"]:
        join = runtime.DISPATCHES[vector["dispatch"]].routing(vector["queues"])
        for step in vector["steps"]:
            assert join(step["in_system"]) == step["joins"], step


def test_every_station_vector_holds():
    for case in VECTORS["stations"]:
        stations = tuple(runtime.Station(str(i), ("all",), 1, 1.0, {100.0: share}, i)
                         for i, share in enumerate(case["shares"]))
        level = runtime.Level(1.0, "poisson", stations, {})
        assert level.route(100.0, case["uniform"]).policy == case["station"], case


def test_every_policy_set_vector_holds():
    for vector in VECTORS["sets"]:
        called: list[float] = []
        selectors = [
            selector_for({**twin.POLICY, "load_qps": level["load_qps"],
                          "slowness": level["slowness"], "arrivals": level["arrivals"]})
            for level in vector["levels"]
        ]
        policies = runtime.set_of_selectors(selectors, on_above_highest=called.append)
        for level in vector["levels"]:
            assert arrivals_label(level["arrivals"]) == level["label"]
        for case in vector["cases"]:
            called.clear()
            load, slowness = float(case["load_qps"]), float(case["slowness"])
            try:
                choice = policies.at(load, case["process"], slowness)
            except InvalidValueError:
                assert case.get("error"), case
                continue
            assert choice.level_qps == choice.selector.table.load_qps == case["level_qps"], case
            assert choice.level.slowness == choice.selector.table.slowness
            assert choice.level.slowness == case["level_slowness"], case
            assert choice.above_highest == case["above_highest"], case
            assert choice.slowness == case["slowness_left"], case
            assert called == ([load] if case["calls_back"] else []), case


def test_every_load_monitor_vector_holds():
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
def test_any_policy_answers_as_a_linear_scan_does(sample, queued, slack, data):
    edge = data.draw(st.sampled_from(sample.slack_ms.tolist()))
    document = sample.to_document()
    selector = selector_for(document)
    reached = edge - twin.TOLERANCE_MS
    for slack_ms in (slack, edge, math.nextafter(reached, -1), reached):
        expected = twin.decide(document, None, queued, slack_ms)
        assert answer(selector, queued, slack_ms) == expected


@pytest.mark.parametrize(("queued", "slack_ms", "message"), [
    (0, 10.0, "queued: nothing queued: got 0; allowed: 1 or more"),
    (99.5, 10.0, "queued: not a whole number: got 99.5"),
    (None, 10.0, "queued: not a whole number: got None"),
    (1, math.nan, "slack_ms: slack is not a number: got nan"),
    (99, "soon", "slack_ms: slack is not a number: got 'soon'"),
])
def test_questions_without_an_answer_are_refused(queued, slack_ms, message):
    with pytest.raises(InvalidValueError) as caught:
        selector_for(twin.POLICY)(queued, slack_ms)
    assert str(caught.value).startswith(message)


def test_numpy_numbers_are_taken():
    selector = selector_for(twin.POLICY)
    assert selector(np.int64(2), np.float64(70.0)) == selector(2, 70.0) == ("medium", 2)  # type: ignore[arg-type]


def test_one_slack_bin_has_one_answer():
    table = twin.POLICY["table"]
    document = {**twin.POLICY, "table": {
        **table, "axes": {**table["axes"], "slack_ms": [0]}, "rows": [[0, 2]],
        "index": [[0, 0, 0]]}}
    selector = selector_for(document)
    assert {selector(n, s) for n in (1, 3) for s in (-5.0, 0.0, 1e9)} == {("large", 1)}


@pytest.mark.parametrize(("policy", "arguments"), [
    (large_policy, (17, 83.3)), (lambda: central.policy(6000.0), (13, 61.0, 7))])
def test_a_lookup_runs_a_few_lines_however_large_the_table(policy, arguments):
    """Below a microsecond on a machine of today."""
    selector = runtime.Selector(policy().decision_table())
    assert lines_of(lambda: selector(*arguments)) <= 10


def central_selector() -> runtime.Selector:
    """Of nine workers with one queue."""
    return selector_for(twin.CENTRAL)


@pytest.mark.parametrize(("queued", "slack_ms", "idle", "message"), [
    (1, 1.0, None, "idle: idle workers are not stated: got None; allowed: 0 to 9"),
    (1, 1.0, 1.5, "idle: not a whole number: got 1.5; allowed: 0 or more"),
    (1, 1.0, -1, "idle: not a number of idle workers: got -1; allowed: 0 or more"),
    ("2", 1.0, 1, "queued: not a whole number: got '2'"),
])
def test_a_central_queue_needs_its_idle_workers(queued, slack_ms, idle, message):
    with pytest.raises(InvalidValueError) as caught:
        central_selector()(queued, slack_ms, idle)
    assert str(caught.value).startswith(message)


def test_below_a_wait_the_answer_is_another_one():
    ask = central_selector()
    for idle in range(1, 10):
        for queued in range(1, 8):
            found = ask(queued, 95.0, idle)
            if isinstance(found, runtime.Wait) and found.below_ms is not None:
                slack = wake_slack(found)
                assert slack is not None
                assert slack < found.below_ms
                assert not isinstance(ask(queued, slack, idle), runtime.Wait)
                assert ask(queued, found.below_ms, idle) == found
