"""Workers of several types come and go, and no request is lost."""

import math
from typing import Any

import numpy as np
import pytest

from ramsis.scenario import Scenario, scenario_from_document
from ramsis.sim import Run
from ramsis.studies.warsaw.autoscale import Demand
from tests.scenario.samples import served

NAMES = tuple(f"autoscale:of={of},down_after_ms=2000" for of in ("modified-baseline",
                                                                 "round-robin", "planned"))


def fleet(active: int = 1, small: int = 6) -> Scenario:
    """Fast and slow workers; model b runs on the fast ones only; a busy time in the middle."""
    def times(name: str, **ms: float) -> dict[str, Any]:
        return {"name": name, "memory_mb": 100, "latency": [
            {"worker_type": kind, "batch": 1, "latency_ms": one} for kind, one in ms.items()]}
    kind = {"memory_mb": 200, "load_mb_per_s": 2000, "scale_up_ms": 300, "loading": "blocking"}
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "fleet", "duration_s": 30,
        "worker_types": [{"name": "fast", "count": 3, "active": active, **kind},
                         {"name": "slow", "count": small, "active": 0, **kind}],
        "models": [times("a", fast=10, slow=25), times("b", fast=30)],
        "streams": [
            {"name": "calm", "model": "a", "slo_ms": 1000, "workload": {"load_qps": 5}},
            {"name": "busy", "model": "a", "slo_ms": 1000,
             "workload": {"load_qps": 250, "start_ms": 8000, "duration_s": 8}},
            {"name": "b", "model": "b", "slo_ms": 1000, "workload": {"load_qps": 4}}],
    }, "fleet")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_scaling_up_and_down_loses_no_request(name, seed):
    run = served(fleet(), name, seed)
    assert run.answered.all()
    assert run.in_time.mean() > 0.99
    assert run.scaled_up.sum() >= 3
    assert (~run.scaled_up).sum() >= 3
    for worker in range(9):  # nothing runs on a worker that is not active
        mine = run.worker == worker
        on = _active(run, worker)
        for start_ms, finish_ms in zip(run.start_ms[mine], run.finish_ms[mine], strict=True):
            assert any(a <= start_ms and finish_ms <= b for a, b in on)


def _active(run: Run, worker: int) -> list[tuple[float, float]]:
    begin = 0.0 if run.site.active[worker] else np.inf
    found = []
    for w, up, at_ms in zip(run.scaled_worker, run.scaled_up, run.scaled_ms, strict=True):
        if w == worker and up:
            begin = at_ms + 300
        elif w == worker:
            found.append((begin, at_ms))
            begin = np.inf
    return [*found, (begin, np.inf)]


def test_both_types_are_used_at_the_peak_and_few_workers_in_calm():
    run = served(fleet(), NAMES[0])
    kinds = run.site.worker_type[run.scaled_worker[run.scaled_up]]
    assert {0, 1} <= set(kinds.tolist())
    assert run.active_ms().sum() < 0.7 * 9 * run.end_ms
    calm = run.arrival_ms < 8000
    assert run.in_time[calm].mean() > 0.95


def test_a_model_that_no_active_worker_can_run_starts_one():
    run = served(fleet(active=0), NAMES[0])
    assert run.answered.all()
    assert (run.asked == 1).any()


def test_an_unknown_scheduler_within_is_refused():
    with pytest.raises(ValueError, match="modified-baseline"):
        served(fleet(), "autoscale:of=nothing")


def test_rates_are_those_of_all_arrivals_seen():
    rng = np.random.default_rng(1)
    demand = Demand(3)
    seen: list[list[float]] = [[], [], []]
    at_ms = 0.0
    for i in range(3000):
        at_ms += float(rng.exponential(0.5 if 1000 < i < 2000 else 12.0))
        model = int(rng.choice(3, p=(0.9, 0.09, 0.01)))
        demand.seen(model, at_ms)
        seen[model].append(at_ms)
        if i % 37 == 0:
            rates = demand.rates(at_ms)
            for m, times in enumerate(seen):
                long_ms = min(30_000.0, max(at_ms, 1000.0))
                rate = sum(time >= at_ms - long_ms for time in times) / long_ms
                for window_ms in (500.0, 1000.0, 3000.0):
                    n = sum(time >= at_ms - window_ms for time in times)
                    rate = max(rate, (n - 1.5 * math.sqrt(n)) / window_ms)
                assert rates[m] == rate


def test_a_rate_follows_a_rise_and_is_nothing_without_requests():
    demand = Demand(1)
    assert demand.rates(5.0).tolist() == [0.0]
    for at_ms in np.arange(0, 60_000, 100.0).tolist():
        demand.seen(0, at_ms)
    assert demand.rates(60_000.0)[0] == pytest.approx(0.01, rel=0.01)
    for at_ms in np.arange(60_000, 61_000, 10.0).tolist():
        demand.seen(0, at_ms)
    assert demand.rates(61_000.0)[0] > 0.05
