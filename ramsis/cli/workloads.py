"""Workloads as the command line names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ramsis.arrivals import process_factory
from ramsis.arrivals.timestamps import read_timestamps
from ramsis.arrivals.trace_formats import Trace, detect_trace, read_trace
from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.sim import (
    FixedRate,
    Fleet,
    PoissonLoad,
    RateTrace,
    Recorded,
    Renewal,
    Sampled,
    Workload,
    check_load,
)
from ramsis.sim.trace_file import find_trace, is_rate_trace, read_rates
from ramsis.synthesis import parse_loads

__all__ = ["constant_loads", "named_trace", "traced_load"]


def constant_loads(load: str, arrivals: str, duration_s: float | None) -> list[Workload]:
    """A workload for each load."""
    duration_ms = 1000.0 * (30.0 if duration_s is None else duration_s)
    kind, _, parameter = arrivals.partition(":")
    make: Callable[[float], Workload]
    if arrivals == "poisson":
        make = lambda qps: PoissonLoad(qps, duration_ms)  # noqa: E731
    elif arrivals == "fixed-rate":
        make = lambda qps: FixedRate(qps, duration_ms)  # noqa: E731
    elif kind == "renewal":
        cv = _variation(parameter, arrivals)
        make = lambda qps: Renewal(qps, duration_ms, cv)  # noqa: E731
    else:
        factory = process_factory(arrivals)
        make = lambda qps: Sampled(_drawable(factory(qps), arrivals), duration_ms)  # noqa: E731
    return [make(qps) for qps in parse_loads(load)]


def traced_load(
    name: str, *, unit: str | None, time_column: str | None, scale: float, arrivals: str,
    duration_s: float | None, fleet: Fleet, trace_format: str = "auto",
) -> RateTrace | Recorded:
    """The trace, cut and scaled, once its loads are plausible.

    Rates become arrivals by the process ``arrivals``; timestamps are the arrivals.
    """
    trace: RateTrace | Recorded
    named = named_trace(name, trace_format, unit, time_column)
    if named is not None and named.times_ms is not None:
        _refuse_process(arrivals)
        trace = Recorded(named.times_ms)
    elif named is not None and named.rate_qps is not None:
        starts = [named.step_ms * i for i in range(len(named.rate_qps))]
        trace = _with_arrivals(RateTrace(starts, named.rate_qps), arrivals)
    elif time_column is None and is_rate_trace(name):
        trace = _rates(name, unit or "s", arrivals)
    else:
        trace = _recorded(name, unit, time_column, arrivals)
    trace = trace.scaled(scale)
    if duration_s is not None:
        trace = trace.until(1000.0 * duration_s)
    try:
        check_load(fleet, trace)
    except InvalidValueError as error:
        raise InputFileError(f"{name}: {error} with --unit") from None
    return trace


def named_trace(
    name: str, trace_format: str, unit: str | None, time_column: str | None
) -> Trace | None:
    """The trace in a file of a known format, with its notes on stderr; None for another."""
    path = find_trace(name)
    if trace_format == "auto":
        if not path.is_file():
            return None
        found = detect_trace(path)
        if found is None or (time_column is not None and found not in ("jsonl", "mooncake")):
            return None
        trace_format = "jsonl" if time_column is not None else found
    read = read_trace(path, trace_format, unit=unit, time_column=time_column)
    for note in read.notes:
        click.echo(f"note: {name} ({read.format}): {note}", err=True)
    return read


def _rates(name: str, unit: str, arrivals: str) -> RateTrace:
    return _with_arrivals(read_rates(name, unit=unit), arrivals)


def _with_arrivals(read: RateTrace, arrivals: str) -> RateTrace:
    """The same loads with the arrivals of a process."""
    kind, _, parameter = arrivals.partition(":")
    cv, process = 1.0, None
    if kind == "renewal":
        cv = _variation(parameter, arrivals)
    elif arrivals != "poisson":
        process = _drawable(process_factory(arrivals)(1000.0), arrivals)
    return RateTrace(read.start_ms, read.rate_qps, read.end_ms, cv, process)


def _recorded(
    name: str, unit: str | None, time_column: str | None, arrivals: str
) -> Recorded:
    _refuse_process(arrivals)
    return Recorded(read_timestamps(find_trace(name), unit=unit, time_column=time_column))


def _refuse_process(arrivals: str) -> None:
    if arrivals != "poisson":
        raise InvalidValueError(
            describe("recorded arrivals follow no process", where="arrivals", value=arrivals,
                     allowed="--arrivals with loads only")
        )


def _variation(text: str, arrivals: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(
            describe("not a coefficient of variation", where="arrivals", value=arrivals,
                     allowed="renewal:CV with a number > 0")
        ) from None


def _drawable(process: Any, arrivals: str) -> Any:
    if not hasattr(process, "sample"):
        raise InvalidValueError(
            describe("the process cannot be drawn from", where="arrivals", value=arrivals,
                     allowed="one with sample(duration_ms, rng)")
        )
    return process
