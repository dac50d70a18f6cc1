"""Workloads as the command line names them."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ramsis.arrivals import Arrivals
from ramsis.arrivals.rate_file import is_rate_trace, read_rates
from ramsis.arrivals.timestamps import read_timestamps
from ramsis.cli.options.param_types import TraceName
from ramsis.cli.options.traces import named_trace
from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.sim import ConstantLoad, Fleet, Fleets, RateTrace, Recorded, Workload, check_load

__all__ = ["WorkloadOptions"]

_DEFAULT_S = 30.0


@dataclass(frozen=True)
class WorkloadOptions:
    """Loads or a trace, and how they become arrivals.

    Attributes
    ----------
    loads : tuple of float or None
        In queries per second.
    trace : TraceName or None
    unit, time_column
        As of :func:`ramsis.arrivals.timestamps.read_timestamps`.
    trace_format : str
        One of :data:`ramsis.arrivals.trace_formats.TRACE_FORMATS`, or ``auto``.
    scale : float
        Multiplies the loads of the trace.
    arrivals : Arrivals
    duration_s : float or None
        By default half a minute, or the trace.
    """

    loads: tuple[float, ...] | None
    trace: TraceName | None
    unit: str | None
    time_column: str | None
    trace_format: str
    scale: float
    arrivals: Arrivals
    duration_s: float | None

    @property
    def constant_s(self) -> float:
        """Seconds at a constant load."""
        return _DEFAULT_S if self.duration_s is None else self.duration_s

    def check(self) -> None:
        """Refuse both loads and a trace, or neither."""
        if (self.loads is None) == (self.trace is None):
            raise click.UsageError("Give either --load or --trace.")

    def workloads(self, fleet: Fleet | Fleets | None) -> list[Workload]:
        """A workload for each load, or the one of the trace, its loads plausible for a fleet."""
        if self.loads is not None:
            return [ConstantLoad(qps, 1000.0 * self.constant_s, self.arrivals)
                    for qps in self.loads]
        assert self.trace is not None
        workload = self._traced(self.trace).scaled(self.scale)
        if self.duration_s is not None:
            workload = workload.until(1000.0 * self.duration_s)
        try:
            if fleet is not None:
                check_load(fleet, workload)
        except InvalidValueError as error:
            raise InputFileError(f"{self.trace.name}: {error} with --unit") from None
        return [workload]

    def _traced(self, trace: TraceName) -> RateTrace | Recorded:
        """Rates become arrivals by the process; timestamps are the arrivals."""
        named = named_trace(trace.path, self.trace_format, self.unit, self.time_column)
        if named is not None and named.rate_qps is not None:
            starts = [named.step_ms * i for i in range(len(named.rate_qps))]
            return RateTrace(starts, named.rate_qps, named.step_ms * len(starts), self.arrivals)
        if named is None and self.time_column is None and is_rate_trace(trace.path):
            read = read_rates(trace.path, unit=self.unit or "s")
            return RateTrace(read.start_ms, read.rate_qps, read.end_ms, self.arrivals)
        if self.arrivals.name != "poisson":
            raise InvalidValueError(
                describe("recorded arrivals follow no process", where="arrivals",
                         value=self.arrivals.text, allowed="--arrivals with loads only")
            )
        if named is not None and named.times_ms is not None:
            return Recorded(named.times_ms)
        return Recorded(read_timestamps(trace.path, unit=self.unit,
                                        time_column=self.time_column))
