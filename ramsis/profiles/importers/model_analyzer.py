"""Importer of ``model-analyzer``: the inference table that Triton Model Analyzer exports.

Its columns are chosen by the user (``inference_output_fields``), under fixed headers with the
unit in them. Of these ``Model``, ``Batch``, ``Concurrency`` and one or more of ``Avg Latency
(ms)``, ``p90 Latency (ms)``, ``p95 Latency (ms)``, ``p99 Latency (ms)`` are needed; the other
documented ones are known and passed over. What becomes of the rows:

- several models measured at once: refused, since nobody knows the latency of one of them alone;
- concurrency 1: one request of that batch size in flight, so that its latency is the service
  time, with the way to the server and back;
- more than one request in flight, or a fixed request rate: left out, since waiting is in the
  latency; the notes count them;
- several configurations of a model (instances, largest batch): each is a model of its own under
  the configuration's name, and takes the accuracy of either name. The number of instances does
  not matter at concurrency 1, and is noted;
- constraints not satisfied: kept, since the measurement is as good as any.

A statistic that is not in the file is not in the profile either. There is no accuracy.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ramsis.errors import InputFileError
from ramsis.profiles.importers.rows import CsvRow, Measured, read_rows

_LATENCIES = {"Avg Latency (ms)": "mean_ms", "p90 Latency (ms)": "p90_ms",
              "p95 Latency (ms)": "p95_ms", "p99 Latency (ms)": "p99_ms"}
_REQUIRED = ("Model", "Batch", "Concurrency")
_PASSED_OVER = (
    "Request Rate", "Model Config Path", "Instance Group", "Max Batch Size",
    "Satisfies Constraints", "Throughput (infer/sec)", "Response Wait Time (ms)",
    "Client Send/Recv (ms)", "Server Queue time (ms)", "Server Compute Input time (ms)",
    "Server Compute Infer time (ms)", "Server Compute Output time (ms)", "RAM Usage (MB)",
    "Max RAM Usage (MB)", "RAM Available (MB)", "Max RAM Available (MB)",
)
_BACKEND = "backend_parameter/"


def recognises(columns: Collection[str]) -> bool:
    """Whether a header is of this format."""
    known = {*_REQUIRED, *_LATENCIES, *_PASSED_OVER}
    return {"Model", "Batch"} <= set(columns) and all(
        column in known or column.startswith(_BACKEND) for column in columns)


def read(path: Path) -> dict[str, Measured]:
    """The models of a file, in its order."""
    table = read_rows(path)
    backend = [column for column in table.columns if column.startswith(_BACKEND)]
    table.require(_REQUIRED, (*_REQUIRED, *_LATENCIES, *_PASSED_OVER, *backend))
    if not set(table.columns) & set(_LATENCIES):
        raise InputFileError("no column of latencies", where=f"{path}: header",
                             allowed=f"one or more of {', '.join(_LATENCIES)}")
    for row in table.rows:
        _refuse_several(row)
    alone = [row for row in table.rows if _alone(row)]
    if not alone:
        raise InputFileError("no row at concurrency 1; at others, waiting is in the latency",
                             where=f"{path}: Concurrency",
                             allowed="a run with concurrency 1 for every batch size")
    return _models(alone, len(table.rows) - len(alone))


def _refuse_several(row: CsvRow) -> None:
    if "," in row.text("Model"):
        raise InputFileError(
            "several models were measured at once, so the latency of none of them alone "
            "is known", where=row.at("Model"), value=row.text("Model"),
            allowed="one model per row")


def _alone(row: CsvRow) -> bool:
    """Whether one request was in flight at a time."""
    if not row.cells["Concurrency"] and row.cells.get("Request Rate"):
        return False
    return row.count("Concurrency") == 1


def _models(rows: list[CsvRow], left_out: int) -> dict[str, Measured]:
    configurations: dict[str, set[str]] = {}
    for row in rows:
        configurations.setdefault(row.text("Model"), set()).add(_configuration(row))
    models: dict[str, Measured] = {}
    lines: dict[tuple[str, int], int] = {}
    for row in rows:
        model = row.text("Model")
        name = _configuration(row) if len(configurations[model]) > 1 else model
        batch = row.count("Batch")
        if (name, batch) in lines:
            raise InputFileError(f"batch size {batch} of {name} appears twice",
                                 where=row.at("Batch"),
                                 allowed=f"one row (the first is line {lines[name, batch]})")
        lines[name, batch] = row.line
        if name not in models:
            models[name] = Measured(alias=model, notes=_notes(row, left_out),
                                    more="a run of Model Analyzer with that batch size")
        values = {field: row.optional(column) for column, field in _LATENCIES.items()}
        models[name].batches.append(row.batch_profile(values, column="Batch"))
    return models


def _configuration(row: CsvRow) -> str:
    """Name of the model's configuration (of an ensemble, without those of its parts)."""
    path = row.cells.get("Model Config Path") or row.text("Model")
    return path.partition(":")[0]


def _notes(row: CsvRow, left_out: int) -> list[str]:
    notes = ["latencies are as a client sees them, rounded to 0.1 ms"]
    if left_out:
        notes.append(f"rows with several requests in flight or a request rate, left out: "
                     f"{left_out}")
    if row.cells.get("Instance Group"):
        notes.append(f"{_configuration(row)}: instance group {row.cells['Instance Group']}")
    return notes
