"""Importer of ``table``: measurements as people have them, in CSV, TSV, Markdown or JSON.

A row is a model at a batch size with its statistics, one statistic, or one sample; batch sizes or
models may also stand side by side as columns. Names and units are taken from the headings
(:mod:`~ramsis.profiles.importers.table.headings`), else from the cells, else from the user's
options. The profile's first note lists the recognised columns; an unknown unit is an error.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.logs.sizes import unit_of_size
from ramsis.numerals import MS
from ramsis.profiles.importers.rows import LATENCY, CsvRow, MeasuredModel, Measurements
from ramsis.profiles.importers.runs import Given
from ramsis.profiles.importers.table.grid import Grid, looks_like_json, read_grid
from ramsis.profiles.importers.table.headings import (
    MB,
    DecimalMark,
    Heading,
    is_missing,
    nearest,
    read_heading,
    split_unit,
)
from ramsis.profiles.importers.table.layout import TIMES, Layout, layout_of, shown
from ramsis.profiles.importers.table.sizes import Entry, SizedRows
from ramsis.profiles.sized import Law

__all__ = ["holds_measurements", "looks_like_json", "read"]

_INSTANT = re.compile(r"time_?stamp|date|arriv|_at$")
_FIRST_ROWS = 20
_MOST_SHOWN = 50  # names or cells in a note: notes are kept for each model
_PERCENT = {"%": "percent", "pct": "percent"}
_ACCURACY_UNITS = {**_PERCENT, "percentage": "percent", "ratio": "fraction"}
_OF_TOOLS = {"inferences/second": ("us", "perf_analyzer"), "hd15iqr": ("s", "pytest-benchmark")}
"""Columns that only one tool writes: the unit of its times, and its name."""


def holds_measurements(path: Path) -> bool:
    """Return whether a file has a column that is known, so that it may be read as a table."""
    try:
        return any(_known(column) for column in read_grid(path, _known).columns)
    except InputFileError:
        return False


def _known(text: str) -> bool:
    heading = read_heading(text)
    return bool(heading.field) and not text.strip().isdecimal()


def read(path: Path, given: Given) -> dict[str, MeasuredModel]:
    """Return the models of a file, in its order.

    ``given`` has the user's options: columns of fields, units that no heading states, and model
    and batch size of a table without such columns.
    """
    named = set(given.columns.values())
    grid = read_grid(path, lambda text: text in named or _known(text))
    return _Reader(path, grid, given, layout_of(path, grid, given.columns)).models()


def _whole(text: str) -> int | None:
    """Return a whole number >= 1, which may have zeros after the point; None for other texts."""
    whole, _, decimals = text.partition(".")
    return int(whole) if (whole.isascii() and whole.isdecimal() and len(whole) < 10
                          and int(whole) > 0 and not decimals.strip("0")) else None


@dataclass
class _Reader:
    """Reader of the rows of a table whose layout is known."""

    path: Path
    grid: Grid
    given: Given
    layout: Layout
    notes: list[str] = field(default_factory=list)
    unknown_statistics: dict[str, None] = field(default_factory=dict)  # in the order of the rows
    other_units = 0  # cells that state another unit than their column

    def __post_init__(self) -> None:
        layout = self.layout
        if not layout.times:
            self._no_column("latency", "mean, p50, p95, p99 or latency")
        self.model = self._of_all_rows(self.given.model)
        self.batch = self._of_all_rows(self.given.batch)
        # Options and columns must not both state model or batch size.
        for name, option, value in (("model", "--model-name", self.model),
                                    ("batch", "--batch", self.batch)):
            if name in layout.fields and value is not None:
                raise InvalidValueError(
                    f"the table has it in column {layout.fields[name].column}", where=option,
                    value=value, allowed="no such option here")
        by_size = layout.times[0].batch is not None  # a column for each batch size
        if "batch" not in layout.fields and not by_size and self.batch is None:
            self._no_column("batch", "--batch N where all rows have one batch size")
        if "model" not in layout.fields and not layout.by_model and self.model is None:
            # The file's name is the model only if nothing suggests that rows are of several
            # models.
            near = nearest("model", list(layout.left_out))
            if near is not None or (len(self.grid.rows) > 1 and not by_size and (
                    self.batch is not None)):
                self._no_column("model", "a column of models, or --model-name NAME")
            self.model = self.path.stem
            self.notes.append(f"no column of models: taken as {self.path.stem}, as the file is "
                              "called (--model-name gives another)")
        if self.given.metric is not None:
            raise InvalidValueError("a table has no histograms", where="--metric",
                                    value=self.given.metric, allowed="--column")
        self.units = self._units_row()
        numeric = [layout.fields[name] for name in ("accuracy", "memory", "load")
                   if name in layout.fields]
        self.decimal = DecimalMark(
            (row.cells[heading.column] for row in self.grid.rows
             for heading in (*layout.times, *numeric)), self.grid.separator)
        self.tool = next((_OF_TOOLS[column.lower()] for column in self.grid.columns
                          if column.lower() in _OF_TOOLS), None)
        self.factors = [self._stated_factor(heading) for heading in layout.times]

    def _of_all_rows(self, patterns: Mapping[str, object]) -> str | None:
        """Return the value of the first pattern that this file's name fits; None if none does."""
        return next((str(value) for pattern, value in patterns.items()
                     if fnmatchcase(self.path.name, pattern)), None)

    def _no_column(self, name: str, wanted: str) -> NoReturn:
        """Refuse a table without a column for a field; suggest the column of the nearest name."""
        taken = {heading.column for heading in self.layout.fields.values()}
        free = [column for column in self.grid.columns
                if column not in taken and self._may_hold(column, name)]
        fields = TIMES if name == "latency" else (name,)
        near = next(filter(None, (nearest(field, free) for field in fields)), None)
        likely = next((field for field in fields if near is not None and nearest(field, [near])),
                      "mean") if name == "latency" else name
        option = shlex.quote(f"{likely}={near or 'NAME'}")
        advice = f"--column {option}{f' ({near} is the nearest)' if near else ''}, or "
        if name == "latency" and any("throughput" in column.lower() for column in free):
            wanted += " (of batches one after the other the mean is batch / throughput)"
        raise InputFileError(f"cannot tell which column holds {shown(name)}",
                             where=f"{self.path}: header", value=", ".join(self.grid.columns),
                             allowed=advice + wanted)

    def _may_hold(self, column: str, name: str) -> bool:
        """Return whether the first cells of a column fit a field."""
        if name == "model":
            return True
        cells = [split_unit(row.cells[column])[0] for row in self.grid.rows[:_FIRST_ROWS]
                 if not is_missing(row.cells[column])]
        if _INSTANT.search(column.lower()) or not cells:
            return False
        return all(cell.isdecimal() and int(cell[:9]) > 0 if name == "batch" else
                   cell[:1].isdecimal() or cell[:1] in ".," for cell in cells)

    def _units_row(self) -> dict[str, str]:
        """Return units by column if the first row has units instead of values; remove this row."""
        first = self.grid.rows[0]
        cells = {column: text.strip("()[] ").lower() for column, text in first.cells.items()}
        named = {column: text for column, text in cells.items()
                 if text in MS or text in MB or text in ("%", "percent", "fraction")}
        if not named or any(text for column, text in cells.items()
                            if column not in named and not is_missing(text)):
            return {}
        self.grid = replace(self.grid, rows=self.grid.rows[1:])
        return named

    def _stated_factor(self, heading: Heading) -> tuple[str, str] | None:
        """Return unit and factor to ms of a column; None if each cell states its own unit.

        The unit is that of the heading, the row of units or the comments; or else that of the
        user, of the names of statistics, or of the tool that writes such columns.
        """
        unit = heading.unit or self.units.get(heading.column, "") or self.grid.unit
        by_user = self.given.unit or unit
        if unit and MS[unit] != MS[by_user]:
            raise InvalidValueError(f"the column {heading.column} states another unit, {unit}",
                                    where="--unit", value=by_user, allowed=f"{unit}, or no --unit")
        if unit or by_user:
            return unit or by_user, MS[unit or by_user]
        if "unit" in self.layout.fields:
            return None
        statistic = self.layout.fields.get("statistic")
        if statistic is not None:  # as p95_ms
            names = [read_heading(row.cells[statistic.column]) for row in self.grid.rows]
            units = {name.unit for name in names if name.field in TIMES}
            if len(units) == 1 and (unit := units.pop()):
                return f"{unit}, as {statistic.column} says", MS[unit]
        if self.tool is not None:
            unit, tool = self.tool
            return f"{unit}, as {tool} writes", MS[unit]
        for row in self.grid.rows:
            text = row.cells[heading.column]
            if not is_missing(text) and split_unit(text)[1] not in MS:
                if not any(mark.isdecimal() for mark in text):
                    self._bad(row, heading.column, "not a latency")
                raise InputFileError(
                    "no unit of the latencies", where=row.at(heading.column), value=text,
                    allowed="--unit ms (us, s, ns), or a heading that ends in it, "
                    f"as {heading.column.strip().replace(' ', '_')}_ms")
        return None

    def _bad(self, row: CsvRow, column: str, what: str, allowed: str = "a number") -> NoReturn:
        raise InputFileError(what, where=row.at(column), value=row.cells.get(column, ""),
                             allowed=allowed)

    def _time_ms(
        self, row: CsvRow, heading: Heading, stated: tuple[str, str] | None
    ) -> float | None:
        """Return a latency in ms; None where the cell says that there is none."""
        text = row.cells[heading.column]
        if is_missing(text):
            return None
        number, unit = split_unit(text)
        if "unit" in self.layout.fields and not unit and stated is None:
            unit = row.text(self.layout.fields["unit"].column).lower()
            if unit not in MS:
                self._bad(row, self.layout.fields["unit"].column, "not a unit of time",
                          "ns, us, ms, s")
        if unit and unit not in MS:
            self._bad(row, heading.column, "not a latency", "a number, perhaps with ns, us, ms, s")
        if not unit and stated is None:
            self._bad(row, heading.column, "no unit in this cell, as others have",
                      "a unit in each, or --unit")
        if unit and stated is not None and stated[1] != MS[unit]:
            self.other_units += 1
            if self.other_units <= _MOST_SHOWN:
                self.notes.append(f"line {row.line}, {heading.column}: {text!r} states another "
                                  f"unit than the column, {stated[0]}: the cell's is taken")
        return self._number(row, heading, number, MS[unit] if unit else (stated or ("", "1"))[1])

    def models(self) -> dict[str, MeasuredModel]:
        """Return the profiles of all models."""
        measured = Measurements(self._telling_apart)
        # A table with totals alone is of a back end that does not pad.
        law: Law | None = self.given.law or (None if "size" in self.layout.fields else "packed")
        total = self.layout.fields.get("total", Heading("")).column
        sized = SizedRows(self.path, unit_of_size(self._size_column), law, total, self._count,
                          self._telling_apart) if self._size_column else None
        empty: list[CsvRow] = []
        in_flight = 0  # rows measured with several requests at once
        model = ""
        for row in self.grid.rows:
            if self._in_flight(row):
                in_flight += 1
                continue
            if not self.layout.by_model:
                model = self._model(row, model)
            has_latency = False
            for heading, stated in zip(self.layout.times, self.factors, strict=True):
                time_ms = self._time_ms(row, heading, stated)
                if time_ms is None:
                    continue
                has_latency = True
                name = self._name_of(heading) if self.layout.by_model else model
                batch, statistic = self._batch(row, heading), self._statistic(row, heading)
                if statistic and sized is not None:
                    sized.add(name, self._entry(row, heading, statistic, time_ms, batch))
                elif statistic:
                    measured.of(row, name, batch).add(row, heading.column, statistic, time_ms)
            if not has_latency:
                empty.append(row)
        if not measured.sizes and not (sized and sized.entries):
            raise InputFileError("no latency in any row", where=str(self.path),
                                 allowed="numbers below the headings")
        batch_records = [record for by_batch in measured.sizes.values()
                         for record in by_batch.values()]
        for record in batch_records:
            record.n = self._count(record.first)
        models = measured.models(
            self.path, "a row with batch size 1 (or --models without this model)") if (
            sized is None) else sized.models()
        self.notes += sized.notes if sized is not None else ()
        if any(len(record.times_ms[LATENCY][0]) == 1 for record in batch_records
               if LATENCY in record.times_ms):
            self.notes.append("one latency for each batch size, taken as the mean")
        self._accuracies(models)
        self._memory_and_load(models)
        if in_flight:
            self.notes.append(f"rows with several requests in flight, left out: {in_flight}")
        if empty:
            self.notes.append(f"rows without a latency, left out: {len(empty)} (the first is line "
                              f"{empty[0].line})")
        notes = [self._recognised(), *self.grid.notes, *self.notes]
        if self.other_units > _MOST_SHOWN:
            notes.append(f"cells with another unit than their column: {self.other_units}, of "
                         f"which the first {_MOST_SHOWN} are named")
        for item in models.values():
            item.notes = list(notes)
        return models

    @property
    def _size_column(self) -> str:
        """Return the column of sizes, or of total sizes; empty where there is none."""
        heading = self.layout.fields.get("size", self.layout.fields.get("total"))
        return heading.column if heading else ""

    def _entry(
        self, row: CsvRow, heading: Heading, statistic: str, time_ms: float, batch: int
    ) -> Entry:
        """Return a latency with the sizes of its row."""
        values = {name: self._size(row, self.layout.fields[name].column)
                  for name in ("size", "total") if name in self.layout.fields}
        total = values.get("total", batch * values.get("size", 0))
        if "size" not in values and total % batch:
            self._bad(row, self._size_column, "not the total of requests of one size",
                      f"a multiple of the batch size, {batch}, or a column of the longest size")
        return Entry(row, heading.column, statistic, time_ms, batch,
                     values.get("size", total // batch), total)

    def _size(self, row: CsvRow, column: str) -> int:
        text = row.cells[column].strip()
        if is_missing(text):
            self._bad(row, column, "no size in this row, as others have", "a whole number >= 1")
        return _whole(text) or self._bad(row, column, "not a size", "a whole number >= 1")

    def _in_flight(self, row: CsvRow) -> bool:
        text = self._cell(row, "concurrency")
        return not is_missing(text) and text not in ("1", "1.0")

    def _cell(self, row: CsvRow, name: str) -> str:
        """Return the cell of a field; empty where the table has no such column."""
        heading = self.layout.fields.get(name)
        return "" if heading is None else row.cells[heading.column].strip()

    def _model(self, row: CsvRow, above: str) -> str:
        if "model" not in self.layout.fields:
            return str(self.model)
        return self._cell(row, "model") or above or row.text(self.layout.fields["model"].column)

    def _name_of(self, heading: Heading) -> str:
        text = heading.column
        for mark in (f"_{heading.unit}", f"({heading.unit})", f"[{heading.unit}]"):
            if heading.unit and text.lower().endswith(mark):
                text = text[:-len(mark)]
        return text.strip()

    def _batch(self, row: CsvRow, heading: Heading) -> int:
        if heading.batch is not None:
            return heading.batch
        column = self.layout.fields.get("batch")
        text = str(self.batch) if column is None else row.text(column.column)
        return _whole(text.lower().lstrip("bachsize=_ x")) or self._bad(
            row, column.column if column else "batch", "not a batch size", "a whole number >= 1")

    def _statistic(self, row: CsvRow, heading: Heading) -> str:
        """Return the statistic of a latency; empty if a profile does not store this statistic."""
        column = self.layout.fields.get("statistic")
        if column is None or heading.field != "latency":
            return heading.field
        text = row.text(column.column)
        digits = text.removeprefix("0.")
        statistic = read_heading(f"p{digits}" if digits in ("50", "5", "90", "9", "95", "99")
                             else text).field
        if not statistic and digits in ("5", "9"):
            statistic = f"p{digits}0"
        if statistic in TIMES:
            return statistic
        self.unknown_statistics.setdefault(f"statistic {text}")
        return ""

    def _telling_apart(self) -> str:
        """Return advice on a column that tells apart rows of one model and batch size."""
        columns = set(self.grid.columns)
        telling = [column for column in self.layout.left_out
                   if column in columns
                   and 1 < len({row.cells[column] for row in self.grid.rows}) < 20]
        return f"; keep the rows of one {telling[0]}" if telling else ""

    def _count(self, row: CsvRow) -> int | None:
        text = self._cell(row, "n")
        whole = self.decimal.number(text, "1") if text and not is_missing(text) and all(
            mark in "0123456789.,' " for mark in text) else None
        return int(whole) if whole is not None and whole >= 1 and whole == int(whole) else None

    def _accuracies(self, models: dict[str, MeasuredModel]) -> None:
        """Read the column of accuracies, if any, and set each model's accuracy as a fraction."""
        heading = self.layout.fields.get("accuracy")
        self.accuracy_unit = ""
        if heading is None:
            return
        read: dict[str, tuple[CsvRow, float]] = {}
        units: set[str] = set()
        for row, model, text in self._cells(heading, models):
            number, unit = split_unit(text)
            if unit:
                units.add(_PERCENT.get(unit, unit))
            value = self._number(row, heading, number, "1")
            if model in read and read[model][1] != value:
                self._bad(row, heading.column,
                          "differs from the accuracy of an earlier row of this model",
                          "one per model")
            read.setdefault(model, (row, value))
        percent = self._is_percent(heading, units, read)
        for name, (row, value) in read.items():
            if not 0 <= value <= (100 if percent else 1):
                self._bad(row, heading.column, "not an accuracy",
                          "a number in [0, 100] of percent" if percent else
                          "a number in [0, 1], or --accuracy-unit percent")
            models[name].accuracy = self.decimal.number(
                split_unit(row.cells[heading.column])[0], "0.01" if percent else "1")

    def _is_percent(
        self, heading: Heading, units: set[str], read: dict[str, tuple[CsvRow, float]]
    ) -> bool:
        """Return whether accuracies are percent, as the user, heading, cells or values say."""
        stated = heading.unit or self.units.get(heading.column, "")
        stated = self.given.accuracy_unit or _ACCURACY_UNITS.get(stated, stated)
        if stated or units == {"percent"}:
            self.accuracy_unit = stated or "percent"
            return self.accuracy_unit == "percent"
        if units:
            row = next(iter(read.values()))[0]
            self._bad(row, heading.column, "not an accuracy", "a number, perhaps with %")
        above = [value for _, value in read.values() if value > 1]
        below = [(row, value) for row, value in read.values() if 0 < value <= 1]
        if above and below and max(above) > 1:
            self._bad(below[0][0], heading.column,
                      f"percent or a fraction? others are {above[0]:g}",
                      "--accuracy-unit percent, or one unit in all rows")
        self.accuracy_unit = f"{'percent' if above else 'fraction'}, by the values"
        return bool(above)

    def _memory_and_load(self, models: dict[str, MeasuredModel]) -> None:
        """Read the columns of memory and loading time, and set them for each model."""
        for name, units in (("memory", MB), ("load", MS)):
            heading = self.layout.fields.get(name)
            if heading is None or heading.unit not in units:
                continue
            attribute = "memory_mb" if name == "memory" else "load_ms"
            for row, model, text in self._cells(heading, models):
                value = self._number(row, heading, split_unit(text)[0], units[heading.unit])
                largest = max(value, getattr(models[model], attribute) or 0.0)
                setattr(models[model], attribute, largest)

    def _cells(
        self, heading: Heading, models: Mapping[str, MeasuredModel]
    ) -> Iterator[tuple[CsvRow, str, str]]:
        """Yield the cells of a column that are not empty, each with its row and model."""
        model = ""
        for row in self.grid.rows:
            model = self._model(row, model)
            if model in models and not is_missing(row.cells[heading.column]):
                yield row, model, row.cells[heading.column]

    def _number(self, row: CsvRow, heading: Heading, text: str, factor: str) -> float:
        try:
            return self.decimal.number(text, factor)
        except (ArithmeticError, ValueError):
            self._bad(row, heading.column, "not a number")

    def _recognised(self) -> str:
        """Return a line that states which columns were recognised, and how."""
        parts = [f"{name} = {heading.column or 'the first column'}"
                 for name, heading in self.layout.fields.items()
                 if name not in ("accuracy", "unit")]
        for heading, stated in zip(self.layout.times, self.factors, strict=True):
            name = (f"batch {heading.batch} ({heading.field})" if heading.batch is not None
                    else "a model" if self.layout.by_model else heading.field)
            parts.append(f"{name} = {heading.column} in {stated[0] if stated else 'stated units'}")
        if "accuracy" in self.layout.fields:
            column = self.layout.fields["accuracy"].column
            parts.append(f"accuracy = {column} in {self.accuracy_unit}")
        comma = ", decimal comma" if self.decimal.comma else ""
        names = [*self.layout.left_out, *self.unknown_statistics]
        more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
        left = f"; left out: {', '.join(names[:_MOST_SHOWN])}{more}" if names else ""
        rows = len(self.grid.rows)
        return (f"read as a table of {rows} rows ({self.grid.separated_by}{comma}): "
                f"{'; '.join(parts)}{left}")
