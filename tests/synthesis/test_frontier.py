"""The frontier: concave, from the fewest violations to the unconstrained policy, and above all."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.synthesis.budget import HIGHEST_PRICE
from ramsis.synthesis.frontier import Frontier, trace_frontier
from ramsis.synthesis.generate import modelled_policy
from tests.synthesis.test_budget import CASES, PROFILE


@cache
def traced(kind: str, points: int = 12) -> Frontier:
    return trace_frontier(PROFILE, *CASES[kind], points=points)


def curve(found: Frontier) -> tuple[Any, Any]:
    """Violation rates, rising, and effective accuracies of the corners."""
    return (np.array([c.violation_rate for c in found.corners]),
            np.array([c.effective_accuracy for c in found.corners]))


@pytest.mark.parametrize("kind", CASES)
def test_it_is_concave_and_rises(kind):
    rate, effective = curve(traced(kind))
    assert 4 <= len(rate) <= 12
    assert (np.diff(rate) > 0).all()
    slopes = np.diff(effective) / np.diff(rate)
    assert (slopes > 0).all()
    assert (np.diff(slopes) < 1e-6 * np.abs(slopes[:-1])).all()


@pytest.mark.parametrize("kind", CASES)
def test_its_ends_are_the_unconstrained_policy_and_the_one_of_fewest_violations(kind):
    load_qps, settings = CASES[kind]
    corners = traced(kind).corners
    for corner, price in ((corners[-1], 0.0), (corners[0], HIGHEST_PRICE)):
        made = modelled_policy(PROFILE, load_qps, replace(settings, violation_price=price))
        assert corner.violation_rate == made.expectations.violation_rate
        assert corner.effective_accuracy == made.expectations.effective_accuracy


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("price", [0.3, 1.31, 5.0, 60.0])
def test_no_policy_of_any_price_is_above_it(kind, price):
    load_qps, settings = CASES[kind]
    found = traced(kind)
    made = modelled_policy(PROFILE, load_qps, replace(settings, violation_price=price))
    below = np.interp(made.expectations.violation_rate, *curve(found))
    assert made.expectations.effective_accuracy <= below + found.hidden + 1e-9


def test_more_points_hide_less():
    hidden = [traced("worker", points).hidden for points in (2, 5, 20)]
    assert hidden[0] > hidden[1] > hidden[2] >= 0.0


def test_one_point_is_too_few():
    with pytest.raises(InvalidValueError, match="too few points"):
        traced("worker", 1)
