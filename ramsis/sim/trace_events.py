"""The Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing show.

A JSON object of events with times in microseconds: processes, tracks in them, pieces of time on
the tracks, instants, and counters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ramsis.files import write_atomic

_COUNTER_MS = 5.0  # between two values of a counter
_MOST_VALUES = 100_000

T = TypeVar("T")
Event = dict[str, Any]


def trace(
    runs: Mapping[str, T], events: Callable[[int, T], Iterable[Event]]
) -> dict[str, Any]:
    """A process for each run, under its name, with the run's events."""
    found: list[Event] = []
    for process, (name, run) in enumerate(runs.items(), start=1):
        found.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0,
                      "args": {"name": name}})
        found.extend(events(process, run))
    return {"displayTimeUnit": "ms", "traceEvents": found}


def write_trace(made: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a trace to a file."""
    write_atomic(path, json.dumps(made, separators=(",", ":")) + "\n")


def named(process: int, track: int, name: str) -> Event:
    """A track's name."""
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": track,
            "args": {"name": name}}


def piece(
    place: tuple[int, int], name: str, span_ms: tuple[float, float], **more: int
) -> Event:
    """Something that lasts, on a (process, track)."""
    start_ms, end_ms = span_ms
    return {"ph": "X", "name": name, "pid": place[0], "tid": place[1],
            "ts": round(1000.0 * start_ms, 3), "dur": round(1000.0 * (end_ms - start_ms), 3),
            "args": more}


def instant(process: int, name: str, at_ms: float, **more: int) -> Event:
    """Something that happens."""
    return {"ph": "i", "name": name, "pid": process, "tid": 0, "s": "p",
            "ts": round(1000.0 * at_ms, 3), "args": more}


def counter(
    process: int, what: str, duration_ms: float, arrival_ms: NDArray[np.float64],
    left_ms: NDArray[np.float64],
) -> Iterator[Event]:
    """How many wait over time.

    Parameters
    ----------
    arrival_ms : ndarray
        Rising.
    left_ms : ndarray
        When some of them stopped waiting.
    """
    step_ms = max(_COUNTER_MS, duration_ms / _MOST_VALUES)
    at_ms = np.arange(0.0, duration_ms, step_ms)
    arrived = np.searchsorted(arrival_ms, at_ms, side="right")
    left = np.searchsorted(np.sort(left_ms), at_ms, side="right")
    for when, waiting in zip(at_ms, arrived - left, strict=True):
        yield {"ph": "C", "name": "waiting", "pid": process, "tid": 0,
               "ts": round(1000.0 * float(when), 3), "args": {what: int(waiting)}}
