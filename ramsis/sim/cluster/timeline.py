"""Runs of a cluster as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show.

A process for each run; in it, for each worker, a track for every lane with its batches, and one
with its loads. Times of the Trace Event Format are in microseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ramsis.files import write_atomic
from ramsis.sim.cluster.record import ClusterRun

__all__ = ["cluster_timeline", "write_cluster_timeline"]

_COUNTER_MS = 5.0  # between two values of the counter
_MOST_VALUES = 100_000


def write_cluster_timeline(runs: Mapping[str, ClusterRun], path: str | os.PathLike[str]) -> None:
    """Write :func:`cluster_timeline` to a file.

    Raises
    ------
    OutputError
        When the file cannot be written.
    """
    write_atomic(path, json.dumps(cluster_timeline(runs), separators=(",", ":")) + "\n")


def cluster_timeline(runs: Mapping[str, ClusterRun]) -> dict[str, Any]:
    """The trace of some runs, each under its name."""
    events = [event for process, (name, run) in enumerate(runs.items(), start=1)
              for event in _events(process, name, run)]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def lanes_of(run: ClusterRun) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A lane of its worker for each batch, so that no two on it overlap; shape (b,)."""
    lane = np.zeros(len(run.start_ms), dtype=np.int64)
    free: dict[int, list[float]] = {}
    for batch in np.argsort(run.start_ms, kind="stable").tolist():
        start_ms, ends = float(run.start_ms[batch]), free.setdefault(int(run.worker[batch]), [])
        place = next((i for i, end_ms in enumerate(ends) if end_ms <= start_ms), len(ends))
        ends[place:place + 1] = [float(run.finish_ms[batch])]
        lane[batch] = place
    return lane


def _events(process: int, name: str, run: ClusterRun) -> Iterator[dict[str, Any]]:
    arrays = run.scenario.arrays
    lane = lanes_of(run)
    width = int(lane.max(initial=0)) + 2
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    for worker, title in enumerate(arrays.workers):
        for track in range(width):
            label = f"{title} loads" if track == width - 1 else (
                title if width == 2 else f"{title} lane {track + 1}")
            yield {"ph": "M", "name": "thread_name", "pid": process,
                   "tid": worker * width + track + 1, "args": {"name": label}}
    late = np.bincount(run.batch_of[run.answered & ~run.in_time], minlength=len(run.size))
    for batch in np.argsort(run.start_ms, kind="stable").tolist():
        yield _slice(process, int(run.worker[batch]) * width + int(lane[batch]) + 1,
                     arrays.models[run.batch_model[batch]], float(run.start_ms[batch]),
                     float(run.finish_ms[batch]),
                     {"batch": int(run.size[batch]), "late": int(late[batch])})
    for i in range(len(run.load_model)):
        yield _slice(process, (int(run.load_worker[i]) + 1) * width,
                     f"load {arrays.models[run.load_model[i]]}", float(run.load_start_ms[i]),
                     float(run.load_end_ms[i]), {})
    for request, when in zip(run.drop_request, run.drop_ms, strict=True):
        yield {"ph": "i", "name": "drop", "pid": process, "tid": 0, "s": "p",
               "ts": round(1000.0 * float(when), 3), "args": {"request": int(request)}}
    yield from _waiting(process, run)


def _slice(
    process: int, track: int, name: str, start_ms: float, end_ms: float, more: dict[str, Any]
) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": process, "tid": track,
            "ts": round(1000.0 * start_ms, 3), "dur": round(1000.0 * (end_ms - start_ms), 3),
            "args": more}


def _waiting(process: int, run: ClusterRun) -> Iterator[dict[str, Any]]:
    """A counter of the requests that wait."""
    duration_ms = run.scenario.duration_ms
    left_ms = np.append(run.start_ms, np.inf)[np.where(run.batch_of >= 0, run.batch_of, -1)]
    left_ms[run.drop_request] = run.drop_ms
    step_ms = max(_COUNTER_MS, duration_ms / _MOST_VALUES)
    at_ms = np.arange(0.0, duration_ms, step_ms)
    arrived = np.searchsorted(np.sort(run.arrival_ms), at_ms, side="right")
    left = np.searchsorted(np.sort(left_ms), at_ms, side="right")
    for when, waiting in zip(at_ms, arrived - left, strict=True):
        yield {"ph": "C", "name": "waiting", "pid": process, "tid": 0,
               "ts": round(1000.0 * float(when), 3), "args": {"requests": int(waiting)}}
