"""Traces by the name of their format, and what their headers tell.

For a known format the column of the times and its unit are known, and what its times mean: the
end of an invocation minus its duration, say, is its arrival. What else a file holds (tokens,
functions, models) is left out. ``timestamps`` is what any program can write, and read by
:func:`~ramsis.arrivals.timestamps.read_timestamps`; lines of time and load are not a format here.

Sources: the descriptions beside the data (Azure/AzurePublicDataset, HPMLL/BurstGPT,
kvcache-ai/Mooncake, microsoft/vidur, alibaba/clusterdata ``cluster-trace-v2026-GenAI``).
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals.trace_formats.columns import (
    InstantColumn,
    TimeColumn,
    called_times,
    fields_of,
)
from ramsis.arrivals.trace_formats.files import blocks, first_line
from ramsis.arrivals.trace_formats.instants import UNITS
from ramsis.arrivals.trace_formats.json_lines import read_json_lines
from ramsis.arrivals.trace_formats.rates import minute_columns, read_minute_bins, read_second_rates
from ramsis.checks import check_arguments
from ramsis.errors import InputFileError, InvalidValueError, check_known

__all__ = ["DESCRIPTIONS", "TRACE_FORMATS", "Trace", "detect_trace", "read_trace"]


@dataclass(frozen=True, eq=False)
class Trace:
    """What a file holds: arrivals, or a load in steps of equal length.

    Parameters
    ----------
    format : str
        One of :data:`TRACE_FORMATS`.
    times_ms : ndarray, shape (n,), optional
        Arrivals since the first, not falling.
    rate_qps : ndarray, shape (n,), optional
        Load of each step.
    step_ms : float
        Length of a step.
    notes : tuple of str
        What a reader has to know.
    """

    format: str
    times_ms: FloatArray | None = None
    rate_qps: FloatArray | None = None
    step_ms: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Table:
    """A CSV format: the columns by which it is known, its time, the unit of numbers."""

    known_by: tuple[str, ...]
    time: str
    unit: str | None
    minus: str | None = None


_TABLES = {
    "azure-llm": _Table(("TIMESTAMP", "ContextTokens", "GeneratedTokens"), "TIMESTAMP", None),
    "azure-functions-2021": _Table(("app", "func", "end_timestamp", "duration"), "end_timestamp",
                                   "s", "duration"),
    "burstgpt": _Table(("Timestamp", "Model", "Request tokens", "Response tokens"), "Timestamp",
                       "s"),
    "vidur": _Table(("arrived_at", "num_prefill_tokens", "num_decode_tokens"), "arrived_at", "s"),
    "alibaba-gentd26": _Table(("gmt_create", "predict_type", "exec_time_seconds"), "gmt_create",
                              None),
}
_MOONCAKE = ("timestamp", "input_length", "output_length")
_GENTD26_SAMPLES = ("timestamp_anon", "value", "container_ip")


TRACE_FORMATS: tuple[str, ...] = (
    *_TABLES, "azure-functions-2019", "mooncake", "jsonl", "timestamps", "per-second-rates",
)
"""Names; the last two are never told by a file, and ``jsonl`` needs the key's name."""


DESCRIPTIONS = {
    "azure-llm": "Azure LLM inference, 2023 and later: a request a line",
    "azure-functions-2021": "Azure Functions 2021: an invocation a line, from end and duration",
    "burstgpt": "BurstGPT: a request a line",
    "vidur": "Vidur, and what uses its layout: a request a line",
    "alibaba-gentd26": "Alibaba GenTD26, lora_request_trace.csv: a request a line",
    "azure-functions-2019": "Azure Functions 2019: invocations by function and minute, added up",
    "mooncake": "Mooncake: a request a line, in JSON",
    "jsonl": "JSON lines, the time under a usual key or that of --time-column; --unit of numbers",
    "timestamps": "a time a line, or the column of --time-column in CSV; --unit for numbers",
    "per-second-rates": "a rate a line for each second in turn, or the column of --time-column",
}
"""What each format is, in a few words."""


def detect_trace(path: str | os.PathLike[str]) -> str | None:
    """The format that the first line tells; None when it is none of :data:`TRACE_FORMATS`."""
    line = first_line(Path(path))
    if line.startswith("{"):
        return _json_format(line)
    try:
        names = [name.strip() for name in fields_of(line, ",")]
    except (csv.Error, StopIteration):
        return None
    if set(_GENTD26_SAMPLES) <= set(names):
        raise InputFileError("samples of GenTD26 by container, scaled, not its requests",
                             where=str(path), value=", ".join(names),
                             allowed="its file lora_request_trace.csv")
    for format, table in _TABLES.items():
        if set(table.known_by) <= set(names):
            return format
    hashed = any(name.startswith("Hash") for name in names)
    return "azure-functions-2019" if hashed and minute_columns(names) else None


def _json_format(line: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return "jsonl"
    return "mooncake" if set(_MOONCAKE) <= set(record) else "jsonl"


def read_trace(
    path: str | os.PathLike[str], format: str, *, unit: str | None = None,
    time_column: str | None = None,
) -> Trace:
    """The trace in a file of a known format.

    Parameters
    ----------
    path : path
        ``.gz`` and ``.zst`` are decompressed.
    format : str
        One of :data:`TRACE_FORMATS`.
    unit : str, optional
        Of numbers, for ``jsonl`` and ``timestamps``; elsewhere nothing else than the format's own.
    time_column : str, optional
        Key of the times, for ``jsonl``, where it has no usual name; their column, for
        ``timestamps``; column of the rates, for ``per-second-rates``.
    """
    file = Path(path)
    check_known("unknown format of traces", format, TRACE_FORMATS, "trace_format")
    try:
        if format in _TABLES:
            return _table(file, format, unit)
        if format in ("mooncake", "jsonl"):
            return _json(file, format, unit, time_column)
        if format == "timestamps":
            from ramsis.arrivals.timestamps import read_timestamps  # which reads by columns here

            return Trace(format, read_timestamps(file, unit=unit, time_column=time_column))
        _refuse_unit(format, unit, "s" if format == "per-second-rates" else "min")
        if format == "per-second-rates":
            return Trace(format, rate_qps=read_second_rates(file, time_column), step_ms=1000.0)
        rate_qps, functions = read_minute_bins(file)
    except csv.Error as error:
        raise InputFileError(f"cannot read trace ({error})", where=str(path)) from error
    return Trace(format, rate_qps=rate_qps, step_ms=60_000.0,
                 notes=(f"invocations of {functions} functions, added up",))


def _refuse_unit(format: str, unit: str | None, own: str | None) -> None:
    if unit is not None:
        check_known("unknown unit of time", unit, UNITS, "unit")
    if unit is not None and own is not None and unit != own:
        raise InvalidValueError(f"times of {format} have another unit", where="unit", value=unit,
                                allowed=own)


def _table(path: Path, format: str, unit: str | None) -> Trace:
    table = _TABLES[format]
    _refuse_unit(format, unit, table.unit)
    reader: TimeColumn | None = None
    for first, text in blocks(path):
        if reader is None:
            header, _, text = text.partition("\n")
            names = [name.strip() for name in fields_of(header.strip(), ",")]
            _require(names, table.known_by, f"{path}: line {first}")
            reader = TimeColumn(
                InstantColumn(names.index(table.time), table.unit,
                              None if table.minus is None else names.index(table.minus), ",",
                              in_any_order=True), str(path))
            first += 1
        reader.add(first, text)
    times = np.empty(0) if reader is None else reader.times_ms()
    if reader is None or not len(times):
        raise InputFileError("no requests", where=str(path), allowed="lines below the header")
    return Trace(format, times, notes=_sorted(reader.went_back))


def _require(names: Sequence[str], wanted: Sequence[str], where: str) -> None:
    for name in wanted:
        check_known("no such column", name, names, where, InputFileError)


def _sorted(went_back: int) -> tuple[str, ...]:
    return (f"lines that go back in time, sorted: {went_back}",) if went_back else ()


def _key_of_time(path: Path) -> str | None:
    """The only key of the first line that is called as times are; None where it is not clear."""
    try:
        record = json.loads(first_line(path))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if {"status", "data"} <= set(record):
        raise InputFileError(
            "an answer of Prometheus, not a request a line", where=str(path),
            allowed="lines of time and load, as by jq -r '.data.result[0].values[] | @tsv'")
    keys = list(record)
    named = called_times([key.lower().lstrip("@") for key in keys])
    return keys[named[0]] if len(named) == 1 else None


def _json(path: Path, format: str, unit: str | None, key: str | None) -> Trace:
    if format == "mooncake":
        _refuse_unit(format, unit, "ms")
        times, went_back = read_json_lines(path, "timestamp", "ms", in_any_order=True)
        return Trace(format, times, notes=_sorted(went_back))
    _refuse_unit(format, unit, None)
    key = key or _key_of_time(path)
    if key is None:
        raise InvalidValueError("JSON lines need the key of the time", where=str(path),
                                allowed="--time-column KEY, and --unit for numbers")
    times, _ = read_json_lines(path, key, unit)
    return Trace(format, times)


check_arguments(globals(), __all__)
