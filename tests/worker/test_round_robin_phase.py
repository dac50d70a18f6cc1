"""The round-robin phase against its definition."""

import numpy as np
import pytest
from hypothesis import given, settings

from ramsis.profiles import LatencyTable
from ramsis.worker.problem.batch_arrivals import phase_distribution
from tests.reference.four_intervals import phases
from tests.worker.problems import linear, small_problem, worker_problems


@settings(max_examples=30, deadline=None)
@given(problem=worker_problems())
def test_rows_are_the_brute_force_weights(problem):
    missing = phase_distribution(problem)
    shape = (problem.max_queue + 1, problem.bins + 1, problem.workers)
    assert missing.shape == shape
    np.testing.assert_allclose(missing.sum(axis=2), 1.0, rtol=0, atol=1e-12)
    slack, rate = problem.slack_ms.tolist(), problem.arrivals.rate_per_ms
    for n, j in np.ndindex(*shape[:2]):
        brute = phases(n + 1, j, slack=slack, rate=rate, workers=problem.workers)
        np.testing.assert_allclose(missing[n, j], brute[::-1], rtol=0, atol=1e-12)


def test_a_request_that_has_just_come_leaves_all_central_arrivals_missing():
    """T_A = 0: certain for one request, and the limit for more."""
    problem = small_problem()
    assert (phase_distribution(problem)[:, -1] == [0.0, 0.0, 1.0]).all()


def test_one_worker_gets_the_next_arrival():
    assert (phase_distribution(small_problem(workers=1)) == 1.0).all()


@pytest.mark.parametrize("slo_ms", [0.7, 47.3, 99.9])
def test_the_waiting_time_at_full_slack_is_zero_whatever_the_slo_rounds_to(slo_ms):
    table = LatencyTable.measured(["only"], [0.9], [[slo_ms / 3, slo_ms]])
    problem = small_problem(latency=table, slo_ms=slo_ms, grid="fixed:3", max_queue=1)
    assert (phase_distribution(problem)[:, -1] == [0.0, 0.0, 1.0]).all()


def test_weights_far_below_the_smallest_float_keep_their_ratios():
    """33 requests in a hundredth of a microsecond, 1000 workers: phase 0, since each further
    arrival is a millionth as likely."""
    table = LatencyTable.measured(["only"], [0.9], [linear(10.0, 1.0, 33)])
    problem = small_problem(
        load_qps=1e5, latency=table, workers=1000, max_queue=32,
        grid=np.array([0.0, 20.0, 40.0 - 1e-5, 40.0]),
    )
    missing = phase_distribution(problem)
    assert np.isfinite(missing).all()
    np.testing.assert_allclose(missing.sum(axis=2), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(missing[:, 3, :-1], 0.0)
    waited, rate = 40.0 - problem.slack_ms[2], problem.arrivals.rate_per_ms
    for n in (2, 31, 33):
        ratio = missing[n - 1, 2, -2] / missing[n - 1, 2, -1]
        assert ratio == pytest.approx(rate * waited / ((n - 1) * 1000 + 1), rel=1e-6)


def test_a_long_wait_makes_the_last_phase_the_likeliest():
    """Far more arrivals than n requests account for: k_A is as large as it may be."""
    missing = phase_distribution(small_problem(load_qps=1e6))
    assert (missing[:, 0].argmax(axis=1) == 0).all()
    assert (missing[:, 0, 0] > 0.99).all()
