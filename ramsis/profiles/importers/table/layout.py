"""Assignment of a table's columns to fields, by headings and by options of the user."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ramsis.errors import InputFileError, check_known
from ramsis.profiles.importers.rows import LATENCY, STATISTICS
from ramsis.profiles.importers.table.grid import Grid
from ramsis.profiles.importers.table.headings import FIELDS, Heading, is_missing, read_heading

TIMES = (LATENCY, *STATISTICS)
"""Fields of columns that hold latencies."""


@dataclass(frozen=True)
class Layout:
    """Assignment of a table's columns to fields, such as model and batch size."""

    fields: dict[str, Heading]  # those that hold no latencies
    times: list[Heading]  # columns of latencies
    by_model: bool = False  # whether each column of ``times`` is of the model in its heading
    left_out: list[str] = field(default_factory=list)


def layout_of(path: Path, grid: Grid, columns: Mapping[str, str]) -> Layout:
    """Recognise the columns of a table; ``columns`` are those by field that the user names."""
    headings = _without_one_size(path, grid, _headings(path, grid, columns), columns)
    sizes = [heading for heading in headings if heading.batch is not None]
    by_size = len(sizes) > 1 and not any(heading.field == "batch" for heading in headings)
    fields: dict[str, Heading] = {}
    left_out: list[str] = []
    for heading in headings:
        if by_size and heading.batch is not None:
            continue
        if not heading.field or heading.batch is not None:
            if not heading.counts_rows:
                left_out.append(heading.column)
            continue
        other = fields.setdefault(heading.field, heading)
        if other is heading:
            continue
        if other.rank == heading.rank:
            raise InputFileError(
                f"two columns for {shown(heading.field)}", where=f"{path}: header",
                value=f"{other.column}, {heading.column}",
                allowed=f"--column {heading.field}=NAME with one")
        usual, unusual = sorted((other, heading), key=lambda heading: heading.rank)
        fields[heading.field] = usual
        left_out.append(unusual.column)
    # A first column without a heading that holds names, not numbers of rows.
    cells = [row.cells[""] for row in grid.rows] if grid.columns[0] == "" else []
    if "model" not in fields and any(cells) and not any(cell.isdecimal() for cell in cells):
        fields["model"] = Heading("", "model")
    times, needless = (sizes, []) if by_size else _times(fields)
    left_out += needless
    fields = {name: heading for name, heading in fields.items() if name not in TIMES}
    # Batch sizes down the rows and no latencies: the other columns are called after models.
    if not times and "model" not in fields and "batch" in fields and left_out:
        return Layout(fields, [_of_model(column) for column in left_out], by_model=True)
    return Layout(fields, times, left_out=left_out)


def _without_one_size(
    path: Path, grid: Grid, headings: list[Heading], columns: Mapping[str, str]
) -> list[Heading]:
    """Return the headings; a column of sizes keeps its field only if some model has several sizes.

    One size per model, such as the resolution of its images, is a property of the model.
    """
    column_of = {heading.field: heading.column for heading in reversed(headings)}
    model = column_of.get("model")
    varying: dict[str, list[str]] = {"size": [], "total": []}
    for heading in headings:
        if heading.field in varying and (
                heading.field in columns or _varies(
                    grid, heading.column, model,
                    column_of.get("batch") if heading.field == "total" else None)):
            varying[heading.field].append(heading.column)
    for name, several in varying.items():
        if len(several) > 1:
            raise InputFileError(
                f"two columns for {shown(name)}", where=f"{path}: header",
                value=", ".join(several), allowed=f"--column {name}=NAME with one")
    kept = [column for several in varying.values() for column in several]
    return [heading if heading.field not in varying or heading.column in kept
            else Heading(heading.column) for heading in headings]


def _varies(grid: Grid, column: str, model: str | None, per: str | None) -> bool:
    """Return whether a column has several values in the rows of some model.

    If ``per`` is given, values are divided by those of the column ``per``.
    """
    first: dict[str, str | float] = {}
    name = ""
    for row in grid.rows:
        name = (row.cells[model].strip() or name) if model is not None else ""
        value: str | float = row.cells[column].strip()
        if is_missing(str(value)):
            continue
        if per is not None:
            with suppress(ValueError, ZeroDivisionError):
                value = float(value) / float(row.cells[per])
        if first.setdefault(name, value) != value:
            return True
    return False


def shown(name: str) -> str:
    """Return the name of a field for messages, such as ``the batch size``."""
    return {"latency": "the latency", "batch": "the batch size",
            "n": "the number of samples", "total": "the total size"}.get(name, f"the {name}")


def _of_model(column: str) -> Heading:
    """Return the heading of a column called after a model, perhaps with a unit."""
    unit = read_heading(f"latency {column.rpartition('_')[2]}").unit if "_" in column else (
        read_heading(f"latency {column}").unit if column.endswith((")", "]")) else "")
    return Heading(column, LATENCY, unit)


def _times(fields: Mapping[str, Heading]) -> tuple[list[Heading], list[str]]:
    """Return the latency columns to read, and the names of redundant latency columns."""
    statistics = [fields[name] for name in STATISTICS if name in fields]
    latency = fields.get(LATENCY)
    if latency is None:
        return statistics, []
    if "statistic" in fields or not statistics:
        return [latency], [heading.column for heading in statistics]
    if "mean" in fields:
        return statistics, [latency.column]
    return [Heading(latency.column, "mean", latency.unit), *statistics], []


def _headings(path: Path, grid: Grid, columns: Mapping[str, str]) -> list[Heading]:
    """Return the field of each column; the user's options take precedence."""
    for name, column in columns.items():
        check_known("unknown field", name, FIELDS, "--column")
        check_known("no such column", column, grid.columns, f"{path}: header", InputFileError)
    field_of = {column: name for name, column in columns.items()}
    headings = []
    for column in grid.columns:
        heading = read_heading(column)
        if column in field_of:
            heading = Heading(column, field_of[column], _unit_in(column), -1)
        elif heading.field in columns:
            heading = Heading(column)
        headings.append(heading)
    return headings


def _unit_in(column: str) -> str:
    """Return the unit at the end of a heading, whatever its name; empty if there is none."""
    if unit := read_heading(column).unit:
        return unit
    for name in ("latency", "accuracy", "memory"):
        unit = read_heading(f"{name} {column.split()[-1].rpartition('_')[2]}").unit
        if unit and ("_" in column or " " in column):
            return unit
    return ""
