"""Schedulers that installed packages offer."""

from importlib.metadata import EntryPoint

import pytest

from ramsis.errors import InputFileError
from ramsis.planning import SCHEDULERS as PLANNED
from ramsis.sim import SCHEDULERS, registry, scheduler
from ramsis.sim.schedulers.loading.clockwork import Clockwork


@pytest.fixture
def offered(monkeypatch):
    """A package with three schedulers, of which one is none and one cannot be imported."""
    found = {name: EntryPoint(name, value, registry.GROUP) for name, value in {
        "theirs": "ramsis.sim.schedulers.loading.clockwork:Clockwork",
        "broken": "ramsis.sim.no_such_module:Any", "none": "json:dumps",
        "clockwork": "ramsis.sim.no_such_module:Any"}.items()}
    monkeypatch.setattr(registry, "_offered", lambda: found)


@pytest.mark.usefixtures("offered")
def test_what_a_package_offers_is_taken_by_its_name():
    assert {"theirs", "broken", "planned"} <= set(SCHEDULERS)
    assert {*SCHEDULERS} == {*PLANNED}
    assert len(PLANNED) == len(set(PLANNED))
    found = scheduler("theirs:ahead_ms=3")
    assert found.kind is Clockwork
    assert found.parameters == {"ahead_ms": 3.0}
    assert found.own is None


@pytest.mark.usefixtures("offered")
def test_names_of_this_project_come_first():
    assert scheduler("clockwork").kind is Clockwork


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize(("name", "words"), [
    ("broken", "scheduler broken: cannot be imported .*no_such_module"),
    ("none", "scheduler: not a scheduler: got .json:dumps"),
    ("teirs", "unknown scheduler: got .teirs.; allowed: theirs")])
def test_what_is_none_is_refused_in_a_line(name, words):
    with pytest.raises(InputFileError, match=words):
        scheduler(name)
