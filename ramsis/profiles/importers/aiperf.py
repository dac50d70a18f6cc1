"""Importer of ``aiperf``: what NVIDIA's AIPerf (and GenAI-Perf before it) writes about a run.

- ``profile_export_aiperf.json``: statistics of each metric with their unit, of which
  ``request_latency`` is used (``std`` has the divisor n). The configuration under ``input_config``
  names the model, the number of requests in flight, and sometimes the batch size.
- ``profile_export.jsonl``: a record for each request. These samples are preferred to the
  statistics; model and batch size come from the JSON file in the same folder, if there is one.

Runs with several requests in flight are refused, because their latencies include waiting; they are
recognised by the stated concurrency, by Little's law (throughput × latency), or by overlapping
requests. Incomplete files, with fewer records than the JSON file has requests, are refused, too.
Requests of the warm-up, failed and cancelled ones are left out and counted. Latencies are those of
a client and include the network. There is no accuracy.

Source: AIPerf's documentation, "profile_export_aiperf.json Schema" and "Working with Profile
Export Files" (docs.nvidia.com/aiperf), and files that AIPerf 0.13 wrote.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ramsis.errors import InputFileError
from ramsis.files import parsed
from ramsis.profiles.importers.runs import (
    Given,
    MeasuredRun,
    Node,
    Source,
    in_flight_refused,
    overlap_refused,
    percentiles_left_out,
)

_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3}
_STATISTICS = {"avg": "mean_ms", "std": "std_ms", "min": "min_ms", "p50": "p50_ms",
               "p90": "p90_ms", "p95": "p95_ms", "p99": "p99_ms", "max": "max_ms"}
_SUMMARY = "profile_export_aiperf.json"
_PERCENTILE = re.compile(r"p\d+(?:\.\d+)?")
_ONE_EACH = {"chat", "completions"}
"""Endpoints of which a request is one input."""
_NOTE = "latencies are as a client sees them, with the way to the server and back"


def recognises(source: Source) -> bool:
    """Return whether a file was written by AIPerf or GenAI-Perf."""
    record = source.document() or source.first_record()
    if not isinstance(record, dict):
        return False
    if isinstance(record.get("metadata"), dict) and isinstance(record.get("metrics"), dict):
        return "request_start_ns" in record["metadata"]
    return isinstance(record.get("request_latency"), dict) and "experiments" not in record


def read(source: Source, given: Given) -> list[MeasuredRun]:
    """Read the run of a file, from its summary or its records of requests."""
    document = source.document()
    if isinstance(document, dict) and "request_latency" in document:
        return [_from_summary(Node(document, source.where))]
    return [_from_records(source)]


def _from_summary(document: Node) -> MeasuredRun:
    """Read the latency statistics of a summary; refuse several requests in flight."""
    latency = document.item("request_latency")
    factor = _factor(latency)
    statistics: dict[str, Any] = {
        ours: round(value.number() * factor, 6) for theirs, ours in _STATISTICS.items()
        if (value := latency.get(theirs)) is not None
    }
    count = latency.get("count") or document.get("request_count", "avg")
    if count is not None:
        statistics["n"] = int(count.positive())
    configuration = _Configuration(document)
    notes = [_NOTE]
    if configuration.concurrency is None:
        notes.append("the file does not state how many requests were in flight; on average there "
                     "was no more than one")
    elif configuration.concurrency.value != 1:
        raise InputFileError(
            "several requests were in flight, so that waiting is in the latencies",
            where=configuration.concurrency.where, value=configuration.concurrency.value,
            allowed="a run with --concurrency 1")
    rate = document.get("request_throughput", "avg")
    mean = statistics.get("mean_ms")
    if rate is not None and mean is not None:
        in_flight_refused(document.where, rate.number(), mean)
    errors = document.get("error_request_count", "avg")
    if errors is not None and errors.number() > 0:
        notes.append(f"failed requests, left out: {errors.number():g}")
    if document.value.get("was_cancelled") is True:
        notes.append("the run was cancelled before its end")
    notes += percentiles_left_out(name for name in latency.value
                                  if name not in _STATISTICS and _PERCENTILE.fullmatch(name))
    return MeasuredRun(statistics, None, configuration.batch, configuration.model, tuple(notes))


def _factor(latency: Node) -> float:
    unit = latency.item("unit")
    if not isinstance(unit.value, str) or unit.value not in _MS:
        raise InputFileError("not a unit of time", where=unit.where, value=unit.value,
                             allowed=", ".join(_MS))
    return _MS[unit.value]


class _Configuration:
    """Model, batch size and requests in flight, as ``input_config`` states them."""

    def __init__(self, document: Node) -> None:
        config = document.get("input_config") or Node({}, document.where)
        self.model = _model(config)
        self.batch = _batch(config)
        self.concurrency = _concurrency(config)
        self.requests = document.get("request_count", "avg")


def _model(config: Node) -> str | None:
    """Return the model by the configuration, in today's layout or that of AIPerf 0.6."""
    names: list[Node] = []
    for keys in (("models", "items"), ("endpoint", "model_names"), ("model_names",)):
        stated = config.get(*keys)
        if stated is not None and isinstance(stated.value, list):
            names = list(stated.entries())
            break
    if len(names) > 1:
        raise InputFileError("several models in one run, so the latency of none of them is known",
                             where=names[0].where, value=len(names), allowed="one model")
    if not names:
        return None
    return (names[0].get("name") or names[0]).text()


def _batch(config: Node) -> int | None:
    """Return the stated batch size; 1 where a request is one input."""
    stated = config.get("input", "prompt", "batch_size")
    sets = config.get("datasets")
    if sets is not None and isinstance(sets.value, list) and len(sets.value) == 1:
        (only,) = sets.entries()
        stated = only.get("prompts", "batch_size") or only.get("prompt_batch_size") or stated
    if stated is not None:
        return stated.whole()
    kind = config.get("endpoint", "type")
    return 1 if kind is not None and kind.value in _ONE_EACH else None


def _concurrency(config: Node) -> Node | None:
    phases = config.get("phases")
    if phases is not None and isinstance(phases.value, list):
        for phase in phases.entries():
            kind = phase.get("kind") or phase.get("name")
            if (kind is None or kind.value != "warmup") and phase.get("concurrency") is not None:
                return phase.get("concurrency")
    return config.get("loadgen", "concurrency")


def _from_records(source: Source) -> MeasuredRun:
    left_out = {"of the warm-up": 0, "failed": 0, "cancelled": 0}
    rows: list[tuple[float, int, int]] = []
    for number, line in enumerate(source.text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{source.where}: line {number}"
        record = Node(parsed(line, where), where)
        reason = _left_out(record)
        if reason is None:
            rows.append(_row(record))
        else:
            left_out[reason] += 1
    if not rows:
        raise InputFileError(
            "no request that was measured and answered", where=source.where,
            value=", ".join(f"{n} {reason}" for reason, n in left_out.items() if n))
    samples, start, end = (np.array(column) for column in zip(*rows, strict=True))
    overlap_refused(source.where, start, end)
    notes = [_NOTE, *(f"requests {reason}, left out: {n}" for reason, n in left_out.items() if n)]
    # The summary of the same run, which states model and batch size.
    summary = source.path.with_name(_SUMMARY)
    document = Source(summary).node() if summary.is_file() else None
    beside = _Configuration(document) if document and isinstance(document.value, dict) else None
    records = len(rows) + sum(left_out.values())
    if beside and beside.requests and records < beside.requests.number():
        raise InputFileError("fewer records than the run had requests, so the file is cut off",
                             where=source.where, value=records,
                             allowed=f"{beside.requests.number():g}, as {_SUMMARY} beside it says")
    return MeasuredRun({}, samples.astype(float), beside.batch if beside else None,
                       beside.model if beside else None, tuple(notes))


def _left_out(record: Node) -> str | None:
    """Return why a record is left out, or None where it counts."""
    phase = record.item("metadata").get("benchmark_phase")
    if phase is not None and phase.value == "warmup":
        return "of the warm-up"
    cancelled = record.get("metadata", "was_cancelled")
    if cancelled is not None and cancelled.value is True:
        return "cancelled"
    return "failed" if record.get("error") is not None else None


def _row(record: Node) -> tuple[float, int, int]:
    """Return the latency in ms, and begin and end in ns."""
    latency = record.item("metrics").item("request_latency")
    value = latency.item("value").positive() * _factor(latency)
    start = record.item("metadata", "request_start_ns").whole()
    end = record.item("metadata", "request_end_ns").whole()
    if not 0 <= start <= end < 2**63:
        raise InputFileError("request ends before it begins", where=record.where, value=end,
                             allowed=f"at least {start}")
    span_ms = (end - start) / 1e6
    if not 0.01 * span_ms - 0.001 <= value <= 1.05 * span_ms + 0.001:
        raise InputFileError(
            "does not fit request_start_ns and request_end_ns, so its unit is wrong",
            where=latency.where, value=value, allowed=f"about {span_ms:.6g} ms")
    return value, start, end
