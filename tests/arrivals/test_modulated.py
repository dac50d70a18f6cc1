"""The Markov-modulated process against its generator, and its draws."""

import math

import numpy as np
import pytest
from scipy.linalg import expm

from ramsis.arrivals import MarkovModulated, Poisson

PROCESSES = [
    MarkovModulated(1000.0, 4.0, 50.0, 0.2), MarkovModulated(1000.0, 50.0, 20.0, 0.1),
    MarkovModulated(3000.0, 1.5, 0.5, 0.5), MarkovModulated(500.0, 10.0, 5000.0, 0.05),
]


def by_generator(process: MarkovModulated, most: int, interval_ms: float) -> np.ndarray:
    """P(k, z' | z) from the exponential of the generator of (count, mode), cut at ``most``."""
    arrive = np.diag(process.rates)
    stay = process.generator - arrive
    whole = np.kron(np.eye(most), stay) + np.kron(np.eye(most, k=1), arrive)
    return expm(whole * interval_ms)[:2].reshape(2, most, 2).transpose(0, 2, 1)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("interval_ms", [0.0, 0.01, 1.0, 30.0])
def test_the_joint_law_is_that_of_the_generator(process, interval_ms):
    most = int(40 + 1.5 * process.rates[1] * interval_ms)
    counts, length = np.arange(most), np.array([interval_ms])
    truth = by_generator(process, most, interval_ms)
    np.testing.assert_allclose(process.joint_pf(counts, length)[0], truth, rtol=0, atol=1e-12)


@pytest.mark.parametrize("process", PROCESSES)
def test_the_dispersion_is_that_of_the_law_and_rises_from_one(process):
    lengths = np.array([1e-3, 1.0, 20.0])
    counts = np.arange(600)
    law = np.einsum("z,tzyk->tk", process.stationary, process.joint_pf(counts, lengths))
    mean = law @ counts
    np.testing.assert_allclose(mean, process.rate_per_ms * lengths, rtol=1e-9)
    spread = (law * (counts - mean[:, None]) ** 2).sum(axis=1) / mean
    np.testing.assert_allclose(process.dispersion(lengths), spread, rtol=1e-7)
    wide = process.dispersion(np.geomspace(1e-6, 1e6, 30))
    assert wide[0] == pytest.approx(1.0, abs=1e-3)
    assert (np.diff(wide) > 0).all()


def test_with_equal_rates_the_counts_are_poisson():
    counts, lengths = np.arange(120), np.array([2.0, 70.0])
    process = MarkovModulated(1000.0, 1.0, 30.0, 0.3)
    got = np.einsum("z,tzyk->tk", process.stationary, process.joint_pf(counts, lengths))
    truth = np.exp(Poisson(1000.0).log_pf(counts, lengths[:, None]))
    np.testing.assert_allclose(got, truth, rtol=1e-9, atol=1e-12)


def test_draws_have_the_mean_and_dispersion_of_the_law():
    process, duration = MarkovModulated(1000.0, 5.0, 20.0, 0.2), 400_000.0
    times = process.sample(duration, np.random.default_rng(8))
    assert (np.diff(times) >= 0).all()
    assert 0 <= times[0] <= times[-1] <= duration
    for window in (2.0, 20.0):
        counts = np.bincount((times / window).astype(int), minlength=int(duration / window))
        spread = float(process.dispersion(np.array([1e9]))[0])
        error = math.sqrt(process.rate_per_ms * spread * duration) / duration
        assert counts.mean() / window == pytest.approx(1.0, abs=5 * error)
        expected = float(process.dispersion(np.array([window]))[0])
        assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("burst_ms", [1e-12, 1e-6, 1e-3, 4e-3])
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_counts_of_ever_so_many_switches_are_those_of_poisson(burst_ms, share):
    """So fast are modes left that only their mean rate counts."""
    process = MarkovModulated(1000.0, 5.0, burst_ms, share)
    count, lengths = np.arange(150), np.array([1.0, 50.0])
    joint = process.joint_pf(count, lengths)
    assert joint.sum(axis=(2, 3)) == pytest.approx(1.0, abs=1e-9)
    assert joint[:, 0, 1].sum(axis=-1) == pytest.approx(share, abs=1e-2 if burst_ms < 1e-2 else 1)
    if burst_ms <= 1e-6:
        poisson = np.exp(Poisson(1000.0).log_pf(count, lengths[:, None]))
        assert joint[:, 0].sum(axis=1) == pytest.approx(poisson, abs=1e-6)
