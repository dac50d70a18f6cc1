"""Figures of a run, in total.

Of n queries that arrived, some are answered in time, some late, some dropped, some never answered;
all but the first are violations.

- accuracy: mean accuracy of the queries in time;
- violation rate: share of the others;
- effective accuracy: accuracy × (1 − violation rate), the mean over all queries of the accuracy
  if in time and 0 otherwise.

Response times are of all answered queries, late ones included. Utilisation and queue lengths are
means over [0, duration], while queries arrive; what drains afterwards does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.sim.run import DROPPED, NEVER_ANSWERED, Run

__all__ = ["Metrics", "measure", "queue_at_arrivals"]


@dataclass(frozen=True)
class Metrics:
    """Figures of one run; rates are fractions, a figure without any query is ``None``.

    Attributes
    ----------
    queries, in_time, late, dropped, never_answered : int
        The last four add up to the first.
    accuracy, violation_rate, effective_accuracy : float
    response_p50_ms, response_p95_ms, response_p99_ms : float
    batches : int
    batch_mean : float
        Mean size of a batch.
    batch_p99 : float
        99th percentile of the size of a query's batch.
    utilisation : float
        Share of the workers' time that is busy.
    queue_mean, queue_p99, queue_max : float
        Queries that wait: mean over time; seen by arrivals.
    offered_qps : float
        Arrivals per second.
    model_share : Mapping of str to float
        Share of each model in the answered queries; models without any are left out.
    """

    queries: int
    in_time: int
    late: int
    dropped: int
    never_answered: int
    accuracy: float | None
    violation_rate: float
    effective_accuracy: float
    response_p50_ms: float | None
    response_p95_ms: float | None
    response_p99_ms: float | None
    batches: int
    batch_mean: float | None
    batch_p99: float | None
    utilisation: float
    queue_mean: float
    queue_p99: float
    queue_max: int
    offered_qps: float
    model_share: Mapping[str, float]


def measure(run: Run) -> Metrics:
    """The figures of a run."""
    n, duration_ms = run.queries, run.duration_ms
    in_time, answered = int(run.in_time.sum()), run.answered
    reward = float(run.reward.sum())
    response = (run.answered_ms - run.arrival_ms)[answered]
    p50, p95, p99 = _quantiles(response, (0.5, 0.95, 0.99))
    (batch_p99,) = _quantiles(run.size[run.batch_of[answered]], (0.99,))
    busy_ms = np.minimum(run.finish_ms, duration_ms) - np.minimum(run.start_ms, duration_ms)
    queue = queue_at_arrivals(run)
    counts = np.bincount(run.model_of[answered], minlength=len(run.models))
    return Metrics(
        queries=n,
        in_time=in_time,
        late=int(answered.sum()) - in_time,
        dropped=int((run.batch_of == DROPPED).sum()),
        never_answered=int((run.batch_of == NEVER_ANSWERED).sum()),
        accuracy=reward / in_time if in_time else None,
        violation_rate=(n - in_time) / n if n else 0.0,
        effective_accuracy=reward / n if n else 0.0,
        response_p50_ms=p50,
        response_p95_ms=p95,
        response_p99_ms=p99,
        batches=len(run.size),
        batch_mean=float(run.size.mean()) if len(run.size) else None,
        batch_p99=batch_p99,
        utilisation=float(busy_ms.sum()) / (duration_ms * run.workers),
        queue_mean=_waited_ms(run, 0.0, duration_ms) / duration_ms,
        queue_p99=_quantiles(queue, (0.99,))[0] or 0.0,
        queue_max=int(queue.max()) if n else 0,
        offered_qps=1000.0 * n / duration_ms,
        model_share=_shares(run.models, counts, int(answered.sum())),
    )


def _shares(
    models: tuple[str, ...], counts: NDArray[np.int64], answered: int
) -> dict[str, float]:
    """Share of each model in the answered queries, over all types of workers that hold it."""
    total: dict[str, int] = {}
    for name, count in zip(models, counts.tolist(), strict=True):
        if count:
            total[name] = total.get(name, 0) + count
    return {name: float(count) / max(answered, 1) for name, count in total.items()}


def queue_at_arrivals(run: Run) -> NDArray[np.int64]:
    """Queries that wait when each arrives, itself not counted; shape (n,)."""
    left = np.sort(run.served_ms)
    # Who arrives at an instant comes after who left before it, and has not left itself.
    gone = np.searchsorted(left, run.arrival_ms, side="left")
    waiting: NDArray[np.int64] = np.maximum(np.arange(run.queries) - gone, 0)
    return waiting


def _waited_ms(run: Run, low_ms: float, high_ms: float) -> float:
    """Total time that queries wait within a stretch of time."""
    until = np.clip(run.served_ms, low_ms, high_ms)
    return float((until - np.clip(run.arrival_ms, low_ms, high_ms)).sum())


def _quantiles(values: NDArray[Any], levels: tuple[float, ...]) -> list[float | None]:
    if not len(values):
        return [None] * len(levels)
    return [float(value) for value in np.quantile(values, levels)]
