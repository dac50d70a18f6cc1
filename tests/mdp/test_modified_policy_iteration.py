"""Modified policy iteration: against exact policy iteration, QuantEcon, and on hard chains."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from ramsis.errors import InvalidValueError
from ramsis.mdp import modified_policy_iteration, policy_iteration, value_iteration
from ramsis.mdp.solvers import DISCOUNTED_SOLVERS, solve_average, solve_discounted
from ramsis.mdp.sparse import SparseMDP
from tests.mdp.instances import small_mdps

ACTIONS, REACHED = 10, 10


def drawn(kind: str, states: int, seed: int = 0) -> SparseMDP:
    """Ten actions that lead to ten states each: any, or those within ten of the present one."""
    rng = np.random.default_rng(seed)
    state = np.repeat(np.arange(states), ACTIONS)
    if kind == "random":
        reached = rng.integers(0, states, (state.size, REACHED))
    else:
        steps = rng.integers(-10, 11, (state.size, REACHED))
        reached = np.clip(state[:, None] + steps, 0, states - 1)
    weight = rng.random(reached.shape)
    weight /= weight.sum(axis=1, keepdims=True)
    pairs = np.repeat(np.arange(state.size), REACHED)
    transition = sparse.csr_array((weight.ravel(), (pairs, reached.ravel())),
                                  shape=(state.size, states))
    return SparseMDP(state=state, action=np.tile(np.arange(ACTIONS), states),
                     reward=rng.random(state.size), transition=transition)


@settings(max_examples=40, deadline=None)
@given(small_mdps(unichain=False), st.sampled_from([0.0, 0.5, 0.95, 0.999]))
def test_values_are_within_the_tolerance(mdp, discount):
    exact = policy_iteration(mdp, discount=discount)
    found = modified_policy_iteration(mdp, discount=discount, tolerance=1e-6)
    assert found.certificate.converged
    assert np.abs(found.value - exact.value).max() <= 1.001e-6


@pytest.mark.parametrize("discount", [0.95, 0.999])
@pytest.mark.parametrize("kind", ["random", "banded"])
def test_large_problems_have_quantecons_values_after_a_few_policies(kind, discount):
    """QuantEcon's modified policy iteration takes up to 213."""
    markov = pytest.importorskip("quantecon.markov")
    mdp = drawn(kind, 1000 if kind == "random" else 300)
    other = markov.DiscreteDP(mdp.reward, sparse.csr_matrix(mdp.transition), discount, mdp.state,
                              mdp.action)

    own = modified_policy_iteration(mdp, discount=discount, tolerance=1e-6)
    their = other.solve("modified_policy_iteration", epsilon=1e-6, max_iter=100_000)
    assert own.certificate.converged
    assert np.abs(own.value - their.v).max() <= 2e-6
    assert own.certificate.iterations <= 10


def test_a_cycle_is_solved_where_sweeps_alone_shrink_nothing():
    cycle = SparseMDP.from_pairs([(i, 0, {(i + 1) % 3: 1.0}, float(i)) for i in range(3)])
    found = solve_discounted(cycle, 0.999)
    exact = np.linalg.solve(np.eye(3) - 0.999 * np.roll(np.eye(3), 1, axis=1), np.arange(3.0))
    assert found.value == pytest.approx(exact, abs=1e-6)
    assert solve_average(cycle).gain == pytest.approx(1.0)
    assert value_iteration(cycle).gain == pytest.approx(1.0)


def test_all_discounted_solvers_agree():
    mdp = drawn("banded", 200)
    values = [solve_discounted(mdp, 0.99, name).value for name in DISCOUNTED_SOLVERS]
    for value in values[1:]:
        assert value == pytest.approx(values[0], abs=2e-6)


def test_forest_management_settles_after_many_policies():
    """Of 5,000 ages of a forest that burns with 0.1, waiting pays until rounding hides it."""
    states, burns = 5000, 0.1
    pairs = []
    for age in range(states):
        older = min(age + 1, states - 1)
        pairs.append((age, 0, {0: burns, older: 1 - burns}, 4.0 if age == states - 1 else 0.0))
        pairs.append((age, 1, {0: 1.0}, 0.0 if age == 0 else (2.0 if age == states - 1 else 1.0)))
    found = policy_iteration(SparseMDP.from_pairs(pairs))
    assert found.certificate.converged
    # Cutting at age 1: a cycle of one year of waiting that survives with 0.9, and a cut worth 1.
    assert found.gain == pytest.approx(0.9 / 1.9)


@pytest.mark.parametrize(("given_settings", "says"), [({"discount": 1.0}, "average reward"),
                                                ({"discount": 0.9, "tolerance": 0.0}, "tolerance"),
                                                ({"discount": 0.9, "solver": "x"}, "solver")])
def test_settings_out_of_range_are_refused(given_settings, says):
    with pytest.raises(InvalidValueError, match=says):
        solve_discounted(drawn("random", 3), **given_settings)
