"""A fixed delay with a batch limit, against an event loop of its own and against theory."""

import heapq
from collections import deque

import numpy as np
import pytest

from ramsis.sim import Delay
from tests.sim.samples import fleet, run
from tests.sim.test_batching_schemes import poisson


def by_hand(
    arrivals: list[float], latency_ms: list[float], workers: int, limit: int, wait_ms: float
) -> list[tuple[float, int]]:
    """Starts and sizes of the batches: each candidate time is tried in order."""
    pending = [(time, 1) for time in arrivals] + [(time + wait_ms, 2) for time in arrivals]
    heapq.heapify(pending)
    waiting: deque[float] = deque()
    idle, batches = workers, []
    while pending:
        now, kind = heapq.heappop(pending)
        waiting.extend([now] * (kind == 1))
        idle += kind == 0
        while waiting and idle and (len(waiting) >= limit or now >= waiting[0] + wait_ms - 1e-6):
            size = min(limit, len(waiting))
            for _ in range(size):
                waiting.popleft()
            batches.append((now, size))
            idle -= 1
            heapq.heappush(pending, (now + latency_ms[size - 1], 0))
    return batches


@pytest.mark.parametrize(("workers", "limit", "wait_ms", "load_qps"), [
    (1, 4, 7.3, 120.0), (3, 8, 11.9, 700.0), (2, 3, 0.0, 300.0), (2, 8, 40.0, 90.0)])
def test_batches_are_those_of_an_event_loop_by_hand(workers, limit, wait_ms, load_qps):
    latency_ms = [6.0 + 1.5 * n for n in range(1, 9)]
    arrivals = poisson(load_qps, 2000, 5)
    own = fleet([latency_ms], slo_ms=1e6, workers=workers)
    done = run(own, Delay("m0", limit, wait_ms).prepare(own).start, arrivals, arrivals[-1] + 1.0)
    expected = by_hand(arrivals, latency_ms, workers, limit, wait_ms)
    np.testing.assert_allclose(done.start_ms, [start for start, _ in expected], atol=1e-6)
    assert done.size.tolist() == [size for _, size in expected]
    assert done.answered.all()


def test_batches_of_many_idle_workers_gather_as_poisson_arrivals_do():
    """With an idle worker always there, a batch is its first request and those of the delay."""
    load_qps, wait_ms = 200.0, 15.0
    own = fleet([[1.0] * 64], slo_ms=1e6, workers=64)
    arrivals = poisson(load_qps, 60_000, 8)
    done = run(own, Delay("m0", 64, wait_ms).prepare(own).start, arrivals, arrivals[-1] + 100.0)
    mean = 1.0 + load_qps * wait_ms / 1000.0
    assert done.size.mean() == pytest.approx(mean, abs=4 * np.sqrt((mean - 1) / len(done.size)))


def test_late_requests_are_answered_unless_they_are_dropped():
    own = fleet([[10.0, 12.0]], slo_ms=20.0, workers=1)
    arrivals = [0.0, 1.0, 2.0, 3.0]
    served = run(own, Delay("m0", 1).prepare(own).start, arrivals, 4.0)
    assert served.start_ms.tolist() == [0.0, 10.0, 20.0, 30.0]
    dropped = run(own, Delay("m0", 1, late="drop").prepare(own).start, arrivals, 4.0)
    assert dropped.start_ms.tolist() == [0.0, 10.0]
    assert dropped.batch_of.tolist() == [0, 1, -2, -2]
