"""Load levels chosen by accuracy: close enough, and none too many."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.errors import InvalidValueError
from ramsis.synthesis import choose_loads, generate_policy
from ramsis.synthesis.sets import adaptive_levels
from tests.synthesis.samples import settings, tiny_profile


@given(
    st.lists(st.integers(0, 30), min_size=301, max_size=301), st.integers(30, 900)
)
def test_no_set_of_levels_within_the_step_is_smaller(falls, step):
    """Against the shortest path over all 301 loads, for accuracies that fall at any pace."""
    accuracy = 1.0 - np.cumsum(falls) / 2**20
    within = step / 2**20
    levels = adaptive_levels(lambda load: float(accuracy[round(load) - 1]), 1, 301, within)
    places = [round(level) - 1 for level in levels]
    assert (places[0], places[-1]) == (0, 300)
    assert all(accuracy[a] - accuracy[b] <= within for a, b in pairwise(places))
    # How many levels a path from the first load to each load needs.
    needed = np.ones(301, dtype=int)
    for place in range(1, 301):
        needed[place] = 1 + needed[:place][accuracy[:place] - accuracy[place] <= within].min()
    assert len(levels) == needed[-1]


@pytest.mark.slow
def test_levels_of_a_profile_are_within_the_step_and_none_can_be_left_out():
    chosen, step = settings(), 0.02
    loads = choose_loads(tiny_profile(), 100, 1700, chosen, step)
    accuracy = [generate_policy(tiny_profile(), load, chosen).expectations.accuracy
                for load in loads]
    assert len(loads) > 4
    assert all(abs(a - b) <= step for a, b in pairwise(accuracy))
    assert all(abs(a - b) > step for a, b in zip(accuracy, accuracy[2:], strict=False))


def test_overload_takes_no_levels_of_its_own():
    """Far above capacity no query is in time, so the fastest model's accuracy stands in."""
    loads = choose_loads(tiny_profile(), 3000, 30000, settings(), 0.01)
    assert loads == (3000.0, 30000.0)


def test_loads_between_the_ends_are_round_numbers():
    levels = adaptive_levels(lambda load: 1 - load, 0.1, 0.7, 0.05005)
    assert levels[:3] == (0.1, 0.15, 0.2)


def test_a_step_and_a_range_that_are_none_are_refused():
    with pytest.raises(InvalidValueError, match="max_accuracy_step"):
        adaptive_levels(lambda load: 0.5, 100, 200, 1.0)
    with pytest.raises(InvalidValueError, match="load: not a range"):
        adaptive_levels(lambda load: 0.5, 100, 100, 0.01)


def test_both_sides_of_a_jump_are_levels():
    for jump, highest, wanted in ((150, 200, (100.0, 149.9, 150.0, 200.0)),
                                  (200, 200, (100.0, 199.9, 200.0)),
                                  (200.05, 200.05, (100.0, 200.0, 200.05))):
        levels = adaptive_levels(
            lambda load, jump=jump: 0.9 if load < jump else 0.5, 100, highest, 0.1)
        assert levels == wanted
