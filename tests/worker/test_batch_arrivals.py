"""Requests that come at one instant: sizes, the landing after an empty queue, and the phase."""

import numpy as np
import pytest

from ramsis.arrivals import NegativeBinomial, Poisson
from ramsis.errors import InvalidValueError
from ramsis.worker.problem.batch_arrivals import (
    arrivals_behind_own,
    batch_size_distribution,
    busy_period_start,
    phase_distribution,
)
from tests.arrivals.processes import Pairs, Wrapped
from tests.worker.problems import small_problem


def test_clumps_of_the_negative_binomial_are_logarithmic():
    law = batch_size_distribution(NegativeBinomial(300.0, 5.0))
    size = np.arange(1, len(law))
    np.testing.assert_allclose(law[1:], -(0.8**size) / size / np.log(0.2), rtol=1e-6)
    assert law[0] == 0
    assert law.sum() == pytest.approx(1.0, abs=1e-14)


def test_pairs_come_in_pairs_and_orderly_requests_alone():
    pairs = batch_size_distribution(Pairs(100.0))
    np.testing.assert_allclose(pairs[:3], [0.0, 0.0, 1.0], atol=1e-8)
    for process in (Poisson(100.0), Wrapped(100.0)):
        np.testing.assert_array_equal(batch_size_distribution(process), [0.0, 1.0])


def test_clumps_beyond_all_measure_are_refused():
    with pytest.raises(InvalidValueError, match="batch arrivals are too large"):
        batch_size_distribution(NegativeBinomial(100.0, 1e9))


@pytest.mark.parametrize(("workers", "process"), [
    (1, NegativeBinomial(150.0, 3.0)), (3, NegativeBinomial(150.0, 8.0)), (5, Pairs(150.0)),
    (40, NegativeBinomial(150.0, 8.0)), (3, Poisson(150.0)),
])
def test_the_landing_is_that_of_clumps_added_up(workers, process):
    """Clumps drawn until they pass d: n' within five standard errors."""
    found = busy_period_start(small_problem(workers=workers, arrivals=process))
    np.testing.assert_allclose(found.distribution.sum(axis=1), 1.0, atol=1e-12)
    law = batch_size_distribution(process)
    rng, draws = np.random.default_rng(4), 20_000
    for missing in {1, workers // 2 + 1, workers}:
        total = np.zeros(draws, dtype=int)
        while (short := total < missing).any():
            total[short] += rng.choice(len(law), p=law, size=int(short.sum()))
        queued = 1 + (total - missing) // workers
        for n, probability in zip(found.queued, found.distribution[missing - 1], strict=True):
            error = np.sqrt(probability * max(0.0, 1 - probability) / draws) + 1e-4
            assert (queued == n).mean() == pytest.approx(probability, abs=5 * error)


@pytest.mark.parametrize("workers", [1, 3, 20])
def test_what_follows_a_request_in_its_clump_is_that_of_counting_every_kth(workers):
    """Every K-th of a long row of clumps, the first one of each clump: how many come behind."""
    law = batch_size_distribution(NegativeBinomial(100.0, 6.0))
    sizes = np.random.default_rng(2).choice(len(law), p=law, size=300_000)
    ends = np.cumsum(sizes)
    begins = ends - sizes
    first = -(-begins // workers) * workers  # the first own position in or after the clump
    behind = (ends - first - 1)[first < ends]
    expected = arrivals_behind_own(law, workers)
    seen = np.bincount(behind, minlength=len(expected))[: len(expected)] / len(behind)
    np.testing.assert_allclose(seen, expected, atol=5 * np.sqrt(0.25 / len(behind)))


def test_requests_of_the_same_clump_count_for_the_phase_at_once():
    problem = small_problem(arrivals=NegativeBinomial(150.0, 6.0))
    at_once = phase_distribution(problem)[:, -1]
    behind = arrivals_behind_own(batch_size_distribution(problem.arrivals), 3)
    for n in range(3):
        weight = behind[3 * n : 3 * n + 3]
        np.testing.assert_allclose(at_once[n], (weight / weight.sum())[::-1], rtol=1e-9)
