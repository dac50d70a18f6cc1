"""Causes of the violations of a log: each violation has one, so that their shares add up.

The first of these that holds:

- *failed*: the answer was an error.
- *overload*: so many requests came before its deadline that no scheduler could have answered all
  of them in time. With c the least worker time of an answer, K workers answer at most K·(τ +
  SLO)/c of the requests of any τ ms; more came in some time τ up to the arrival of this one.
- *service*: the batch took longer than the profile's 95th percentile; with that the request would
  have been in time.
- *batching*: when the batch started, the fastest model could still have answered this request
  alone in time: the batch or the model was too large.
- *given up*: it was dropped while the fastest model could still have answered it in time.
- *queueing*: it had waited too long for even the fastest model to answer in time.
- *unexplained*: the log does not state when it left the queue.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.audit.batches import LoggedBatches
from ramsis.audit.request_log import RequestLog
from ramsis.cluster.service_times import ServiceTimes

CAUSES = ("failed", "overload", "service", "batching", "given up", "queueing", "unexplained")
_SPANS = 2.0 ** np.arange(-1, 20)  # times before a deadline, in units of the SLO
_TYPICAL = 0.95  # quantile of service times up to which a batch is as profiled


def causes_of(
    log: RequestLog, batches: LoggedBatches, times: ServiceTimes, workers: int
) -> NDArray[np.object_]:
    """Return the cause of each violation, shape (n,); empty for requests in time.

    Parameters
    ----------
    times : ServiceTimes
        Service times of the profile.
    """
    typical_ms = times.quantile(_TYPICAL)
    fastest_ms = float(typical_ms[:, 0].min())
    left_s = np.where(log.answered, log.start_s, log.finish_s)
    waited_ms = 1000.0 * (left_s - log.arrival_s)
    planned_ms = np.full(len(log), np.inf)
    has_batch = batches.of >= 0
    planned_ms[has_batch] = typical_ms[batches.model, batches.size - 1][batches.of[has_batch]]
    reachable = waited_ms + fastest_ms <= log.deadline_ms
    late, dropped = log.outcome == "late", log.outcome == "dropped"
    rules = (
        ("failed", log.outcome == "failed"),
        ("overload", overloaded(log, times, workers)),
        ("service", late & (waited_ms + planned_ms <= log.deadline_ms)),
        ("batching", late & reachable),
        ("given up", dropped & reachable),
        ("queueing", np.isfinite(waited_ms)),
        ("unexplained", np.ones(len(log), dtype=bool)),
    )
    names = [name for name, _ in rules]
    first = np.argmax(np.stack([holds for _, holds in rules]), axis=0)
    cause: NDArray[np.object_] = np.array(names, dtype=object)[first]
    cause[log.in_time] = ""
    return cause


def overloaded(log: RequestLog, times: ServiceTimes, workers: int) -> NDArray[np.bool_]:
    """Return whether more requests came up to each than could be answered in time."""
    slo_ms = float(log.deadline_ms.max())
    able = times.cdf(slo_ms) > 0
    fastest = np.where(able, times.mean_ms, np.inf) / np.arange(1, times.max_batch + 1)
    arrival_ms = 1000.0 * log.arrival_s
    upto = np.arange(1, len(log) + 1)
    is_overloaded = np.zeros(len(log), dtype=bool)
    for span_ms in slo_ms * _SPANS:
        came = upto - np.searchsorted(arrival_ms, arrival_ms - span_ms)
        is_overloaded |= came > workers * (span_ms + slo_ms) / float(fastest.min())
        if span_ms > arrival_ms[-1] - arrival_ms[0]:
            break
    return is_overloaded
