"""Verification of policies for requests with a size."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from ramsis.errors import InputFileError
from ramsis.fields import Fields
from ramsis.files import canonical_json, read_json
from ramsis.runtime.sized import SizedTables
from ramsis.runtime.sized_dispatcher import SizedDispatcher
from ramsis.sized import policy, search
from ramsis.sized.policy import SizedPolicy, generate_sized, write_sized
from ramsis.sized.records import SizedFile
from ramsis.verify import sized
from ramsis.verify.sized import verify_sized
from scripts.sized import CELLS
from tests import changes
from tests.verify.mutations import numbers, put

TOLERANCE = 1e-4
LOAD_QPS = 3600.0


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """A policy's file of short simulations, its verification being as short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "REQUESTS", 2000)
        patch.setattr(search, "_GENERATIONS", 2)
        patch.setattr(policy, "REQUESTS", 1000)
        patch.setattr(policy, "_BOUND", {"stretches": 2, "refined": 2, "requests": 300})
        patch.setattr(sized, "_QUERIES", 4000)
        cell, folder = CELLS["gpu"], tmp_path_factory.mktemp("sized")
        write_sized([generate_sized(cell.problem(), cell.profile(), LOAD_QPS)], folder, "")
        (path,) = folder.glob("sized-*.json")
        yield read_json(path)


def failing(document: dict[str, Any], folder: Path) -> set[str]:
    """Claims of a file that do not hold."""
    (folder / "policy.json").write_text(canonical_json(document))
    return {check.claim for check in verify_sized(folder / "policy.json", tolerance=TOLERANCE)
            if not check.holds}


def test_a_file_as_generated_holds(document, tmp_path):
    assert failing(document, tmp_path) == set()


def changed(document: dict[str, Any], path: tuple[Any, ...], factor: float) -> dict[str, Any]:
    """The document with one of its numbers multiplied."""
    return put(document, path, factor * dict(numbers(document))[path])


def test_each_figure_of_the_promise_is_derived(document, tmp_path, monkeypatch):
    """Each is halved, but for what the comparison with the dynamic program alone rests on."""
    (tmp_path / "policy.json").write_text(canonical_json(document))
    (made,) = sized.read_sized(tmp_path / "policy.json")
    again, played, tables = sized.measured_again(made), sized._played(made), made.tables
    monkeypatch.setattr(sized, "_tables_again", lambda policy: tables)

    def holds(document: dict[str, Any]) -> bool:
        policy = SizedPolicy(tables, document)
        return all(check.holds for check in sized.checks(policy, again, played, TOLERANCE))

    skipped = {"runs", "requests", "rule_gain_half_width", "sizes"}
    tried = [path for path, value in numbers(document["expectations"])
             if not isinstance(value, bool) and not skipped & set(path)]
    assert holds(document)
    assert len(tried) > 30
    for path in tried:
        half = changed(document, ("expectations", *path), 0.5)
        assert half == document or not holds(half), path


@pytest.mark.parametrize(("path", "factor"), [
    (("load_qps",), 0.5), (("numbers", "price"), 0.5), *(
        pytest.param(path, factor, marks=pytest.mark.slow) for path, factor in (
            (("models", 0, "accuracy"), 0.5), (("rule", "price", 3), 0.5),
            (("inputs", "times", 0, "p95_ms", 0, 0), 0.5),
            (("inputs", "sizes", "probability", 5), 0.5), (("expectations", "requests"), 2)))
])
def test_what_the_promise_rests_on_is_used(document, tmp_path, path, factor):
    assert failing(changed(document, path, factor), tmp_path)


def test_the_dispatcher_is_not_the_simulation(document, tmp_path, monkeypatch):
    """Where the dispatcher decides otherwise only its claims fail."""
    class Dear(SizedDispatcher[int]):
        def __init__(self, tables: SizedTables, size_of: Any) -> None:
            super().__init__(tables._replace(price=[10.0] * len(tables.price)), size_of)

    monkeypatch.setattr(sized, "SizedDispatcher", Dear)
    wrong = failing(document, tmp_path)
    assert wrong
    assert all(claim.endswith("by the dispatcher") for claim in wrong)


def test_a_file_whose_problem_cannot_be_is_refused(document, tmp_path):
    with pytest.raises(InputFileError, match=r"inputs: no problem: .*no request can be answered"):
        failing(changed(document, ("slo_ms",), 1e-3), tmp_path)


def test_more_runs_than_are_ever_made_are_refused(document, tmp_path):
    with pytest.raises(InputFileError, match=r"runs.*64"):
        failing(changed(document, ("expectations", "runs"), 10**8), tmp_path)


@pytest.mark.parametrize(("change", "message"), [
    (changes.put("expectations", "padding", value=-0.1),
     "expectations.padding: not a valid number: got -0.1; allowed: a fraction in"),
    (changes.drop("expectations", "accuracy"), "expectations.accuracy: field is missing"),
    (changes.put("expectations", "by_class", 0, "share", value=None),
     r"expectations.by_class\[0\].share: not a valid number: got None"),
    (changes.put("inputs", "times", 0, "law", value="mean"), r"inputs.times\[0\].law: unknown"),
    (changes.put("inputs", "seed", value=-1), "inputs.seed: not a valid number: got -1"),
    (changes.drop("arrivals", "process"), "arrivals.process: field is missing"),
    (changes.put("numbers", "speed", value=1.0), "numbers.speed: unknown field"),
    (changes.put("color", value="red"), "color: unknown field"),
])
def test_a_field_that_breaks_the_format_is_refused(document, change, message):
    broken = deepcopy(document)
    change(broken)
    with pytest.raises(InputFileError, match=rf"^a\.json: {message}"):
        SizedFile.from_fields(Fields(broken, "a.json"))
