"""Reader of kernel traces: ``cuda_gpu_trace`` of Nsight Systems, metrics of Nsight Compute.

``nsys stats --report cuda_gpu_trace --format csv`` gives start, duration, grid, block, registers
and shared memory of each kernel; rows of copies have no grid and are left out. ``ncu --csv
--metrics sm__warps_active.avg.pct_of_peak_sustained_active`` gives the achieved occupancy, one row
for each kernel and metric, or with ``--page raw`` one row for each kernel with a row of units on
top; the section Occupancy calls it Achieved Occupancy. The model runs twice in the same way, once
for each file. A kernel of one file matches the next kernel of the other with the same name
(without template and call arguments), grid and block, in the order of launch.

Nsight Systems rounds shared memory to thousandths of a megabyte. It is taken as the multiple of
the largest power of two that is rounded so: 0.033 MB is 32,768 bytes, of which a multiprocessor
of 98,304 holds three, and not two.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ramsis.errors import InputFileError, check_known
from ramsis.profiles.importers.rows import CsvRow, read_text
from ramsis.studies.sharing.gpu.kernels import Kernel, Launch

__all__ = ["OCCUPANCY_METRIC", "read_kernel_trace"]

OCCUPANCY_METRIC = "sm__warps_active.avg.pct_of_peak_sustained_active"
_SECTION_METRIC = "Achieved Occupancy"
_UNIT_MS = {"ns": "0.000001", "us": "0.001", "\u00b5s": "0.001", "\u03bcs": "0.001",
            "ms": "1", "s": "1000"}
_UNIT_BYTES = {"B": 1, "bytes": 1, "KB": 1e3, "KiB": 1024, "MB": 1e6, "MiB": 1048576.0}
_MOST_BYTES = 1e9  # of a block's shared memory, far above any GPU's; refuses a misread unit
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?")
_HEADER = re.compile(r"(Start|Time) \(|ID$")
_COUNTED = re.compile(r"[0-9][0-9,.]*")
_Key = tuple[str, tuple[int, int, int], tuple[int, int, int]]


class _Traced(NamedTuple):
    """Kernel in a trace of Nsight Systems, with the number of its launch."""

    order: int
    start_ms: float
    duration_ms: float
    name: str
    launch: Launch


def read_kernel_trace(
    trace: str | os.PathLike[str], metrics: str | os.PathLike[str], *,
    device: str | None = None,
) -> tuple[Kernel, ...]:
    """Read the kernels of a trace with their occupancy, in order of start.

    Parameters
    ----------
    trace : path
        CSV of Nsight Systems.
    metrics : path
        CSV of Nsight Compute.
    device : str, optional
        The GPU whose kernels are read, as the trace names it; by default the only one.
    """
    rows = _of_device(_table(Path(trace), "Start", "Duration", "GrdX", "BlkX", "Name"),
                      str(trace), device)
    occupancy = _occupancies(Path(metrics), rows[0].cells.get("Device", ""))
    kernels = []
    for item in sorted(map(_traced, rows)):
        waiting = occupancy.get((_base(item.name), item.launch.grid, item.launch.block))
        if not waiting:
            raise InputFileError(
                "kernel of the trace has no metrics", where=str(metrics), value=_base(item.name),
                allowed=f"a row with grid {item.launch.grid} and block {item.launch.block} for "
                "each launch")
        kernels.append(Kernel(item.name, item.launch, item.start_ms,
                              item.start_ms + item.duration_ms, waiting.popleft()))
    return tuple(sorted(kernels, key=lambda kernel: kernel.start_ms))


def _of_device(rows: Sequence[CsvRow], path: str, device: str | None) -> list[CsvRow]:
    """Return the rows of kernels of a GPU; rows of copies and memsets have no grid."""
    kernels = [row for row in rows if row.cells.get("GrdX")]
    if not kernels:
        raise InputFileError(
            "trace has no kernels", where=path,
            allowed="rows with a grid (of CUDA graphs with --cuda-graph-trace=node)")
    devices = list(dict.fromkeys(row.cells.get("Device", "") for row in kernels))
    if device is None and len(devices) > 1:
        raise InputFileError("trace of several GPUs", where=path, value=", ".join(devices),
                             allowed="the name of one")
    if device is not None:
        check_known("trace has no such GPU", device, devices, path, InputFileError)
    return [row for row in kernels if device in (None, row.cells.get("Device", ""))]


def _table(path: Path, *needed: str) -> list[CsvRow]:
    """Return the rows below the first header with these columns, with or without units.

    Nsight Compute omits empty cells at the end of a row; a report ends at another header, and
    output of the traced program may be anywhere.
    """
    lines = list(csv.reader(read_text(path).splitlines()))
    for i, header in enumerate(lines):
        names = [cell.strip() for cell in header]
        if all(any(_plain(name) == column for name in names) for column in needed):
            least = 1 + max(j for j, name in enumerate(names)
                            if _plain(name) in {*needed, "Metric Value"})
            return list(_rows_below(str(path), i + 2, lines[i + 1:], names, least))
    raise InputFileError("no header with the columns of a kernel trace", where=str(path),
                         allowed=", ".join(needed))


def _rows_below(
    path: str, first: int, lines: Sequence[Sequence[str]], names: Sequence[str], least: int
) -> Iterator[CsvRow]:
    """Yield the rows below a header up to the next header; refuse rows that are cut off."""
    for number, cells in enumerate(lines, start=first):
        stripped = [cell.strip() for cell in cells]
        if stripped and _HEADER.match(stripped[0]):
            return
        if least <= len(cells) <= len(names):
            padded = stripped + [""] * (len(names) - len(cells))
            yield CsvRow(path, number, dict(zip(names, map(_ungrouped, padded), strict=True)))
        elif len(cells) > 1 and _COUNTED.fullmatch(stripped[0]):
            raise InputFileError("line is cut off or has cells too many",
                                 where=f"{path}: line {number}", value=len(cells),
                                 allowed=f"{least} to {len(names)} cells")


def _ungrouped(cell: str) -> str:
    """Remove separators of thousands from a number."""
    return cell.replace(",", "") if _GROUPED.fullmatch(cell) else cell


def _plain(column: str) -> str:
    return column.partition(" (")[0]


def _column(row: CsvRow, name: str) -> tuple[str, str]:
    """Return a column's full name, and the unit in its brackets."""
    full = next((key for key in row.cells if _plain(key) == name), None)
    if full is None:
        raise InputFileError("column is missing", where=row.at(name), allowed=f"{name} (unit)")
    return full, full.partition(" (")[2].rstrip(")")


def _traced(row: CsvRow) -> _Traced:
    grid, block = ((row.count(f"{what}X"), row.count(f"{what}Y"), row.count(f"{what}Z"))
                   for what in ("Grd", "Blk"))
    memory = sum(_bytes(row, name) for name in ("StcSMem", "DymSMem"))
    order = row.count("CorrId") if row.cells.get("CorrId") else 0
    return _Traced(order, _time_ms(row, "Start"), _time_ms(row, "Duration"), row.text("Name"),
                   Launch(grid, block, row.count("Reg/Trd"), memory))


def _time_ms(row: CsvRow, name: str) -> float:
    column, unit = _column(row, name)
    if unit not in _UNIT_MS:
        raise InputFileError("unknown unit", where=row.at(column), value=unit,
                             allowed=", ".join(_UNIT_MS))
    time_ms = row.number(column, _UNIT_MS[unit])
    if not math.isfinite(time_ms):
        raise InputFileError("not finite", where=row.at(column), value=time_ms)
    return time_ms


def _bytes(row: CsvRow, name: str) -> int:
    column, unit = _column(row, name)
    if unit not in _UNIT_BYTES:
        raise InputFileError("unknown unit", where=row.at(column), value=unit,
                             allowed=", ".join(_UNIT_BYTES))
    text = row.cells[column]
    if not text:
        return 0
    value = row.number(column) * _UNIT_BYTES[unit]
    if not 0 <= value < _MOST_BYTES:
        raise InputFileError("not an amount of memory", where=row.at(column), value=text,
                             allowed="0 or more, of a block")
    return _round_number(value, _UNIT_BYTES[unit] / 10 ** len(text.partition(".")[2]) / 2)


def _round_number(value: float, half: float) -> int:
    """Return the multiple of the largest power of two within ``half`` of a printed value.

    >>> _round_number(33_000, 500), _round_number(25_000, 500), _round_number(48, 0.5)
    (32768, 24576, 48)
    """
    if value <= half:
        return round(value) if half < 1 else 0
    step = 1
    while (multiple := round(value / (2 * step)) * 2 * step) and abs(multiple - value) <= half:
        step *= 2
    return round(value / step) * step


def _occupancies(path: Path, device: str) -> dict[_Key, deque[float]]:
    """Return the achieved occupancy of each kernel in turn, by name and launch."""
    by_kernel: dict[_Key, deque[float]] = defaultdict(deque)
    rows = [row for row in _table(path, "ID", "Kernel Name", "Block Size", "Grid Size")
            if row.cells.get("ID")]  # without the units of the raw page
    # Nsight Systems writes a GPU as ``name (number)``, Nsight Compute only as its number.
    number = re.search(r"\((\d+)\)$", device)
    devices = {row.cells.get("Device", "") for row in rows}
    if number and len(devices) > 1:
        rows = [row for row in rows if row.cells.get("Device") == number.group(1)]
    names = {row.cells.get("Metric Name", "") for row in rows}
    name = OCCUPANCY_METRIC if OCCUPANCY_METRIC in names else _SECTION_METRIC
    for row in rows:
        column = OCCUPANCY_METRIC
        if "Metric Name" in row.cells:
            column = "Metric Value"
            if row.cells["Metric Name"] != name:
                continue
        if column not in row.cells:
            break
        key = (_base(row.text("Kernel Name")), _triple(row, "Grid Size"),
               _triple(row, "Block Size"))
        by_kernel[key].append(_percent(row, column))
    if not by_kernel:
        raise InputFileError("no kernel has the metric", where=str(path), allowed=OCCUPANCY_METRIC)
    return by_kernel


def _percent(row: CsvRow, column: str) -> float:
    value = row.number(column)
    if not 0 <= value <= 100:
        raise InputFileError("not a percentage", where=row.at(column), value=value,
                             allowed="0 to 100")
    return value / 100.0


def _triple(row: CsvRow, column: str) -> tuple[int, int, int]:
    numbers: Sequence[str] = re.findall(r"\d+", row.text(column))
    if len(numbers) != 3:
        raise InputFileError("not three numbers", where=row.at(column), value=row.text(column),
                             allowed="(x, y, z)")
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


def _base(name: str) -> str:
    """Return a kernel's name without result type, namespaces, template and call arguments.

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
