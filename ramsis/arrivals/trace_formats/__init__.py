"""Readers of named trace formats, and detection of the format by the header.

A format defines the time column, its unit, and the meaning of its times: for example, the end of
an invocation minus its duration is its arrival. Other contents (tokens, functions, models) are
ignored. ``timestamps`` is the generic format, read by
:func:`~ramsis.arrivals.timestamps.read_timestamps`; lines of time and load are not a format here.

Sources: the descriptions beside the data (Azure/AzurePublicDataset, HPMLL/BurstGPT,
kvcache-ai/Mooncake, microsoft/vidur, alibaba/clusterdata ``cluster-trace-v2026-GenAI``).
"""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramsis.arrays import FloatArray
from ramsis.arrivals.trace_formats.columns import (
    COUNT_NAMES,
    RATE_NAMES,
    Arrived,
    InstantColumn,
    TimeColumn,
    arrived,
    even_step_ms,
    fields_of,
    size_column,
)
from ramsis.arrivals.trace_formats.files import blocks, first_line
from ramsis.arrivals.trace_formats.instants import UNITS, Clock
from ramsis.arrivals.trace_formats.json_lines import is_time, read_json_lines, time_keys
from ramsis.arrivals.trace_formats.rates import (
    log_kind,
    minute_columns,
    read_locust_load,
    read_log_arrivals,
    read_minute_bins,
    read_second_rates,
)
from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.logs.kinds import Summary

__all__ = ["DESCRIPTIONS", "TRACE_FORMATS", "Trace", "detect_trace", "read_trace"]

_JSON = re.compile(r"\{|\[\s*(?:$|[{\"]|[\d.eE+-]+\s*[],])")
"""Beginning of a JSON object or a list of objects, texts or numbers."""
_DOCUMENTS = (
    (("MetricDataResults",), "CloudWatch's get-metric-data",
     """jq -r '["time","requests"], (.MetricDataResults[0] | [.Timestamps, .Values] """
     """| transpose | sort[]) | @csv'"""),
    (("Label", "Datapoints"), "CloudWatch's get-metric-statistics",
     """jq -r '["time","requests"], (.Datapoints | sort_by(.Timestamp)[] | [.Timestamp, .Sum]) """
     """| @csv'"""),
    (("aggregations",), "an aggregation of Elasticsearch",
     """jq -r '["time","requests"], (.aggregations[].buckets[] | [.key, .doc_count]) | @csv'"""),
    (("series", "status"), "a query of Datadog",
     """jq -r '["time","qps"], .series[0].pointlist[] | @csv'"""),
    (("items",), "pageviews of Wikimedia",
     """jq -r '["time","requests"], (.items[] | [(.timestamp | .[0:4] + "-" + .[4:6] + "-" """
     """+ .[6:8] + " " + .[8:10] + ":00:00"), .views]) | @csv'"""),
    (("results.series",), "an answer of InfluxDB",
     """jq -r '["time","qps"], .results[0].series[0].values[] | @csv'"""),
)
"""JSON documents that hold loads: the keys they have, what writes them, and the command that makes
a load table of them."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Contents of a trace file: arrivals, or a load in steps of equal length."""

    format: str  # one of :data:`TRACE_FORMATS`
    times_ms: FloatArray | None = None  # arrivals since the first, non-decreasing, shape (n,)
    rate_qps: FloatArray | None = None  # load of each step, shape (n,)
    step_ms: float = 0.0  # length of a step
    notes: tuple[str, ...] = ()  # remarks for the user
    clock: Clock | None = None  # clock of the timestamps, if coarser than 1 µs
    # shape (n,): the arrivals; if they share clock ticks, spread over their tick
    spread_ms: FloatArray | None = None
    sizes: FloatArray | None = None  # request sizes, in the order of ``spread_ms``, shape (n,)
    size_column: str = ""  # column of the sizes

    @classmethod
    def of_arrivals(
        cls, format: str, arrived: Arrived, *notes: str, size_column: str | None = None
    ) -> Trace:
        """Create the trace from the arrivals in a file."""
        return cls(format, arrived.times_ms, notes=notes, clock=arrived.clock,
                   spread_ms=arrived.spread_ms, sizes=arrived.sizes, size_column=size_column or "")


@dataclass(frozen=True)
class _Table:
    """Names and units of the columns in the CSV format of a published trace."""

    known_by: tuple[str, ...]  # columns that identify the format
    time: str  # column of the times
    unit: str | None  # unit of the times; None if they are dates
    minus: str | None = None  # column of durations, if the times are ends of requests


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
_ENOUGH, _MOST_PER_MS = 50, 1.0  # from so many requests on, a higher rate means another unit
_HEAD = 1000  # number of times that are tested for even spacing
_LARGEST_DOCUMENT = 64 * 1024 * 1024
_MOONCAKE = ("timestamp", "input_length", "output_length")
_GENTD26_SAMPLES = ("timestamp_anon", "value", "container_ip")


DESCRIPTIONS = {
    "azure-llm": "Azure LLM inference, 2023 and later: a request a line",
    "azure-functions-2021": "Azure Functions 2021: an invocation a line, from end and duration",
    "burstgpt": "BurstGPT: a request a line",
    "vidur": "Vidur, and what uses its layout: a request a line",
    "alibaba-gentd26": "Alibaba GenTD26, lora_request_trace.csv: a request a line",
    "azure-functions-2019": "Azure Functions 2019: invocations by function and minute, added up",
    "mooncake": "Mooncake, Bailian and others with its keys: a request a line, in JSON",
    "request-log": "access logs, logs of model servers, results of k6, vegeta, JMeter, locust and "
                   "others (see the page on audits)",
    "jsonl": "JSON lines, times under a usual key, in objects or lists below, or that of "
             "--time-column; --unit of numbers",
    "timestamps": "a time a line, or the column of --time-column in CSV; --unit for numbers",
    "per-second-rates": "a rate a line for each second in turn, or the column of --time-column",
}
"""Short description of each format."""
TRACE_FORMATS = tuple(DESCRIPTIONS)
"""Names of the formats. :func:`detect_trace` finds all but the last two, which must be named."""


def detect_trace(path: str | os.PathLike[str]) -> str | None:
    """Detect the trace format by the first line; None if it is none of :data:`TRACE_FORMATS`."""
    line = first_line(Path(path))
    if log_kind(Path(path)) is not None:
        return "request-log"
    if _JSON.match(line):
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
        record = None
    mooncake = isinstance(record, dict) and set(_MOONCAKE) <= set(record)
    return "mooncake" if mooncake else "jsonl"


def read_trace(
    path: str | os.PathLike[str], format: str, *, unit: str | None = None,
    time_column: str | None = None, size: str | None = None,
) -> Trace:
    """Read a trace in a known format.

    Parameters
    ----------
    path : path
        ``.gz`` and ``.zst`` are decompressed.
    format : str
        One of :data:`TRACE_FORMATS`.
    unit : str, optional
        Unit of numeric times, by default the format's; for files of loads, the length of an
        interval.
    time_column : str, optional
        Key of the times, for ``jsonl``, unless it has a usual name; their column, for
        ``timestamps``; column of the rates, for ``per-second-rates``.
    size : str, optional
        Column or key of the sizes of requests; detected by its name if empty. By default no
        sizes are read.
    """
    file = Path(path)
    check_known("unknown format of traces", format, TRACE_FORMATS, "trace_format")
    if unit is not None:
        check_known("unknown unit of time", unit, UNITS, "unit")
    try:
        if format in _TABLES:
            return _table(file, format, unit, size)
        if format in ("mooncake", "jsonl"):
            return _json(file, format, unit, time_column, size)
        if format == "request-log":
            return _log(file, unit, size)
        if format == "timestamps":
            from ramsis.arrivals.timestamps import read_arrivals  # which reads by columns here

            if size == "":
                size = size_column([name.strip() for name in fields_of(first_line(file))], size,
                                   str(file))
            return Trace.of_arrivals(
                format, read_arrivals(file, unit=unit, time_column=time_column, size=size),
                size_column=size)
        if format == "per-second-rates":
            return Trace(format, rate_qps=read_second_rates(file, time_column),
                         step_ms=UNITS[unit or "s"])
        rate_qps, functions = read_minute_bins(file)
    except csv.Error as error:
        raise InputFileError(f"cannot read trace ({error})", where=str(path)) from error
    step_ms = UNITS[unit or "min"]
    return Trace(format, rate_qps=rate_qps * (60_000.0 / step_ms), step_ms=step_ms,
                 notes=(f"invocations of {functions} functions, added up",))


def _log(path: Path, unit: str | None, size: str | None) -> Trace:
    kind = log_kind(path)
    if isinstance(kind, Summary):
        rate_qps, note = read_locust_load(path, kind)
        return Trace("request-log", rate_qps=rate_qps, step_ms=1000.0, notes=(note,))
    arrivals, size, notes = read_log_arrivals(path, unit, size)
    return Trace.of_arrivals("request-log", arrivals, *notes, size_column=size)


def _table(path: Path, format: str, unit: str | None, size: str | None) -> Trace:
    """Read a published trace's CSV file, one row per request, by its known columns."""
    table = _TABLES[format]
    reader: TimeColumn | None = None
    for first, text in blocks(path):
        if reader is None:
            header, _, text = text.partition("\n")
            names = [name.strip() for name in fields_of(header.strip(), ",")]
            where = f"{path}: line {first}"
            for column in table.known_by:
                check_known("no such column", column, names, where, InputFileError)
            size = None if size is None else size_column(names, size, where)
            reader = TimeColumn(
                InstantColumn(names.index(table.time), unit or table.unit,
                              None if table.minus is None else names.index(table.minus),
                              ",", in_any_order=True,
                              size=None if size is None else names.index(size)), str(path))
            first += 1
        reader.add(first, text)
    arrived = None if reader is None else reader.arrivals()
    if reader is None or arrived is None or not len(arrived.times_ms):
        raise InputFileError("no requests", where=str(path), allowed="lines below the header")
    return Trace.of_arrivals(format, arrived, *_sorted(reader.went_back), size_column=size)


def _sorted(went_back: int) -> tuple[str, ...]:
    return (f"lines that go back in time, sorted: {went_back}",) if went_back else ()


def _json(
    path: Path, format: str, unit: str | None, key: str | None, size: str | None
) -> Trace:
    """Read a trace of JSON lines, from the timestamps under ``key`` or the only usual key."""
    if format == "mooncake":
        return _mooncake(path, unit, size)
    if key is not None:
        size = _size_key(path, size, key)
        times, went_back, sizes = read_json_lines(path, key, unit, in_any_order="." in key,
                                                  size_key=size)
        return Trace.of_arrivals(format, arrived(times, None, sizes), *_sorted(went_back),
                                 size_column=size)
    record = _first_record(path)
    keys = time_keys(record)
    if len(keys) != 1:
        raise InvalidValueError(
            "several keys may be the time" if keys else "no key holds times of requests",
            where=str(path), value=", ".join(keys or list(record)[:12]),
            allowed="--time-column with one of these, and --unit for numbers" if keys
            else "an object for each request, with its time; --time-column KEY, and --unit, where "
            "the time is a number that counts from the start")
    _refuse_loads(path, record, keys[0])
    size = _size_key(path, size, keys[0])
    times, _, sizes = read_json_lines(path, keys[0], unit, in_any_order="." in keys[0],
                                      size_key=size)
    if even_step_ms(times[:_HEAD]) is not None:
        _refuse_loads(path, record, keys[0], {key for key, value in record.items() if (
            isinstance(value, float) and key != keys[0])})
    nested = (f"times under {keys[0]}, all in the lists of a line",) if "." in keys[0] else ()
    return Trace.of_arrivals(format, arrived(times, None, sizes), *nested, size_column=size)


def _size_key(path: Path, size: str | None, key: str) -> str | None:
    """Return the key of the request sizes in JSON lines; None if sizes are not wanted."""
    if size is None or "." in size:
        return size
    *above, _ = key.split(".")
    item: Any = _first_record(path)
    for name in above:
        item = item[name]
        item = item[0] if isinstance(item, list) and item else item
    names = list(item) if isinstance(item, dict) else []
    return ".".join((*above, size_column(names, size, f"{path}: line 1")))


def _mooncake(path: Path, unit: str | None, size: str | None) -> Trace:
    """Read a Mooncake trace: whole milliseconds, or seconds where times have fractions."""
    size = _size_key(path, size, "timestamp")
    times, went_back, sizes = read_json_lines(path, "timestamp", unit or "ms", in_any_order=True,
                                              size_key=size)
    notes = list(_sorted(went_back))
    per_ms = len(times) / max(float(times[-1] - times[0]), 1e-9)
    if unit is None and (times % 1.0 != 0).any():
        notes.append("times have fractions, so they are taken as seconds; --unit ms where they "
                     "are milliseconds")
        times *= 1000.0
    elif unit is None and len(times) >= _ENOUGH and per_ms > _MOST_PER_MS:
        raise InputFileError(
            "the unit of the times is not clear", where=f"{path}: timestamp",
            value=f"{1000.0 * per_ms:.4g} requests/s if they are ms, as Mooncake's are, "
            f"{per_ms:.4g} if they are s", allowed="--unit s, or --unit ms")
    return Trace.of_arrivals("mooncake", arrived(times, None, sizes), *notes, size_column=size)


def _first_record(path: Path) -> dict[str, Any]:
    """Parse the JSON object of the first line; return an empty one if there is none.

    Refuse a file that is one JSON document, with the command that converts it to lines.
    """
    line = first_line(path)
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError):
        document = _whole(path)
        refuse_document(path, document)
        record = document
        if isinstance(document, dict):
            lists = {jq for key in time_keys(document) if (jq := _jq_of_list(document, key))}
            if len(lists) == 1:
                raise InputFileError(
                    "one JSON document, not an object a line", where=str(path), allowed="lines: "
                    f"jq -c '{lists.pop()}' {shlex.quote(str(path))} > trace.jsonl") from None
    refuse_document(path, record)
    return record if isinstance(record, dict) else {}


def _jq_of_list(document: dict[str, Any], key: str) -> str:
    """Return the jq filter that lists the objects under a path of keys; empty without a list.

    >>> _jq_of_list({"a": [{"b": [{"t": 1}]}]}, "a.b.t")
    '.a[].b[]'
    """
    item: Any = document
    words = ""
    for name in key.split(".")[:-1]:
        item = item[name]
        words += f".{name}"
        if isinstance(item, list):
            item, words = item[0], words + "[]"
    return words if "[]" in words else ""


def _whole(path: Path) -> Any:
    """Read a file as one JSON document; None if it is too large or not JSON."""
    text = ""
    for _, block in blocks(path):
        text += block
        if len(text) > _LARGEST_DOCUMENT:
            return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _refuse_loads(
    path: Path, record: dict[str, Any], time: str, likely: Collection[str] = ()
) -> None:
    """Refuse JSON lines that hold a rate or a count each, by usual keys or those of ``likely``."""
    loads = [key for key, value in record.items() if not isinstance(value, list | dict)
             and (key.lower() in COUNT_NAMES | RATE_NAMES or key in likely)]
    if loads:
        raise InputFileError(
            "a rate or a count in each line, not a request", where=str(path), value=loads[0],
            allowed=f"a table: jq -rs '[\"time\", \"{loads[0]}\"], (.[] | [.[\"{time}\"], "
            f".[\"{loads[0]}\"]]) | @csv' {shlex.quote(str(path))} > load.csv; or --time-column "
            f"{time} where each line is one request")


def refuse_document(path: Path, record: Any) -> None:
    """Refuse a JSON document that is not a request, with the command that makes a trace of it.

    ``record`` is the parsed first line of the file, or the parsed file.
    """
    if isinstance(record, list) and record and isinstance(record[0], dict):
        raise InputFileError("a JSON list, not an object a line", where=str(path),
                             allowed=f"jq -c '.[]' {shlex.quote(str(path))} > trace.jsonl")
    if isinstance(record, list):
        raise InputFileError("a JSON list, not a time a line", where=str(path),
                             allowed=f"jq -r '.[]' {shlex.quote(str(path))} > times.txt")
    if not isinstance(record, dict):
        return
    lists = [key for key, value in record.items()
             if isinstance(value, list) and value and is_time(value[0])]
    if len(lists) == 1 and not time_keys(record):
        raise InputFileError(
            "a list of times, not an object a line", where=str(path), value=lists[0],
            allowed=f"jq -r '.[\"{lists[0]}\"][]' {shlex.quote(str(path))} > times.txt")
    if {"status", "data"} <= set(record):
        raise InputFileError(
            "an answer of Prometheus, not a request a line", where=str(path),
            allowed="lines of time and load, as by jq -r '.data.result[0].values[] | @tsv'")
    for keys, what, command in _DOCUMENTS:
        if all(_has(record, key.split(".")) for key in keys):
            raise InputFileError(f"{what}, not a request a line", where=str(path),
                                 allowed=f"a table of loads: {command} "
                                         f"{shlex.quote(str(path))} > load.csv")


def _has(item: Any, path: list[str]) -> bool:
    """Return whether an object has a path of keys; lists are followed by their first entry."""
    if isinstance(item, list) and item:
        item = item[0]
    if not path:
        return True
    return isinstance(item, dict) and path[0] in item and _has(item[path[0]], path[1:])
