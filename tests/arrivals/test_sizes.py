"""Distributions of sizes: shares, quantiles, draws and classes."""


import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.arrivals import SizeDistribution
from ramsis.errors import InvalidValueError


def test_sizes_are_counted():
    sizes = SizeDistribution.of_sizes([128, 8, 8, 32])
    assert sizes.values.tolist() == [8, 32, 128]
    assert sizes.probability.tolist() == [0.5, 0.25, 0.25]
    assert sizes.mean == 44.0
    assert [sizes.quantile(level) for level in (0.0, 0.5, 0.51, 0.75, 1.0)] == [8, 8, 32, 32, 128]
    assert sizes.largest == 128


def test_draws_have_the_probabilities():
    sizes = SizeDistribution([3, 5], [1, 3])
    drawn = sizes.sample(20_000, np.random.default_rng(1))
    assert (drawn == 5).mean() == pytest.approx(0.75, abs=0.01)
    assert set(drawn.tolist()) == {3, 5}


@pytest.mark.parametrize(("values", "probability", "message"), [
    ([], [], "values: no sizes"),
    ([0, 5], [1, 1], "values, entry 1: not a size: got 0.0; allowed: a whole number from 1"),
    ([1.5], [1], "not a size: got 1.5"),
    ([5, 5], [1, 1], r"values\[1\]: sizes do not rise: got 5; allowed: above 5"),
    ([5, 6], [1], "not a probability for each size: got 1; allowed: 2 numbers"),
    ([5, 6], [1, 0], r"probability\[1\]: not a probability"),
    ([5, 6], [1, float("nan")], r"probability\[1\]: not a probability"),
    (["a"], [1], "not an array of sizes"),
])
def test_what_is_no_distribution_is_refused(values, probability, message):
    with pytest.raises(InvalidValueError, match=message):
        SizeDistribution(values, probability)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=200), st.integers(1, 8))
def test_classes_cover_all_sizes(values, k):
    sizes = SizeDistribution.of_sizes(values)
    edges = sizes.classes(k)
    assert list(edges) == sorted(set(edges))
    assert edges[-1] == max(values)
    assert len(edges) <= k
    assert sizes.shares(edges).sum() == pytest.approx(1.0)
    assert (sizes.shares(edges) > 0).all()


def test_classes_share_requests_and_work():
    sizes = SizeDistribution([1, 10, 100, 1000], [0.4, 0.3, 0.2, 0.1])
    assert sizes.classes(2) == (100, 1000)
    assert sizes.classes(1) == (1000,)
    assert sizes.shares((10, 1000)).tolist() == pytest.approx([0.7, 0.3])
