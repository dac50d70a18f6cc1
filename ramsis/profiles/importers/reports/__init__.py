"""Importer of ``tool-output``: what perf_analyzer, trtexec and other benchmark tools report.

:data:`~ramsis.profiles.importers.reports.tools.TOOLS` defines the layout of each tool's report;
all are read alike. Times without a unit have the tool's default unit. Runs with several requests
in flight are left out, because their latencies include waiting; where the report states a
throughput, throughput × latency confirms the batch size (Little's law).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from ramsis.errors import InputFileError
from ramsis.numerals import MS, duration_ms
from ramsis.profiles.importers.reports.tools import TOOLS, Tool
from ramsis.profiles.importers.runs import (
    Given,
    MeasuredRun,
    NotAProfileError,
    Source,
    in_flight_refused,
)

_BEGINNING = 65_536
"""Leading characters in which the mark of a tool is searched."""
_MOST_RECORDS = 10_000
_DEEPEST = 6
_UNITS = "|".join(sorted(map(re.escape, MS), key=len, reverse=True))
_NUMBER = r"([0-9]+\.?[0-9]*)"
_TIME = rf"([^\s,;|%)]+?)(?:[ \t]*({_UNITS}))?(?![\w+-]|\.\d)"
_STATISTICS = ("mean", "std", "min", "max", "p50", "p90", "p95", "p99")
_TIMES = (*_STATISTICS, "part", "load")
_LONGEST = 1e15  # of any unit: what is beyond overflows in ms
_OFTEN = 100
"""Most values of a figure that are read."""


def recognises(source: Source) -> bool:
    """Return whether a file is a report of one of the tools."""
    return _tool_of(source) is not None


def read(source: Source, given: Given) -> list[MeasuredRun]:
    """Read the runs of a report that had one request at a time."""
    tool = _tool_of(source)
    if tool is None:
        raise InputFileError(
            "not a report of a tool that is known", where=source.where,
            allowed=", ".join(known.name for known in TOOLS))
    if tool.refused:
        raise NotAProfileError(f"{tool.name}: {tool.refused}", where=source.where,
                               allowed=tool.alone)
    head, runs = _runs(source, tool)
    if tool.end and not _pattern(tool.end).search(source.text):
        raise InputFileError(f"{tool.name} without its end, so that it was cut off",
                             where=source.where, allowed="the whole report of a run")
    texts = [run for run in runs if not (tool.no_run and _pattern(tool.no_run).search(run[0]))]
    flights = [_flight(text, head, tool) for text, _ in texts]
    alone = [run for run, flight in zip(texts, flights, strict=True) if flight in (None, 1.0)]
    if not texts:
        raise InputFileError(f"{tool.name} without a run", where=source.where,
                             allowed="the whole report of a run")
    if not alone:
        busy = sorted({flight for flight in flights if flight is not None})
        raise NotAProfileError(
            f"{tool.name} without a run of one request at a time; with more, waiting is in the "
            "latencies", where=source.where,
            value=f"{', '.join(f'{flight:g}' for flight in busy)} in flight",
            allowed=tool.alone)
    left_out = ([f"runs with several requests in flight, left out: {len(texts) - len(alone)}"]
                if len(texts) > len(alone) else [])
    return [_run(source, tool, head, text, samples, left_out) for text, samples in alone]


def _tool_of(source: Source) -> Tool | None:
    beginning = source.text[:_BEGINNING]
    return next((tool for tool in TOOLS if _pattern(tool.mark).search(beginning)), None)


@cache
def _pattern(pattern: str, hole: str = _NUMBER) -> re.Pattern[str]:
    """Compile a pattern of the layouts, with numbers in the place of ``#``."""
    return re.compile(pattern.replace("#", hole), re.MULTILINE)


def _figure(tool: Tool, name: str) -> re.Pattern[str]:
    return _pattern(tool.figures[name], _TIME if name in _TIMES else _NUMBER)


def _runs(source: Source, tool: Tool) -> tuple[str, list[tuple[str, Sequence[Any]]]]:
    """Split a report: the text before the first run, and each run's text and samples."""
    if tool.records == "csv":
        return "", [(text, ()) for text in _rows(source)]
    if tool.records and source.document() is not None:
        return "", _records(source, tool)
    if not tool.run:
        return "", [(source.text, ())]
    pattern = re.compile(tool.run, re.MULTILINE | re.DOTALL)
    runs = list(islice(pattern.finditer(source.text), _MOST_RECORDS))
    head = source.text[: min(runs[0].start(), _BEGINNING)] if runs else ""
    return head, [(run[0], ()) for run in (runs[-1:] if tool.last_run else runs)]


def _rows(source: Source) -> Iterator[str]:
    try:
        rows = list(islice(csv.reader(source.text.splitlines(), strict=True), _MOST_RECORDS + 2))
    except csv.Error as error:
        raise InputFileError(f"not valid CSV ({error})", where=source.where) from error
    header = rows[0]
    if len(rows) > _MOST_RECORDS:
        raise InputFileError("too many rows for a report", where=source.where,
                             allowed=f"at most {_MOST_RECORDS}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) not in (0, len(header)):
            raise InputFileError("not all columns have a cell, so the file is cut off",
                                 where=f"{source.where}: line {number}", value=len(row),
                                 allowed=f"{len(header)} cells, as in the header")
        if row:
            yield "\n".join(f"{column.strip()}: {' '.join(cell.split())}"
                            for column, cell in zip(header, row, strict=True))


def _records(source: Source, tool: Tool) -> list[tuple[str, Sequence[Any]]]:
    value = source.document()
    for key in filter(None, tool.records.split(".")):
        value = value.get(key) if isinstance(value, dict) else None
    records = value if isinstance(value, list) else [value]
    if not 0 < len(records) <= _MOST_RECORDS or not all(
            isinstance(record, dict) for record in records):
        raise InputFileError(f"{tool.name} without its runs",
                             where=f"{source.where}: {tool.records}",
                             allowed=f"objects, 1 to {_MOST_RECORDS}")
    runs: list[tuple[str, Sequence[Any]]] = []
    for record in records:
        samples = record
        for key in tool.samples.split("."):
            if isinstance(samples, dict) and key not in samples and "report" in samples:
                samples = samples["report"]
            samples = samples.get(key) if isinstance(samples, dict) else None
        runs.append(("\n".join(_lines(record, "", 0)),
                     samples if isinstance(samples, list) else ()))
    return runs


def _lines(value: Any, name: str, depth: int) -> Iterator[str]:
    """Yield a line ``key.of.keys: value`` for each value in an object; lists are left out."""
    if isinstance(value, dict):
        for key, item in value.items() if depth < _DEEPEST else ():
            yield from _lines(item, f"{name}.{key}" if name else key, depth + 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield f"{name}: {' '.join(str(value).split())}"


def _found(text: str, tool: Tool, name: str) -> re.Match[str] | None:
    return _figure(tool, name).search(text) if name in tool.figures else None


def _flight(text: str, head: str, tool: Tool) -> float | None:
    """Return the requests in flight, as a run or the text before it states; 0 at a fixed rate."""
    figure = _found(text, tool, "flight") or _found(head, tool, "flight")
    if figure is not None:
        return float(_groups(figure)[0])
    return 0.0 if re.match(r"Request [Rr]ate: ", text) else None


def _groups(figure: re.Match[str]) -> tuple[str, str]:
    """Return the value and the unit of a match; the unit may be empty."""
    value, *units = [group for group in figure.groups() if group is not None]
    return value, units[0] if units else ""


def _of_all(text: str, head: str, tool: Tool, name: str) -> str | None:
    """Return a figure from the text of a run, or else from ``head``, the text before all runs.

    None if the figure is missing, or has several values.
    """
    for part in (text, head) if name in tool.figures else ():
        values = {_groups(match)[0] for match in islice(
            _figure(tool, name).finditer(part), _OFTEN)}
        if values:
            return values.pop() if len(values) == 1 else None
    return None


def _run(
    source: Source, tool: Tool, head: str, text: str, samples: Sequence[Any], more: Sequence[str]
) -> MeasuredRun:
    """Read the statistics and samples of one run in a report; ``head`` precedes all runs."""
    unit = _of_all(text, "", tool, "unit") or tool.unit
    statistics: dict[str, Any] = {}
    units: set[bool] = set()
    for name in _STATISTICS:
        figure = _found(text, tool, name)
        if figure is not None:
            units.add(bool(_groups(figure)[1]))
            statistics[f"{name}_ms"] = _time_ms(figure, unit, f"{source.where}: {name}")
    if "mean_ms" not in statistics and "part" in tool.figures:  # the mean is the sum of its parts
        parts = [_time_ms(part, unit, source.where)
                 for part in _figure(tool, "part").finditer(text)]
        if parts:
            statistics["mean_ms"] = round(sum(parts), 9)
    if not statistics:
        raise InputFileError(f"{tool.name} without latencies, so that it was cut off",
                             where=source.where, allowed="the whole report of a run")
    count = _of_all(text, "", tool, "n")
    if count is not None:
        statistics["n"] = _count(count, f"{source.where}: number of samples", 1e12)
    times = _samples_ms(samples, unit, source)
    batch = _of_all(text, head, tool, "batch")
    model = _of_all(text, head, tool, "model")
    load = _found(text, tool, "load") or _found(head, tool, "load")
    rate, requests = (_of_all(text, "", tool, name) for name in ("rate", "requests"))
    if requests is not None and "mean_ms" in statistics:
        in_flight_refused(source.where, float(requests), statistics["mean_ms"])
    used = ", ".join(name.removesuffix("_ms") for name in statistics if name != "n")
    return MeasuredRun(
        {} if times is not None else statistics, times,
        None if batch is None else _count(batch, f"{source.where}: batch"),
        None if model is None else model.strip(),
        (f"read as {tool.name}: {'samples' if times is not None else used}"
         + ("" if units == {True} and times is None else f", in {unit}"), *tool.notes, *more),
        load_ms=None if load is None else _time_ms(load, "s" if "sec" in load[0] else unit,
                                                   source.where) or None,
        items_per_s=None if rate is None else float(rate), tool=tool.name.partition("'s ")[0],
        one_size=tool.one_size)


def _time_ms(figure: re.Match[str], unit: str, where: str) -> float:
    number, stated_unit = _groups(figure)
    try:
        return duration_ms(number, stated_unit or unit)
    except ValueError:
        raise InputFileError("not a time", where=where, value=f"{number} {stated_unit or unit}",
                             allowed="a number of ns, us, ms or s") from None


def _count(text: str, where: str, most: float = 1e6) -> int:
    value = float(text)
    if not 1 <= value <= most or value != int(value):
        raise InputFileError("not a count", where=where, value=text,
                             allowed=f"a whole number from 1 to {most:g}")
    return int(value)


def _samples_ms(samples: Sequence[Any], unit: str, source: Source) -> np.ndarray | None:
    """Return the samples in ms, or None where there are fewer than two."""
    if len(samples) < 2:
        return None
    for i, value in enumerate(samples):
        if isinstance(value, bool) or not isinstance(value, int | float) or not (
                0 < value < _LONGEST):
            raise InputFileError("not a time", where=f"{source.where}: sample {i}", value=value,
                                 allowed=f"a number of {unit} above 0")
    return np.array(samples, dtype=float) * float(MS[unit])
