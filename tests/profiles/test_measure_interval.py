"""The stated error of a percentile, against theory and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ramsis.profiles.measure.sampling import CONFIDENCE, ranks, relative_error

TAIL = (1 - CONFIDENCE) / 2
LEVEL = 0.95


def at_most(count: int, n: int, level: float) -> float:
    """P(B ≤ count), B binomial, summed up term by term."""
    return math.fsum(math.comb(n, k) * level**k * (1 - level) ** (n - k)
                     for k in range(count + 1))


@settings(deadline=None)
@given(st.integers(1, 300), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_ranks_are_the_tightest_of_their_confidence(n, level):
    found = ranks(n, level)
    if found is None:
        too_few_above = 1 - at_most(n - 1, n, level) > TAIL
        too_few_below = at_most(0, n, level) > TAIL
        assert too_few_above or too_few_below
        return
    lower, upper = found
    assert 1 <= lower < upper <= n
    assert at_most(lower - 1, n, level) <= TAIL < at_most(lower, n, level)
    assert 1 - at_most(upper - 1, n, level) <= TAIL + 1e-12
    assert upper == 1 or 1 - at_most(upper - 2, n, level) > TAIL - 1e-12


def test_too_few_samples_state_no_error():
    assert relative_error(np.ones(71), LEVEL) is None
    assert relative_error(np.ones(72), LEVEL) == 0.0


def test_the_error_reaches_to_the_farther_end():
    samples = np.arange(1, 101.0)  # ranks 90 and 100; numpy's p95 is 95.05
    assert relative_error(samples, LEVEL) == pytest.approx((95.05 - 90) / 95.05)


def coverage(draw: NDArray[np.float64], truth: float, turn: int) -> float:
    """Share of the samples, one per row, whose stated error reaches to the true percentile."""
    hits = [abs(np.quantile(row, LEVEL) - truth)
            <= (relative_error(row, LEVEL, turn) or 0) * np.quantile(row, LEVEL) + 1e-12
            for row in draw]
    return float(np.mean(hits))


def test_independent_samples_lie_within_the_stated_error():
    draw = 10 + np.random.default_rng(0).exponential(1, (1000, 200))
    slack = 4 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / 1000)
    assert coverage(draw, 10 - math.log(1 - LEVEL), turn=10) >= CONFIDENCE - slack


def test_slow_spells_widen_the_stated_error():
    """Turns that share a delay: the plain interval is too narrow, the widened one is not."""
    rng = np.random.default_rng(1)
    shared = np.repeat(rng.exponential(1, (1000, 50)), 10, axis=1)
    draw = 10 + rng.exponential(1, (1000, 500)) + shared
    truth = 10 + 4.743865  # of the sum of two exponentials: (1 + x) exp(-x) = 0.05
    assert (1 + 4.743865) * math.exp(-4.743865) == pytest.approx(1 - LEVEL, rel=1e-5)
    assert coverage(draw, truth, turn=1) < 0.85
    assert coverage(draw, truth, turn=10) > 0.88
