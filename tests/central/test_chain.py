"""A policy's linear system by levels, against one dense system."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ramsis.central.chain import _by_levels, _kernels, _levels
from ramsis.central.chain._lapack import _solve
from ramsis.central.model import CentralArrays, central_model
from ramsis.compiling import njit
from tests.central.samples import problem
from tests.slow import slow_after

Codes = NDArray[np.int16]


def _at_random(model: CentralArrays, seed: int, waiting: float) -> tuple[Codes, Codes]:
    """A policy that drops, waits and starts at random."""
    rng = np.random.default_rng(seed)
    shape = (len(model.idle), len(model.queue), model.slack_probability.shape[2])
    to = np.broadcast_to(np.arange(shape[1], dtype=np.int16)[None, :, None], shape).copy()
    action = np.full(shape, -1, dtype=np.int16)
    for i, n, j in np.ndindex(shape):
        if i == 0 or n == 0:
            continue
        if rng.uniform() < 0.1:
            to[i, n, j] = rng.integers(0, n)
        fits = np.flatnonzero(model.batch <= model.queue[to[i, n, j]])
        if fits.size and rng.uniform() > waiting:
            action[i, n, j] = rng.choice(fits)
    return to, action


def _dense(system: _kernels.System, home: int) -> NDArray[np.float64]:
    size = len(system.cost)
    matrix = np.zeros((size, size))
    for r in range(size):
        for x in range(system.start[r], system.end[r]):
            matrix[r, system.column[x]] += system.weight[x]
    matrix[:, home] = system.cost
    return matrix


@pytest.mark.parametrize("waiting", [0.0, 0.3, 0.8])
@pytest.mark.parametrize(("load_qps", "options"), slow_after(2, [
    (10.0, {"workers": 1}), (40.0, {"workers": 2}), (150.0, {"workers": 5, "max_queue": 4}),
    (400.0, {"workers": 9, "max_queue": 4}), (900.0, {"workers": 20, "max_queue": 2}),
]))
def test_values_and_visits_by_levels_are_those_of_the_whole_system(load_qps, options, waiting):
    one = problem(load_qps, **options)
    model = central_model(one, 1e-6 * one.load)._replace(carries=False)
    for seed in range(2):
        to, action = _at_random(model, seed, waiting)
        system = _kernels.rows(model, to, action)
        home = (len(model.idle) - 1) * len(model.queue)
        matrix = _dense(system, home)
        levels = _levels.eliminated(system, len(model.idle), *model.slack_probability.shape[1:])
        values, visits = _by_levels.values(system, levels), _by_levels.visits(system, levels)
        unit = np.zeros(len(matrix))
        unit[home] = 1.0
        for found, turned, right in ((values, False, system.constant), (visits, True, unit)):
            expected = np.linalg.solve(matrix.T if turned else matrix, right)
            largest = float(np.abs(expected).max())
            assert found == pytest.approx(expected, abs=1e-8 * largest)
            residual = _kernels.residuals(system, found, home, turned)
            assert float(np.abs(residual).max()) < 1e-12 * (1.0 + largest)


@njit()  # type: ignore[untyped-decorator,unused-ignore]
def solved_in_a_loop(matrix: NDArray[np.float64], right: NDArray[np.float64]) -> None:
    _solve(matrix, right)


def test_a_singular_system_is_solved_by_nan():
    matrix, right = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 1.0], [6.0, 2.0]])
    solution = right.copy()
    solved_in_a_loop(matrix, solution)
    assert matrix @ solution == pytest.approx(right)
    matrix[1] = matrix[0]
    solved_in_a_loop(matrix, solution)
    assert np.isnan(solution).all()
