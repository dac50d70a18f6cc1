"""What importers share: CSV rows that know their place, and exact unit conversion."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TextIO, TypeVar

from ramsis import files
from ramsis.errors import InputFileError, check_known
from ramsis.numerals import decimal_number, whole_number
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.values import MAX_MODELS, ProfileError, placed, positive

_LONGEST_LINE = 1 << 20
QUANTILES = 128
"""Of samples, that profiles keep."""
_Value = TypeVar("_Value", float, str)


@dataclass
class Measured:
    """What a source holds of one model."""

    batches: list[BatchProfile] = field(default_factory=list)
    accuracy: float | None = None  # A fraction
    # what the accuracy is about; accuracies of different tasks do not compare
    task: str | None = None
    alias: str | None = None  # another name under which a separate file may have the accuracy
    # what a reader of the profile has to know: what was left out, what is missing
    notes: list[str] = field(default_factory=list)
    more: str | None = None  # how to measure a batch size that is missing
    # memory_mb, load_ms: memory of the loaded model, and the time to load it
    memory_mb: float | None = None
    load_ms: float | None = None
    padded: int | None = None  # least batch size of a model that pads smaller batches


def check_number(models: Collection[str], path: Path | str) -> None:
    """Refuse more models than a profile set may have, before time is spent on each."""
    if len(models) > MAX_MODELS:
        raise InputFileError("too many models", where=str(path), value=len(models),
                             allowed=f"at most {MAX_MODELS}")


def read_text(path: Path) -> str:
    """The UTF-8 text (UTF-16 with its mark) of a file of at most :data:`MAX_FILE_BYTES`."""
    content = files.read_bytes(path)
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise files.not_utf8(path) from error
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
        """The place of a cell."""
        return f"{self.path}: line {self.line}, {column}"

    def text(self, column: str) -> str:
        """The cell, which must not be empty or hold control characters."""
        value = self.cells.get(column, "")
        if not value:
            raise InputFileError("cell is empty", where=self.at(column))
        if not value.isprintable():
            raise InputFileError("not a text", where=self.at(column), value=value,
                                 allowed="a text without control characters")
        return value

    def number(self, column: str, factor: str = "1") -> float:
        """The cell as a number times ``factor``, exact in decimal."""
        text = self.text(column)
        try:
            decimal_number(text)  # stricter than Decimal about what a number is
            return float(Decimal(text) * Decimal(factor))
        except (ArithmeticError, ValueError) as error:
            raise InputFileError("not a number", where=self.at(column), value=text) from error

    def optional(self, column: str, factor: str = "1") -> float | None:
        """As :meth:`number`, and None where the column is absent or the cell empty."""
        return self.number(column, factor) if self.cells.get(column, "") else None

    def count(self, column: str) -> int:
        """The cell as a whole number."""
        try:
            return whole_number(self.text(column))
        except ValueError as error:
            raise InputFileError("not a whole number", where=self.at(column),
                                 value=self.text(column)) from error

    def positive(self, column: str) -> float:
        """The cell as a finite number > 0."""
        try:
            return positive(self.number(column), column, "value")
        except ProfileError as error:
            raise InputFileError(error.at(self.at(column))) from error

    def same(self, column: str, before: _Value | None, value: _Value | None) -> _Value | None:
        """What rows of one model agree on: ``before``, or ``value`` where that was None."""
        if before is not None and value is not None and before != value:
            raise InputFileError(f"differs from the {column} of an earlier row of this model",
                                 where=self.at(column), value=self.text(column),
                                 allowed="one per model")
        return value if before is None else before

    def batch_profile(
        self, values: dict[str, float | None], quantiles_ms: tuple[float, ...] | None = None,
        column: str = "batch",
    ) -> BatchProfile:
        """The batch profile of this row (its batch size in ``column``; ``n`` where present)."""
        n = self.count("n") if self.cells.get("n") else None
        batch = self.count(column)
        with placed(self.at):
            return BatchProfile(batch, n, quantiles_ms=quantiles_ms, **values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Rows:
    """The rows of a CSV file."""

    path: str
    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]

    def require(self, columns: Iterable[str], known: Sequence[str]) -> None:
        """Refuse a file that lacks one of ``columns`` or has one that is not ``known``."""
        for column in self.columns:
            check_known("unknown column or unit", column, known, f"{self.path}: header",
                        InputFileError)
        for column in columns:
            if column not in self.columns:
                raise InputFileError("missing column", where=f"{self.path}: header", value=column,
                                     allowed=", ".join(known))


def open_rows(
    path: Path, most_bytes: int
) -> tuple[tuple[str, ...], Generator[CsvRow, None, None]]:
    """The columns of a comma-separated file with a header line, and its rows one by one."""
    rows = _streamed(path, most_bytes)
    try:
        first = next(rows)
    except StopIteration:
        raise InputFileError("file is empty", where=str(path)) from None
    return tuple(first.cells), rows


def _streamed(path: Path, most_bytes: int) -> Generator[CsvRow, None, None]:
    """The header as a row, and the rows."""
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
        raise files.not_utf8(path) from error


def _lines(file: TextIO, path: Path, most_bytes: int) -> Iterator[str]:
    """The lines of a file of which not even the size may be known, as that of a device."""
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
    """The header as a row, and the rows, of lines of comma-separated values."""
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
    """The rows of a comma-separated file with a header line and one row or more."""
    header, *rows = _parsed(path, read_text(path).splitlines(keepends=True))
    if not rows:
        raise InputFileError("no rows below the header", where=str(path))
    return Rows(str(path), tuple(header.cells), tuple(rows))
