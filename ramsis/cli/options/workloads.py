"""Workloads from command-line options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import click
import numpy as np

from ramsis.arrivals import Arrivals
from ramsis.arrivals.reading import ReadTrace, read_any_trace
from ramsis.arrivals.registry import AnyArrivals, arrivals_of
from ramsis.arrivals.trace_formats.files import watched
from ramsis.cli.options.param_types import TraceName
from ramsis.cli.progress import progress
from ramsis.errors import InputFileError, InvalidValueError, check_positive
from ramsis.sim import ConstantLoad, Fleet, Fleets, RateTrace, Recorded, Workload, check_load

_MB = 2**20


def read_trace_option(
    path: Path, trace_format: str, unit: str | None, time_column: str | None,
    load_columns: Sequence[str] = (), size: str | None = None,
) -> ReadTrace:
    """Return the trace in a file, with the progress of reading it."""
    plain = path.is_file() and path.suffix not in (".gz", ".zst")
    size_mb = path.stat().st_size / _MB if plain else None
    with progress(f"{path} (MB)", size_mb) as advance, watched(
            lambda read: advance(read / _MB)):
        return read_any_trace(
            path, trace_format=None if trace_format == "auto" else trace_format, unit=unit,
            time_column=time_column, load_columns=load_columns, size=size)


def say_how_read(path: Path, read: ReadTrace) -> None:
    """Print on stderr how the rows of a trace were read."""
    for note in read.notes:
        click.echo(f"note: {path}: {note}", err=True)


def process_text(arrivals: AnyArrivals | None) -> str:
    """Return the value of ``--arrivals``; empty for Poisson arrivals, which are the default."""
    process = _POISSON if arrivals is None else arrivals_of(arrivals)
    return "" if process.name == _POISSON.name else process.text


_DEFAULT_S = 30.0
_POISSON = Arrivals.parse("poisson")


@dataclass(frozen=True)
class WorkloadOptions:
    """Loads or a trace, with options for their arrivals."""

    loads: tuple[float, ...] | None = None  # in requests per second
    trace: TraceName | None = None
    # unit, time_column, load_columns, size: as of :func:`ramsis.arrivals.reading.read_any_trace`
    unit: str | None = None
    time_column: str | None = None
    load_columns: tuple[str, ...] = ()
    # one of :data:`ramsis.arrivals.trace_formats.TRACE_FORMATS`, or ``auto``
    trace_format: str = "auto"
    scale: float = 1.0  # multiplies the loads of the trace
    arrivals: Arrivals = _POISSON
    duration_s: float | None = None  # by default half a minute, or the trace
    size: str | None = None  # column of sizes, as there
    # --sizes, --size-column: another file of sizes, and the column there or in the trace
    sizes: Path | None = None
    size_column: str | None = None

    @property
    def constant_s(self) -> float:
        """Duration of arrivals at a constant load, in seconds."""
        return _DEFAULT_S if self.duration_s is None else self.duration_s

    def check(self, every_ms: float | None = None) -> None:
        """Refuse both loads and a trace, neither, bad scales, and windows of constant loads."""
        if (self.loads is None) == (self.trace is None):
            raise click.UsageError("Give either --load or --trace.")
        check_positive(scale=self.scale, duration_s=self.constant_s)
        if every_ms is not None and self.trace is None:
            raise click.UsageError("--every is for --trace: a constant load has no windows.")

    def workloads(self, fleet: Fleet | Fleets | None) -> list[Workload]:
        """Return one workload per load, or the trace's, its loads checked against a fleet."""
        if self.loads is not None:
            return [ConstantLoad(qps, 1000.0 * self.constant_s, self.arrivals)
                    for qps in self.loads]
        assert self.trace is not None
        traced, read = self._traced
        workload = traced.scaled(self.scale)
        if self.duration_s is not None:
            workload = workload.until(1000.0 * self.duration_s)
        try:
            if fleet is not None:
                check_load(fleet, workload)
        except InvalidValueError as error:
            raise InputFileError(f"{self.trace.name}: {error} with --unit") from None
        say_how_read(self.trace.path, read)
        return [workload]

    def for_scaling(self, stretch: float) -> Workload:
        """Return the single workload, for fitting and simulating scaling policies.

        ``stretch`` multiplies the times of a trace of loads; recorded timestamps cannot be
        stretched. ``scale`` multiplies loads: unless it is 1, recorded timestamps are replaced by
        the load of each second, times ``scale``.
        """
        self.check()
        check_positive(scale=self.scale, stretch=stretch)
        if self.trace is None:
            if stretch != 1.0:
                raise click.UsageError("--stretch is for --trace.")
            (workload, *more) = self.workloads(None)
            if more:
                raise click.UsageError("--load: fleets that scale are played at one load.")
            return workload
        traced, read = self._traced
        if isinstance(traced, RateTrace):
            traced = RateTrace(traced.start_ms * stretch, traced.rate_qps * self.scale,
                               traced.end_ms * stretch, traced.arrivals)
        elif not traced.times_ms[-1] > 0:
            raise InputFileError("all requests come at one instant", where=self.trace.name,
                                 allowed="a trace that takes time")
        elif stretch != 1.0:
            raise InvalidValueError("recorded requests are not stretched", where="--stretch",
                                    value=stretch, allowed="1")
        elif self.scale != 1.0:
            seconds = math.ceil(traced.duration_ms / 1000.0)
            # The last second ends with the recording, at least 1 ms after its start.
            edges = 1000.0 * np.arange(seconds + 1)
            counts = np.histogram(traced.times_ms, bins=edges)[0]
            traced = RateTrace(edges[:-1], counts * self.scale,
                               max(traced.duration_ms, edges[-2] + 1.0))
        say_how_read(self.trace.path, read)
        return traced if self.duration_s is None else traced.until(1000.0 * self.duration_s)

    def with_sizes(self, column: str | None) -> WorkloadOptions:
        """Return the options with the sizes of the trace's requests, from a column if named.

        A trace without such a column, or without a recognised one, is an InputFileError.
        """
        result = replace(self, size=column or "")
        _ = result.trace and result._traced
        return result

    @cached_property
    def _traced(self) -> tuple[RateTrace | Recorded, ReadTrace]:
        """Read the trace; return its workload, and how the file was read."""
        assert self.trace is not None
        read = read_trace_option(self.trace.path, self.trace_format, self.unit, self.time_column,
                                 self.load_columns, self.size)
        workload = read.workload
        if isinstance(workload, RateTrace):
            workload = RateTrace(workload.start_ms, workload.rate_qps, workload.end_ms,
                                 self.arrivals)
        elif self.arrivals.name != "poisson":
            raise InvalidValueError("recorded arrivals follow no process", where="arrivals",
                                    value=self.arrivals.text, allowed="--arrivals with loads only")
        return workload, read
