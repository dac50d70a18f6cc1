"""All solvers against brute force over every policy, on small random problems."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.mdp import linear_program, policy_iteration, value_iteration
from ramsis.mdp.evaluation import evaluate_policy
from ramsis.mdp.result import Criterion, Solution
from ramsis.mdp.sparse import SparseMDP
from ramsis.mdp.toolbox import ALGORITHMS, solve_with_pymdptoolbox
from tests.mdp.instances import small_mdps
from tests.reference.dense_mdp import best_discounted, best_gain


def check_gain(mdp: SparseMDP, solution: Solution, gain: float) -> None:
    """The solution has this gain, its policy attains it, and its bounds hold it."""
    certificate = solution.certificate
    assert certificate.criterion is Criterion.AVERAGE
    assert certificate.converged
    assert solution.gain == pytest.approx(gain, abs=1e-8)
    assert certificate.lower_bound - 1e-12 <= gain <= certificate.upper_bound + 1e-12
    assert certificate.gap <= 1e-6
    assert evaluate_policy(mdp, solution.policy).gain == pytest.approx(gain, abs=1e-8)


@settings(max_examples=20, deadline=None)
@given(mdp=small_mdps(unichain=False), discount=st.sampled_from([0.3, 0.9, 0.99]))
def test_discounted_solvers_find_the_best_values(mdp, discount):
    best = best_discounted(mdp, discount)
    solutions = [
        value_iteration(mdp, discount=discount),
        policy_iteration(mdp, discount=discount),
        linear_program(mdp, discount=discount),
        *(solve_with_pymdptoolbox(mdp, name, discount=discount) for name in ALGORITHMS[:3]),
    ]
    for solution in solutions:
        np.testing.assert_allclose(solution.value, best, rtol=0, atol=2e-8)
        assert solution.certificate.converged
        assert (best - solution.value >= solution.certificate.lower_bound - 1e-11).all()
        assert (best - solution.value <= solution.certificate.upper_bound + 1e-11).all()


@settings(max_examples=20, deadline=None)
@given(mdp=st.one_of(small_mdps(), small_mdps(costs=True), small_mdps(free_state=True)))
def test_average_reward_solvers_find_the_best_gain(mdp):
    best = best_gain(mdp)
    assert np.ptp(best) < 1e-9
    for solve in (value_iteration, policy_iteration, linear_program, solve_with_pymdptoolbox):
        check_gain(mdp, solve(mdp), best[0])


@settings(max_examples=20, deadline=None)
@given(mdp=st.one_of(small_mdps(), small_mdps(costs=True), small_mdps(free_state=True)))
def test_relative_values_solve_the_optimality_equation(mdp):
    exact, approximate = policy_iteration(mdp), value_iteration(mdp)
    assert exact.certificate.bellman_residual < 1e-10
    assert approximate.certificate.bellman_residual < 1e-8
    difference = approximate.value - exact.value
    assert np.ptp(difference) < 1e-6
