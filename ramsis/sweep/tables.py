"""The tables of a sweep: CSV files with an observation in each row.

Rows are in the order of the specification, and numbers are written with all digits, so that the
same cells give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ramsis.files import remove, write_atomic
from ramsis.sim.result import FIGURES
from ramsis.sweep.scenarios import COLUMNS, SEED_COLUMNS, scenario_row, seed_rows
from ramsis.sweep.spec import Cell, ScenarioCell, SweepSpec
from ramsis.sweep.value_table import VALUE_TABLE_NAME, write_value_table
from ramsis.tables import csv_text

# A cell, or a cell of a scenario, and the document of its results.
Done = tuple[Cell, Mapping[str, Any]]
Played = tuple[ScenarioCell, Mapping[str, Any]]

_OF_CELLS = ("results.csv", "seeds.csv", "models.csv")
_OF_SCENARIOS = ("scenarios.csv", "scenario-seeds.csv")
_SCENARIO_AXES = ("scenario", "scheduler", "seed", "seeds")
AXES = tuple(item.name for item in fields(Cell))  # in which cells can differ
_HALF_WIDTHS = ("accuracy_half_width", "violation_rate_half_width",
                "effective_accuracy_half_width")
_GAP = ("violation_price", "priced_upper_bound", "certified_gap")
_PROMISES = ("accuracy", "violation_rate", "effective_accuracy")


def cell_row(cell: Cell, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of ``results.csv``: the cell, figures over its seeds, and the promise.

    Figures are means over the seeds, counts sums; without a simulation they are ``None``.
    """
    result: Mapping[str, Any] = document["result"] or {}
    promise = document["promise"]
    bound = document["upper_bound"]
    return {
        **asdict(cell),
        **{name: result.get(name) for name in (*FIGURES, *_HALF_WIDTHS)},
        **{f"expected_{name}": promise[name] for name in _PROMISES},
        "upper_bound": promise["upper_bound"] if bound is None else bound,
        **{name: document["gap"].get(name) for name in _GAP},
    }


def write_tables(
    folder: Path, spec: SweepSpec, done: Sequence[Done], played: Sequence[Played],
    values: Sequence[Mapping[str, Any]], failures: Sequence[tuple[Cell | ScenarioCell, str]],
) -> tuple[Path, ...]:
    """Write the tables of the sweep's kinds of cells, and return their paths.

    Tables of other kinds, which an earlier specification left, are removed.
    """
    tables: dict[str, tuple[Sequence[str], Iterable[Mapping[str, Any]]] | None] = {
        **dict.fromkeys((*_OF_CELLS, *_OF_SCENARIOS))}
    failing: list[str] = []
    if spec.cells or not spec.scenarios:
        failing += AXES
        tables["results.csv"] = (
            (*AXES, *FIGURES, *_HALF_WIDTHS, *(f"expected_{name}" for name in _PROMISES),
             "upper_bound", *_GAP), (cell_row(*pair) for pair in done))
        tables["seeds.csv"] = ((*(name for name in AXES if name not in ("seed", "seeds")),
                                "seed", *FIGURES), _seed_rows(done))
        tables["models.csv"] = (*AXES, "model", "share"), _model_rows(done)
    if spec.scenarios:
        failing += [name for name in _SCENARIO_AXES if name not in failing]
        tables["scenarios.csv"] = COLUMNS, (scenario_row(*pair) for pair in played)
        tables["scenario-seeds.csv"] = (SEED_COLUMNS,
                                        (row for pair in played for row in seed_rows(*pair)))
    tables["failures.csv"] = ((*failing, "error"),
                              ({**asdict(cell), "error": error} for cell, error in failures))
    for name, table in tables.items():
        if table is None:
            remove(folder / name)
        else:
            write_atomic(folder / name, csv_text(table[1], table[0]))
    values_file = folder / VALUE_TABLE_NAME
    if values:
        write_value_table(values, values_file)
    else:
        remove(values_file)
    written = tuple(folder / name for name, table in tables.items() if table is not None)
    return written + ((values_file,) if values else ())


def _seed_rows(done: Sequence[Done]) -> Iterable[dict[str, Any]]:
    for cell, document in done:
        for i, metrics in enumerate(document["seeds"]):
            yield {**asdict(cell), **metrics, "seed": cell.seed + i}


def _model_rows(done: Sequence[Done]) -> Iterable[dict[str, Any]]:
    for cell, document in done:
        shares: Mapping[str, float] = (document["result"] or {}).get("model_share", {})
        for model, share in sorted(shares.items(), key=lambda item: (-item[1], item[0])):
            yield {**asdict(cell), "model": model, "share": share}
