"""A run as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show.

The Trace Event Format: a JSON object of events with times in microseconds. A process for each run,
in it a track for each worker with its batches, and a counter of the queries that wait.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ramsis.files import write_atomic
from ramsis.sim.run import Run

__all__ = ["timeline", "write_timeline"]

_COUNTER_MS = 5.0  # between two values of the counter
_MOST_VALUES = 100_000


def write_timeline(runs: Mapping[str, Run], path: str | os.PathLike[str]) -> None:
    """Write :func:`timeline` to a file.

    Raises
    ------
    OutputError
        When the file cannot be written.
    """
    write_atomic(path, json.dumps(timeline(runs), separators=(",", ":")) + "\n")


def timeline(runs: Mapping[str, Run]) -> dict[str, Any]:
    """The trace of some runs, each under its name."""
    events = [event for process, (name, run) in enumerate(runs.items(), start=1)
              for event in _events(process, name, run)]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _events(process: int, name: str, run: Run) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    for worker in range(run.workers):
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": worker + 1,
               "args": {"name": f"worker {worker}"}}
    models = run.models
    late = np.bincount(run.batch_of[run.answered & ~run.in_time], minlength=len(run.size))
    for batch in np.argsort(run.start_ms, kind="stable"):
        start_ms, finish_ms = float(run.start_ms[batch]), float(run.finish_ms[batch])
        yield {"ph": "X", "name": models[run.model[batch]], "pid": process,
               "tid": int(run.worker[batch]) + 1, "ts": round(1000.0 * start_ms, 3),
               "dur": round(1000.0 * (finish_ms - start_ms), 3),
               "args": {"batch": int(run.size[batch]), "late": int(late[batch])}}
    for query, when in zip(run.drop_query, run.drop_ms, strict=True):
        yield {"ph": "i", "name": "drop", "pid": process, "tid": 0, "s": "p",
               "ts": round(1000.0 * float(when), 3), "args": {"query": int(query)}}
    step_ms = max(_COUNTER_MS, run.duration_ms / _MOST_VALUES)
    at_ms = np.arange(0.0, run.duration_ms, step_ms)
    arrived = np.searchsorted(run.arrival_ms, at_ms, side="right")
    left = np.searchsorted(np.sort(run.served_ms), at_ms, side="right")
    for when, waiting in zip(at_ms, arrived - left, strict=True):
        yield {"ph": "C", "name": "waiting", "pid": process, "tid": 0,
               "ts": round(1000.0 * float(when), 3), "args": {"queries": int(waiting)}}
