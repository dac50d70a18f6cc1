"""Grids of simulations and policies: fingerprinted cells, several processes, tidy tables."""

from __future__ import annotations

from ramsis.checks import check_arguments
from ramsis.sweep.engines import Engine
from ramsis.sweep.run import Failure, Sweep, SweepResult, run_sweep
from ramsis.sweep.spec import Cell, ScenarioCell, SweepSpec
from ramsis.sweep.value_table import (
    VALUE_TABLE_FORMAT,
    value_rows,
    write_value_table,
)

__all__ = [
    "VALUE_TABLE_FORMAT",
    "Cell",
    "Engine",
    "Failure",
    "ScenarioCell",
    "Sweep",
    "SweepResult",
    "SweepSpec",
    "run_sweep",
    "value_rows",
    "write_value_table",
]

check_arguments(globals(), __all__)
