"""Importer of ``table``: measurements as people have them, in CSV, TSV, Markdown or JSON.

A row is a model at a batch size with its statistics, one statistic, or one sample; batch sizes or
models may also stand side by side as columns. Names and units are taken from the headings
(:mod:`~ramsis.profiles.importers.table.headings`), else from the cells, else from what the user
says. What was recognised is the profile's first note; a unit that nothing states is an error.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.numerals import MS
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.importers.rows import QUANTILES, CsvRow, Measured, check_number
from ramsis.profiles.importers.runs import Given
from ramsis.profiles.importers.table.cells import MB, DecimalMark, is_missing, split_unit
from ramsis.profiles.importers.table.grid import Grid, looks_like_json, read_grid
from ramsis.profiles.importers.table.headings import (
    FIELDS,
    STATISTICS,
    Heading,
    nearest,
    read_heading,
)
from ramsis.profiles.values import ProfileError

__all__ = ["holds_measurements", "looks_like_json", "read"]

_TIMES = ("latency", *STATISTICS)
_INSTANT = re.compile(r"time_?stamp|date|arriv|_at$")
_FIRST_ROWS = 20
_MOST_SHOWN = 50  # names or cells in a note: notes are kept for each model
_OF_TOOLS = {"inferences/second": ("us", "perf_analyzer"), "hd15iqr": ("s", "pytest-benchmark")}
"""Columns that only one tool writes: the unit of its times, and its name."""


def holds_measurements(path: Path) -> bool:
    """Whether a file has a column that is known, so that it is worth being read as a table."""
    try:
        return any(_known(column) for column in read_grid(path, _known).columns)
    except InputFileError:
        return False


def _known(text: str) -> bool:
    heading = read_heading(text)
    return bool(heading.field) and not text.strip().isdecimal()


def read(path: Path, given: Given) -> dict[str, Measured]:
    """The models of a file, in its order.

    Parameters
    ----------
    path : Path
    given : Given
        ``columns`` says which column holds a field, ``unit`` and ``accuracy_unit`` what no
        heading says; ``model`` and ``batch`` are of a table without such a column.
    """
    named = set(given.columns.values())
    grid = read_grid(path, lambda text: text in named or _known(text))
    return _Reader(path, grid, given, _layout(path, grid, given)).models()


@dataclass(frozen=True)
class _Layout:
    """Which columns hold what."""

    fields: dict[str, Heading]
    times: list[Heading]  # columns of latencies
    by_model: bool = False  # whether each of ``times`` is of the model that it is called after
    left_out: list[str] = field(default_factory=list)


def _layout(path: Path, grid: Grid, given: Given) -> _Layout:
    headings = _headings(path, grid, given)
    sizes = [heading for heading in headings if heading.batch is not None]
    has_batch = any(heading.field == "batch" for heading in headings)
    by_size = len(sizes) > 1 and not has_batch
    fields: dict[str, Heading] = {}
    times: list[Heading] = sizes if by_size else []
    left_out: list[str] = []
    for heading in headings:
        if by_size and heading.batch is not None:
            continue
        if not heading.field or (heading.batch is not None):
            if not heading.counts_rows:
                left_out.append(heading.column)
            continue
        held = fields.get(heading.field)
        if held is not None and held.rank == heading.rank:
            _refuse_two(path, heading.field, held, heading)
        if held is None or heading.rank < held.rank:
            fields[heading.field] = heading
        if held is not None:
            left_out.append(max(held, heading, key=lambda one: one.rank).column)
    if "model" not in fields and _names_rows(grid):
        fields["model"] = Heading(grid.columns[0], "model")
    if not times:
        times, more = _times(fields)
        left_out += more
    # Batch sizes down the rows and no latencies: what is left over is called after models.
    by_model = not times and "model" not in fields and "batch" in fields and len(left_out) > 0
    if by_model:
        times = [_of_model(column) for column in left_out]
        left_out = []
    return _Layout({name: one for name, one in fields.items() if name not in _TIMES}, times,
                   by_model, left_out)


def _names_rows(grid: Grid) -> bool:
    """Whether a first column without a heading holds names, not numbers of rows."""
    cells = [row.cells[""] for row in grid.rows] if grid.columns[0] == "" else []
    return any(cells) and not any(cell.isdecimal() for cell in cells)


def _of_model(column: str) -> Heading:
    """A column that is called after a model, perhaps with a unit."""
    unit = read_heading(f"latency {column.rpartition('_')[2]}").unit if "_" in column else (
        read_heading(f"latency {column}").unit if column.endswith((")", "]")) else "")
    return Heading(column, "latency", unit)


def _times(fields: Mapping[str, Heading]) -> tuple[list[Heading], list[str]]:
    """The columns of latencies, and those that say nothing beside others."""
    stated = [fields[name] for name in STATISTICS if name in fields]
    latency = fields.get("latency")
    if latency is None:
        return stated, []
    if "statistic" in fields or not stated:
        return [latency], [one.column for one in stated]
    if "mean" in fields:
        return stated, [latency.column]
    return [Heading(latency.column, "mean", latency.unit), *stated], []


def _headings(path: Path, grid: Grid, given: Given) -> list[Heading]:
    """What each column holds, the user's word first."""
    said: dict[str, str] = {}
    for name, column in given.columns.items():
        check_known("unknown field", name, FIELDS, "--column")
        check_known("no such column", column, grid.columns, f"{path}: header", InputFileError)
        said[column] = name
    found = []
    for column in grid.columns:
        heading = read_heading(column)
        if column in said:
            heading = Heading(column, said[column], _unit_in(column), -1)
        elif heading.field in said.values():
            heading = Heading(column)
        found.append(heading)
    return found


def _unit_in(column: str) -> str:
    """The unit that a heading of any name ends in."""
    own = read_heading(column)
    if own.unit:
        return own.unit
    for name in ("latency", "accuracy", "memory"):
        unit = read_heading(f"{name} {column.split()[-1].rpartition('_')[2]}").unit
        if unit and ("_" in column or " " in column):
            return unit
    return ""


def _refuse_two(path: Path, name: str, one: Heading, other: Heading) -> NoReturn:
    raise InputFileError(f"two columns for {_shown(name)}", where=f"{path}: header",
                         value=f"{one.column}, {other.column}",
                         allowed=f"--column {name}=NAME with one")


def _shown(name: str) -> str:
    return {"latency": "the latency", "batch": "the batch size",
            "n": "the number of samples"}.get(name, f"the {name}")


@dataclass
class _Reader:
    """Rows of a known layout to models."""

    path: Path
    grid: Grid
    given: Given
    layout: _Layout
    notes: list[str] = field(default_factory=list)
    unknown_statistics: dict[str, None] = field(default_factory=dict)  # in the order of the rows
    other_units = 0  # cells that state another unit than their column

    def __post_init__(self) -> None:
        layout = self.layout
        if not layout.times:
            self._no_column("latency", "mean, p50, p95, p99 or latency")
        self.model_said = self._said(self.given.model)
        self.batch_said = self._said(self.given.batch)
        for name, said in (("model", self.model_said), ("batch", self.batch_said)):
            if name in layout.fields and said is not None:
                raise InvalidValueError(
                    f"the table has a column of it, {layout.fields[name].column}",
                    where="--model-name" if name == "model" else "--batch", value=said,
                    allowed="no such option here")
        by_size = layout.times[0].batch is not None
        if "batch" not in layout.fields and not by_size and self.batch_said is None:
            self._no_column("batch", "--batch N where all rows have one batch size")
        if "model" not in layout.fields and not layout.by_model and self.model_said is None:
            near = nearest("model", list(layout.left_out))
            if near is not None or (len(self.grid.rows) > 1 and not by_size and (
                    self.batch_said is not None)):
                self._no_column("model", "a column of models, or --model-name NAME")
            self.model_said = self.path.stem
            self.notes.append(f"no column of models: taken as {self.path.stem}, as the file is "
                              "called (--model-name gives another)")
        if self.given.metric is not None:
            raise InvalidValueError("a table has no histograms", where="--metric",
                                    value=self.given.metric, allowed="--column")
        self.units = [self._units_row()]
        numeric = [layout.fields[name] for name in ("accuracy", "memory", "load")
                   if name in layout.fields]
        self.decimal = DecimalMark(
            (row.cells[heading.column] for row in self.grid.rows
             for heading in (*layout.times, *numeric)), self.grid.separator)
        self.tool = next((_OF_TOOLS[column.lower()] for column in self.grid.columns
                          if column.lower() in _OF_TOOLS), None)
        self.factors = [self._stated_factor(heading) for heading in layout.times]

    def _said(self, patterns: Mapping[str, object]) -> str | None:
        fitting = [str(value) for pattern, value in patterns.items()
                   if fnmatchcase(self.path.name, pattern)]
        return fitting[0] if fitting else None

    def _no_column(self, name: str, wanted: str) -> NoReturn:
        """Refuse a table without a field, with the column that is called most like it."""
        taken = {one.column for one in self.layout.fields.values()}
        free = [column for column in self.grid.columns
                if column not in taken and self._may_hold(column, name)]
        near = next((found for one in ((name,) if name != "latency" else _TIMES)
                     if (found := nearest(one, free)) is not None), None)
        field_name = name if name != "latency" else next(
            (time for time in _TIMES if near is not None and nearest(time, [near])), "mean")
        named = shlex.quote(f"{field_name}={near or 'NAME'}")
        advice = f"--column {named}{f' ({near} is the nearest)' if near else ''}, or "
        if name == "latency" and any("throughput" in one.lower() for one in free):
            wanted += " (of batches one after the other the mean is batch / throughput)"
        raise InputFileError(f"cannot tell which column holds {_shown(name)}",
                     where=f"{self.path}: header", value=", ".join(self.grid.columns),
                     allowed=advice + wanted)

    def _may_hold(self, column: str, name: str) -> bool:
        """Whether the first cells of a column fit a field, so that it is worth being named."""
        if name == "model":
            return True
        cells = [split_unit(row.cells[column])[0] for row in self.grid.rows[:_FIRST_ROWS]
                 if not is_missing(row.cells[column])]
        if _INSTANT.search(column.lower()) or not cells:
            return False
        return all(cell.isdecimal() and int(cell[:9]) > 0 if name == "batch" else
                   cell[:1].isdecimal() or cell[:1] in ".," for cell in cells)

    def _units_row(self) -> dict[str, str]:
        """Units that stand in a line of their own below the header, by column."""
        first = self.grid.rows[0]
        cells = {column: text.strip("()[] ").lower() for column, text in first.cells.items()}
        named = {column: text for column, text in cells.items()
                 if text in MS or text in MB or text in ("%", "percent", "fraction")}
        if not named or any(text for column, text in cells.items()
                            if column not in named and not is_missing(text)):
            return {}
        object.__setattr__(self.grid, "rows", self.grid.rows[1:])
        return named

    def _stated_factor(self, heading: Heading) -> tuple[str, str] | None:
        """Unit and factor to ms of a column where no cell has to say it; None: each cell does."""
        said = self.given.unit
        own = heading.unit or self.units[0].get(heading.column, "") or self.grid.unit
        if own and said is not None and MS[own] != MS[said]:
            raise InvalidValueError(f"the column {heading.column} states another unit, {own}",
                                    where="--unit", value=said, allowed=f"{own}, or no --unit")
        if own or said is not None:
            return own or str(said), MS[own or str(said)]
        if "unit" in self.layout.fields:
            return None
        statistic = self.layout.fields.get("statistic")
        if statistic is not None:  # as p95_ms
            names = [read_heading(row.cells[statistic.column]) for row in self.grid.rows]
            units = {name.unit for name in names if name.field in _TIMES}
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
        """A latency in ms; None where the cell says that there is none."""
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

    def models(self) -> dict[str, Measured]:
        """Profiles of all models."""
        values: dict[tuple[str, int], dict[str, tuple[CsvRow, Heading, list[float]]]] = {}
        kept: dict[tuple[str, int], CsvRow] = {}
        empty: list[CsvRow] = []
        waiting = 0
        filled = ""
        for row in self.grid.rows:
            if self._in_flight(row):
                waiting += 1
                continue
            model, found = "", False
            if not self.layout.by_model:
                model = filled = self._model(row, filled)
            for heading, stated in zip(self.layout.times, self.factors, strict=True):
                took = self._time_ms(row, heading, stated)
                if took is None:
                    continue
                name = self._name_of(heading) if self.layout.by_model else model
                key = name, self._batch(row, heading)
                statistic = self._statistic(row, heading)
                kept.setdefault(key, row)
                if statistic:
                    values.setdefault(key, {}).setdefault(
                        statistic, (row, heading, []))[2].append(took)
                found = True
            if not found:
                empty.append(row)
        if not values:
            raise InputFileError("no latency in any row", where=str(self.path),
                                 allowed="numbers below the headings")
        check_number({name for name, _ in values}, self.path)
        models: dict[str, Measured] = {}
        for (name, batch), statistics in values.items():
            item = models.setdefault(name, Measured(
                more="a row with batch size 1 (or --models without this model)"))
            item.batches.append(self._profile(name, batch, statistics, kept[name, batch]))
        self._accuracies(models)
        self._sizes(models)
        if waiting:
            self.notes.append(f"rows with several requests in flight, left out: {waiting}")
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

    def _in_flight(self, row: CsvRow) -> bool:
        heading = self.layout.fields.get("concurrency")
        text = row.cells[heading.column] if heading else ""
        return not is_missing(text) and text.strip() not in ("1", "1.0")

    def _model(self, row: CsvRow, above: str) -> str:
        heading = self.layout.fields.get("model")
        if heading is None:
            return str(self.model_said)
        text = row.cells[heading.column].strip()
        if not text and not above:
            row.text(heading.column)
        return text or above

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
        text = str(self.batch_said) if column is None else row.text(column.column)
        bare = text.lower().lstrip("bachsize=_ x")
        whole, _, rest = bare.partition(".")
        if not (whole.isascii() and whole.isdecimal() and len(whole) < 10 and not rest.strip("0")):
            self._bad(row, column.column if column else "batch", "not a batch size",
                      "a whole number >= 1")
        if int(whole) < 1:
            self._bad(row, column.column if column else "batch", "not a batch size",
                      "a whole number >= 1")
        return int(whole)

    def _statistic(self, row: CsvRow, heading: Heading) -> str:
        """The statistic of a latency; empty where a profile does not hold it."""
        column = self.layout.fields.get("statistic")
        if column is None or heading.field != "latency":
            return heading.field
        text = row.text(column.column)
        digits = text.removeprefix("0.")
        known = read_heading(f"p{digits}" if digits in ("50", "5", "90", "9", "95", "99")
                             else text).field
        if known == "" and digits in ("5", "9"):
            known = f"p{digits}0"
        if known in _TIMES:
            return known
        self.unknown_statistics.setdefault(f"statistic {text}")
        return ""

    def _profile(
        self, name: str, batch: int, found: dict[str, tuple[CsvRow, Heading, list[float]]],
        row: CsvRow,
    ) -> BatchProfile:
        samples = found.get("latency")
        try:
            if samples is not None and len(samples[2]) > 1:
                return BatchProfile.from_samples(batch, samples[2], QUANTILES)
            if samples is not None:
                note = "one latency for each batch size, taken as the mean"
                if note not in self.notes:
                    self.notes.append(note)
            for statistic, (_, heading, took) in found.items():
                if len(took) > 1:
                    raise InputFileError(
                        f"several rows for {name} at batch size {batch}",
                        where=row.at(heading.column), value=f"{len(took)} {statistic}",
                        allowed="one row for each model and batch size"
                                + self._telling_apart())
            values = {f"{'mean' if key == 'latency' else key}_ms": took[0]
                      for key, (_, _, took) in found.items()}
            return BatchProfile(batch, self._count(row), **values)  # type: ignore[arg-type]
        except ProfileError as error:
            place = next((one.column for key, (_, one, _) in found.items()
                          if error.field == f"{key}_ms"), error.field)
            raise InputFileError(error.at(row.at(place))) from error

    def _telling_apart(self) -> str:
        """A column that may tell rows apart which are alike otherwise."""
        columns = set(self.grid.columns)
        telling = [column for column in self.layout.left_out
                   if column in columns
                   and 1 < len({row.cells[column] for row in self.grid.rows}) < 20]
        return f" (keep the rows of one {telling[0]})" if telling else ""

    def _count(self, row: CsvRow) -> int | None:
        heading = self.layout.fields.get("n")
        text = "" if heading is None else row.cells[heading.column].strip()
        whole = self.decimal.number(text, "1") if text and not is_missing(text) and all(
            mark in "0123456789.,' " for mark in text) else None
        return int(whole) if whole is not None and whole >= 1 and whole == int(whole) else None

    def _accuracies(self, models: dict[str, Measured]) -> None:
        """Enter the accuracies, as fractions."""
        heading = self.layout.fields.get("accuracy")
        self.accuracy_unit = ""
        if heading is None:
            return
        read: dict[str, tuple[CsvRow, float]] = {}
        units: set[str] = set()
        for row, model, text in self._cells(heading, models):
            number, unit = split_unit(text)
            if unit:
                units.add({"%": "percent", "percent": "percent", "pct": "percent"}.get(unit, unit))
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
        """Whether accuracies are percent: the user, heading, cells or values say it."""
        own = {"%": "percent", "pct": "percent", "percentage": "percent", "ratio": "fraction"}
        stated = heading.unit or self.units[0].get(heading.column, "")
        stated = self.given.accuracy_unit or own.get(stated, stated)
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

    def _sizes(self, models: dict[str, Measured]) -> None:
        """Enter memory and load times."""
        for name, units in (("memory", MB), ("load", MS)):
            heading = self.layout.fields.get(name)
            if heading is None or heading.unit not in units:
                continue
            held = "memory_mb" if name == "memory" else "load_ms"
            for row, model, text in self._cells(heading, models):
                value = self._number(row, heading, split_unit(text)[0], units[heading.unit])
                setattr(models[model], held, max(value, getattr(models[model], held) or 0.0))

    def _cells(
        self, heading: Heading, models: Mapping[str, Measured]
    ) -> Iterator[tuple[CsvRow, str, str]]:
        """The cells of a column that hold something, each with its row and model."""
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
        """What was recognised, in a line."""
        parts = [f"{name} = {one.column or 'the first column'}"
                 for name, one in self.layout.fields.items() if name not in ("accuracy", "unit")]
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
