"""Formats of tables that state all that is in them, by their columns."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from ramsis.errors import InputFileError
from ramsis.profiles.importers.columns import ColumnMap
from ramsis.profiles.importers.measured import SAMPLE, STATISTICS, BatchSize
from ramsis.profiles.importers.rows import CsvRow, Rows, open_rows, read_rows

MAX_SAMPLES_BYTES = 200_000_000
"""Largest file of samples."""
_OFF = 2.0  # largest factor between timm's time of a step and samples per second, both rounded


class StatsCsv(ColumnMap):
    """Importer of ``stats-csv``: one row per model and batch size, latency statistics in seconds.

    Accuracies are percent, or fractions where none is above 1; those of different tasks do not
    compare.
    """

    times: ClassVar = {f"{name}_s": name for name in STATISTICS}
    unit = "s"
    required = ("p95_s",)
    optional = ("task", "accuracy", "n")
    accuracy_unit = "percent"


class QuantilesCsv(ColumnMap):
    """Importer of ``quantiles-csv``: per model and batch size, latency quantiles in ms.

    ``q0_ms`` … ``q<q-1>_ms`` are at the levels (i + 1/2)/q; mean and percentiles are derived.
    There is no accuracy.
    """

    times: ClassVar = {}
    optional = ("n",)
    known_by = "model", "batch", "q0_ms"
    only_known = False

    def check_header(self, table: Rows) -> None:
        """Refuse quantiles that are not numbered from 0, and other columns."""
        table.require(("model", "batch", *_quantiles(table.columns)), self.optional)

    def enter(self, row: CsvRow, size: BatchSize) -> None:
        """Enter the quantiles of a row."""
        super().enter(row, size)
        size.quantiles_ms = tuple(row.number(name) for name in _quantiles(row.cells))


def _quantiles(columns: Collection[str]) -> list[str]:
    """Return the columns that as many quantiles should have; of two at least."""
    count = sum(re.fullmatch(r"q\d+_ms", column) is not None for column in columns)
    return [f"q{i}_ms" for i in range(max(count, 2))]


class LongCsv(ColumnMap):
    """Importer of ``long-csv``: one row per sample, or one per statistic, latency in ms.

    A column ``statistic`` names the statistic of each row, and ``n`` the samples behind it;
    without it each row is one sample. The file may be large: it is read row by row, and only its
    latencies are kept. Accuracies are fractions, or percent where all are above 1.
    """

    times: ClassVar = {"latency_ms": SAMPLE}
    required = ("latency_ms",)
    optional = ("accuracy", "statistic", "n")

    def table(self, path: Path) -> Rows:
        """Return the rows of a file, to be read one by one."""
        return open_rows(path, MAX_SAMPLES_BYTES)

    def check_header(self, table: Rows) -> None:
        """Refuse also a number of samples beside single samples."""
        super().check_header(table)
        if "n" in table.columns and "statistic" not in table.columns:
            raise InputFileError("a number of samples, though each row is one sample",
                                 where=f"{table.path}: header", value="n",
                                 allowed="a column statistic, or no n")


class ModelAnalyzer(ColumnMap):
    """Importer of ``model-analyzer``: the inference table that Triton Model Analyzer exports.

    Its columns are chosen by the user (``inference_output_fields``), under fixed headers. A row at
    concurrency 1 has one request of its batch size in flight, so that its latency is the service
    time, with the way to the server and back. Other rows, and those at a request rate, are left
    out, since waiting is in their latencies. Several models measured at once are refused: nobody
    knows the latency of one of them alone. Configurations of a model (instances, largest batch)
    are models of their own, which take the accuracy of either name. Rows that do not satisfy the
    user's constraints are as good as any. There is no accuracy.
    """

    model, batch = "Model", "Batch"
    times: ClassVar = {"Avg Latency (ms)": "mean", "p90 Latency (ms)": "p90",
                       "p95 Latency (ms)": "p95", "p99 Latency (ms)": "p99"}
    required = ("Concurrency",)
    optional = (
        "Request Rate", "Model Config Path", "Instance Group", "Max Batch Size",
        "Satisfies Constraints", "Throughput (infer/sec)", "Response Wait Time (ms)",
        "Client Send/Recv (ms)", "Server Queue time (ms)", "Server Compute Input time (ms)",
        "Server Compute Infer time (ms)", "Server Compute Output time (ms)", "RAM Usage (MB)",
        "Max RAM Usage (MB)", "RAM Available (MB)", "Max RAM Available (MB)",
        "backend_parameter/*")
    known_by = "Model", "Batch"
    more = "a run of Model Analyzer with that batch size"
    no_rows = ("no row at concurrency 1; at others, waiting is in the latency",
               "a run with concurrency 1 for every batch size")

    def counts(self, row: CsvRow) -> bool:
        """Return whether one request was in flight at a time, to one model."""
        if "," in row.text("Model"):
            raise InputFileError(
                "several models were measured at once, so the latency of none of them alone "
                "is known", where=row.at("Model"), value=row.text("Model"),
                allowed="one model per row")
        at_rate = not row.cells["Concurrency"] and row.cells.get("Request Rate")
        return not at_rate and row.count("Concurrency") == 1

    def variant(self, row: CsvRow) -> str:
        """Return the model's configuration; of an ensemble without those of its parts."""
        return (row.cells.get("Model Config Path") or row.text("Model")).partition(":")[0]

    def alias(self, row: CsvRow) -> str:
        """Return the model's name."""
        return row.text("Model")

    def notes(self, row: CsvRow, left_out: int) -> list[str]:
        """Say whose latencies these are, what was left out, and how many instances there were."""
        notes = ["latencies are as a client sees them, rounded to 0.1 ms"]
        if left_out:
            notes.append("rows with several requests in flight or a request rate, left out: "
                         f"{left_out}")
        if row.cells.get("Instance Group"):
            notes.append(f"{self.variant(row)}: instance group {row.cells['Instance Group']}")
        return notes


class Timm(ColumnMap):
    """Importer of ``timm``: results of timm's ``benchmark.py``, a file or a folder of such files.

    A run measures one batch size per model, 256 unless asked otherwise, while a profile needs
    batch size 1, and others to batch at all. Run it once for each (``benchmark.py --batch-size
    1``, then 2, 4, …) and import the folder, or one file with all the rows. Very old versions of
    the script wrote seconds; a time that does not fit the samples per second is refused. There is
    no percentile, so profiles made so have the mean alone: they serve with ``--service mean``, and
    what is promised then holds for latencies that do not vary.

    A model that was measured at several image sizes becomes several, ``resnet18@160`` and
    ``resnet18@224``. There is no accuracy; timm's own results file is one of the kinds that
    :func:`~ramsis.profiles.importers.accuracy.read_accuracy` takes, and counts at the image size
    at which latency was measured.
    """

    batch = "infer_batch_size"
    times: ClassVar = {"infer_step_time": "mean"}
    required = ("infer_step_time", "infer_samples_per_sec")
    optional = (
        "infer_img_size", "infer_gmacs", "infer_macts", "param_count", "train_samples_per_sec",
        "train_step_time", "train_fwd_time", "train_bwd_time", "train_opt_time",
        "train_batch_size", "train_img_size")
    known_by = "model", r"(infer|train)_(step_time|samples_per_sec).*"
    only_known = False
    more = "also benchmark.py --batch-size 1, its results in the same folder or file"

    def table(self, path: Path) -> Rows:
        """Return the rows of a file, or of all CSV files of a folder."""
        tables = [read_rows(file) for file in (
            sorted(path.glob("*.csv")) if path.is_dir() else [path])]
        if not tables:
            raise InputFileError("no CSV file in this folder", where=str(path),
                                 allowed="results of timm's benchmark.py")
        for table in tables:
            self.check_header(table)
        return Rows(str(path), tables[0].columns, [row for table in tables for row in table.rows])

    def counts(self, row: CsvRow) -> bool:
        """Refuse a time that is not the ms of a batch, by the samples per second."""
        expected_ms = 1000.0 * row.count(self.batch) / row.positive("infer_samples_per_sec")
        step_ms = row.positive("infer_step_time")
        if not expected_ms / _OFF <= step_ms <= _OFF * expected_ms:
            raise InputFileError(
                "does not fit infer_samples_per_sec, so it is not the ms of a batch",
                where=row.at("infer_step_time"), value=step_ms, allowed=f"about {expected_ms:.4g}")
        return True

    def variant(self, row: CsvRow) -> str:
        """Return the model at its image size."""
        size = row.cells.get("infer_img_size")
        return f"{row.text('model')}@{size}" if size else row.text("model")

    alias = variant  # the name under which timm's own results have its accuracy

    def notes(self, row: CsvRow, left_out: int) -> list[str]:
        """Say that the mean is all there is."""
        return ["timm reports no percentile: the mean is the only latency statistic (use "
                "--service mean), and its variation is unknown"]
