"""The simulator beside Ciw: waits in queues of one model, served one by one, first come first."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ramsis.sim import ConstantLoad, Estimate, Fixed
from tests.runs import run_plan
from tests.sim.samples import fleet

ciw = pytest.importorskip("ciw")

pytestmark = pytest.mark.slow

SERVICE_MS = 10.0
REQUESTS = 12_000
SEEDS = range(10)
CONFIDENCE = 0.9999
LEVELS = 4096

EXPONENTIAL: NDArray[np.float64] = -SERVICE_MS * np.log1p(-(np.arange(LEVELS) + 0.5) / LEVELS)
"""Quantiles of exponential service times."""


def _settled(waits_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without the start, when the queue is empty."""
    return waits_ms[waits_ms.size // 10:]


def _ours(workers: int, rate_per_ms: float, exponential: bool, seed: int) -> NDArray[np.float64]:
    quantiles = EXPONENTIAL[None, None, :] if exponential else None
    own = fleet([[SERVICE_MS]], workers=workers, quantiles_ms=quantiles)
    done = run_plan(own, Fixed("m0", 1).prepare(own),
                    ConstantLoad(1000.0 * rate_per_ms, REQUESTS / rate_per_ms), seed=seed)
    return _settled(done.served_ms - done.arrival_ms)


def _theirs(workers: int, rate_per_ms: float, exponential: bool, seed: int) -> NDArray[np.float64]:
    service = (ciw.dists.Exponential(rate=1.0 / SERVICE_MS) if exponential
               else ciw.dists.Deterministic(value=SERVICE_MS))
    ciw.seed(seed)
    run = ciw.Simulation(ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=rate_per_ms)],
        service_distributions=[service], number_of_servers=[workers]))
    run.simulate_until_max_customers(REQUESTS, method="Finish")
    records: list[Any] = sorted(run.get_all_records(), key=lambda each: each.arrival_date)
    return _settled(np.array([each.waiting_time for each in records]))


@pytest.mark.parametrize("exponential", [False, True], ids=["M/D", "M/M"])
@pytest.mark.parametrize(("workers", "utilisation"), [(1, 0.5), (1, 0.7), (2, 0.8), (4, 0.8)])
def test_waits_are_those_of_ciw(workers, utilisation, exponential):
    rate = workers * utilisation / SERVICE_MS
    ours, theirs = ([run(workers, rate, exponential, seed) for seed in SEEDS]
                    for run in (_ours, _theirs))
    for figure in (np.mean, _waiting, np.std):
        found, other = (Estimate.of([float(figure(waits)) for waits in runs], CONFIDENCE)
                        for runs in (ours, theirs))
        assert found.half_width is not None
        assert other.half_width is not None
        apart = float(np.hypot(found.half_width, other.half_width))
        assert apart < 0.8 * other.mean
        assert abs(found.mean - other.mean) <= apart


def _waiting(waits_ms: NDArray[np.float64]) -> float:
    """The share that waits at all."""
    return float(np.mean(waits_ms > 1e-6))
