"""Pure-birth counts against the matrix exponential and against Poisson."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.stats import poisson

from ramsis.worker.pure_birth import PureBirthProcess


def generator(rates: np.ndarray) -> np.ndarray:
    """G of a pure-birth process whose highest level keeps what reaches it."""
    out = np.append(rates[:-1], 0.0)
    return np.diag(-out) + np.diag(out[:-1], 1)


def law(rates: np.ndarray, time: float) -> np.ndarray:
    """exp(G t), in another order of levels.

    Where a matrix is triangular SciPy divides by differences of rates, all but equal ones too.
    """
    turned = np.roll(generator(rates), (1, 1), axis=(0, 1))
    return np.roll(expm(turned * time), (-1, -1), axis=(0, 1))


@given(
    rates=st.lists(st.floats(1e-6, 5.0), min_size=2, max_size=9),
    times=st.lists(st.floats(0.0, 60.0), min_size=1, max_size=4),
    often_ms=st.none() | st.floats(0.01, 70.0),
)
def test_the_law_is_a_row_of_the_matrix_exponential(
    rates: list[float], times: list[float], often_ms: float | None
) -> None:
    given_rates = np.array(rates)
    births = PureBirthProcess(given_rates, 60.0, often_ms)
    for level in range(len(rates)):
        found = births.distribution(np.full(len(times), level), np.array(times))
        exact = [law(given_rates, time)[level] for time in times]
        assert found == pytest.approx(np.array(exact), abs=1e-10)
        assert found.sum(axis=1) == pytest.approx(np.ones(len(times)), abs=1e-11)


def test_equal_rates_are_poisson() -> None:
    births = PureBirthProcess(np.full(400, 3.0), 50.0)
    found = births.distribution(np.array([5, 5]), np.array([0.7, 41.3]))
    for row, time in zip(found, (0.7, 41.3), strict=True):
        assert row[5:300] == pytest.approx(poisson.pmf(np.arange(295), 3.0 * time), abs=1e-12)
