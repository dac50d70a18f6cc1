"""The mix of two limits against a linear program's solver."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ramsis.bounds.single_type import best_mix

POINTS = st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(0.0, 1.0)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(points=POINTS, most=st.floats(1e-2, 1e2))
def test_it_is_the_optimum(points, most):
    busy, reward = np.array(points).T
    found = best_mix(busy, reward, most)
    assert (found.amount >= 0.0).all()
    assert found.amount @ busy <= 1.0 + 1e-12
    assert found.amount.sum() <= most * (1.0 + 1e-12)
    known = linprog(-reward, A_ub=np.vstack([busy, np.ones(len(busy))]), b_ub=[1.0, most])
    assert found.value == pytest.approx(-known.fun, rel=1e-7, abs=1e-9)


def test_prices_are_what_more_time_adds():
    busy, reward = np.array([0.5, 1.0, 2.0, 2.5]), np.array([0.5, 0.8, 0.9, 0.85])
    for most in (0.3, 0.45, 0.7, 1.4, 3.0):
        here = best_mix(busy, reward, most)
        more = best_mix(busy / (1.0 + 1e-6), reward, most)
        gained = (more.value - here.value) / 1e-6
        assert here.prices[0] == pytest.approx(gained, rel=1e-4, abs=1e-8)


def test_no_answer_is_worth_anything():
    found = best_mix(np.ones(2), np.zeros(2), 2.0)
    assert (found.amount == 0.0).all()
    assert found.value == found.prices[0] == 0.0
