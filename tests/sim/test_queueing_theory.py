"""Simulated queues against what theory says of them, within confidence intervals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ramsis.sim import (
    ConstantLoad,
    Estimate,
    Fixed,
    Fleet,
    Plan,
    Policies,
    Run,
)
from ramsis.sim.metrics import measure
from tests.runs import run_plan
from tests.sim.samples import fleet, tiny, tiny_policy

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


def test_round_robin_leaves_each_worker_a_queue_with_erlang_arrivals():
    """Gaps at a worker are sums of K exponential ones: their squared variation is 1/K."""
    policy = tiny_policy(400.0)
    own = Fleet.of(tiny(), workers=4, slo_ms=100.0)
    plan = Policies((policy,)).prepare(own)
    gaps = []
    for seed in SEEDS:
        done = run_plan(own, plan, ConstantLoad(400.0, 20_000.0), seed=seed)
        for worker in range(4):
            mine = done.arrival_ms[done.worker[done.batch_of] == worker]
            gaps.append(float(np.var(np.diff(mine)) / np.mean(np.diff(mine)) ** 2))
    found = Estimate.of(gaps, CONFIDENCE)
    assert found.half_width is not None
    assert abs(found.mean - 0.25) <= found.half_width + 0.002


def test_deterministic_arrivals_below_capacity_never_wait():
    own, plan = one_at_a_time(3)
    found = measure(run_plan(own, plan, ConstantLoad(299.0, 10_000.0, "fixed-rate")))
    assert found.queries == 2990
    assert found.response_p99_ms == pytest.approx(SERVICE_MS)
    assert found.utilisation == pytest.approx(2990 * SERVICE_MS / 30_000.0, abs=1e-3)
    assert found.queue_max == 0


def test_deterministic_arrivals_above_capacity_wait_as_the_backlog_grows():
    own, plan = one_at_a_time(1)
    done = run_plan(own, plan, ConstantLoad(125.0, 1000.0, "fixed-rate"))
    query = np.arange(125)
    assert (done.answered_ms - done.arrival_ms) == pytest.approx(SERVICE_MS + 2.0 * query)
    assert done.in_time.sum() == 46  # 10 + 2·45 = 100 ms


def test_littles_law_ties_the_mean_queue_to_the_waits():
    own, plan = one_at_a_time(2)
    done: Run = run_plan(own, plan, ConstantLoad(170.0, 100_000.0))
    found = measure(done)
    waited = (np.minimum(done.served_ms, 1e5) - done.arrival_ms).sum()
    assert found.queue_mean == pytest.approx(waited / 1e5)
    by_events = _queue_area(done) / 1e5
    assert found.queue_mean == pytest.approx(by_events)
    assert math.isfinite(found.queue_p99)


def _queue_area(done: Run) -> float:
    """Area under the number that wait up to the duration, event by event."""
    events = sorted([(t, 1) for t in done.arrival_ms] + [(t, -1) for t in done.served_ms])
    area, now, waiting = 0.0, 0.0, 0
    for when, change in events:
        upto = min(when, done.duration_ms)
        area, now = area + waiting * (upto - now), upto
        waiting += change
    return area
