"""Worker problems that several tests use."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from ramsis.arrivals import Poisson
from ramsis.profiles import LatencyTable
from ramsis.worker.problem import WorkerProblem

TWO_MODELS = LatencyTable.measured(
    ["quick", "exact"],
    [0.6, 0.8],
    [[10.0, 17.0, 24.0, 30.0, 38.0], [22.0, 40.0, 55.0, 70.0, 90.0]],
)
"""Latencies on both sides of an SLO of 40 ms, and one on it."""


def linear(first_ms: float, step_ms: float, batches: int) -> list[float]:
    """Latencies of batches 1 … ``batches``."""
    return [first_ms + step_ms * b for b in range(batches)]


def small_problem(load_qps: float = 150.0, **changes: Any) -> WorkerProblem:
    """K = 3, N = 4, D = 10 and an SLO of 40 ms, unless told otherwise."""
    parts: dict[str, Any] = {
        "latency": TWO_MODELS, "slo_ms": 40.0, "workers": 3, "arrivals": Poisson(load_qps),
        "grid": "fixed:10", "max_queue": 4,
    }
    parts.update(changes)
    return WorkerProblem.create(parts.pop("latency"), **parts)


def random_policy(problem: WorkerProblem, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """An admissible policy drawn at random."""
    rng = np.random.default_rng(seed)
    policy = problem.fastest_policy()
    for n, choices in enumerate(problem.actions.by_queue[:-1]):
        for j in range(problem.bins + 1):
            codes = [c.code for c in choices if c.first_bin <= j < c.stop_bin]
            policy[n, j] = rng.choice(codes)
    return policy


@st.composite
def worker_problems(draw: st.DrawFn) -> WorkerProblem:
    """Up to three models, four requests, five workers and six bins, at any load."""
    models, top = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    workers, bins = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    steps = st.lists(st.integers(0, 24), min_size=top + 1, max_size=top + 1)
    latency = np.cumsum([[4.0 + step[0], *step[1:]] for step in
                         draw(st.lists(steps, min_size=models, max_size=models))], axis=1)
    accuracy = draw(st.lists(st.integers(0, 8), min_size=models, max_size=models))
    slo = latency[:, 0].min() * draw(st.sampled_from([1.0, 1.5, 2.7, 6.0]))
    demand = draw(st.sampled_from([0.01, 0.3, 0.8, 1.5, 4.0]))
    return WorkerProblem.create(
        LatencyTable.measured([f"m{i}" for i in range(models)], np.array(accuracy) / 8, latency),
        slo_ms=float(slo),
        workers=workers,
        arrivals=Poisson(1000.0 * workers * demand / float(np.median(latency))),
        grid=draw(st.sampled_from([f"fixed:{bins}", "model"])),
        max_queue=top,
        objective=draw(st.sampled_from(["per-query", "per-decision"])),
    )
