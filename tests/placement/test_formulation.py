"""The program's rows carry the names that the documentation explains."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placement_milp import Limits, backend, optimise, place
from placement_milp.backend import SearchStatus, Solved
from placement_milp.formulation import CONSTRAINTS, formulate
from placement_milp.problem import METRICS
from ramsis.errors import InputFileError, NotConvergedError
from tests.placement.samples import problem, variant

ROOT = Path(__file__).resolve().parents[2]
NAMES = [constraint.__name__ for constraint in CONSTRAINTS]


def test_every_row_is_named_by_the_function_that_states_its_formula():
    everything = problem(
        objective={"kind": "max-min", "moving_price": 0.1},
        families=[{"name": "vision", "demand_qps": 100, "slo_ms": 100, "min_accuracy": 0.7,
                   "min_served": 0.5, "max_workers": 3},
                  {"name": "text", "demand_qps": 40, "slo_ms": 200}],
        rules={"max_workers": 4, "max_cost_per_hour": 8},
        worker_types=[
            {"name": "gpu", "count": 2, "memory_mb": 1000, "cost_per_hour": 3},
            {"name": "cpu", "count": 2, "memory_mb": 500, "cost_per_hour": 1},
            {"name": "cut", "count": 2, "cost_per_hour": 1, "partitions": "A30-24GB",
             "latency_like": "gpu"}],
        variants=[variant("small", "vision", 0.7, 100, {("gpu", 4): 20, ("cpu", 1): 25}),
                  variant("bert", "text", 0.8, 300, {("gpu", 4): 40, ("cut/2g.12gb", 2): 80})],
        current=[{"worker": "gpu-1", "variants": ["small"]},
                 {"worker": "cut-1/2g.12gb@0", "variants": ["bert"]}])
    rows = formulate(everything).constraints
    prefixes = {max((name for name in NAMES if row.startswith(name)), key=len) for row in rows}
    assert prefixes == set(NAMES)


def test_the_documentation_has_every_row_and_metric():
    page = (ROOT / "docs/placement.md").read_text(encoding="utf-8")
    for name in (*NAMES, *METRICS):
        assert f"`{name}`" in page
    for constraint in CONSTRAINTS:
        assert constraint.__doc__


def test_the_program_does_not_grow_with_the_workers():
    small = problem()
    large = replace(small, worker_types=tuple(
        replace(item, count=1000 * item.count) for item in small.worker_types))
    one, other = formulate(small), formulate(large)
    assert (len(one.n), len(one.constraints)) == (len(other.n), len(other.constraints))


@pytest.mark.parametrize("status", [SearchStatus.TIME_LIMIT, SearchStatus.INTERRUPTED])
def test_a_stage_without_a_solution_leaves_that_of_the_stage_before(monkeypatch, status):
    solve = optimise.solve
    calls = []

    def once(*arguments: Any, **options: Any) -> Solved:
        calls.append(options["limits"])
        if len(calls) == 2:
            if status is SearchStatus.INTERRUPTED:
                raise KeyboardInterrupt
            raise NotConvergedError("no solution")
        return solve(*arguments, **options)

    monkeypatch.setattr(optimise, "solve", once)
    asked = problem(objective={"kind": "lexicographic", "order": ["served", "cost", "workers"]})
    placement = place(asked, Limits(seconds=60))
    assert placement.status == status
    assert [stage.metric for stage in placement.stages] == ["served"]
    assert placement.objective == pytest.approx(1.0)


def test_an_interrupted_front_has_the_points_that_are_there(monkeypatch):
    solve = optimise.solve
    calls = []

    def thrice(*arguments: Any, **options: Any) -> Solved:
        calls.append(1)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return solve(*arguments, **options)

    monkeypatch.setattr(optimise, "solve", thrice)
    placement = place(problem(objective={"kind": "pareto", "points": 5}))
    assert placement.status == "interrupted"
    assert len(placement.front) == 2


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_without_a_bound_of_the_solver_the_relaxation_gives_one(monkeypatch, solver):
    """As when a search is stopped early; the solution stays what it was."""
    asked = problem(families=[{"name": "vision", "demand_qps": 330, "slo_ms": 100},
                              {"name": "text", "demand_qps": 140, "slo_ms": 200}])
    proven = place(asked, Limits(solver=solver))
    name = f"_with_{solver}"
    run = getattr(backend, name)

    def stopped(*arguments: Any) -> tuple[SearchStatus, float]:
        assert run(*arguments)[0] is SearchStatus.OPTIMAL
        return SearchStatus.TIME_LIMIT, float("-inf")

    monkeypatch.setattr(backend, name, stopped)
    placement = place(asked, Limits(solver=solver))
    assert placement.status == "time-limit"
    assert placement.objective == pytest.approx(proven.objective)
    assert placement.dual_bound is not None
    assert proven.objective + 1e-3 < placement.dual_bound < 1.0


def test_a_problem_made_in_python_is_checked_too():
    wrong = replace(problem(), variants=(replace(problem().variants[0], family="audio"),))
    with pytest.raises(InputFileError, match=r"variants\[0\].family: unknown family: got 'audio'"):
        place(wrong)


def test_what_a_solver_calls_optimal_with_a_gap_is_solved_again(monkeypatch):
    """Optimal by status alone is not a proof: with a gap that stays it is the end of a search."""
    tolerances = []

    def with_a_gap(lp: Any, limits: Limits, tolerance: float) -> tuple[SearchStatus, float, float]:
        tolerances.append(tolerance)
        return SearchStatus.OPTIMAL, 13.0, 0.07 if len(tolerances) < 3 else last

    monkeypatch.setattr(backend, "_once_with_highs", with_a_gap)
    last = 0.0
    assert backend._with_highs(None, Limits(seconds=5))[0] is SearchStatus.OPTIMAL
    assert len(set(tolerances)) == 3
    last = 0.07
    tolerances.clear()
    assert backend._with_highs(None, Limits(seconds=5))[0] is SearchStatus.TIME_LIMIT
