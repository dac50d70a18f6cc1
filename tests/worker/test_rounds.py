"""First rounds of policy iteration, against rounds with exact values alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve import policy_iteration, rounds
from ramsis.worker.solve.policy_iteration import improve_until_stable, solve_on_nodes
from ramsis.worker.solve.rounds import FirstRounds, evaluate_policy, first_rounds
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
def test_what_first_rounds_lead_to_is_what_exact_rounds_lead_to(problem):
    _, gain = by_exact_rounds(problem)
    solution = solve_on_nodes(build_structured(problem))
    assert solution.evaluation.gain == pytest.approx(gain, abs=1e-10)
    assert solution.certificate.converged


@pytest.mark.parametrize("late", ["serve", "drop"])
@pytest.mark.parametrize("load_qps", [20.0, 150.0, 600.0])
def test_no_exact_round_is_needed(load_qps, late, monkeypatch):
    """The table is the one of exact rounds, and values of the first rounds prove it optimal."""
    problem = small_problem(load_qps, late=late)
    mdp = build_structured(problem)
    first = first_rounds(mdp, problem.fastest_policy(), 50)
    assert 1 <= first.rounds < 50
    policy, gain = by_exact_rounds(problem)
    np.testing.assert_array_equal(first.policy, policy)
    solution = solve_on_nodes(mdp)
    assert solution.exact is None
    assert solution.certificate.iterations == first.rounds + 1
    low, high = solution.certificate.lower_bound, solution.certificate.upper_bound
    assert low is not None
    assert high is not None
    assert low <= gain <= high <= low + 4e-9
    monkeypatch.setattr(rounds, "evaluate_on_nodes", None)  # would fail if it were called
    assert solution.evaluation.gain == pytest.approx(gain, abs=1e-10)


def test_values_that_are_not_exact_prove_nothing(monkeypatch):
    """Then a factorisation does, with the same result."""
    mdp = build_structured(small_problem(150.0))
    proven = solve_on_nodes(mdp)

    def off(*arguments: Any) -> FirstRounds:
        first = first_rounds(*arguments)
        assert first.values is not None
        value, gain = first.values
        return first._replace(values=(value + 1e-5 * np.arange(len(value)), gain))

    monkeypatch.setattr(policy_iteration, "first_rounds", off)
    factorised = solve_on_nodes(mdp)
    assert factorised.exact is not None
    np.testing.assert_array_equal(factorised.policy, proven.policy)
    assert factorised.gain == pytest.approx(proven.gain, abs=1e-10)


def test_without_rounds_the_policy_is_kept():
    problem = small_problem(150.0)
    policy, rounds, values = first_rounds(build_structured(problem), problem.fastest_policy(), 0)
    assert (rounds, values) == (0, None)
    np.testing.assert_array_equal(policy, problem.fastest_policy())


@settings(max_examples=25, deadline=None)
@given(problem=worker_problems(), data=st.data())
def test_an_evaluation_without_factorisation_is_that_with_one(problem, data):
    """For any policy, also one that is far from the best."""
    mdp = build_structured(problem)
    policy = problem.fastest_policy()
    for n, actions in enumerate(problem.actions.by_queue[:-1]):
        action = data.draw(st.sampled_from(actions))
        policy[n, action.bins] = action.code
    found, exact = evaluate_policy(mdp, policy), evaluate_on_nodes(mdp, policy)
    assert found.gain == pytest.approx(exact.gain, abs=1e-10)
    scale = 1.0 + np.ptp(exact.node_value)
    difference = found.node_value - exact.node_value
    assert np.ptp(difference) <= 1e-8 * scale
    np.testing.assert_allclose(found.node_frequency, exact.node_frequency,
                               atol=1e-9 * exact.node_frequency.max())
