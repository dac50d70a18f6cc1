"""Kernel traces: ``cuda_gpu_trace`` of Nsight Systems with the metrics of Nsight Compute.

``nsys stats --report cuda_gpu_trace --format csv`` gives start, duration, grid, block, registers
and shared memory of each kernel; rows of copies have no grid and are left out. ``ncu --csv
--metrics sm__warps_active.avg.pct_of_peak_sustained_active`` gives the achieved occupancy, one row
for each kernel and metric, or with ``--page raw`` one row for each kernel with a row of units on
top. Both are of the same run of the model, made twice. A kernel of one file is the next one of the
other with the same name (without template and call arguments), grid and block.
"""

from __future__ import annotations

import csv
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from ramsis.checks import check_arguments
from ramsis.errors import InputFileError, describe
from ramsis.profiles.importers.rows import Row, read_text
from ramsis.profiles.kernels import Kernel, Launch

__all__ = ["OCCUPANCY_METRIC", "read_kernel_trace"]

OCCUPANCY_METRIC = "sm__warps_active.avg.pct_of_peak_sustained_active"
_UNIT_MS = {"ns": "0.000001", "us": "0.001", "µs": "0.001", "ms": "1", "s": "1000"}
_UNIT_BYTES = {"B": 1, "bytes": 1, "KB": 1e3, "KiB": 1024, "MB": 1e6, "MiB": 1048576.0}
_Key = tuple[str, tuple[int, int, int], tuple[int, int, int]]


def read_kernel_trace(
    trace: str | os.PathLike[str], metrics: str | os.PathLike[str]
) -> tuple[Kernel, ...]:
    """The kernels of a trace with their occupancy, in order of start.

    Parameters
    ----------
    trace : path
        CSV of Nsight Systems.
    metrics : path
        CSV of Nsight Compute.

    Raises
    ------
    InputFileError
        A file that cannot be read, without kernels, or a kernel of the trace that has no
        metrics.
    """
    occupancy = _occupancies(Path(metrics))
    kernels = []
    rows = sorted(_kernels_of_trace(Path(trace)), key=lambda row: row[2])
    if not rows:
        raise InputFileError(describe("trace has no kernels", where=str(trace)))
    for name, launch, start_ms, duration_ms in rows:
        waiting = occupancy.get((_base(name), launch.grid, launch.block))
        if not waiting:
            raise InputFileError(describe(
                "kernel of the trace has no metrics", where=str(metrics), value=_base(name),
                allowed=f"a row with grid {launch.grid} and block {launch.block} for each launch"))
        kernels.append(Kernel(name, launch, start_ms, start_ms + duration_ms, waiting.popleft()))
    return tuple(kernels)


def _table(path: Path, *needed: str) -> list[Row]:
    """The rows below the first line that has all of these columns (or columns and units)."""
    lines = list(csv.reader(read_text(path).splitlines()))
    for i, header in enumerate(lines):
        names = [cell.strip() for cell in header]
        if all(any(_plain(name) == column for name in names) for column in needed):
            return [Row(str(path), i + 2 + j, dict(zip(names, map(str.strip, cells), strict=True)))
                    for j, cells in enumerate(lines[i + 1:]) if len(cells) == len(names)]
    raise InputFileError(describe("no header with the columns of a kernel trace",
                                  where=str(path), allowed=", ".join(needed)))


def _plain(column: str) -> str:
    return column.partition(" (")[0]


def _column(row: Row, name: str) -> tuple[str, str]:
    """A column's full name, and the unit in its brackets."""
    full = next(key for key in row.cells if _plain(key) == name)
    return full, full.partition(" (")[2].rstrip(")")


def _kernels_of_trace(path: Path) -> Iterator[tuple[str, Launch, float, float]]:
    for row in _table(path, "Start", "Duration", "GrdX", "BlkX", "Name"):
        if not row.cells.get("GrdX"):
            continue  # a copy, or memory that is set
        grid, block = ((row.count(f"{what}X"), row.count(f"{what}Y"), row.count(f"{what}Z"))
                       for what in ("Grd", "Blk"))
        memory = sum(_bytes(row, name) for name in ("StcSMem", "DymSMem"))
        launch = Launch(grid, block, row.count("Reg/Trd"), round(memory))
        yield row.text("Name"), launch, _time_ms(row, "Start"), _time_ms(row, "Duration")


def _time_ms(row: Row, name: str) -> float:
    column, unit = _column(row, name)
    if unit not in _UNIT_MS:
        raise InputFileError(describe("unknown unit", where=row.at(column), value=unit,
                                      allowed=", ".join(_UNIT_MS)))
    return row.number(column, _UNIT_MS[unit])


def _bytes(row: Row, name: str) -> float:
    column, unit = _column(row, name)
    if unit not in _UNIT_BYTES:
        raise InputFileError(describe("unknown unit", where=row.at(column), value=unit,
                                      allowed=", ".join(_UNIT_BYTES)))
    return (row.optional(column) or 0.0) * _UNIT_BYTES[unit]


def _occupancies(path: Path) -> dict[_Key, deque[float]]:
    """Achieved occupancy of each kernel in turn, by name and launch."""
    found: dict[_Key, deque[float]] = defaultdict(deque)
    rows = _table(path, "ID", "Kernel Name", "Block Size", "Grid Size")
    long = bool(rows) and "Metric Name" in rows[0].cells
    for row in rows:
        if not row.cells.get("ID"):
            continue  # the units of the raw page
        if long and row.text("Metric Name") != OCCUPANCY_METRIC:
            continue
        column = "Metric Value" if long else OCCUPANCY_METRIC
        if column not in row.cells:
            break
        key = (_base(row.text("Kernel Name")), _triple(row, "Grid Size"),
               _triple(row, "Block Size"))
        found[key].append(_percent(row, column))
    if not found:
        raise InputFileError(describe("no kernel has the metric", where=str(path),
                                      allowed=OCCUPANCY_METRIC))
    return found


def _percent(row: Row, column: str) -> float:
    value = row.number(column)
    if not 0 <= value <= 100:
        raise InputFileError(describe("not a percentage", where=row.at(column), value=value,
                                      allowed="0 to 100"))
    return value / 100.0


def _triple(row: Row, column: str) -> tuple[int, int, int]:
    numbers: Sequence[str] = re.findall(r"\d+", row.text(column))
    if len(numbers) != 3:
        raise InputFileError(describe("not three numbers", where=row.at(column),
                                      value=row.text(column), allowed="(x, y, z)"))
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


def _base(name: str) -> str:
    """A kernel's name without result type, namespaces, template and call arguments.

    >>> _base("void at::native::sum<float, (int)4>(float *, int)"), _base("sum")
    ('sum', 'sum')
    """
    depth = 0
    kept = []
    for letter in name.replace("(anonymous namespace)::", ""):
        depth += letter in "<("
        if depth == 0:
            kept.append(letter)
        depth -= letter in ">)"
    return "".join(kept).strip().rpartition(" ")[2].rpartition("::")[2]


check_arguments(globals(), __all__)
