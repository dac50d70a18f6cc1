"""Importer of ``onnxruntime-perf-test``: results of ``onnxruntime_perf_test``.

- Its result file: a line for each inference, ``model, seconds, peak working set in bytes, CPU
  usage, number``, without a header; with ``-s`` also lines such as ``P95 Latency: 0.0121 s``.
- Its console output, with ``-s``: ``Average inference time cost: 11.3 ms`` and the same lines of
  percentiles. The time to create the session becomes ``load_ms``.

The tool appends to an existing result file. A file with several runs is refused, as their batch
sizes may differ. A result file without the last percentile, P999, and incomplete console output
are refused, as they were cut off. The batch size is not in the file. The model name in the result
file is the name of the model's folder. Peak working set (of the process) and CPU usage are left
out. Runs with several threads (``-c``) are refused if the console output shows them, as their
inferences slow each other down. There is no accuracy.

Source: microsoft/onnxruntime, ``onnxruntime/test/perftest/performance_runner.cc``.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import Any

import numpy as np

from ramsis.errors import InputFileError
from ramsis.numerals import number_or_nan
from ramsis.profiles.importers.runs import (
    Given,
    MeasuredRun,
    Source,
    in_flight_refused,
    percentiles_left_out,
)

_ROW = re.compile(r"[^,]*,[-+.\deE]+,\d+,-?\d+,\d+\s*")
_STATISTIC = re.compile(r"(Min|Max|P50|P90|P95|P99|P999) Latency: (\S+) (\S+)\s*")
_PEAK = re.compile(r"^Peak working set size: \d+ bytes\s*$", re.M)
_NAMES = {"Min": "min_ms", "Max": "max_ms", "P50": "p50_ms", "P90": "p90_ms", "P95": "p95_ms",
          "P99": "p99_ms"}
_LAST = {"Min", "Max", "P50", "P90", "P95", "P99", "P999"}
"""What the tool writes at the end, where it is asked for statistics."""
_LONGEST_S = 3600.0
"""Inferences above this are no seconds."""
_LABELS = {"session": ("Session creation time cost", "s"),
           "mean": ("Average inference time cost", "ms"),
           "requests": ("Total inference requests", ""),
           "sum": ("Total inference time cost", "s"),
           "wall": ("Total inference run time", "s")}


def recognises(source: Source) -> bool:
    """Return whether a file was written by onnxruntime_perf_test."""
    lines = [line for line in islice(source.text.splitlines(), 60) if line.strip()]
    return bool(lines) and (_ROW.fullmatch(lines[0]) is not None
                            or any("inference time cost:" in line for line in lines))


def read(source: Source, given: Given) -> list[MeasuredRun]:
    """Read the run of a file, its console output or its rows."""
    if any("inference time cost:" in line for line in source.text.splitlines()[:200]):
        return [_from_console(source)]
    return [_from_rows(source)]


def _from_rows(source: Source) -> MeasuredRun:
    """Read a result file with one row per run, and the statistics that follow the rows."""
    samples: list[float] = []
    names: set[str] = set()
    stated: dict[str, float] = {}
    for number, line in enumerate(source.text.splitlines(), start=1):
        where = f"{source.where}: line {number}"
        if not line.strip():
            continue
        statistic = _STATISTIC.fullmatch(line)
        if statistic:
            _state(stated, statistic, where)
            continue
        if not _ROW.fullmatch(line):
            raise InputFileError("not a line of results", where=where, value=line,
                                 allowed="model,seconds,bytes,percent,number")
        name, seconds, _, _, run = line.strip().split(",")
        if int(run) != len(samples):
            raise InputFileError(
                "another run begins (the tool appends to its file), whose batch size may "
                "be another", where=where, value=int(run),
                allowed=f"{len(samples)}; a file for each run")
        names.add(name)
        samples.append(_seconds(seconds, "s", where))
    _compare(samples, stated, source.where)
    _refuse_cut(stated, source.where)
    model = names.pop() if len(names) == 1 else None
    return MeasuredRun({}, np.array(samples) * 1000.0, None, model or None, (
        "whether several threads ran inferences at a time is not in a result file",
        "peak working set and CPU usage, left out"))


def _state(stated: dict[str, float], statistic: re.Match[str], where: str) -> None:
    """Enter a statistic in seconds; refuse one that was stated before."""
    name, text, unit = statistic.groups()
    if name in stated:
        raise InputFileError("appears twice, so the file holds several runs", where=where,
                             value=f"{name} Latency", allowed="a file for each run")
    stated[name] = _seconds(text, unit, where)


def _refuse_cut(stated: dict[str, float], where: str) -> None:
    """Refuse a file whose block of statistics is not complete."""
    if stated and stated.keys() != _LAST:
        raise InputFileError("the statistics have no end, so the file is cut off", where=where,
                             value=", ".join(stated), allowed="Min, Max, P50 to P999 Latency")


def _seconds(text: str, unit: str, where: str) -> float:
    if unit != "s":
        raise InputFileError("unknown unit", where=where, value=unit, allowed="s")
    value = number_or_nan(text)
    if not 0 < value < _LONGEST_S:
        raise InputFileError("not the seconds of an inference", where=where, value=text,
                             allowed=f"a number in (0, {_LONGEST_S:g})")
    return value


def _compare(samples: list[float], stated: dict[str, float], where: str) -> None:
    """Refuse a file without samples, or whose extremes differ from the Min and Max it states."""
    if not samples:
        raise InputFileError("no inferences", where=where,
                             allowed="lines of model,seconds,bytes,percent,number")
    for name, value in (("Min", min(samples)), ("Max", max(samples))):
        if name in stated and not math.isclose(value, stated[name], rel_tol=0.01):
            raise InputFileError(
                f"{name} Latency is not that of the lines above, so a unit is wrong", where=where,
                value=stated[name], allowed=f"about {value:g} s")


def _from_console(source: Source) -> MeasuredRun:
    """Read the mean and the percentiles that the tool prints on the console."""
    values = {key: _labelled(source, label, unit) for key, (label, unit) in _LABELS.items()}
    mean = values["mean"]
    if mean is None:
        raise InputFileError("missing", where=f"{source.where}: {_LABELS['mean'][0]}")
    statistics: dict[str, Any] = {"mean_ms": mean}
    stated: dict[str, float] = {}
    for match in _STATISTIC.finditer(source.text):
        _state(stated, match, f"{source.where}: {match[1]} Latency")
    statistics |= {_NAMES[name]: round(seconds * 1000, 6) for name, seconds in stated.items()
                   if name in _NAMES}
    _refuse_cut(stated, source.where)
    if not (_PEAK.search(source.text) and (stated or source.text.endswith("\n"))):
        raise InputFileError(
            "the output has no end, so it is cut off", where=source.where,
            value=source.text.rstrip().rpartition("\n")[2],
            allowed="the output up to 'Peak working set size: N bytes' or further")
    if values["requests"] is not None:
        statistics["n"] = int(values["requests"])
    if values["sum"] is not None and values["wall"] is not None:
        in_flight_refused(source.where, 1000.0 / values["wall"], values["sum"])
    session = values["session"]
    return MeasuredRun(statistics, load_ms=None if session is None else session * 1000.0, notes=(
        "percentiles of onnxruntime_perf_test, taken on the console",
        "peak working set and CPU usage, left out",
        *percentiles_left_out(["p99.9"] if stated else [])))


def _labelled(source: Source, label: str, unit: str) -> float | None:
    """Return the number after ``label``, which must have ``unit``; None if the label is absent."""
    lines = list(re.finditer(rf"^{label}: *(\S+) *(\S*)[ \t\r]*$", source.text, re.M))
    if not lines:
        return None
    line, where = lines[0], f"{source.where}: {label}"
    if len(lines) > 1:
        raise InputFileError("appears twice, so the file holds several runs", where=where,
                             value=len(lines), allowed="a file for each run")
    if line[2] != unit:
        raise InputFileError("unknown unit", where=where, value=line[2], allowed=unit)
    value = number_or_nan(line[1])
    if not 0 < value < math.inf:
        raise InputFileError("not positive", where=where, value=line[1], allowed="a number > 0")
    return value
