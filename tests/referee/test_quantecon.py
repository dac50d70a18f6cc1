"""The solvers beside QuantEcon's: discounted values, and average reward by a discount near 1."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.mdp.solvers import DISCOUNTED_SOLVERS, solve_average, solve_discounted
from ramsis.mdp.sparse import SparseMDP
from ramsis.mdp.toolbox import to_quantecon
from tests.mdp.instances import dense_random, small_mdps, two_sided

markov = pytest.importorskip("quantecon.markov")


pytestmark = pytest.mark.slow


def _theirs(mdp: SparseMDP, discount: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    reward, transition, state, action = to_quantecon(mdp)
    found = markov.DiscreteDP(reward, transition, discount, state, action).solve(
        "policy_iteration")
    return np.asarray(found.v)


@pytest.mark.parametrize("solver", DISCOUNTED_SOLVERS)
@settings(max_examples=60, deadline=None)
@given(mdp=small_mdps(unichain=False), discount=st.sampled_from([0.1, 0.9, 0.999]))
def test_discounted_values_are_theirs(solver, mdp, discount):
    found = solve_discounted(mdp, discount, solver, tolerance=1e-8)
    assert found.certificate.converged
    np.testing.assert_allclose(found.value, _theirs(mdp, discount), rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("mdp", [dense_random(60, 5, 1), two_sided(30, 0.05, 2)])
@pytest.mark.parametrize("solver", DISCOUNTED_SOLVERS)
def test_values_of_larger_problems_are_theirs(solver, mdp):
    for discount in (0.5, 0.99):
        found = solve_discounted(mdp, discount, solver, tolerance=1e-9)
        np.testing.assert_allclose(found.value, _theirs(mdp, discount), rtol=0, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(mdp=small_mdps(unichain=False))
def test_gains_are_the_limit_of_their_discounted_values(mdp):
    """(1 - b) V tends to the gain of each state, as (1 - b) times the relative values."""
    discount = 1.0 - 1e-7
    found = solve_average(mdp)
    assert found.state_gain is not None
    np.testing.assert_allclose((1.0 - discount) * _theirs(mdp, discount), found.state_gain,
                               rtol=0, atol=2e-3)
