"""Reader of request sizes in a file: one size per row, or a histogram.

A row of CSV or a line of JSON is a request, in a trace or a log as well; its size is in the column
or key with a usual name of sizes. With a column of counts and no column of times, a row is a size
with the number of its requests.
"""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals.sizes import SizeDistribution
from ramsis.arrivals.trace_formats.columns import (
    COUNT_NAMES,
    called_times,
    fields_of,
    lines_of,
    size_column,
    size_of,
)
from ramsis.arrivals.trace_formats.files import blocks, first_line
from ramsis.arrivals.trace_formats.instants import number
from ramsis.arrivals.trace_formats.json_lines import json_sizes
from ramsis.errors import InputFileError
from ramsis.logs.sizes import unit_of_size
from ramsis.reprs import dataclass

_COUNTS = COUNT_NAMES | {"n", "frequency", "number", "weight", "probability", "share"}


@dataclass(frozen=True, eq=False)
class ReadSizes:
    """Distribution of request sizes read from a file.

    Attributes
    ----------
    unit : str
        Unit of the sizes by their column's name, such as ``tokens``; else ``units``.
    note : str
        Interpretation of the file, with median, 90th percentile and largest size.
    """

    distribution: SizeDistribution
    unit: str
    note: str


def read_sizes(path: str | os.PathLike[str], *, column: str = "") -> ReadSizes:
    """Read the sizes of requests in a file.

    Parameters
    ----------
    path : path
        CSV with a comma, semicolon or tab between the fields, or JSON lines, either as ``.gz`` or
        ``.zst``: a list of sizes, a trace, a log of requests, or a histogram of sizes.
    column : str
        Column or key of the sizes; detected by its name by default.

    Raises
    ------
    InputFileError
        The file cannot be read, has no such column, or a size is not a whole number from 1 to
        65,536; the message names the line.
    """
    file = Path(path)
    line = first_line(file)
    if line.startswith("{"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputFileError(f"not a JSON object in each line ({error})",
                                 where=f"{path}: line 1") from error
        column = size_column(list(record), column, f"{path}: line 1")
        sizes = json_sizes(file, column)
        return _read(SizeDistribution.of_sizes(sizes), column, "sizes of requests", len(sizes))
    names = [name.strip() for name in fields_of(line)] if line else []
    if not names:
        raise InputFileError("no sizes", where=str(path), allowed="a column size")
    if len(names) == 1 and names[0].isdecimal() and not column:
        values, _ = _columns(file, 0, None, header=False)
        return _read(SizeDistribution.of_sizes(values), "the only column", "sizes of requests",
                     len(values))
    column = size_column(names, column, f"{path}: line 1")
    lower = [name.lower() for name in names]
    counts = [i for i, name in enumerate(lower) if name in _COUNTS and names[i] != column]
    # A column of counts without a column of times: the rows are a histogram.
    if len(counts) == 1 and not called_times(lower):
        values, weights = _columns(file, names.index(column), counts[0])
        sizes, place = np.unique(values, return_inverse=True)
        added = np.bincount(place, weights).astype(float)
        likely = added > 0
        if not likely.any():
            raise InputFileError("no requests", where=f"{path}: {names[counts[0]]}", value=0,
                                 allowed="a count above 0")
        return _read(SizeDistribution(sizes[likely].astype(np.int64), added[likely]), column,
                     f"sizes with their {names[counts[0]]}", len(values))
    values, _ = _columns(file, names.index(column), None)
    return _read(SizeDistribution.of_sizes(values), column, "sizes of requests", len(values))


def _read(
    distribution: SizeDistribution, column: str, rows: str, number_of_rows: int
) -> ReadSizes:
    unit = unit_of_size(column)
    return ReadSizes(distribution, unit, f"read as {number_of_rows} {rows}, from "
                     f"{column}: {distribution.summary(unit)}")


def _columns(
    path: Path, size: int, count: int | None, *, header: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Read the sizes in a column and the counts in another; no counts without such a column."""
    sizes: list[float] = []
    counts: list[float] = []
    mark: str | None = None
    for first, text in blocks(path):
        for line, content in lines_of(text, first):
            mark = mark or next((mark for mark in "\t;," if mark in content), ",")
            if header:
                header = False
                continue
            try:
                fields = fields_of(content, mark)
            except csv.Error as error:
                raise InputFileError(f"cannot read sizes ({error})",
                                     where=f"{path}: line {line}") from error
            sizes.append(size_of(fields, size, f"{path}: line {line}"))
            if count is not None:
                counts.append(_count(fields, count, f"{path}: line {line}"))
    if not sizes:
        raise InputFileError("no sizes", where=str(path), allowed="lines below the header")
    return np.array(sizes), np.array(counts)


def _count(fields: list[str], index: int, place: str) -> float:
    text = fields[index].strip() if index < len(fields) else ""
    value = number(text)
    if not 0 <= value < math.inf:
        raise InputFileError("not a count", where=place, value=text,
                             allowed="a finite number >= 0")
    return value
