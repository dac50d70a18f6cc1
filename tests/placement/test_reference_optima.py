"""The reference instances and what is known of their optima."""

import json

import pytest

from placement_milp import Limits, place, read_problem


@pytest.mark.parametrize(("workers", "solver"), [(20, "cbc"), (100, "highs")])
def test_the_optima_come_out(reference_dir, workers, solver):
    known = json.loads((reference_dir / "placement_optima.json").read_text())
    problem = read_problem(reference_dir / f"placement_{workers}_workers.json")
    placement = place(problem, Limits(solver=solver))
    assert placement.status == "optimal"
    assert placement.objective == pytest.approx(known[problem.name], abs=1e-5)
    assert placement.dual_bound == pytest.approx(known[problem.name], abs=1e-5)
    assert placement.gap is not None
    assert placement.gap <= 1e-6


def test_sharing_workers_is_at_least_as_good(reference_dir):
    document = json.loads((reference_dir / "placement_20_workers.json").read_text())
    known = json.loads((reference_dir / "placement_optima.json").read_text())
    from placement_milp import problem_from_document

    document["rules"]["variants_per_worker"] = 2
    placement = place(problem_from_document(document), Limits(gap=1e-2))
    assert placement.dual_bound is not None
    assert placement.dual_bound >= known[document["name"]] - 1e-5
    assert placement.objective >= known[document["name"]] - 1e-2
