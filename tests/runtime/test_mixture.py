"""A place with two answers: as the specification says, and by chance with the stated share."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ramsis import runtime
from ramsis.errors import InputFileError, InvalidValueError
from tests.reference import fleet_lookup, lookup
from tests.reference import mixture_lookup as twin

VECTORS_FILE = Path(__file__).parents[2] / "docs" / "conformance" / "mixture-vectors.json"
VECTORS = json.loads(VECTORS_FILE.read_text())


class Source:
    """Gives one number, and counts how often it is asked."""

    def __init__(self) -> None:
        self.value, self.drawn = 0.0, 0

    def __call__(self) -> float:
        self.drawn += 1
        return self.value


def asked(selector: Any, source: Source, case: dict[str, Any]) -> dict[str, Any]:
    """The answer to a case, in the form of the vectors."""
    source.value, source.drawn = case["uniform"], 0
    keys = [key for key in ("idle", "queued", "slack_ms") if key in case]
    try:
        found = selector(*(case[key] for key in keys))
    except InvalidValueError:
        return {"error": True, "draws": source.drawn == 1}
    draws = {"draws": source.drawn == 1}
    if isinstance(found, runtime.Wait):
        return {"wait_below_ms": found.below_ms, **draws}
    if isinstance(found, runtime.Drop):
        return {"drop": True, **draws}
    return {**found._asdict(), **draws}


def test_the_vectors_are_those_of_the_independent_twin() -> None:
    assert VECTORS_FILE.read_text() == twin.vectors_text()


@pytest.mark.parametrize("k", range(len(VECTORS["sets"])))
def test_every_vector_holds(k: int) -> None:
    source, one = Source(), VECTORS["sets"][k]
    selector = runtime.selector_of(one["policy"], "vectors", source)
    drawn = 0
    for case in one["lookups"]:
        expected = {key: value for key, value in case.items()
                    if key not in ("idle", "queued", "slack_ms", "uniform")}
        assert asked(selector, source, case) == expected, case
        drawn += expected["draws"]
    assert drawn > 0


def test_the_second_answer_has_its_probability() -> None:
    selector = runtime.selector_of(twin.WORKER, "vectors", Random(1).random)
    assert isinstance(selector, runtime.Selector)
    n = 20_000
    share = sum(selector(2, 40.0) == runtime.Decision("small", 2) for _ in range(n)) / n
    assert abs(share - 0.25) < 4 * math.sqrt(0.25 * 0.75 / n)


def test_without_a_source_of_chance_every_run_draws_the_same() -> None:
    first, second = (runtime.selector_of(twin.WORKER, "vectors") for _ in range(2))
    assert isinstance(first, runtime.Selector)
    assert isinstance(second, runtime.Selector)
    answers = [first(2, 40.0) for _ in range(50)]
    assert answers == [second(2, 40.0) for _ in range(50)]
    assert len(set(answers)) == 2


def test_a_table_without_such_a_place_draws_nothing() -> None:
    def never() -> float:
        raise AssertionError

    worker = runtime.selector_of(lookup.POLICY, "vectors", never)
    fleet = runtime.selector_of(fleet_lookup.POLICY, "vectors", never)
    assert isinstance(worker, runtime.Selector)
    assert isinstance(fleet, runtime.FleetSelector)
    for slack_ms in range(-10, 120, 3):
        worker(2, slack_ms)
        fleet(2, 2, slack_ms)


@pytest.mark.parametrize(("change", "message"), [
    ({"probability": 0.0}, "mixture.probability: not a valid number"),
    ({"probability": 1.0}, "mixture.probability: not a valid number"),
    ({"place": [1]}, "mixture.place: list has the wrong length"),
    ({"place": [1, 5]}, "mixture.place: outside the table"),
    ({"place": [1, -1]}, "mixture.place: outside the table"),
    ({"place": [1, 1.5]}, "mixture.place: not whole numbers"),
    ({"answer": [3, 1]}, "mixture.answer: no answer for this place"),
    ({"answer": [0, 3]}, "mixture.answer: no answer for this place"),
    ({"answer": [0]}, "mixture.answer: list has the wrong length"),
    ({"more": 1}, "mixture.more: unknown field"),
])
def test_a_place_outside_the_table_is_refused(change: dict[str, Any], message: str) -> None:
    document = copy.deepcopy(twin.WORKER)
    document["mixture"].update(change)
    with pytest.raises(InputFileError, match=message):
        runtime.selector_of(document, "file")


@pytest.mark.parametrize("answer", [-3, 5, 3])
def test_a_fleet_refuses_an_answer_that_its_queue_cannot_give(answer: int) -> None:
    document = copy.deepcopy(twin.FLEETS[0])  # a queue of 1; option 3 is a batch of 4
    document["mixture"]["answer"] = [answer]
    with pytest.raises(InputFileError, match=r"mixture.answer: no answer for this place"):
        runtime.selector_of(document, "file")
