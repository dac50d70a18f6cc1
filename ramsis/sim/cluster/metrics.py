"""Figures of a run of a cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError, describe
from ramsis.sim.run import DROPPED, Run

__all__ = ["ClusterMetrics", "measure_cluster"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClusterMetrics:
    """What became of the requests of a run, or of some of them; shares are fractions.

    Attributes
    ----------
    requests, in_time, late, dropped, never_answered : int
        All, and what they add up from. An answer that comes too early counts as late.
    in_time_share, violation_rate : float or None
        ``None`` without any request.
    goodput_qps, throughput_qps : float
        Requests in time, and answered, per second until requests stop to come.
    response_p50_ms, response_p99_ms, response_longest_ms : float or None
        Of the answered requests.
    batches : int
    mean_batch : float or None
    loads : int
    loading_s : float
        Time of all loads added up.
    cold_starts : int
        Requests whose model was loaded, where it ran, after their arrival.
    utilisation : float
        Share of the time of active workers in which at least one batch runs.
    worker_s : float
        Time of active workers.
    accuracy : float or None
        Mean of the requests in time.
    """

    requests: int
    in_time: int
    late: int
    dropped: int
    never_answered: int
    in_time_share: float | None
    violation_rate: float | None
    goodput_qps: float
    throughput_qps: float
    response_p50_ms: float | None
    response_p99_ms: float | None
    response_longest_ms: float | None
    batches: int
    mean_batch: float | None
    loads: int
    loading_s: float
    cold_starts: int
    utilisation: float
    worker_s: float
    accuracy: float | None

    def row(self) -> dict[str, Any]:
        """The figures by name."""
        return asdict(self)


def measure_cluster(run: Run, chosen: NDArray[np.bool_] | None = None) -> ClusterMetrics:
    """The figures of a run.

    Parameters
    ----------
    run : Run
    chosen : ndarray of bool, shape (n,), optional
        The requests to count, as those of one model or stream; batches, loads and workers are
        those of the whole run.

    Raises
    ------
    InvalidValueError
        Not a mask of the requests.
    """
    mine = np.ones(run.requests, dtype=bool) if chosen is None else np.asarray(chosen)
    if mine.dtype != bool or mine.shape != (run.requests,):
        raise InvalidValueError(describe("not a mask of the requests", where="chosen",
                                         value=f"{mine.dtype}, shape {mine.shape}",
                                         allowed=f"bool, shape ({run.requests},)"))
    requests, in_time = int(mine.sum()), int(run.in_time[mine].sum())
    answered = mine & run.answered
    dropped = int((run.batch_of[mine] == DROPPED).sum())
    response = run.response_ms[answered]
    p50, p99, longest = (np.quantile(response, (0.5, 0.99, 1.0)).tolist() if len(response)
                         else (None, None, None))
    duration_s = run.duration_ms / 1000.0
    active_ms = float(run.active_ms().sum())
    right = run.model[run.batch_of[mine & run.in_time]]
    return ClusterMetrics(
        requests=requests, in_time=in_time, late=int(answered.sum()) - in_time, dropped=dropped,
        never_answered=requests - int(answered.sum()) - dropped,
        in_time_share=in_time / requests if requests else None,
        violation_rate=1.0 - in_time / requests if requests else None,
        goodput_qps=in_time / duration_s, throughput_qps=int(answered.sum()) / duration_s,
        response_p50_ms=p50, response_p99_ms=p99, response_longest_ms=longest,
        batches=len(run.size), mean_batch=float(run.size.mean()) if len(run.size) else None,
        loads=len(run.load_model),
        loading_s=float((run.load_end_ms - run.load_start_ms).sum()) / 1000.0,
        cold_starts=int(run.cold[mine].sum()),
        utilisation=_busy_ms(run) / active_ms if active_ms else 0.0,
        worker_s=active_ms / 1000.0,
        accuracy=float(run.accuracy[right].mean()) if in_time else None,
    )


def _busy_ms(run: Run) -> float:
    """Time in which workers run at least one batch, added up: the unions of intervals."""
    order = np.lexsort((run.start_ms, run.worker))
    total, worker, begin, end = 0.0, -1, 0.0, 0.0
    for one, start_ms, finish_ms in zip(
            run.worker[order].tolist(), run.start_ms[order].tolist(),
            run.finish_ms[order].tolist(), strict=True):
        if one != worker or start_ms > end:
            total += end - begin
            worker, begin, end = one, start_ms, finish_ms
        elif finish_ms > end:
            end = finish_ms
    return total + end - begin
