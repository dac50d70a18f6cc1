"""Figures of a run in bins of time, and runs as Chrome traces.

:mod:`ramsis.sim.metrics` defines the figures. A Chrome trace is a JSON object of events with times
in microseconds. Here each run is a process of the trace. In it each worker has a track for every
lane, with the batches of the lane, and a track for its loads if models are loaded. A counter shows
the requests that wait.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import InvalidValueError
from ramsis.files import write_atomic
from ramsis.reprs import dataclass
from ramsis.sim.run import Run

if TYPE_CHECKING:
    import pandas as pd

_COUNTER_MS = 5.0  # between two values of the counter of waiting requests
_MOST_VALUES = 100_000  # of that counter

Event = dict[str, Any]

MOST_BINS = 1_000_000


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """Figures in T bins of equal length; arrays have shape (T,) unless another is stated.

    Requests count where they arrive, batches where they start.
    """

    start_ms: FloatArray  # when each bin begins
    bin_ms: float  # length of a bin; the last may be cut by the end
    # queries, in_time: of the requests that arrived in a bin
    queries: IntArray
    in_time: IntArray
    # load_qps, accuracy, violation_rate, effective_accuracy: NaN where a bin has no requests
    # (accuracy: no requests in time)
    load_qps: FloatArray
    accuracy: FloatArray
    violation_rate: FloatArray
    effective_accuracy: FloatArray
    # response_p50_ms, response_p95_ms, response_p99_ms: of the requests that were answered
    response_p50_ms: FloatArray
    response_p95_ms: FloatArray
    response_p99_ms: FloatArray
    batch_mean: FloatArray  # mean size of a batch
    model_share: FloatArray  # shape (T, M): share of each model in the requests that were answered
    models: tuple[str, ...]  # shape (M,)
    # utilisation, queue_mean: means over the time of a bin
    utilisation: FloatArray
    queue_mean: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with a row for each bin; a model's share is in ``share_MODEL``."""
        import pandas as pd

        columns = {name: value for name, value in vars(self).items()
                   if name not in ("bin_ms", "models", "model_share")}
        shares = {f"share_{name}": self.model_share[:, m] for m, name in enumerate(self.models)}
        return pd.DataFrame(columns | shares)


def over_time(run: Run, bin_ms: float = 1000.0) -> TimeSeries:
    """Compute the figures of a run in bins of time, up to the end of its arrivals."""
    if not (math.isfinite(bin_ms) and bin_ms > 0 and run.duration_ms / bin_ms <= MOST_BINS):
        raise InvalidValueError("not a length of bins", where="bin_ms", value=bin_ms,
                                allowed="> 0, for at most a million bins")
    bin_ms = float(bin_ms)  # a whole number could be too large for an array
    bins = math.ceil(run.duration_ms / bin_ms)
    edges = np.minimum(np.arange(bins + 1) * bin_ms, run.duration_ms)
    which = np.minimum((run.arrival_ms / bin_ms).astype(np.int64), bins - 1)
    queries = np.bincount(which, minlength=bins)
    in_time = np.bincount(which[run.in_time], minlength=bins)
    reward = np.bincount(which, weights=run.reward, minlength=bins)
    length_ms = np.diff(edges)
    models = len(run.models)
    of_model = np.bincount(which[run.answered] * models + run.model_of[run.answered],
                           minlength=bins * models).reshape(bins, models)
    begun = np.searchsorted(edges[1:-1], run.start_ms, side="right")[run.start_ms < edges[-1]]
    size = run.size[run.start_ms < edges[-1]]
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy, effective, kept = reward / in_time, reward / queries, in_time / queries
        share = of_model / of_model.sum(axis=1, keepdims=True)
        batch_mean = (np.bincount(begun, weights=size, minlength=bins)
                      / np.bincount(begun, minlength=bins))
    p50, p95, p99 = _quantiles_by_bin(run, which, bins)
    return TimeSeries(
        start_ms=edges[:-1],
        bin_ms=bin_ms,
        queries=queries,
        in_time=in_time,
        load_qps=1000.0 * queries / length_ms,
        accuracy=accuracy,
        violation_rate=1.0 - kept,
        effective_accuracy=effective,
        response_p50_ms=p50,
        response_p95_ms=p95,
        response_p99_ms=p99,
        batch_mean=batch_mean,
        model_share=share,
        models=run.models,
        utilisation=np.diff(_covered_ms(run.start_ms, run.finish_ms, edges))
        / (length_ms * run.workers),
        queue_mean=np.diff(_covered_ms(run.arrival_ms, run.served_ms, edges)) / length_ms,
    )


def _quantiles_by_bin(run: Run, which: IntArray, bins: int) -> FloatArray:
    """Return the 50th, 95th and 99th percentiles of response times by bin, shape (3, T)."""
    result = np.full((3, bins), np.nan)
    response = run.answered_ms - run.arrival_ms
    first = np.searchsorted(which, np.arange(bins + 1))
    for i, (low, high) in enumerate(pairwise(first)):
        part = response[low:high]
        part = part[np.isfinite(part)]
        if len(part):
            result[:, i] = np.quantile(part, (0.5, 0.95, 0.99))
    return result


def _covered_ms(start_ms: FloatArray, end_ms: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the total length of intervals [start, end) before each edge; shape of ``edges``."""
    def before(times: FloatArray) -> FloatArray:
        """Return Σ max(edge − time, 0) over the times, for each edge."""
        ordered = np.sort(times[times < edges[-1]])
        sums = np.append(0.0, np.cumsum(ordered))
        count = np.searchsorted(ordered, edges)
        total: FloatArray = edges * count - sums[count]
        return total

    return before(start_ms) - before(end_ms)


def write_timeline(runs: Mapping[str, Run], path: str | os.PathLike[str]) -> None:
    """Write a Chrome trace of runs (:func:`timeline`) to a file."""
    write_atomic(path, json.dumps(timeline(runs), separators=(",", ":")) + "\n")


def timeline(runs: Mapping[str, Run]) -> dict[str, Any]:
    """Return runs as a Chrome trace, each run a process under its name."""
    events: list[Event] = []
    for process, (name, run) in enumerate(runs.items(), start=1):
        events.append(_named(process, 0, name, "process_name"))
        events.extend(_events(process, run))
    return {"displayTimeUnit": "ms", "traceEvents": events}


def lanes_of(run: Run) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Assign each batch to a lane of its worker so that no two on a lane overlap; shape (b,)."""
    lane = np.zeros(len(run.start_ms), dtype=np.int64)
    free: dict[int, list[float]] = {}
    for batch in np.argsort(run.start_ms, kind="stable").tolist():
        start_ms, ends = float(run.start_ms[batch]), free.setdefault(int(run.worker[batch]), [])
        place = next((i for i, end_ms in enumerate(ends) if end_ms <= start_ms), len(ends))
        ends[place:place + 1] = [float(run.finish_ms[batch])]
        lane[batch] = place
    return lane


def _events(process: int, run: Run) -> Iterator[Event]:
    """Yield Chrome-trace events of a run: track names, batches, loads, drops, waiting requests."""
    # Tracks of a worker: its lanes, then its loads; numbered from 1 through all workers.
    lane, models = lanes_of(run), run.models
    lanes, loads = int(lane.max(initial=0)) + 1, len(run.load_model) > 0
    width = lanes + loads
    for worker, title in enumerate(run.site.workers):
        for track in range(width):
            label = f"{title} loads" if track == lanes else (
                title if lanes == 1 else f"{title} lane {track + 1}")
            yield _named(process, worker * width + track + 1, label)
    late = np.bincount(run.batch_of[run.answered & ~run.in_time], minlength=len(run.size))
    for batch in np.argsort(run.start_ms, kind="stable").tolist():
        yield _piece((process, int(run.worker[batch]) * width + int(lane[batch]) + 1),
                    models[run.model[batch]],
                    (float(run.start_ms[batch]), float(run.finish_ms[batch])),
                    batch=int(run.size[batch]), late=int(late[batch]))
    for i in range(len(run.load_model)):
        yield _piece((process, (int(run.load_worker[i]) + 1) * width),
                    f"load {models[run.load_model[i]]}",
                    (float(run.load_start_ms[i]), float(run.load_end_ms[i])))
    for request, when in zip(run.drop_request, run.drop_ms, strict=True):
        yield {"ph": "i", "name": "drop", "pid": process, "tid": 0, "s": "p",
               "ts": round(1000.0 * float(when), 3), "args": {"request": int(request)}}
    at_ms = np.arange(0.0, run.duration_ms, max(_COUNTER_MS, run.duration_ms / _MOST_VALUES))
    arrived = np.searchsorted(np.sort(run.arrival_ms), at_ms, side="right")
    left = np.searchsorted(np.sort(run.served_ms), at_ms, side="right")
    for when, waiting in zip(at_ms, arrived - left, strict=True):
        yield {"ph": "C", "name": "waiting", "pid": process, "tid": 0,
               "ts": round(1000.0 * float(when), 3), "args": {"requests": int(waiting)}}


def _named(process: int, track: int, name: str, what: str = "thread_name") -> Event:
    """Return the Chrome-trace event that names a track, or a process."""
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": name}}


def _piece(
    place: tuple[int, int], name: str, span_ms: tuple[float, float], **more: int
) -> Event:
    """Return a Chrome-trace duration event on a (process, track)."""
    start_ms, end_ms = span_ms
    return {"ph": "X", "name": name, "pid": place[0], "tid": place[1],
            "ts": round(1000.0 * start_ms, 3), "dur": round(1000.0 * (end_ms - start_ms), 3),
            "args": more}
