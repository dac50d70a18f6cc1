"""The policy set: which level answers, and when the caller is told that none is high enough."""

import pytest

from ramsis import policy, runtime
from ramsis.errors import InvalidValueError
from tests.policy.samples import small_policy


@pytest.fixture
def folder(tmp_path):
    members = [small_policy(load_qps=load) for load in (400.0, 800.0, 1200.0)]
    policy.write_set(tmp_path, policy.set_of(members), created_by="test")
    return tmp_path


def test_a_folder_loads_as_a_set_and_a_file_as_a_selector(folder):
    policies = runtime.load(folder)
    assert isinstance(policies, runtime.PolicySet)
    assert policies.loads() == policies.loads("poisson") == (400.0, 800.0, 1200.0)
    assert policies.processes == ("poisson",)
    selector = runtime.load(str(folder / "round-robin-00800qps.json"))
    assert isinstance(selector, runtime.Selector)
    assert selector(1, 95.0) == policies.at(800.0).selector(1, 95.0) == ("large", 1)


def test_other_files_in_the_folder_do_not_matter(folder):
    (folder / "notes.json").write_text("not even JSON")
    assert len(runtime.load_set(folder).levels) == 3


def test_an_error_in_the_callback_reaches_the_caller_once(folder):
    def fail(load_qps: float) -> None:
        raise RuntimeError(f"no policy for {load_qps}")

    policies = runtime.load_set(folder, on_above_highest=fail)
    with pytest.raises(RuntimeError, match="no policy for 1300"):
        policies.at(1300.0)
    assert policies.at(1300.0) == (policies.at(1200.0).level, True, 1.0)


def test_sets_of_nothing_and_of_one_key_twice_are_refused(folder):
    selector = runtime.load_selector(folder / "round-robin-00400qps.json")
    with pytest.raises(InvalidValueError, match="at least one"):
        runtime.set_of_selectors([])
    with pytest.raises(InvalidValueError, match="two policies for one load"):
        runtime.set_of_selectors([selector, selector])


def test_an_unknown_process_is_answered_with_the_known_ones(folder):
    with pytest.raises(InvalidValueError, match="got 'mmpp'; allowed: poisson"):
        runtime.load_set(folder).at(400.0, "mmpp")
    with pytest.raises(InvalidValueError, match="got 'mmpp'; allowed: poisson"):
        runtime.load_set(folder).loads("mmpp")


def test_several_stations_are_asked_for_by_class(folder):
    selector = runtime.load_selector(folder / "round-robin-00400qps.json")
    stations = (runtime.Station("a", ("gpu",), 2, 300.0, {50.0: 1.0, 100.0: 0.5}, selector),
                runtime.Station("b", ("cpu",), 4, 100.0, {100.0: 0.5}, selector))
    level = runtime.Level(400.0, "poisson", stations, {})
    policies = runtime.PolicySet([level], {"gpu": 2, "cpu": 4}, {50.0: 0.5, 100.0: 0.5})
    choice = policies.at(300.0)
    assert [choice.level.route(100.0, uniform).name for uniform in (0.3, 0.7)] == ["a", "b"]
    assert choice.level.route(50.0, 0.99).selector is selector
    with pytest.raises(InvalidValueError, match=r"several stations.*got 'a, b'"):
        _ = choice.selector
    with pytest.raises(InvalidValueError, match=r"no class of this SLO: got 75.0; allowed: 50"):
        choice.level.route(75.0, 0.5)
