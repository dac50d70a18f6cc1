"""The placement problem of a scenario."""

import json
from pathlib import Path
from typing import Any

import pytest

from placement_milp import place, read_problem, write_placement
from ramsis.errors import InputFileError
from ramsis.planning import compare, scheduler_named
from ramsis.planning.planned import held_of_placement, placement_problem
from ramsis.scenario import Scenario
from ramsis.sim import Engine, World
from tests.scenario.samples import document, model, scenario, stream


def test_demand_is_the_mean_or_the_peak_of_a_window():
    made = scenario(duration_s=2, models=[model(family="f"), model("n", family="f"), model("o")],
                    streams=[stream(workload={"times_ms": [100.0] * 30 + [1500.0] * 10}),
                             stream("t", "n", slo_ms=70, workload={"times_ms": [100.0] * 4})])
    mean = placement_problem(made)
    assert [(one.name, one.demand_qps, one.slo_ms) for one in mean.families] == [("m", 22.0, 70.0)]
    assert [one.name for one in mean.variants] == ["m", "n"]
    assert placement_problem(made, window_s=1).families[0].demand_qps == 34.0


def test_the_command_writes_a_problem_that_is_solved(run, tmp_path):
    path, out = tmp_path / "scenario.json", tmp_path / "problem.json"
    path.write_text(json.dumps(document(
        worker_types=[{"name": "gpu", "count": 2, "memory_mb": 150}], start=[],
        models=[model(copies=2)], streams=[stream(workload={"load_qps": 40})])))
    code, printed, _ = run("scenario", "placement", str(path), "--out", str(out))
    assert code == 0
    assert "2 models for 2 families" in printed
    placed = place(read_problem(out))
    assert placed.status == "optimal"
    held = {variant for group in placed.groups for use in group.uses for variant in use.variants}
    assert held == {"m-1", "m-2"}


def test_a_scenario_without_requests_of_its_own_is_refused():
    made = scenario(streams=[stream(workload={"users": 2})])
    with pytest.raises(InputFileError, match="no requests to place models for"):
        placement_problem(made)


def placed_scenario(tmp_path: Path, **changes: Any) -> tuple[Scenario, Path]:
    """A scenario with two places for three models, and its solved placement."""
    made = scenario(
        duration_s=4, worker_types=[{"name": "gpu", "count": 2, "memory_mb": 150}], start=[],
        models=[model(copies=3)],
        streams=[stream(workload={"load_qps": 60}, shares=[8, 4, 1])], **changes)
    path = tmp_path / "placement.json"
    write_placement(place(placement_problem(made, window_s=1)), path)
    return made, path


def test_the_planned_scheduler_holds_what_a_placement_says(tmp_path):
    made, path = placed_scenario(tmp_path)
    held = held_of_placement(str(path), World.of_scenario(made))
    wanted = {(worker, model) for worker, models in held.items() for model in models}
    assert len(wanted) == 2
    run = Engine.of_scenario(made, 0).serve(scheduler_named(f"planned:placement={path}"))
    begun = {(int(w), int(m)) for w, m, at in zip(run.load_worker, run.load_model,
                                                  run.load_start_ms, strict=True) if at == 0.0}
    assert begun == wanted
    assert "placement_gap" not in run.figures  # the plan is not its own


def test_by_default_it_plans_and_says_how_far_from_the_best_it_may_be(tmp_path):
    made, _ = placed_scenario(tmp_path)
    found, = compare(made, [scheduler_named("planned")], (0, 1))
    assert 0.0 <= found.row()["placement_gap"] < 0.5


def test_a_placement_of_another_scenario_is_refused(run, tmp_path):
    _, path = placed_scenario(tmp_path)
    other = tmp_path / "other.json"
    two = [{"name": "gpu", "count": 2, "memory_mb": 150}]
    for changes, what in (({"models": [model("n")], "streams": [stream(model="n")],
                            "worker_types": two},
                           "a model that the scenario does not have"),
                          ({"worker_types": [{"name": "gpu", "count": 1, "memory_mb": 150}]},
                           "a worker type that the scenario does not have")):
        other.write_text(json.dumps(document(**{"models": [model(copies=3)], "start": [],
                                                **changes})))
        code, _, err = run("simulate", str(other), "--scheduler", f"planned:placement={path}")
        assert code == 3
        assert what in err
        assert len(err.strip().splitlines()) == 1
