"""Runs as a trace that Perfetto shows (:mod:`ramsis.sim.trace_events`).

A process for each run; in it, for each worker, a track for every lane with its batches, and one
with its loads, where models are loaded; and a counter of the requests that wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ramsis.sim.run import Run
from ramsis.sim.trace_events import counter, instant, named, piece, trace, write_trace


def write_timeline(runs: Mapping[str, Run], path: str | os.PathLike[str]) -> None:
    """Write :func:`timeline` to a file."""
    write_trace(timeline(runs), path)


def timeline(runs: Mapping[str, Run]) -> dict[str, Any]:
    """The trace of some runs, each under its name."""
    return trace(runs, _events)


def lanes_of(run: Run) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A lane of its worker for each batch, so that no two on it overlap; shape (b,)."""
    lane = np.zeros(len(run.start_ms), dtype=np.int64)
    free: dict[int, list[float]] = {}
    for batch in np.argsort(run.start_ms, kind="stable").tolist():
        start_ms, ends = float(run.start_ms[batch]), free.setdefault(int(run.worker[batch]), [])
        place = next((i for i, end_ms in enumerate(ends) if end_ms <= start_ms), len(ends))
        ends[place:place + 1] = [float(run.finish_ms[batch])]
        lane[batch] = place
    return lane


def _events(process: int, run: Run) -> Iterator[dict[str, Any]]:
    lane, models = lanes_of(run), run.models
    lanes, loads = int(lane.max(initial=0)) + 1, len(run.load_model) > 0
    width = lanes + loads
    for worker, title in enumerate(run.site.workers):
        for track in range(width):
            label = f"{title} loads" if track == lanes else (
                title if lanes == 1 else f"{title} lane {track + 1}")
            yield named(process, worker * width + track + 1, label)
    late = np.bincount(run.batch_of[run.answered & ~run.in_time], minlength=len(run.size))
    for batch in np.argsort(run.start_ms, kind="stable").tolist():
        yield piece((process, int(run.worker[batch]) * width + int(lane[batch]) + 1),
                    models[run.model[batch]],
                    (float(run.start_ms[batch]), float(run.finish_ms[batch])),
                    batch=int(run.size[batch]), late=int(late[batch]))
    for i in range(len(run.load_model)):
        yield piece((process, (int(run.load_worker[i]) + 1) * width),
                    f"load {models[run.load_model[i]]}",
                    (float(run.load_start_ms[i]), float(run.load_end_ms[i])))
    for request, when in zip(run.drop_request, run.drop_ms, strict=True):
        yield instant(process, "drop", float(when), request=int(request))
    yield from counter(process, "requests", run.duration_ms, np.sort(run.arrival_ms),
                       run.served_ms)
