"""Shared helpers of importers: CSV rows with their place, units, and models from rows."""

from __future__ import annotations

import csv
import os
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TextIO, TypeVar

from ramsis import files
from ramsis.errors import POSITIVE, InputFileError, check_known
from ramsis.numerals import decimal_number, whole_number
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.sized import SizedTimes
from ramsis.profiles.values import MAX_MODELS, placed

STATISTICS = ("mean", "std", "min", "p50", "p90", "p95", "p99", "max")
SAMPLE = "sample"
"""In the place of a statistic: each latency is a sample."""
LATENCY = "latency"
"""Likewise, where no heading names a statistic: one latency is the mean, several are samples."""
QUANTILES = 128
"""Quantiles of samples that profiles keep."""

_LONGEST_LINE = 1 << 20
_Value = TypeVar("_Value", int, float, str)


def read_text(path: Path) -> str:
    """Read the UTF-8 text (UTF-16 with its mark) of a file of at most :data:`MAX_FILE_BYTES`."""
    content = files.read_bytes(path)
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise files.not_utf8(path, error) from error
    if not text.strip():
        raise InputFileError("file is empty", where=str(path),
                             allowed="a header and a row for each measurement")
    return text


@dataclass(frozen=True)
class CsvRow:
    """One row of a CSV file: its cells by column, and its place for messages."""

    path: str
    line: int
    cells: dict[str, str]

    def at(self, column: str) -> str:
        """Return file, line and column of a cell, for messages."""
        return f"{self.path}: line {self.line}, {column}"

    def place(self, path: str) -> str:
        """Return the place of the row, for a message about another row of a file."""
        return f"line {self.line}" if path == self.path else f"{self.path}: line {self.line}"

    def text(self, column: str) -> str:
        """Return the text of a cell, which must not be empty or hold control characters."""
        value = self.cells.get(column, "")
        if not value:
            raise InputFileError("cell is empty", where=self.at(column))
        if not value.isprintable():
            raise InputFileError("not a text", where=self.at(column), value=value,
                                 allowed="a text without control characters")
        return value

    def number(self, column: str, factor: str = "1") -> float:
        """Return a cell as a number times ``factor``, exact in decimal."""
        text = self.text(column)
        try:
            value = decimal_number(text)  # stricter than Decimal about what a number is
            return value if factor == "1" else float(Decimal(text) * Decimal(factor))
        except (ArithmeticError, ValueError) as error:
            raise InputFileError("not a number", where=self.at(column), value=text) from error

    def count(self, column: str) -> int:
        """Return the value of a cell as a whole number."""
        try:
            return whole_number(self.text(column))
        except ValueError as error:
            raise InputFileError("not a whole number", where=self.at(column),
                                 value=self.text(column)) from error

    def positive(self, column: str) -> float:
        """Return a cell as a finite number > 0."""
        return POSITIVE.required(self.at(column), self.number(column), "value is not positive",
                                 InputFileError)

    def same(self, column: str, before: _Value | None, value: _Value) -> _Value:
        """Check that a value equals that of earlier rows, if any, and return it."""
        if before is not None and before != value:
            raise InputFileError(f"differs from the {column} of an earlier row of this model",
                                 where=self.at(column), value=self.text(column),
                                 allowed="one per model")
        return value


@dataclass(frozen=True)
class Rows:
    """Rows of a CSV file, with its name and header for messages."""

    path: str
    columns: tuple[str, ...]
    rows: Iterable[CsvRow]  # read from the file when they are asked for, where it is large

    def require(self, columns: Iterable[str], others: Iterable[str] = ()) -> None:
        """Refuse a header without one of ``columns``, or with a column in neither argument.

        Names of ``others`` may end in ``*``.
        """
        required = tuple(columns)
        known = tuple(dict.fromkeys((*required, *others)))
        for column in self.columns:
            if not any(fnmatchcase(column, name) for name in known):
                check_known("unknown column or unit", column, known, f"{self.path}: header",
                            InputFileError)
        for column in required:
            if column not in self.columns:
                raise InputFileError("missing column", where=f"{self.path}: header", value=column,
                                     allowed=", ".join(known))


def read_columns(path: Path, most_bytes: int) -> tuple[str, ...]:
    """Read only the header of a comma-separated file, and return its columns."""
    rows = _streamed(path, most_bytes)
    header = next(rows, None)
    rows.close()
    if header is None:
        raise InputFileError("file is empty", where=str(path))
    return tuple(header.cells)


def open_rows(path: Path, most_bytes: int) -> Rows:
    """Return the rows of a comma-separated file with a header, to be read one by one."""
    columns = read_columns(path, most_bytes)
    return Rows(str(path), columns, islice(_streamed(path, most_bytes), 1, None))


def _streamed(path: Path, most_bytes: int) -> Generator[CsvRow, None, None]:
    """Yield the header as a row, and the rows, read one by one."""
    try:
        if os.stat(path).st_size > most_bytes:
            raise InputFileError(
                "file is too large", where=str(path),
                allowed=f"at most {most_bytes} bytes ({most_bytes // 1_000_000} MB)")
        with open(path, encoding="utf-8-sig", newline="") as file:
            yield from _parsed(path, _lines(file, path, most_bytes))
    except OSError as error:
        raise InputFileError(f"cannot read file ({error.strerror})", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise files.not_utf8(path, error) from error


def _lines(file: TextIO, path: Path, most_bytes: int) -> Iterator[str]:
    """Yield the lines of a file; refuse one of too many bytes, also where its size is unknown."""
    taken = 0
    while text := file.readline(_LONGEST_LINE):
        taken += len(text)
        if taken > most_bytes or len(text) == _LONGEST_LINE:
            what = "file" if taken > most_bytes else "line"
            raise InputFileError(
                f"{what} is too large", where=str(path),
                allowed=f"files of at most {most_bytes // 1_000_000} MB with lines of at "
                "most 1 MB")
        yield text


def _parsed(path: Path, lines: Iterable[str]) -> Generator[CsvRow, None, None]:
    """Parse lines of comma-separated values; yield the header as a row, and the rows."""
    columns: tuple[str, ...] = ()
    reader = csv.reader(lines, strict=True)
    try:
        for cells in reader:
            values = tuple(cell.strip() for cell in cells)
            if not values:
                continue
            if not columns:
                columns = values
                for column, count in Counter(columns).items():
                    if count > 1:
                        raise InputFileError("column appears twice", where=f"{path}: header",
                                             value=column)
            elif len(values) != len(columns):
                raise InputFileError("wrong number of cells", where=f"{path}: line "
                                     f"{reader.line_num}", value=len(values),
                                     allowed=str(len(columns)))
            yield CsvRow(str(path), reader.line_num, dict(zip(columns, values, strict=True)))
    except csv.Error as error:
        raise InputFileError(f"not valid CSV ({error})",
                             where=f"{path}: line {reader.line_num}") from error


def read_rows(path: Path) -> Rows:
    """Return the rows of a comma-separated file with a header and one row or more."""
    header, *rows = _parsed(path, read_text(path).splitlines(keepends=True))
    if not rows:
        raise InputFileError("no rows below the header", where=str(path))
    return Rows(str(path), tuple(header.cells), tuple(rows))


@dataclass
class MeasuredModel:
    """Measurements of one model, as an importer collects them from a file."""

    batches: list[BatchProfile] = field(default_factory=list)
    accuracy: float | None = None  # a fraction
    # what the accuracy is about; accuracies of different tasks do not compare
    task: str | None = None
    alias: str | None = None  # another name under which a separate file may have the accuracy
    # what a reader of the profile has to know: what was left out, what is missing
    notes: list[str] = field(default_factory=list)
    more: str | None = None  # how to measure a batch size that is missing
    memory_mb: float | None = None  # of the loaded model
    load_ms: float | None = None  # time to load it
    padded: int | None = None  # least batch size of a model that pads smaller batches
    sized: SizedTimes | None = None  # times by count and size; ``batches`` have the largest size


def check_number(models: Collection[str], path: Path | str) -> None:
    """Refuse more models than a profile set may have, before time is spent on each."""
    if len(models) > MAX_MODELS:
        raise InputFileError("too many models", where=str(path), value=len(models),
                             allowed=f"at most {MAX_MODELS}")


@dataclass
class BatchSize:
    """Latencies of one model at one batch size."""

    model: str
    batch: int
    first: CsvRow  # the first row that is about it
    # how rows that collide may be told apart; empty where nothing tells
    advice: Callable[[], str] = str
    # latencies in ms by statistic, and the place of the first: its row and column
    times_ms: dict[str, tuple[array[float], CsvRow, str]] = field(default_factory=dict)
    quantiles_ms: tuple[float, ...] | None = None
    n: int | None = None  # number of samples behind the statistics

    def add(self, row: CsvRow, column: str, statistic: str, time_ms: float) -> None:
        """Enter a latency: a statistic, which may be stated once, or a sample."""
        if statistic not in self.times_ms:
            self.times_ms[statistic] = array("d"), row, column
        elif statistic in STATISTICS:
            first = self.times_ms[statistic][1].place(row.path)
            raise InputFileError(
                f"{statistic} of {self.model} at batch size {self.batch} appears twice",
                where=row.at(column), value=row.cells[column],
                allowed=f"once (the first is {first}){self.advice()}")
        self.times_ms[statistic][0].append(time_ms)

    def profile(self) -> BatchProfile:
        """Return the profile; refuse a value that it cannot hold at its place in the file."""
        with placed(self._place):
            for statistic in (SAMPLE, LATENCY):
                samples_ms = self.times_ms[statistic][0] if statistic in self.times_ms else ()
                if len(samples_ms) > 1 or (samples_ms and statistic == SAMPLE):
                    return BatchProfile.from_samples(self.batch, samples_ms, QUANTILES)
            statistics_ms = {f"{'mean' if statistic == LATENCY else statistic}_ms": times_ms[0]
                             for statistic, (times_ms, _, _) in self.times_ms.items()}
            return BatchProfile(self.batch, self.n, quantiles_ms=self.quantiles_ms,
                                **statistics_ms)  # type: ignore[arg-type]

    def _place(self, field: str) -> str:
        """Return the place of the cell from which a field of the profile was read."""
        statistic = field.removesuffix("_ms")
        if statistic not in self.times_ms and (field == "mean_ms" or field.startswith("samples")):
            statistic = SAMPLE if SAMPLE in self.times_ms else LATENCY
        _, row, column = self.times_ms.get(statistic, (None, self.first, field))
        return row.at(column)


class Measurements:
    """Latencies by model and batch size, collected from rows in any order."""

    def __init__(self, advice: Callable[[], str] = str) -> None:
        self._advice = advice
        self.sizes: dict[str, dict[int, BatchSize]] = {}

    def of(self, row: CsvRow, model: str, batch: int) -> BatchSize:
        """Return the collected latencies of a model at a batch size, for a row."""
        sizes = self.sizes.setdefault(model, {})
        if batch not in sizes:
            sizes[batch] = BatchSize(model, batch, row, self._advice)
        return sizes[batch]

    def models(self, path: Path, more: str | None = None) -> dict[str, MeasuredModel]:
        """Return the profiles of all models, in the order of their first rows."""
        check_number(self.sizes, path)
        return {model: MeasuredModel([size.profile() for size in sizes.values()], more=more)
                for model, sizes in self.sizes.items()}
