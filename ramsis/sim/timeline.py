"""Runs as a trace in the Trace Event Format, which Perfetto (ui.perfetto.dev) shows.

That is a JSON object of events with times in microseconds. There is a process for each run; in it,
for each worker, a track for every lane with its batches, and one with its loads, where models are
loaded; and a counter of the requests that wait.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ramsis.files import write_atomic
from ramsis.sim.run import Run

_COUNTER_MS = 5.0  # between two values of the counter of waiting requests
_MOST_VALUES = 100_000  # of that counter

Event = dict[str, Any]


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
