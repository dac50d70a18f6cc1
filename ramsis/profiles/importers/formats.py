"""Formats of tables that state all that is in them, by their columns.

Unknown columns, invalid cells and repeated statistics are refused with their place. The formats
are in :mod:`~ramsis.profiles.importers.formats`; :mod:`~ramsis.profiles.importers.table` reads
tables with other columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

from ramsis.errors import InputFileError, check_known
from ramsis.numerals import MS
from ramsis.profiles.importers.rows import (
    SAMPLE,
    STATISTICS,
    BatchSize,
    CsvRow,
    MeasuredModel,
    Measurements,
    Rows,
    open_rows,
    read_rows,
)


class ColumnMap:
    """Table format: its columns with their meaning, and the rows that count."""

    model = "model"  # column of the model's name
    batch = "batch"  # column of the batch size
    # statistic that each column of latencies holds; SAMPLE: each row is one sample, or the
    # statistic that its column ``statistic`` names
    times: ClassVar[Mapping[str, str]]
    unit = "ms"  # of the latencies
    required: tuple[str, ...] = ()  # columns that must be there, beside model and batch size
    # columns that may be there, whose names may end in ``*``: ``n``, ``accuracy``, ``task`` and
    # ``statistic`` are read, others say nothing of a profile
    optional: tuple[str, ...] = ()
    accuracy_unit = "fraction"  # of the column ``accuracy``: fraction or percent
    # patterns of columns that tell the format; by default all that must be there
    known_by: tuple[str, ...] = ()
    only_known = True  # whether an unknown column makes it a table of another format
    more: str | None = None  # how to measure a batch size that is missing
    # what is wrong, and what is allowed, where no row counts
    no_rows = "no rows below the header", "a row for each measurement"

    def recognises(self, columns: Collection[str]) -> bool:
        """Return whether the header of a table is of this format."""
        tell = self.known_by or (self.model, self.batch, *self.required)
        known = (self.model, self.batch, *self.times, *self.required, *self.optional)
        return (all(any(re.fullmatch(pattern, column) for column in columns) for pattern in tell)
                and (not self.only_known or all(
                    any(fnmatchcase(column, name) for name in known) for column in columns)))

    def read(self, path: Path) -> dict[str, MeasuredModel]:
        """Return the models of a file, in its order."""
        table = self.table(path)
        self.check_header(table)
        measured = Measurements()
        first: dict[str, CsvRow] = {}
        accuracies: dict[str, float] = {}
        tasks: dict[str, str] = {}
        left_out = 0
        for row in table.rows:
            if not self.counts(row):
                left_out += 1
                continue
            name = self.variant(row)
            if first.setdefault(name, row).cells[self.model] != row.cells[self.model]:
                raise InputFileError(f"{name} is of another model in an earlier row",
                                     where=row.at(self.model), value=row.text(self.model),
                                     allowed=first[name].text(self.model))
            size = measured.of(row, name, row.count(self.batch))
            self.enter(row, size)
            if row.cells.get("n"):
                size.n = row.same("n", size.n, row.count("n"))
            if row.cells.get("accuracy"):
                accuracies[name] = row.same("accuracy", accuracies.get(name),
                                            row.number("accuracy"))
            if row.cells.get("task"):
                tasks[name] = row.same("task", tasks.get(name), row.text("task"))
        if not first:
            raise InputFileError(self.no_rows[0], where=str(path), allowed=self.no_rows[1])
        models = measured.models(path, self.more)
        accuracies, note = self._fractions(accuracies)
        for name, model in models.items():
            model.accuracy, model.task = accuracies.get(name), tasks.get(name)
            model.alias = self.alias(first[name])
            model.notes += [*note, *self.notes(first[name], left_out)]
        # A model with several variants is listed by variant, others by their own name.
        variants = Counter(row.cells[self.model] for row in first.values())
        return {name if variants[first[name].cells[self.model]] > 1
                else first[name].text(self.model): model for name, model in models.items()}

    # What a format may say beside its columns.

    def table(self, path: Path) -> Rows:
        """Read the rows of a CSV file."""
        return read_rows(path)

    def check_header(self, table: Rows) -> None:
        """Refuse a header with unknown columns, or without one that must be there."""
        table.require((self.model, self.batch, *self.required), (*self.times, *self.optional))
        if not set(self.times) & set(table.columns):
            raise InputFileError("no column of latencies", where=f"{table.path}: header",
                                 allowed=f"one or more of {', '.join(self.times)}")

    def counts(self, row: CsvRow) -> bool:
        """Return whether a row is a measurement; refuse one that contradicts itself."""
        return True

    def variant(self, row: CsvRow) -> str:
        """Return the name that distinguishes variants of a model."""
        return row.text(self.model)

    def alias(self, row: CsvRow) -> str | None:
        """Return another name under which a separate file may have the accuracy."""
        return None

    def notes(self, row: CsvRow, left_out: int) -> list[str]:
        """Return notes on a model, for its first row."""
        return []

    def enter(self, row: CsvRow, size: BatchSize) -> None:
        """Enter the latencies of a row, which is the only one of its batch size or a sample."""
        is_one_of_many = SAMPLE in self.times.values()
        if size.first is not row and not is_one_of_many:
            raise InputFileError(
                f"batch size {size.batch} of {size.model} appears twice", where=row.at(self.batch),
                allowed=f"one row (the first is {size.first.place(row.path)})")
        for column, statistic in self.times.items():
            if is_one_of_many and "statistic" in row.cells:
                statistic = row.text("statistic")
                check_known("unknown statistic", statistic, STATISTICS, row.at("statistic"),
                            InputFileError)
            elif is_one_of_many:
                size.add(row, column, statistic, row.positive(column))
                continue
            if row.cells.get(column) or column in self.required:
                size.add(row, column, statistic, row.number(column, MS[self.unit]))

    def _fractions(self, accuracies: dict[str, float]) -> tuple[dict[str, float], list[str]]:
        """Return accuracies as fractions, and a note if all values contradict the stated unit.

        In this case the other unit is used: percent for fraction, and vice versa.
        """
        unit, notes = self.accuracy_unit, []
        if accuracies and unit == "percent" and max(accuracies.values()) <= 1:
            unit, notes = "fraction", ["no accuracy is above 1: taken as fractions"]
        elif accuracies and unit == "fraction" and (
                min(accuracies.values()) > 1 and max(accuracies.values()) <= 100):
            unit, notes = "percent", ["accuracies are above 1: taken as percent"]
        if unit == "percent":
            accuracies = {name: float(Decimal(repr(value)) / 100)
                          for name, value in accuracies.items()}
        return accuracies, notes


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
        """Add the quantiles of a row to the measurements of its batch size."""
        super().enter(row, size)
        size.quantiles_ms = tuple(row.number(name) for name in _quantiles(row.cells))


def _quantiles(columns: Collection[str]) -> list[str]:
    """Return the columns q0_ms, q1_ms, …, as many as ``columns`` has quantiles, at least two."""
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
        """Return the name of the model in a row."""
        return row.text("Model")

    def notes(self, row: CsvRow, left_out: int) -> list[str]:
        """Return notes on what the latencies include, left-out rows and instance counts."""
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
        """Return the name of a model at its image size, such as ``resnet18@160``."""
        size = row.cells.get("infer_img_size")
        return f"{row.text('model')}@{size}" if size else row.text("model")

    alias = variant  # the name under which timm's own results have its accuracy

    def notes(self, row: CsvRow, left_out: int) -> list[str]:
        """Return the note that only mean latencies are known."""
        return ["timm reports no percentile: the mean is the only latency statistic (use "
                "--service mean), and its variation is unknown"]
