"""The cluster engine against queueing theory, within confidence intervals."""

from collections import deque
from math import factorial
from typing import Any

import numpy as np
import pytest

from ramsis.scenario import Scenario
from ramsis.sim import Engine, Estimate, Run, Scheduler
from tests.scenario.samples import model, scenario, stream

CONFIDENCE = 0.9999
SEEDS = range(8)


class FirstCome(Scheduler):
    """One queue; requests are run one by one wherever there is a free lane."""

    waits: bool = True

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.queue: deque[int] = deque()

    def on_arrival(self, request: int) -> None:
        self.queue.append(request)
        self.serve()
        if self.queue and not self.waits:
            self.engine.drop(self.queue.pop())

    def on_end(self, worker: int, batch: int) -> None:
        self.serve()

    def serve(self) -> None:
        workers = self.engine.workers
        for worker in range(len(workers)):
            while self.queue and workers.free_lanes[worker] > 0:
                self.engine.run(worker, 0, [self.queue.popleft()])


class Lost(FirstCome):
    """Requests that find all lanes busy are dropped."""

    waits = False


def estimate(made: Scenario, kind: type[Scheduler], figure: Any) -> Estimate:
    return Estimate.of([float(figure(Engine.of_scenario(made, seed).serve(kind)))
                        for seed in SEEDS], CONFIDENCE)


def holds(found: Estimate, expected: float) -> bool:
    assert found.half_width is not None
    assert found.half_width < 0.1 * abs(expected)
    return abs(found.mean - expected) <= found.half_width


def wait_ms(run: Run) -> float:
    settled = run.arrival_ms > 0.05 * run.duration_ms
    return float((run.start_ms[run.batch_of] - run.arrival_ms)[settled].mean())


def exponential(mean_ms: float, parts: int = 2000) -> list[float]:
    levels = (np.arange(parts) + 0.5) / parts
    values = -np.log1p(-levels)
    return (mean_ms * values / values.mean()).tolist()


def test_mg1_with_drawn_times():
    quantiles = exponential(10.0)
    second = float(np.mean(np.square(quantiles)))
    made = scenario(
        duration_s=200, streams=[stream(workload={"load_qps": 50})],
        models=[model(latency=[{"worker_type": "gpu", "batch": 1, "quantiles_ms": quantiles}])])
    assert holds(estimate(made, FirstCome, wait_ms), 0.05 * second / (2 * 0.5))


@pytest.mark.parametrize(("count", "lanes"), [(4, 1), (2, 2)])
def test_erlang_b_by_workers_and_by_lanes(count, lanes):
    made = scenario(duration_s=50, streams=[stream(workload={"load_qps": 250})], worker_types=[
        {"name": "gpu", "count": count, "lanes": lanes}])
    load, servers = 2.5, 4
    terms = [load**k / factorial(k) for k in range(servers + 1)]
    assert holds(estimate(made, Lost, lambda run: len(run.drop_ms) / run.requests),
                 terms[-1] / sum(terms))


LONG_S = 200


class Vacations(FirstCome):
    """Whenever nothing waits, another model is loaded, which blocks the worker."""

    def on_start(self) -> None:
        self.leave()

    def leave(self) -> None:
        self.engine.load(0, 1)

    def on_loaded(self, worker: int, model: int) -> None:
        self.engine.unload(worker, model)
        self.rest()

    def on_end(self, worker: int, batch: int) -> None:
        self.rest()

    def rest(self) -> None:
        self.serve()
        if not self.engine.workers.running[0] and self.engine.now_ms < 1000.0 * LONG_S:
            self.leave()

    def on_arrival(self, request: int) -> None:
        self.queue.append(request)
        self.serve()


def test_mm1_with_vacations_of_loading():
    """Fuhrmann and Cooper: the wait is that of M/M/1, and half a vacation on average."""
    made = scenario(
        duration_s=LONG_S, streams=[stream(workload={"load_qps": 50})],
        worker_types=[{"name": "gpu", "count": 1, "memory_mb": 1000, "loading": "blocking"}],
        models=[model(latency=[{"worker_type": "gpu", "batch": 1,
                                "quantiles_ms": exponential(10.0)}]), model("n", load_ms=40)])
    second = float(np.mean(np.square(exponential(10.0))))
    assert holds(estimate(made, Vacations, wait_ms), 0.05 * second / (2 * 0.5) + 40.0 / 2)


class Joins(Scheduler):
    """All requests run in one continuous batch."""

    group = -1
    inside = 0

    def on_arrival(self, request: int) -> None:
        if self.inside:
            self.engine.join(self.group, [request])
        else:
            self.group = self.engine.run(0, 0, [request])
        self.inside += 1

    def on_end(self, worker: int, batch: int) -> None:
        self.inside -= 1


@pytest.mark.parametrize("tokens", [[10.0], [5.0, 5.0, 5.0, 25.0]])
def test_continuous_batching_with_linear_steps_is_processor_sharing(tokens):
    """In M/G/1 with processor sharing the response depends on the mean alone, E[S]/(1-ρ)."""
    most = 80
    steps = [{"worker_type": "gpu", "batch": b, "latency_ms": float(b)}
             for b in range(1, most + 1)]
    made = scenario(
        duration_s=80, streams=[stream(workload={"load_qps": 40})],
        models=[model(latency=steps,
                      inference={"batching": "continuous", "output_tokens": tokens})])
    found = estimate(made, Joins, lambda run: run.response_ms[run.arrival_ms > 5000].mean())
    assert holds(found, 10.0 / (1 - 0.4))
