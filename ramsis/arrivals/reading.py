"""A trace in a file of any kind, and what its rows were read as.

A row is a request, or an interval with a rate or a count, or a metric. Which one is told by the
format, the header and the values, and is said in one line, so that a misreading is seen.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ramsis.arrivals.load_table import length_words
from ramsis.arrivals.rate_file import find_trace, is_rate_trace, read_rates, shipped_traces
from ramsis.arrivals.sizes import SizeDistribution
from ramsis.arrivals.trace import RateTrace, Recorded
from ramsis.arrivals.trace_formats import Trace, detect_trace, read_trace
from ramsis.arrivals.trace_formats.files import first_line
from ramsis.logs.sizes import unit_of_size
from ramsis.reprs import dataclass

__all__ = ["ReadTrace", "read_any_trace"]


@dataclass(frozen=True, eq=False)
class ReadTrace:
    """A trace, and how its file was understood.

    Attributes
    ----------
    workload : Recorded or RateTrace
        Requests, those of each tick of a coarse clock spread over it; or a load in steps.
    notes : tuple of str
        What a row was read as, and whatever else a reader has to know; none of shipped traces.
    """

    workload: Recorded | RateTrace
    notes: tuple[str, ...] = ()


def read_any_trace(
    path_or_name: str | os.PathLike[str], *, trace_format: str | None = None,
    unit: str | None = None, time_column: str | None = None, load_columns: Sequence[str] = (),
    size: str | None = None,
) -> ReadTrace:
    """Return the trace in a file, or the shipped one of that name.

    Parameters
    ----------
    path_or_name : str or path-like
    trace_format : str, optional
        One of :data:`~ramsis.arrivals.trace_formats.TRACE_FORMATS`; by default told by the file.
    unit : str, optional
        Of times that are numbers; where a row of a known format is an interval, its length.
    time_column : str, optional
        Column or key of the times: each row is one request.
    load_columns : sequence of str, optional
        Columns of a table of loads that are added up.
    size : str, optional
        Column or key of the sizes of requests; empty where its name tells. By default no sizes
        are read.

    Raises
    ------
    InputFileError
        The file cannot be read, or it may be several things; with what decides.
    InvalidValueError
        An unknown unit or format, or numbers without a unit.
    """
    path = find_trace(path_or_name)
    if trace_format is None and not load_columns:
        trace_format = detect_trace(path) if path.is_file() else None
        if time_column is not None:
            lines = path.is_file() and first_line(path).startswith(("{", "["))
            trace_format = "jsonl" if lines else "timestamps"
    if trace_format is None and is_rate_trace(path, unit=unit, load_columns=load_columns):
        loads = read_rates(path, unit=unit, load_columns=load_columns)
        shipped = path in shipped_traces().values()
        return ReadTrace(loads, () if shipped else (_of_loads(loads),))
    trace = read_trace(path, trace_format or "timestamps", unit=unit, time_column=time_column,
                       size=size)
    if trace.rate_qps is not None:
        starts = trace.step_ms * np.arange(len(trace.rate_qps))
        loads = RateTrace(starts, trace.rate_qps, trace.step_ms * len(starts))
        return ReadTrace(loads, (_of_loads(loads), *trace.notes))
    recorded = _recorded(trace)
    sizes = () if recorded.sizes is None else (
        f"sizes from {trace.size_column}: " + SizeDistribution.of_sizes(recorded.sizes).summary(
            unit_of_size(trace.size_column)),)
    return ReadTrace(recorded, (_of_requests(recorded, trace), *sizes, *trace.notes))


def _recorded(trace: Trace) -> Recorded:
    assert trace.times_ms is not None
    assert trace.spread_ms is not None
    if trace.spread_ms is trace.times_ms:
        return Recorded(trace.times_ms, sizes=trace.sizes)
    spread = Recorded(trace.spread_ms)
    return Recorded(trace.spread_ms, spread.duration_ms,
                    Recorded(trace.times_ms, spread.duration_ms), sizes=trace.sizes)


def _of_loads(loads: RateTrace) -> str:
    steps = np.diff(np.append(loads.start_ms, loads.end_ms))
    each = float(np.median(steps))
    same = bool((np.abs(steps / each - 1.0) < 1e-6).all())
    return (f"{len(steps)} rows read as {len(steps)} intervals of "
            f"{'' if same else 'mostly '}{length_words(float(f'{each:.6g}'))}: "
            f"{loads.load_qps:.4g} requests/s on the mean, {loads.peak_qps:.4g} at most")


def _of_requests(recorded: Recorded, trace: Trace) -> str:
    """Describe rows of requests and, for coarse clocks, how requests were spread."""
    number = len(recorded.times_ms)
    coarse = trace.clock is not None and recorded.at_ticks is not None
    return (f"read as {number} requests in {recorded.duration_ms / 1000.0:.4g} s: "
            f"{recorded.load_qps:.4g} requests/s on the mean"
            + (f"; {trace.clock.words()}" if coarse and trace.clock is not None else ""))
