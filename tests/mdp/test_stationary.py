"""Stationary distributions by the direct way and by power iteration."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse

from ramsis.errors import InvalidValueError
from ramsis.mdp.stationary import power_iteration, stationary_distribution
from tests.mdp.instances import small_mdps


def birth_death(size: int, up: float) -> sparse.csr_array:
    """A walk that steps up with probability ``up``, else down, held at both ends."""
    chain = sparse.diags_array(
        [np.full(size - 1, 1 - up), np.full(size - 1, up)], offsets=[-1, 1], format="lil"
    )
    chain[0, 0], chain[size - 1, size - 1] = 1 - up, up
    return sparse.csr_array(chain)


def geometric(size: int, up: float) -> np.ndarray[Any, Any]:
    weight = (up / (1 - up)) ** np.arange(size, dtype=float)
    return weight / weight.sum()


@pytest.mark.parametrize(("size", "method"), [(40, "elimination"), (400, "lu")])
@pytest.mark.parametrize("up", [0.4, 0.6])
def test_birth_death_chain(size, method, up):
    chain = birth_death(size, up)
    direct = stationary_distribution(chain)
    assert direct.method == method
    assert direct.residual < 1e-14
    np.testing.assert_allclose(direct.distribution, geometric(size, up), atol=1e-12)
    iterated = power_iteration(chain, tolerance=1e-10)
    assert iterated.converged
    np.testing.assert_allclose(iterated.distribution, geometric(size, up), atol=1e-6)


def test_elimination_keeps_the_relative_accuracy_of_rare_states():
    found = stationary_distribution(birth_death(100, 0.01)).distribution
    assert found[-1] < 1e-190
    np.testing.assert_allclose(found, geometric(100, 0.01), rtol=1e-12)


@pytest.mark.parametrize("size", [2, 7, 300])
def test_periodic_ring(size):
    ring = sparse.csr_array(np.roll(np.eye(size), 1, axis=1))
    np.testing.assert_allclose(stationary_distribution(ring).distribution, 1 / size, atol=1e-14)
    start = np.eye(size)[0]
    if size < 100:
        damped = power_iteration(ring, start=start)
        np.testing.assert_allclose(damped.distribution, 1 / size, atol=1e-9)
    undamped = power_iteration(ring, start=start, damping=0.0, max_iterations=100)
    assert not undamped.converged
    assert undamped.residual == pytest.approx(2.0)


def test_transient_states_get_nothing():
    chain = [[0.5, 0.25, 0.25], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert stationary_distribution(chain).distribution == pytest.approx([0.0, 0.5, 0.5])


def test_several_classes_need_a_start_and_are_weighted_by_absorption():
    chain = [[0.0, 0.25, 0.75, 0.0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    with pytest.raises(InvalidValueError, match=r"2 closed classes.*states 1 and 2"):
        stationary_distribution(chain)
    found = stationary_distribution(chain, start=[1, 0, 0, 0])
    assert found.distribution == pytest.approx([0.0, 0.25, 0.375, 0.375])
    mixed = stationary_distribution(chain, start=[0.5, 0.5, 0, 0])
    assert mixed.distribution == pytest.approx([0.0, 0.625, 0.1875, 0.1875])
    iterated = power_iteration(chain, start=[1, 0, 0, 0])
    assert iterated.distribution == pytest.approx(found.distribution, abs=1e-10)


def test_many_classes_take_the_sparse_way():
    """200 pairs of states that never meet, from a start spread over all."""
    block = sparse.csr_array([[0.5, 0.5], [1.0, 0.0]])
    chain = sparse.block_diag([block] * 200, format="csr")
    found = stationary_distribution(chain, start=np.full(400, 1 / 400))
    assert found.method == "lu"
    assert found.distribution == pytest.approx(np.tile([2, 1], 200) / 600)


@settings(max_examples=30, deadline=None)
@given(mdp=small_mdps())
def test_both_ways_agree_on_random_chains(mdp):
    chain = mdp.transition[mdp.first[:-1]]
    direct, iterated = stationary_distribution(chain), power_iteration(chain)
    assert direct.distribution.sum() == pytest.approx(1.0)
    assert (direct.distribution >= 0).all()
    np.testing.assert_allclose(direct.distribution, iterated.distribution, atol=1e-8)


@pytest.mark.parametrize(("chain", "message"), [
    ([[0.5, 0.6], [0.0, 1.0]], r"state 0, .*add up to 1"),
    ([[1.5, -0.5], [0.0, 1.0]], r"state 0, .*got -0\.5"),
    ([[1.0, 0.0]], "not square"),
])
def test_matrices_that_are_no_chains_are_refused(chain, message):
    for solve in (stationary_distribution, power_iteration):
        with pytest.raises(InvalidValueError, match=message):
            solve(chain)


def test_settings_out_of_range_are_refused():
    chain = [[0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(InvalidValueError, match="damping"):
        power_iteration(chain, damping=1.0)
    with pytest.raises(InvalidValueError, match="tolerance"):
        power_iteration(chain, tolerance=0.0)
    with pytest.raises(InvalidValueError, match="max_iterations"):
        power_iteration(chain, max_iterations=0)
    with pytest.raises(InvalidValueError, match="start is not a distribution"):
        power_iteration(chain, start=[0.5, 0.6])


def test_states_that_are_hardly_ever_met_overflow_nothing():
    """Each state leads to the one before with 1e-90: the first one's share is below any float."""
    size = 8
    chain = np.zeros((size, size))
    for state in range(size):
        chain[state, max(0, state - 1)] += 1e-90
        chain[state, min(size - 1, state + 1)] += 1.0 - 1e-90
    found = stationary_distribution(chain)
    assert found.distribution[-1] == pytest.approx(1.0)
    assert found.distribution[0] == 0.0
