"""The fleet's lookup: total, exact on every edge, as the specification and its vectors say."""

from __future__ import annotations

import copy
import json
import timeit
from pathlib import Path
from typing import Any

import pytest

from ramsis import runtime
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.runtime.fields import Fields
from ramsis.runtime.fleet import fleet_table, wake_slack
from tests.central import samples
from tests.reference import fleet_lookup as twin

VECTORS_FILE = Path(__file__).parents[2] / "docs" / "conformance" / "fleet-vectors.json"
VECTORS = json.loads(VECTORS_FILE.read_text())


def selector() -> runtime.FleetSelector:
    return runtime.FleetSelector(fleet_table(Fields(VECTORS["policy"], "vectors")))


def answer(idle: int, queued: int, slack_ms: float) -> dict[str, Any]:
    """A selector's answer in the form of the vectors."""
    try:
        found = selector()(idle, queued, slack_ms)
    except InvalidValueError:
        return {"error": True}
    if isinstance(found, runtime.Drop):
        return {"drop": True}
    if isinstance(found, runtime.Wait):
        return {"wait_below_ms": found.below_ms}
    return found._asdict()


def test_the_vectors_are_those_of_the_independent_twin() -> None:
    assert VECTORS_FILE.read_text() == twin.vectors_text()


def test_every_vector_holds() -> None:
    for case in VECTORS["lookups"]:
        expected = dict(case)
        asked = [expected.pop(key) for key in ("idle", "queued", "slack_ms")]
        assert answer(asked[0], asked[1], float(asked[2])) == expected, case


@pytest.mark.parametrize("arguments", [(1.5, 1, 1.0), (1, "2", 1.0), (1, 1, None), (1, 1, "3")])
def test_other_types_are_refused(arguments: tuple[Any, Any, Any]) -> None:
    with pytest.raises(InvalidValueError):
        selector()(*arguments)


def test_below_a_wait_the_answer_is_another_one() -> None:
    ask = selector()
    for idle in range(1, 10):
        for queued in range(1, 8):
            found = ask(idle, queued, 95.0)
            if isinstance(found, runtime.Wait) and found.below_ms is not None:
                slack = wake_slack(found)
                assert slack is not None
                assert slack < found.below_ms
                assert not isinstance(ask(idle, queued, slack), runtime.Wait)
                assert ask(idle, queued, found.below_ms) == found


def test_files_and_folders_load(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(VECTORS["policy"]))
    loaded = runtime.load(path)
    assert isinstance(loaded, runtime.FleetSelector)
    assert loaded(1, 1, 20.0) == runtime.Decision("small", 1)


@pytest.mark.parametrize(("path", "value", "message"), [
    (("late",), "serve", "late: unknown late"),
    (("idle_levels",), [0, 2, 9], r"idle_levels\[1\]: levels do not rise"),
    (("idle_levels",), [0, 1, 8], "not the number of workers"),
    (("queue_levels",), [0, 1, 2, 2, 7], r"queue_levels\[3\]: levels do not rise"),
    (("options", 0), [3, 1], r"options\[0\]: not a model and a batch"),
    (("table", "rows", 0), [0, -2, 0, 1], r"table.rows\[0\]: not a row"),
    (("table", "rows", 0), [1, -2], r"table.rows\[0\]: not a row"),
    (("table", "rows", 0), [0, 5], r"table.rows\[0\]: not a row"),
    (("table", "rows", 0), [0, -3], r"table.rows\[0\]: not a row"),
    (("table", "index", 0), [0, 1, 3], r"table.index\[0\]: not a row for each queue level"),
    (("table", "index", 0, 0), 3, r"table.index\[0\]\[0\]: no such row for this queue"),
    (("slack_ms",), [1.0, 2.0], "slack grid does not start at 0"),
])
def test_what_the_lookup_reads_is_checked(path: tuple[Any, ...], value: Any, message: str) -> None:
    document = copy.deepcopy(VECTORS["policy"])
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(InputFileError, match=message):
        fleet_table(Fields(document, "file"))


def test_a_lookup_takes_microseconds() -> None:
    policy = samples.policy(6000.0)
    ask = runtime.FleetSelector(fleet_table(Fields(policy.to_document(), "policy")))
    taken = min(timeit.repeat(lambda: ask(7, 13, 61.0), number=2000, repeat=5)) / 2000
    assert taken < 20e-6  # 2 where nothing else runs


def test_late_answers_take_only_workers_that_nobody_needs() -> None:
    ask = selector()  # of 9 workers, 4 are enough
    first = VECTORS["policy"]["models"][0]["name"]
    for idle in range(10):
        expected = (first, 1) if idle >= 4 else None
        assert ask.late_answer(idle, 0) == expected
        assert ask.late_answer(idle, 1) is None
    never = runtime.FleetSelector(ask.table._replace(spare_idle=None))
    always = runtime.FleetSelector(ask.table._replace(spare_idle=0))
    assert never.late_answer(9, 0) is None
    assert (always.late_answer(0, 0), always.late_answer(1, 0)) == (None, (first, 1))
