"""The negative binomial process: its law to many digits, and its draws."""

import math

import numpy as np
import pytest

from ramsis.arrivals import NegativeBinomial, Poisson, is_orderly
from ramsis.errors import InvalidValueError


def truth(k: int, mean: float, dispersion: float) -> float:
    """log PF as a sum of k logarithms, added without rounding: Γ(k + s)/Γ(s) as a product."""
    s = mean / (dispersion - 1.0)
    terms = [math.log((s + (i - 1)) / i) for i in range(1, k + 1)]
    over = dispersion - 1.0
    return math.fsum([*terms, -s * math.log1p(over), k * math.log(over), -k * math.log1p(over)])


@pytest.mark.parametrize("dispersion", [1.001, 1.5, 4.0, 16.0, 1000.0])
@pytest.mark.parametrize("mean", [1e-6, 0.3, 40.0, 3.3e4, 1e5])
def test_log_pf_is_within_1e_9_of_the_truth(mean, dispersion):
    """Far tails included, as the phases of K = 1000 workers need them."""
    spread = math.sqrt(mean * dispersion)
    counts = sorted({0, 1, 2, 999, 1000, 33_999,
                     *(max(0, int(mean + x * spread)) for x in (-10, -1, 0, 1, 10))})
    process = NegativeBinomial(1e6, dispersion)
    got = process.log_pf(np.array(counts), np.array([mean / process.rate_per_ms]))
    exact = [truth(k, process.rate_per_ms * (mean / process.rate_per_ms), dispersion)
             for k in counts]
    np.testing.assert_allclose(got, exact, rtol=1e-13, atol=1e-9)


def test_nothing_arrives_in_no_time():
    got = NegativeBinomial(100.0, 3.0).log_pf(np.array([0, 1, 50_000]), np.array([0.0]))
    np.testing.assert_array_equal(got, [0.0, -np.inf, -np.inf])


@pytest.mark.parametrize("interval_ms", [0.01, 1.0, 60.0])
def test_the_variance_is_the_stated_multiple_of_the_mean_in_any_interval(interval_ms):
    counts = np.arange(5_000)
    law = np.exp(NegativeBinomial(2000.0, 9.0).log_pf(counts, np.array([interval_ms])))
    mean = law @ counts
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    assert mean == pytest.approx(2.0 * interval_ms, rel=1e-10)
    assert law @ (counts - mean) ** 2 / mean == pytest.approx(9.0, rel=1e-9)


def test_at_dispersion_one_it_is_poisson_and_near_it_nearly_so():
    counts, lengths = np.arange(200), np.array([[3.0], [40.0]])
    plain = Poisson(1500.0).log_pf(counts, lengths)
    same = NegativeBinomial(1500.0, 1.0).log_pf(counts, lengths)
    np.testing.assert_array_equal(same, plain)
    near = NegativeBinomial(1500.0, 1.0 + 1e-9).log_pf(counts, lengths)
    np.testing.assert_allclose(near, plain, rtol=0, atol=1e-5)
    assert is_orderly(NegativeBinomial(1500.0, 1.0))
    assert not is_orderly(NegativeBinomial(1500.0, 2.0))


def test_draws_have_the_counts_of_the_law():
    """Mean and dispersion of 20 000 windows, within five standard errors."""
    process, window = NegativeBinomial(3000.0, 6.0), 2.0
    times = process.sample(40_000.0, np.random.default_rng(3))
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 40_000.0
    counts = np.bincount((times / window).astype(int), minlength=20_000)
    assert counts.mean() == pytest.approx(6.0, abs=5 * math.sqrt(6.0 * 6.0 / 20_000))
    law = np.exp(process.log_pf(np.arange(counts.max() + 1), np.array([window])))
    seen = np.bincount(counts) / len(counts)
    np.testing.assert_allclose(seen, law, atol=5 * math.sqrt(0.25 / 20_000))
    assert counts.var() / counts.mean() == pytest.approx(6.0, rel=0.1)


@pytest.mark.parametrize("dispersion", [0.99, 0.0, -1.0, math.nan, math.inf])
def test_a_dispersion_below_one_is_refused(dispersion):
    with pytest.raises(InvalidValueError, match="index of dispersion out of range"):
        NegativeBinomial(100.0, dispersion)


@pytest.mark.parametrize("duration_ms", [-1.0, math.nan, math.inf])
def test_a_draw_of_no_duration_is_refused(duration_ms):
    with pytest.raises(InvalidValueError, match="not a duration"):
        NegativeBinomial(100.0, 2.0).sample(duration_ms, np.random.default_rng(0))


def test_batches_that_all_but_never_come_are_drawn():
    process = NegativeBinomial(100.0, dispersion=1e300)
    assert len(process.sample(1000.0, np.random.default_rng(0))) == 0
