"""Figures of a run, in total and over time.

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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError, describe
from ramsis.sim.run import DROPPED, NEVER_ANSWERED, Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Metrics", "TimeSeries", "measure", "over_time"]

FloatArray = NDArray[np.float64]


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
    n, duration_ms, fleet = run.queries, run.duration_ms, run.fleet
    in_time, answered = int(run.in_time.sum()), run.answered
    reward = float(run.reward.sum())
    response = (run.answered_ms - run.arrival_ms)[answered]
    p50, p95, p99 = _quantiles(response, (0.5, 0.95, 0.99))
    (batch_p99,) = _quantiles(run.size[run.batch_of[answered]], (0.99,))
    busy_ms = np.minimum(run.finish_ms, duration_ms) - np.minimum(run.start_ms, duration_ms)
    queue = queue_at_arrivals(run)
    counts = np.bincount(run.model_of[answered], minlength=len(fleet.models))
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
        utilisation=float(busy_ms.sum()) / (duration_ms * fleet.workers),
        queue_mean=_waited_ms(run, 0.0, duration_ms) / duration_ms,
        queue_p99=_quantiles(queue, (0.99,))[0] or 0.0,
        queue_max=int(queue.max()) if n else 0,
        offered_qps=1000.0 * n / duration_ms,
        model_share={name: float(count) / max(int(answered.sum()), 1)
                     for name, count in zip(fleet.models, counts, strict=True) if count},
    )


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


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """Figures by the time of arrival, in bins of equal length. All arrays have shape (T,).

    Attributes
    ----------
    start_ms : ndarray
        When each bin begins.
    bin_ms : float
        Length of a bin; the last may be cut by the end.
    queries, in_time : ndarrays of int
        Of the queries that arrived in a bin.
    load_qps, accuracy, violation_rate, effective_accuracy : ndarrays
        NaN where there are no queries (in time).
    response_p99_ms : ndarray
        Of the queries that arrived in a bin and were answered.
    utilisation, queue_mean : ndarrays
        Of the time of a bin.
    """

    start_ms: FloatArray
    bin_ms: float
    queries: NDArray[np.int64]
    in_time: NDArray[np.int64]
    load_qps: FloatArray
    accuracy: FloatArray
    violation_rate: FloatArray
    effective_accuracy: FloatArray
    response_p99_ms: FloatArray
    utilisation: FloatArray
    queue_mean: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """One row per bin."""
        import pandas as pd

        return pd.DataFrame({name: value for name, value in vars(self).items()
                             if name != "bin_ms"})


def over_time(run: Run, bin_ms: float = 1000.0) -> TimeSeries:
    """The figures of a run by the time of arrival.

    Raises
    ------
    InvalidValueError
        A length that is not positive, or gives more than a million bins.
    """
    if not (math.isfinite(bin_ms) and bin_ms > 0 and run.duration_ms / bin_ms <= 1e6):
        raise InvalidValueError(describe("not a length of bins", where="bin_ms", value=bin_ms,
                                         allowed="> 0, for at most a million bins"))
    bins = math.ceil(run.duration_ms / bin_ms)
    edges = np.minimum(np.arange(bins + 1) * bin_ms, run.duration_ms)
    which = np.minimum((run.arrival_ms / bin_ms).astype(np.int64), bins - 1)
    queries = np.bincount(which, minlength=bins)
    in_time = np.bincount(which[run.in_time], minlength=bins)
    reward = np.bincount(which, weights=run.reward, minlength=bins)
    length_ms = np.diff(edges)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy, effective, kept = reward / in_time, reward / queries, in_time / queries
    return TimeSeries(
        start_ms=edges[:-1],
        bin_ms=bin_ms,
        queries=queries,
        in_time=in_time,
        load_qps=1000.0 * queries / length_ms,
        accuracy=accuracy,
        violation_rate=1.0 - kept,
        effective_accuracy=effective,
        response_p99_ms=_p99_by_bin(run, which, bins),
        utilisation=np.diff(_covered_ms(run.start_ms, run.finish_ms, edges))
        / (length_ms * run.fleet.workers),
        queue_mean=np.diff(_covered_ms(run.arrival_ms, run.served_ms, edges)) / length_ms,
    )


def _p99_by_bin(run: Run, which: NDArray[np.int64], bins: int) -> FloatArray:
    result = np.full(bins, np.nan)
    response = run.answered_ms - run.arrival_ms
    first = np.searchsorted(which, np.arange(bins + 1))
    for i, (low, high) in enumerate(pairwise(first)):
        part = response[low:high]
        part = part[np.isfinite(part)]
        if len(part):
            result[i] = np.quantile(part, 0.99)
    return result


def _covered_ms(start_ms: FloatArray, end_ms: FloatArray, edges: FloatArray) -> FloatArray:
    """Total length of the intervals [start, end) before each edge; shape of ``edges``."""
    def before(times: FloatArray) -> FloatArray:
        """Σ max(edge − time, 0)."""
        ordered = np.sort(times[times < edges[-1]])
        sums = np.append(0.0, np.cumsum(ordered))
        count = np.searchsorted(ordered, edges)
        total: FloatArray = edges * count - sums[count]
        return total

    return before(start_ms) - before(end_ms)
