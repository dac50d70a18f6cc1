"""Reader of traces in all supported formats, with a note on how rows were interpreted.

A row is a request, or an interval with a rate or a count, or a metric. The format, the header and
the values decide which; a one-line note states it, so that the user notices a misreading.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ramsis.arrivals.load_table import (
    find_trace,
    is_rate_trace,
    length_words,
    read_rates,
    shipped_traces,
)
from ramsis.arrivals.sizes import SizeDistribution
from ramsis.arrivals.trace import RateTrace, Recorded
from ramsis.arrivals.trace_formats import Trace, detect_trace, read_trace
from ramsis.arrivals.trace_formats.files import first_line
from ramsis.logs.sizes import unit_of_size
from ramsis.reprs import dataclass


@dataclass(frozen=True, eq=False)
class ReadTrace:
    """Trace read from a file, with notes on how the file was interpreted.

    Attributes
    ----------
    workload : Recorded or RateTrace
        Requests, or a load in steps. If the clock of the timestamps is coarse, the requests of a
        tick are spread over the tick.
    notes : tuple of str
        Interpretation of the rows and other remarks for the user; empty for shipped traces.
    """

    workload: Recorded | RateTrace
    notes: tuple[str, ...] = ()


def read_any_trace(
    path_or_name: str | os.PathLike[str], *, trace_format: str | None = None,
    unit: str | None = None, time_column: str | None = None, load_columns: Sequence[str] = (),
    size: str | None = None,
) -> ReadTrace:
    """Read the trace in a file, or a shipped trace by name.

    Parameters
    ----------
    trace_format : str, optional
        One of :data:`~ramsis.arrivals.trace_formats.TRACE_FORMATS`; detected by default.
    unit : str, optional
        Unit of numeric times; for formats with one row per interval, the interval's length.
    time_column : str, optional
        Column or key of the times: each row is one request.
    load_columns : sequence of str, optional
        Columns of a load table that are added up.
    size : str, optional
        Column or key of the sizes of requests; detected by its name if empty. By default no
        sizes are read.

    Raises
    ------
    InputFileError
        The file cannot be read or is ambiguous; the message names the option that decides.
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
    """Return recorded arrivals; if they were spread within ticks, with those at the ticks."""
    assert trace.times_ms is not None
    assert trace.spread_ms is not None
    if trace.spread_ms is trace.times_ms:
        return Recorded(trace.times_ms, sizes=trace.sizes)
    spread = Recorded(trace.spread_ms)
    return Recorded(trace.spread_ms, spread.duration_ms,
                    Recorded(trace.times_ms, spread.duration_ms), sizes=trace.sizes)


def _of_loads(loads: RateTrace) -> str:
    """Describe rows of loads: their number, the length of the intervals, and the loads."""
    steps = np.diff(np.append(loads.start_ms, loads.end_ms))
    step_ms = float(np.median(steps))
    same = bool((np.abs(steps / step_ms - 1.0) < 1e-6).all())
    return (f"{len(steps)} rows read as {len(steps)} intervals of "
            f"{'' if same else 'mostly '}{length_words(float(f'{step_ms:.6g}'))}: "
            f"{loads.load_qps:.4g} requests/s on the mean, {loads.peak_qps:.4g} at most")


def _of_requests(recorded: Recorded, trace: Trace) -> str:
    """Describe rows of requests and, for coarse clocks, how requests were spread."""
    number = len(recorded.times_ms)
    coarse = trace.clock is not None and recorded.at_ticks is not None
    return (f"read as {number} requests in {recorded.duration_ms / 1000.0:.4g} s: "
            f"{recorded.load_qps:.4g} requests/s on the mean"
            + (f"; {trace.clock.words()}" if coarse and trace.clock is not None else ""))
