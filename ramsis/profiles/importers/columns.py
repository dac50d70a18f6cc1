"""Declaration of table formats with known columns, and their common reader.

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
from ramsis.profiles.importers.measured import (
    SAMPLE,
    STATISTICS,
    BatchSize,
    MeasuredModel,
    Measurements,
)
from ramsis.profiles.importers.rows import CsvRow, Rows, read_rows


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
        """Return whether a header is of this format."""
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
        variants = Counter(row.cells[self.model] for row in first.values())
        return {name if variants[first[name].cells[self.model]] > 1
                else first[name].text(self.model): model for name, model in models.items()}

    # What a format may say beside its columns.

    def table(self, path: Path) -> Rows:
        """Return the rows of a file."""
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
        """Return accuracies as fractions; use the other unit if all values contradict the unit."""
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
