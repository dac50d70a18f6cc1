"""Tails of the counts against closed forms, with and without a closed form of their own."""

import math

import numpy as np
import pytest
from scipy.special import gammainc, gammaincc

from ramsis.arrivals import Poisson
from ramsis.arrivals.process import (
    count_probabilities,
    count_tail,
    counts_cdf,
    counts_support,
    passage_tails,
)
from ramsis.errors import InvalidValueError
from tests.arrivals.processes import Broken, Pairs, Wrapped
from tests.reference.poisson import log_poisson


@pytest.mark.parametrize(("load_qps", "orders"), [(150.0, 3), (3200.0, 60), (6e4, 1000)])
def test_tail_is_the_law_of_the_rth_arrival(load_qps, orders):
    lengths = np.array([0.0, 0.3, 5.0, 16.0, 80.0])
    tail = count_tail(Poisson(load_qps), orders, lengths)
    truth = gammainc(np.arange(1, orders + 1), load_qps / 1000 * lengths[:, None])
    np.testing.assert_allclose(tail, truth, rtol=0, atol=2e-11)
    assert (tail >= 0).all()
    assert (tail <= 1).all()


@pytest.mark.parametrize(("load_qps", "orders"), [(150.0, 3), (3200.0, 60)])
@pytest.mark.parametrize(("kind", "error"), [(Poisson, 1e-11), (Wrapped, 1e-8)])
def test_integrated_tail_is_the_mean_time_since_the_rth_arrival(kind, error, load_qps, orders):
    """∫₀ᵀ P(U_r <= s) ds = E[(T − U_r)⁺]; by quadrature where there is no closed form."""
    rate = load_qps / 1000
    lengths = np.linspace(45.0, 0.0, 91)
    tail, integral = passage_tails(kind(load_qps), orders, lengths)
    order, time = np.arange(1, orders + 1), lengths[:, None]
    truth = time * gammainc(order, rate * time) - order / rate * gammainc(order + 1, rate * time)
    assert tail.shape == integral.shape == (91, orders)
    np.testing.assert_allclose(tail, gammainc(order, rate * time), rtol=0, atol=1e-12)
    np.testing.assert_allclose(integral, truth, rtol=0, atol=error)


def test_tails_never_rise_as_the_interval_shrinks():
    lengths = np.linspace(20.0, 0.0, 400)
    tail, _ = passage_tails(Poisson(6e4), 1000, lengths)
    assert (np.diff(tail, axis=0) <= 0).all()
    assert (tail[-1] == 0).all()


@pytest.mark.parametrize("mean", [0.0, 1e-12, 0.3, 40.0, 3200.0, 1e5, 1e6])
def test_support_leaves_a_negligible_tail(mean):
    size = counts_support(Poisson(1000.0), mean)
    assert gammainc(size + 1, mean) < 1e-16
    assert size <= 64 + 2 * mean


def test_support_is_found_where_some_counts_are_impossible():
    """A single impossible count does not pass for the end of the support."""
    process = Pairs(1000.0)
    for length in np.linspace(1.0, 60.0, 30).tolist():
        size = counts_support(process, length)
        assert gammainc(size // 2 + 1, length / 2) < 1e-16


@pytest.mark.parametrize("shift", [math.nan, -1.0, 1.0, -math.inf])
def test_probabilities_that_do_not_add_up_are_refused(shift):
    with pytest.raises(InvalidValueError, match=r"PF\(k, T\) does not add up to 1"):
        counts_support(Broken(shift), 30.0)


def test_cdf_is_that_of_the_counts_and_ends_at_one():
    lengths = np.array([0.0, 2.0, 11.0])
    cdf = counts_cdf(Poisson(900.0), lengths, 60)
    truth = gammaincc(np.arange(1, 62), 0.9 * lengths[:, None])
    np.testing.assert_allclose(cdf, truth, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(cdf[:, -1], 1.0)


@pytest.mark.parametrize("mean", [1e-9, 0.3, 5.0, 16.0, 59.9, 480.0, 5000.0])
def test_poisson_probabilities_are_exact_to_twelve_digits(mean):
    count = np.unique([0, 1, 3, 15, 16, 17, 60, int(mean), int(1.3 * mean) + 20])
    found = count_probabilities(Poisson(1000.0), int(count[-1]) + 1, np.array([mean]))[0, count]
    known = np.array([log_poisson(int(k), mean) for k in count])
    seen = known > -650.0
    np.testing.assert_allclose(found[seen], np.exp(known[seen]), rtol=1e-12)
    assert (found[~seen] < 1e-280).all()


def test_nothing_arrives_in_no_time():
    found = count_probabilities(Poisson(1000.0), 3, np.array([0.0, 1.0]))
    assert found[0].tolist() == [1.0, 0.0, 0.0]
