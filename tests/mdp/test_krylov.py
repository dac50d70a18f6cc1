"""GMRES against the direct solution."""

from __future__ import annotations

import numpy as np
import pytest

from ramsis.mdp.krylov import minimal_residual


@pytest.mark.parametrize("size", [1, 5, 80])
def test_it_finds_the_solution(size):
    rng = np.random.default_rng(size)
    matrix = np.eye(size) + 0.4 * rng.normal(size=(size, size)) / np.sqrt(size)
    right, start = rng.normal(size=(2, size))
    value = minimal_residual(lambda x: matrix @ x, right, start, 1e-12, 80)
    np.testing.assert_allclose(value, np.linalg.solve(matrix, right), atol=1e-10)


def test_a_solution_at_hand_takes_no_steps():
    products = []

    def product(x):
        products.append(x)
        return 2.0 * x

    start = np.array([0.5, 1.0])
    value = minimal_residual(product, np.array([1.0, 2.0]), start, 1e-12, 10)
    assert value is start
    assert len(products) == 1


def test_what_does_not_converge_has_no_solution():
    shift = np.roll(np.eye(40), 1, axis=0)  # a cycle: nothing is gained before the last step
    right = np.eye(40)[0]
    assert minimal_residual(lambda x: shift @ x, right, np.zeros(40), 1e-12, 39) is None
    value = minimal_residual(lambda x: shift @ x, right, np.zeros(40), 1e-12, 40)
    np.testing.assert_allclose(shift @ value, right, atol=1e-12)
    singular = np.zeros((40, 40))
    assert minimal_residual(lambda x: singular @ x, right, np.zeros(40), 1e-12, 40) is None
