"""Figures of a run by whole arrays, sorted: slow and obvious."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.sim.run import DROPPED, NEVER_ANSWERED, Run


def figures(run: Run) -> dict[str, Any]:
    """What :func:`ramsis.sim.metrics.measure` has, by name."""
    n, duration_ms = run.requests, run.duration_ms
    in_time, answered = int(run.in_time.sum()), run.answered
    reward = float(run.reward.sum())
    response = (run.answered_ms - run.arrival_ms)[answered]
    sizes = run.size[run.batch_of[answered]]
    busy_ms = np.minimum(run.finish_ms, duration_ms) - np.minimum(run.start_ms, duration_ms)
    waited_ms = np.minimum(run.served_ms, duration_ms) - run.arrival_ms
    queue = queue_at_arrivals(run)
    share = {name: float((run.model_of[answered] == m).mean())
             for m, name in enumerate(run.models) if (run.model_of == m).any()}
    return {
        "queries": n,
        "in_time": in_time,
        "late": int(answered.sum()) - in_time,
        "dropped": int((run.batch_of == DROPPED).sum()),
        "never_answered": int((run.batch_of == NEVER_ANSWERED).sum()),
        "accuracy": reward / in_time if in_time else None,
        "violation_rate": (n - in_time) / n if n else 0.0,
        "effective_accuracy": reward / n if n else 0.0,
        "response_mean_ms": float(response.mean()) if len(response) else None,
        "response_p50_ms": _quantile(response, 0.5),
        "response_p95_ms": _quantile(response, 0.95),
        "response_p99_ms": _quantile(response, 0.99),
        "batches": len(run.size),
        "batch_mean": float(run.size.mean()) if len(run.size) else None,
        "batch_p99": _quantile(sizes, 0.99),
        "utilisation": float(busy_ms.sum()) / (duration_ms * run.workers),
        "queue_mean": float(waited_ms.sum()) / duration_ms,
        "queue_p99": _quantile(queue, 0.99) or 0.0,
        "queue_max": int(queue.max()) if n else 0,
        "offered_qps": 1000.0 * n / duration_ms,
        "model_share": share,
    }


def queue_at_arrivals(run: Run) -> NDArray[np.int64]:
    """Queries that wait when each arrives, itself not counted; shape (n,)."""
    left = np.sort(run.served_ms)
    # Who arrives at an instant comes after who left before it, and has not left itself.
    gone = np.searchsorted(left, run.arrival_ms, side="left")
    waiting: NDArray[np.int64] = np.maximum(np.arange(run.requests) - gone, 0)
    return waiting


def _quantile(values: NDArray[Any], level: float) -> float | None:
    return float(np.quantile(values, level)) if len(values) else None
