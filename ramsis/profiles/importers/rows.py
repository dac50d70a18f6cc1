"""Shared helpers of importers: CSV rows with their place, and exact unit conversion."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TextIO, TypeVar

from ramsis import files
from ramsis.errors import InputFileError, check_known
from ramsis.numerals import decimal_number, whole_number
from ramsis.profiles.values import ProfileError, positive

_LONGEST_LINE = 1 << 20
_Value = TypeVar("_Value", int, float, str)


def read_text(path: Path) -> str:
    """Read the UTF-8 text (UTF-16 with its mark) of a file of at most :data:`MAX_FILE_BYTES`."""
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
        """Return the place of a cell, for messages."""
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
        """Return a cell as a whole number."""
        try:
            return whole_number(self.text(column))
        except ValueError as error:
            raise InputFileError("not a whole number", where=self.at(column),
                                 value=self.text(column)) from error

    def positive(self, column: str) -> float:
        """Return a cell as a finite number > 0."""
        try:
            return positive(self.number(column), column, "value")
        except ProfileError as error:
            raise InputFileError(error.at(self.at(column))) from error

    def same(self, column: str, before: _Value | None, value: _Value) -> _Value:
        """Check that a value equals that of earlier rows, if any, and return it."""
        if before is not None and before != value:
            raise InputFileError(f"differs from the {column} of an earlier row of this model",
                                 where=self.at(column), value=self.text(column),
                                 allowed="one per model")
        return value


@dataclass(frozen=True)
class Rows:
    """The rows of a CSV file."""

    path: str
    columns: tuple[str, ...]
    rows: Iterable[CsvRow]  # read from the file when they are asked for, where it is large

    def require(self, columns: Iterable[str], others: Iterable[str] = ()) -> None:
        """Refuse a header that lacks one of the columns, or has one that is not among the others.

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
        raise files.not_utf8(path) from error


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
