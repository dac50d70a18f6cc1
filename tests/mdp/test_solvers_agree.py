"""All solvers against brute force over every policy, on small random problems."""

from __future__ import annotations

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


@settings(max_examples=30, deadline=None)
@given(mdp=st.one_of(small_mdps(unichain=False), small_mdps(unichain=False, costs=True)))
def test_policy_iteration_finds_the_best_gain_from_every_state(mdp):
    solution, best = policy_iteration(mdp), best_gain(mdp)
    assert solution.state_gain is not None
    np.testing.assert_allclose(solution.state_gain, best, rtol=0, atol=1e-8)
    assert solution.certificate.converged
    assert solution.certificate.lower_bound <= best.min() + 1e-9
    assert solution.certificate.upper_bound >= best.max() - 1e-9
    assert (solution.gain is None) == (np.ptp(best) > 1e-8)


@settings(max_examples=20, deadline=None)
@given(mdp=small_mdps(unichain=False, costs=True), seed=st.integers(0, 2**16))
def test_bounds_hold_for_any_start_of_policy_iteration(mdp, seed):
    rng = np.random.default_rng(seed)
    initial = mdp.action[rng.integers(mdp.first[:-1], mdp.first[1:])]
    first = policy_iteration(mdp, initial=initial, max_iterations=1).certificate
    best = best_gain(mdp)
    assert first.lower_bound - 1e-9 <= best.min()
    assert best.max() <= first.upper_bound + 1e-9
