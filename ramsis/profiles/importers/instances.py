"""Models on instances of a GPU: latency and throughput by instance, batch and processes.

Three kinds of CSV file are read, told apart by their header:

==================  ==============================================================================
long                ``model``, ``instance`` (a name such as ``2g.20gb``, or its compute slices),
                    ``batch``, ``processes``, ``latency_ms`` or ``latency_s``, and
                    ``throughput_rps`` of all processes together; optional ``gpu_type`` and
                    ``memory_mb`` of all processes
ParvaGPU, per model ``Mig instance``, ``Batch size``, ``Workload Number``, ``Throughput`` of one
                    process, ``Latency`` in s; the model is the file's name
ParvaGPU, joined    ``model``, ``instance_slices``, ``batch``, ``processes``,
                    ``throughput_per_process_rps``, ``latency_s``; optional ``extra``, not read
==================  ==============================================================================

A row whose latency and throughput are 0 is a batch that does not fit; it is left out.

A profile set is for one kind of worker, so the user states the instance, and how many processes
run on it concurrently. Its latencies are means.

Source of the second kind: ParvaGPU (SC '24).
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ramsis.errors import InputFileError, whole
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.importers.rows import CsvRow, MeasuredModel, Rows, read_rows
from ramsis.profiles.importers.runs import Given

_MOST = 1_000_000
_NOTE = "latencies are means, of an instance {} with {} processes side by side"


class _Columns(NamedTuple):
    """Names of the columns in one kind of file about GPU instances."""

    instance: str
    batch: str
    processes: str
    latency: str
    rate: str
    model: str = "model"  # empty where the model is the file's name
    of_each_process: bool = False  # whether the rate is of one process, and not of all
    optional: tuple[str, ...] = ()


_OPTIONAL = ("gpu_type", "memory_mb")
_KINDS = (
    _Columns("Mig instance", "Batch size", "Workload Number", "Latency", "Throughput", model="",
             of_each_process=True),
    _Columns("instance_slices", "batch", "processes", "latency_s", "throughput_per_process_rps",
             of_each_process=True, optional=("extra",)),
    _Columns("instance", "batch", "processes", "latency_s", "throughput_rps", optional=_OPTIONAL),
    _Columns("instance", "batch", "processes", "latency_ms", "throughput_rps",
             optional=_OPTIONAL),
)


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A batch of a model on an instance of a GPU."""

    model: str  # its name
    instance: str  # name of the kind of instance, or the number of its compute slices
    # batch, processes: requests in a batch, and processes that run such batches side by side,
    # each >= 1
    batch: int
    processes: int
    latency_ms: float  # time of a batch while all processes run, > 0
    rate_rps: float  # requests per second of all processes, > 0
    gpu_type: str | None = None  # ``None`` where the file does not say
    memory_mb: float | None = None  # of all processes; ``None`` where the file does not say

    @property
    def kind(self) -> str:
        """Return the instance, after its GPU type if stated: ``A100/2g.20gb``."""
        return self.instance if self.gpu_type is None else f"{self.gpu_type}/{self.instance}"


def read_instance_profile(path: str | os.PathLike[str]) -> tuple[InstanceRow, ...]:
    """Return the rows of a profile of instances.

    It is a CSV file, or a folder of ParvaGPU's files, one for each model.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.csv"))
        if not files:
            raise InputFileError("folder has no profile", where=str(path),
                                 allowed="a file MODEL.csv for each model")
        return tuple(row for file in files for row in read_instance_profile(file))
    table = read_rows(path)
    columns = _columns_of(table)
    rows: dict[object, InstanceRow] = {}
    for row in table.rows:
        item = _read(row, columns)
        if item is None:
            continue
        case = (item.model, item.gpu_type, item.instance, item.batch, item.processes)
        if case in rows:
            raise InputFileError("the same case stands twice", value=item.model,
                                 where=f"{row.path}: line {row.line}")
        rows[case] = item
    if not rows:
        raise InputFileError("no batch fits any instance", where=str(path))
    return tuple(rows.values())


def _columns_of(table: Rows) -> _Columns:
    """Return the columns by the kind of the file; refuse a header that fits no kind."""
    columns = max(_KINDS, key=lambda kind: [name in table.columns for name in (
        kind.instance, kind.latency)])
    latencies = sorted({kind.latency for kind in _KINDS if kind.instance == columns.instance})
    table.require(filter(None, (*columns[:3], columns.rate, columns.model)),
                  (*latencies, *columns.optional))
    if len(set(latencies) & set(table.columns)) != 1:
        raise InputFileError("not exactly one column of latencies",
                             where=f"{table.path}: header",
                             allowed=f"one of {', '.join(latencies)}")
    if not columns.model and not Path(table.path).stem.isprintable():
        raise InputFileError("not a name", where=table.path, value=Path(table.path).stem,
                             allowed="a file name without control characters")
    return columns


def _read(row: CsvRow, columns: _Columns) -> InstanceRow | None:
    """Return the batch of a row; ``None`` if it does not fit its instance."""
    model = row.text(columns.model) if columns.model else Path(row.path).stem
    factor = "1" if columns.latency.endswith("_ms") else "1000"
    latency_ms = row.number(columns.latency, factor)
    processes, batch = _whole(row, columns.processes), _whole(row, columns.batch)
    if latency_ms == 0 and row.number(columns.rate) == 0:
        return None
    for column in (columns.latency, columns.rate):
        row.positive(column)
    rate_rps = row.number(columns.rate, str(processes) if columns.of_each_process else "1")
    return InstanceRow(
        model, row.text(columns.instance), batch, processes, latency_ms, rate_rps,
        row.text("gpu_type") if row.cells.get("gpu_type") else None,
        row.positive("memory_mb") if row.cells.get("memory_mb") else None)


def _whole(row: CsvRow, column: str) -> int:
    value = row.count(column)
    whole(1, _MOST).required(row.at(column), value, "not a valid number", InputFileError)
    return value


def recognises(columns: Collection[str]) -> bool:
    """Return whether a table with this header is about instances."""
    return ("instance_slices" in columns or {"instance", "processes"} <= set(columns)
            or {"Mig instance", "Workload Number"} <= set(columns))


def read(path: Path, given: Given) -> dict[str, MeasuredModel]:
    """Return the models measured on the instance of ``given``, in the order of the file.

    A file that cannot be read, or has nothing of this instance and number of processes, is an
    InputFileError.
    """
    rows = read_instance_profile(path)
    processes = given.processes or 1
    chosen = [row for row in rows
              if row.processes == processes and given.instance in (row.instance, row.kind)]
    if len({row.gpu_type for row in chosen}) > 1 or not chosen:
        kinds = dict.fromkeys(row.kind for row in rows)
        counts = sorted({row.processes for row in rows})
        raise InputFileError(
            "a profile is of one kind of instance", where=str(path),
            value=f"--instance {given.instance} --processes {processes}" if given.instance
            else None,
            allowed=f"--instance {', '.join(kinds)} with --processes "
                    f"{', '.join(map(str, counts))}")
    models: dict[str, MeasuredModel] = {}
    for row in chosen:
        item = models.setdefault(row.model, MeasuredModel(
            notes=[_NOTE.format(row.instance, processes)], more="a row of batch 1"))
        item.batches.append(BatchProfile(row.batch, mean_ms=row.latency_ms))
        if row.memory_mb is not None:
            item.memory_mb = max(row.memory_mb, item.memory_mb or 0.0)
    for item in models.values():
        item.batches.sort(key=lambda batch: batch.batch)
    return models
