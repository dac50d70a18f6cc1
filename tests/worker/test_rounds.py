"""First rounds of policy iteration, against rounds with exact values alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve.policy_iteration import improve_until_stable, solve_on_nodes
from ramsis.worker.solve.rounds import first_rounds
from ramsis.worker.structure import build_structured
from ramsis.worker.structure.evaluation import evaluate_on_nodes
from tests.worker.problems import small_problem, worker_problems


def by_exact_rounds(problem: WorkerProblem) -> tuple[np.ndarray, float]:
    """Policy and gain by exact evaluations alone."""
    mdp = build_structured(problem)
    last = improve_until_stable(
        problem.fastest_policy(),
        lambda policy, reference, restart: evaluate_on_nodes(
            mdp, policy, reference, restart=restart),
        lambda found, policy: mdp.greedy(found.onward_value, found.gain, policy), 100)
    return last.policy, last.evaluation.gain


@settings(max_examples=25, deadline=None)
@given(problem=worker_problems())
def test_what_first_rounds_lead_to_is_what_exact_rounds_lead_to(problem: WorkerProblem) -> None:
    _, gain = by_exact_rounds(problem)
    solution = solve_on_nodes(build_structured(problem))
    assert solution.evaluation.gain == pytest.approx(gain, abs=1e-10)
    assert solution.certificate.converged


@pytest.mark.parametrize("late", ["serve", "drop"])
@pytest.mark.parametrize("load_qps", [20.0, 150.0, 600.0])
def test_one_exact_round_is_enough(load_qps: float, late: str) -> None:
    """The table is the one of exact rounds, and the first of these finds nothing better."""
    problem = small_problem(load_qps, late=late)
    mdp = build_structured(problem)
    policy, rounds = first_rounds(mdp, problem.fastest_policy(), 50)
    assert 1 <= rounds < 50
    np.testing.assert_array_equal(policy, by_exact_rounds(problem)[0])
    assert solve_on_nodes(mdp).certificate.iterations == rounds + 1


def test_without_rounds_the_policy_is_kept() -> None:
    problem = small_problem(150.0)
    policy, rounds = first_rounds(build_structured(problem), problem.fastest_policy(), 0)
    assert rounds == 0
    np.testing.assert_array_equal(policy, problem.fastest_policy())
