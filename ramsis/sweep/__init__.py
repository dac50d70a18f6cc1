"""Grids of simulations and policies: fingerprinted cells, several processes, tidy tables.

All modules except the engine are imported at first use, since other commands use the engine too.

May import: arrivals, bounds, cluster, planning, policy, profiles, runtime, scenario, sim,
synthesis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ramsis.lazy_names import names_from
from ramsis.sweep.engines import Engine

if TYPE_CHECKING:
    from ramsis.sweep.jobs import VALUE_TABLE_FORMAT, value_rows, write_value_table
    from ramsis.sweep.run import Failure, Sweep, SweepResult, run_sweep
    from ramsis.sweep.spec import Cell, ScenarioCell, SweepSpec

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

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.sweep.run": "Failure Sweep SweepResult run_sweep",
    "ramsis.sweep.spec": "Cell ScenarioCell SweepSpec",
    "ramsis.sweep.jobs": "VALUE_TABLE_FORMAT value_rows write_value_table",
})
