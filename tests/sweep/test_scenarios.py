"""Scenarios and schedulers as axes of a sweep."""

import json
from pathlib import Path
from typing import Any

import pytest

from ramsis.errors import InputFileError
from ramsis.planning import compare, scheduler_named
from ramsis.plugins import trusting
from ramsis.scenario import read_scenario
from ramsis.sweep import Sweep, SweepSpec, run_sweep
from tests.scenario.samples import document, model, stream
from tests.sweep.samples import rows, spec, tables

OWN = """from ramsis.sim import Scheduler

class Idle(Scheduler):
    pass

class Broken(Scheduler):
    def on_arrival(self, request):
        raise KeyError(request)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, load in (("a", 40), ("b", 90)):
        Path(f"{name}.json").write_text(json.dumps(document(
            name=name, duration_s=2, worker_types=[{"name": "gpu", "count": 2, "memory_mb": 200}],
            models=[model(copies=3)], start=[], streams=[stream(workload={"load_qps": load})])))
    Path("own.py").write_text(OWN)
    return tmp_path


def wanted(**changes: Any) -> SweepSpec:
    return SweepSpec.of({"scenario": ["a.json", "b.json"], "scheduler": ["clockwork", "lru"],
                         "seeds": 2, **changes})


def test_rows_hold_what_the_schedulers_do_side_by_side(place):
    result = run_sweep(wanted(), "out")
    assert (result.computed, result.reused, result.failures) == (4, 0, ())
    for row in result.rows:
        found, = compare(read_scenario(row["scenario"]), [scheduler_named(row["scheduler"])],
                         range(2), bound=True)
        by_hand = found.row()
        assert {key: row[key] for key in by_hand} == by_hand
        assert row["in_time"] <= row["bound"] <= 1
        assert row["share_of_bound"] == row["in_time"] / row["bound"]
    written = rows(place / "out" / "scenarios.csv")
    assert [(row["scenario"], row["scheduler"]) for row in written] == [
        (row["scenario"], row["scheduler"]) for row in result.rows]
    assert [float(row["in_time"]) for row in written] == [row["in_time"] for row in result.rows]
    each = rows(place / "out" / "scenario-seeds.csv")
    assert [row["seed"] for row in each] == ["0", "1"] * 4
    assert sum(int(row["requests"]) for row in each[:2]) == result.rows[0]["requests"]
    assert len(list((place / "out" / "bounds").iterdir())) == 2
    assert not (place / "out" / "results.csv").exists()
    assert len(result.to_frame()) == 4
    assert "of bound" in result._repr_html_()


def test_what_is_there_is_used_again_and_what_changed_is_computed(place):
    run_sweep(wanted(), "out")
    before = tables(place / "out")
    assert Sweep(wanted(), "out").todo == 0
    again = run_sweep(wanted(), "out")
    assert (again.computed, again.reused) == (0, 4)
    assert tables(place / "out") == before
    one = next((place / "out" / "scenarios").iterdir())
    one.write_text(one.read_text()[:50])
    assert run_sweep(wanted(), "out").computed == 1
    assert tables(place / "out") == before
    changed = Path("b.json")
    changed.write_text(changed.read_text().replace("90", "95"))
    assert run_sweep(wanted(), "out").computed == 2
    assert run_sweep(wanted(seeds=3), "out").computed == 4


def test_a_changed_trace_and_a_changed_scheduler_are_noticed(place):
    Path("times.csv").write_text("arrival_ms\n0\n10\n30\n")
    Path("c.json").write_text(json.dumps(document(streams=[
        stream(workload={"file": "times.csv"})])))
    with trusting(["own.py:Idle"]):
        made = wanted(scenario="c.json", scheduler=["clockwork", "own.py:Idle"])
        assert [row["requests"] for row in run_sweep(made, "out").rows] == [6, 6]
        Path("times.csv").write_text("arrival_ms\n0\n10\n30\n40\n")
        assert [row["requests"] for row in run_sweep(made, "out").rows] == [8, 8]
        Path("own.py").write_text(OWN + "\n")
        assert run_sweep(made, "out").computed == 1


def test_traces_travel_with_the_cells(place):
    Path("times.csv").write_text("arrival_ms\n0\n10\n30\n")
    Path("c.json").write_text(json.dumps(document(streams=[
        stream(workload={"file": "times.csv"})])))
    sweep = Sweep(wanted(scenario="c.json", scheduler="clockwork"), "out")
    Path("times.csv").unlink()
    assert sweep.run().rows[0]["requests"] == 6


def test_a_cell_that_fails_does_not_stop_the_others(place):
    with trusting(["own.py:Broken"]):
        result = run_sweep(wanted(scheduler=["own.py:Broken", "lru"], bound="off"), "out")
    assert len(result.rows) == len(result.failures) == 2
    failure = result.failures[0]
    assert failure.exit_code == 3
    assert "own.py, line 8, in on_arrival: scheduler own.py:Broken failed (KeyError: 0)" in (
        failure.error)
    assert [row["scheduler"] for row in rows(place / "out" / "failures.csv")] == [
        "own.py:Broken"] * 2
    assert {row["bound"] for row in result.rows} == {None}


def test_policies_and_scenarios_stand_in_one_specification(place, tiny_file):
    both = SweepSpec.of({"seeds": 1, "grid": [
        {"profiles": str(tiny_file), "workers": 2, "slo_ms": 100, "load_qps": 100,
         "scheduler": "jellyfish-plus", "duration_s": 0.5},
        {"scenario": "a.json", "scheduler": "lru"}]})
    result = run_sweep(both, "out")
    assert [row["scheduler"] for row in result.rows] == ["jellyfish-plus", "lru"]
    assert {"results.csv", "scenarios.csv"} <= set(tables(place / "out"))
    run_sweep(wanted(), "out")
    assert "results.csv" not in tables(place / "out")


@pytest.mark.slow
def test_processes_give_the_same_tables(place):
    run_sweep(wanted(), "one")
    run_sweep(wanted(), "two", processes=2)
    assert tables(place / "one") == tables(place / "two")


@pytest.mark.slow
def test_ray_gives_the_same_tables(place):
    pytest.importorskip("ray")
    from ramsis.sweep import Engine

    run_sweep(wanted(), "one")
    run_sweep(wanted(), "two", processes=Engine("ray", workers=2))
    assert tables(place / "one") == tables(place / "two")


@pytest.mark.parametrize(("changes", "message"), [
    ({"scheduler": "clockwrk"}, "unknown scheduler: got 'clockwrk'; allowed: clockwork"),
    ({"scheduler": "lru:most=3"}, "not a parameter of the scheduler"),
    ({"workers": 3}, "unknown key of a grid of scenarios: got 'workers'; allowed: scenario, "),
    ({"bound": "yes"}, "bound: not a value of this key: got 'yes'; allowed: on, off"),
    ({"scenario": []}, "scenario: empty list"),
    ({"scenario": 3}, "scenario: not a value of this key"),
])
def test_bad_specifications_are_refused_in_a_line(changes, message):
    with pytest.raises(InputFileError) as refused:
        wanted(**changes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_scheduler_of_ones_own_is_imported_only_when_the_user_names_it(place, run):
    Path("own.py").write_text("open('imported', 'w').close()\n" + OWN)
    Path("sweep.toml").write_text('scenario = "a.json"\nscheduler = ["own.py:Idle"]\n')
    words = ["sweep", "sweep.toml", "--out", "out", "--processes", "1"]
    code, _, err = run(*words)
    assert code == 3
    assert "allowed: --scheduler own.py:Idle, if you trust that code" in err
    assert not Path("imported").exists()
    code, out, _ = run(*words, "--scheduler", "own.py:Idle")
    assert code == 0
    assert "computed 1" in out
    assert Path("imported").exists()


def test_a_sweep_without_scenarios_has_the_tables_that_it_had(tiny_file, tmp_path):
    result = run_sweep(spec(tiny_file), tmp_path)
    assert [Path(one).name for one in result.files] == [
        "results.csv", "seeds.csv", "models.csv", "failures.csv", "value-table.json"]
