"""Importer of ``mlperf-loadgen``: ``mlperf_log_summary.txt`` of MLPerf's load generator.

- SingleStream: one request of one sample at a time, so its latencies are service times at batch
  size 1.
- MultiStream: one request of N samples at a time (``samples_per_query``): batch size N, when the
  system under test runs a request as one batch.
- Server: requests arrive as a Poisson process, and latencies include waiting. Such a run is a
  check of capacity, not a profile; the error states its load and deadline. :func:`read_server`
  reads it, and ``ramsis analyze --loadgen`` compares it with the promise of a policy.
- Offline: all samples at once, so there are no latencies.

Latencies are in **ns**, as their labels say; those of SingleStream are confirmed by Little's law.
The file does not name the model. Accuracy is in another file of loadgen, and is not imported. The
last line, on the errors of the test, is written after all others: a summary without it was cut
off.

Source: mlcommons/inference, ``loadgen`` (the last line: ``logging.cc``); files that loadgen 6.0
wrote.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError, describe
from ramsis.numerals import number_or_nan
from ramsis.profiles.importers.runs import (
    Given,
    MeasuredRun,
    NotAProfileError,
    Source,
    in_flight_refused,
    percentiles_left_out,
)

_TITLE = "MLPerf Results Summary"
_STATISTICS = {"Mean latency": "mean_ms", "Min latency": "min_ms", "Max latency": "max_ms",
               "50.00 percentile latency": "p50_ms", "90.00 percentile latency": "p90_ms",
               "95.00 percentile latency": "p95_ms", "99.00 percentile latency": "p99_ms"}
_LINE = re.compile(r"^([^:\n]*\S) *: *(\S.*?)\s*$", re.M)
_QUERIES = re.compile(r"rocessed at least \d+ queries \((\d+)\)")
_PROCESSED = re.compile(r"rocessed (\d+) queries")
_PERCENTILE = re.compile(r"(\d+\.\d+) percentile latency \(ns\)")
_END = re.compile(r"^(No errors|\d+ ERRORS?) encountered[^\n]*\.\s*\Z", re.M)


@dataclass(frozen=True)
class ServerRun:
    """A run of the Server scenario: how many requests were late, as far as percentiles tell."""

    # load_qps, slo_ms: as scheduled, and as aimed at
    load_qps: float
    slo_ms: float
    queries: int
    # late_low, late_high: between these the share of late requests lies
    late_low: float
    late_high: float
    result: str  # what loadgen says by its own rules


def recognises(source: Source) -> bool:
    """Return whether a file is a summary of MLPerf's loadgen."""
    return _TITLE in source.text[:500]


def read(source: Source, given: Given) -> list[MeasuredRun]:
    """Read the run of a SingleStream or MultiStream summary."""
    lines = _lines(source)
    scenario = lines.get("Scenario", "")
    if lines.get("Mode") != "PerformanceOnly":
        raise NotAProfileError("not a run that measures time", where=f"{source.where}: Mode",
                               value=lines.get("Mode"), allowed="PerformanceOnly")
    if scenario == "Server":
        raise NotAProfileError(_capacity(source, lines))
    if scenario not in ("SingleStream", "MultiStream"):
        raise NotAProfileError("holds no latencies of single batches",
                               where=f"{source.where}: Scenario", value=scenario,
                               allowed="SingleStream (batch size 1) or MultiStream")
    batch = 1 if scenario == "SingleStream" else int(_number(source, lines, "samples_per_query"))
    statistics = _statistics(source, lines)
    rate = "QPS w/ loadgen overhead"
    if rate in lines:
        in_flight_refused(source.where, _number(source, lines, rate), statistics["mean_ms"])
    return [MeasuredRun(statistics, batch=batch, notes=_notes(source, lines, scenario))]


def read_server(path: str | os.PathLike[str]) -> ServerRun:
    """Read the run of a summary of the Server scenario."""
    source = Source(Path(path))
    lines = _lines(source) if recognises(source) else {}
    for label, wanted in (("Scenario", "Server"), ("Mode", "PerformanceOnly")):
        if lines.get(label) != wanted:
            raise InputFileError("not a summary of loadgen's Server scenario",
                                 where=f"{source.where}: {label}", value=lines.get(label),
                                 allowed=wanted)
    counted = _QUERIES.search(source.text) or _PROCESSED.search(source.text)
    if counted is None:
        raise InputFileError("missing", where=f"{source.where}: Processed N queries")
    queries = max(1, int(counted[1]))
    slo_ns = _number(source, lines, "target_latency (ns)")
    levels = [(float(level[1]) / 100.0, _number(source, lines, label)) for label in lines
              if (level := _PERCENTILE.fullmatch(label))]
    # Beyond a percentile that is late all are late; up to one that is in time none are.
    some_late = _number(source, lines, "Max latency (ns)") > slo_ns
    above = [level for level, latency_ns in levels if latency_ns > slo_ns]
    within = [level for level, latency_ns in levels if latency_ns <= slo_ns]
    return ServerRun(
        _number(source, lines, "Scheduled samples per second"), slo_ns / 1e6, queries,
        max([1.0 - level for level in above] + [1.0 / queries]) if some_late else 0.0,
        min([1.0 - level for level in within] + [1.0]) if some_late else 0.0,
        lines.get("Result is", "unknown"))


def _lines(source: Source) -> dict[str, str]:
    """Read the values of a summary by label; refuse a file that is cut off or has several."""
    lines: dict[str, str] = {}
    for label, text in _LINE.findall(source.text):
        if label in lines:
            raise InputFileError(
                "appears twice, so the file holds several summaries or is damaged",
                where=f"{source.where}: {label}", value=text, allowed="a file for each run")
        lines[label] = text
    if not _END.search(source.text):
        raise InputFileError("the summary has no end, so it is cut off", where=source.where,
                             value=source.text.rstrip().rpartition("\n")[2],
                             allowed="a last line as 'No errors encountered during test.'")
    return lines


def _statistics(source: Source, lines: dict[str, str]) -> dict[str, Any]:
    statistics: dict[str, Any] = {}
    for label, name in _STATISTICS.items():
        stated = next((key for key in lines if key.partition(" (")[0] == label), None)
        if stated is None:
            raise InputFileError("missing", where=f"{source.where}: {label} (ns)")
        if stated != f"{label} (ns)":
            raise InputFileError("unknown unit", where=f"{source.where}: {label}", value=stated,
                                 allowed=f"{label} (ns)")
        statistics[name] = _number(source, lines, stated) / 1e6
    queries = _QUERIES.search(source.text) or _PROCESSED.search(source.text)
    if queries:
        statistics["n"] = int(queries[1])
    return statistics


def _number(source: Source, lines: dict[str, str], label: str) -> float:
    text = lines.get(label)
    value = number_or_nan(text or "")
    if not 0 < value < math.inf:
        raise InputFileError("not positive", where=f"{source.where}: {label}", value=text,
                             allowed="a number > 0")
    return value


def _notes(source: Source, lines: dict[str, str], scenario: str) -> tuple[str, ...]:
    notes = list(percentiles_left_out(
        f"p{level[1]}" for label in lines if (level := _PERCENTILE.fullmatch(label))
        and label.removesuffix(" (ns)") not in _STATISTICS))
    end = _END.search(source.text)
    if end and end[1] != "No errors":
        notes.append(f"loadgen met errors ({end[1]}), which its detailed log names")
    if scenario == "MultiStream":
        notes.append("MultiStream: a query counts as one batch; how the system under test divided "
                     "it is not in the file")
    if lines.get("Result is") != "VALID":
        notes.append(f"loadgen calls the result {lines.get('Result is')} by MLPerf's rules")
    return tuple(notes)


def _capacity(source: Source, lines: dict[str, str]) -> str:
    """Describe why a run of the Server scenario is no profile, with its result."""
    rate = (lines.get("Scheduled samples per second") or lines.get("Completed samples per second")
            or "an unknown number of")
    slo = lines.get("target_latency (ns)", "")
    deadline = f"{float(slo) / 1e6:g} ms" if re.fullmatch(r"\d{1,18}", slo) else "its deadline"
    result = lines.get("Result is", "unknown")
    return describe(
        f"the Server scenario is a check of capacity, not a profile: at {rate} samples per s "
        f"and {deadline} the result is {result}; waiting is in its latencies",
        where=f"{source.where}: Scenario",
        allowed="SingleStream or MultiStream; hold this one against a promise with `ramsis "
                "analyze POLICIES --loadgen FILE`, or find workers with `ramsis capacity`",
    )
