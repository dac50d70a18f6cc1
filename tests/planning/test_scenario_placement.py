"""The placement problem of a scenario."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placement_milp import place, read_problem
from ramsis.errors import InputFileError
from ramsis.planning.placement import placement_problem
from tests.cli.command import Run
from tests.scenario.samples import document, model, scenario, stream


def test_demand_is_the_mean_or_the_peak_of_a_window() -> None:
    made = scenario(duration_s=2, models=[model(family="f"), model("n", family="f"), model("o")],
                    streams=[stream(workload={"times_ms": [100.0] * 30 + [1500.0] * 10}),
                             stream("t", "n", slo_ms=70, workload={"times_ms": [100.0] * 4})])
    mean = placement_problem(made)
    assert [(one.name, one.demand_qps, one.slo_ms) for one in mean.families] == [("m", 22.0, 70.0)]
    assert [one.name for one in mean.variants] == ["m", "n"]
    assert placement_problem(made, window_s=1).families[0].demand_qps == 34.0


def test_the_command_writes_a_problem_that_is_solved(run: Run, tmp_path: Path) -> None:
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


def test_a_scenario_without_requests_of_its_own_is_refused() -> None:
    made = scenario(streams=[stream(workload={"users": 2})])
    with pytest.raises(InputFileError, match="no requests to place models for"):
        placement_problem(made)
