"""Simulated queues against what theory says of them, within confidence intervals."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from ramsis.sim import ConstantLoad, Estimate, Fixed, Fleet, Plan
from tests.runs import run_plan
from tests.sim.samples import fleet

SERVICE_MS = 10.0
SEEDS = range(12)
CONFIDENCE = 0.9999
"""So wide that a dozen comparisons fail by chance once in a thousand runs of the tests."""


def one_at_a_time(workers: int, quantiles_ms: Any = None) -> tuple[Fleet, Plan]:
    """A central queue served in batches of 1."""
    own = fleet([[SERVICE_MS]], workers=workers, quantiles_ms=quantiles_ms)
    return own, Fixed("m0", 1).prepare(own)


def waits(own: Fleet, plan: Plan, workload: Any) -> Estimate:
    """Mean wait of the queries, after a start that is left out."""
    means = []
    for seed in SEEDS:
        done = run_plan(own, plan, workload, seed=seed)
        settled = done.arrival_ms > 0.1 * workload.duration_ms
        means.append(float((done.served_ms - done.arrival_ms)[settled].mean()))
    return Estimate.of(means, CONFIDENCE)


def mdc_wait_ms(workers: int, rate_per_ms: float, service_ms: float = SERVICE_MS) -> float:
    """Mean wait in M/D/c: the number present at t+D is what of it was not in service at t, and
    the arrivals since; its stationary law gives the queue length, Little's law the wait."""
    size = 400
    arrivals = stats.poisson.pmf(np.arange(size), rate_per_ms * service_ms)
    law = np.zeros(size)
    law[0] = 1.0
    for _ in range(3000):
        left = np.append(law[: workers + 1].sum(), law[workers + 1 :])
        law = np.convolve(left, arrivals)[:size]
    assert law.sum() == pytest.approx(1.0, abs=1e-9)
    queue = float((np.maximum(np.arange(size) - workers, 0) * law).sum())
    return queue / rate_per_ms


@pytest.mark.parametrize("utilisation", [0.3, 0.7, 0.9])
def test_the_wait_in_m_d_1_is_that_of_pollaczek_and_khinchine(utilisation):
    own, plan = one_at_a_time(1)
    found = waits(own, plan, ConstantLoad(1000.0 * utilisation / SERVICE_MS, 400_000.0))
    theory = utilisation * SERVICE_MS / (2.0 * (1.0 - utilisation))
    assert mdc_wait_ms(1, utilisation / SERVICE_MS) == pytest.approx(theory, rel=1e-6)
    assert found.half_width is not None
    assert found.half_width < 0.25 * theory
    assert abs(found.mean - theory) <= found.half_width


@pytest.mark.parametrize(("workers", "utilisation"), [(2, 0.8), (5, 0.9), (20, 0.95)])
def test_the_wait_in_m_d_c_is_that_of_its_stationary_law(workers, utilisation):
    own, plan = one_at_a_time(workers)
    rate = workers * utilisation / SERVICE_MS
    found = waits(own, plan, ConstantLoad(1000.0 * rate, 150_000.0))
    theory = mdc_wait_ms(workers, rate)
    assert found.half_width is not None
    assert found.half_width < 0.25 * theory
    assert abs(found.mean - theory) <= found.half_width


def test_the_wait_with_drawn_service_times_is_that_of_m_g_1():
    quantiles = np.sort(np.random.default_rng(3).gamma(1.5, 6.0, 64))
    own, plan = one_at_a_time(1, quantiles[None, None, :])
    # The law that is drawn from: linear between midpoints, constant outside.
    level = np.linspace(0.0, 1.0, 200_001)
    drawn = np.interp(level, (np.arange(64) + 0.5) / 64, quantiles)
    mean, square = float(drawn.mean()), float((drawn**2).mean())
    rate = 0.7 / mean
    found = waits(own, plan, ConstantLoad(1000.0 * rate, 400_000.0))
    theory = rate * square / (2.0 * (1.0 - rate * mean))
    assert found.half_width is not None
    assert found.half_width < 0.25 * theory
    assert abs(found.mean - theory) <= found.half_width


def test_deterministic_arrivals_above_capacity_wait_as_the_backlog_grows():
    own, plan = one_at_a_time(1)
    done = run_plan(own, plan, ConstantLoad(125.0, 1000.0, "fixed-rate"))
    query = np.arange(125)
    assert (done.answered_ms - done.arrival_ms) == pytest.approx(SERVICE_MS + 2.0 * query)
    assert done.in_time.sum() == 46  # 10 + 2·45 = 100 ms
