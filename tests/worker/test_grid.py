"""The slack grids."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.errors import InvalidValueError
from ramsis.worker.problem.queue import fixed_grid, model_grid, slack_grid
from tests.worker.problems import TWO_MODELS


def test_fixed_grid_divides_the_slo():
    np.testing.assert_allclose(fixed_grid(40.0, 4), [0.0, 10.0, 20.0, 30.0, 40.0], rtol=1e-15)


def test_one_division_leaves_two_slack_values():
    assert fixed_grid(99.9, 1).tolist() == [0.0, 99.9]


@given(slo_ms=st.floats(1e-3, 1e6), divisions=st.integers(1, 300))
def test_fixed_grid_rises_from_zero_to_the_slo_to_the_last_bit(slo_ms, divisions):
    """A last value above the SLO would make the waiting time negative, one below it would keep
    out a latency equal to the SLO."""
    grid = fixed_grid(slo_ms, divisions)
    assert len(grid) == divisions + 1
    assert grid[0] == 0.0
    assert grid[-1] == slo_ms
    assert (np.diff(grid) > 0).all()
    np.testing.assert_allclose(np.diff(grid), slo_ms / divisions, rtol=1e-10)


def test_model_grid_holds_the_latencies_up_to_the_slo_and_the_longest_batch():
    assert model_grid(40.0, TWO_MODELS, 2).tolist() == [0.0, 10.0, 17.0, 22.0, 40.0]
    assert model_grid(39.0, TWO_MODELS, 2).tolist() == [0.0, 10.0, 17.0, 22.0, 39.0]


def test_the_grid_is_named_by_text():
    by_name = slack_grid("fixed:7", 40.0, TWO_MODELS, 4)
    np.testing.assert_array_equal(by_name, fixed_grid(40.0, 7))
    assert len(slack_grid("fixed", 40.0, TWO_MODELS, 4)) == 101
    np.testing.assert_array_equal(
        slack_grid("model", 40.0, TWO_MODELS, 4), model_grid(40.0, TWO_MODELS, 4)
    )


@pytest.mark.parametrize(
    "text", ["", "fixed:", "fixd:10", "fixed:ten", "fixed:2.5", "model:3", "fixed:1e3"])
def test_an_unknown_grid_is_refused(text):
    with pytest.raises(InvalidValueError, match=r"^grid: unknown slack grid: got .*fixed:D"):
        slack_grid(text, 40.0, TWO_MODELS, 4)


@pytest.mark.parametrize("divisions", [0, -3, 100_001, 10**30])
def test_a_number_of_divisions_out_of_range_is_refused(divisions):
    with pytest.raises(InvalidValueError, match=rf"^grid: .*got {divisions}; allowed: .*D from 1"):
        slack_grid(f"fixed:{divisions}", 40.0, TWO_MODELS, 4)


@pytest.mark.parametrize("slo_ms", [0.0, -5.0, math.nan, math.inf])
@pytest.mark.parametrize("text", ["fixed:10", "model"])
def test_an_slo_that_is_not_positive_is_refused(text, slo_ms):
    with pytest.raises(InvalidValueError, match=r"^slo_ms: SLO is not positive"):
        slack_grid(text, slo_ms, TWO_MODELS, 4)
