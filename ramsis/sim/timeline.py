"""A run as a trace that Perfetto shows (:mod:`ramsis.sim.trace_events`).

A process for each run, in it a track for each worker with its batches, and a counter of the
queries that wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ramsis.sim.run import Run
from ramsis.sim.trace_events import counter, instant, named, piece, trace, write_trace

__all__ = ["timeline", "write_timeline"]

def write_timeline(runs: Mapping[str, Run], path: str | os.PathLike[str]) -> None:
    """Write :func:`timeline` to a file.

    Raises
    ------
    OutputError
        When the file cannot be written.
    """
    write_trace(timeline(runs), path)


def timeline(runs: Mapping[str, Run]) -> dict[str, Any]:
    """The trace of some runs, each under its name."""
    return trace(runs, _events)


def _events(process: int, run: Run) -> Iterator[dict[str, Any]]:
    for worker in range(run.workers):
        yield named(process, worker + 1, f"worker {worker}")
    models = run.models
    late = np.bincount(run.batch_of[run.answered & ~run.in_time], minlength=len(run.size))
    for batch in np.argsort(run.start_ms, kind="stable"):
        start_ms, finish_ms = float(run.start_ms[batch]), float(run.finish_ms[batch])
        yield piece((process, int(run.worker[batch]) + 1), models[run.model[batch]],
                    (start_ms, finish_ms), batch=int(run.size[batch]), late=int(late[batch]))
    for query, when in zip(run.drop_query, run.drop_ms, strict=True):
        yield instant(process, "drop", float(when), query=int(query))
    yield from counter(process, "queries", run.duration_ms, run.arrival_ms, run.served_ms)
