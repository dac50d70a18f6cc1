"""The figures and tables that can be made, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation import figures, fleets, overload, specs, tables
from evaluation.case import Case

__all__ = ["EXPERIMENTS", "Experiment"]

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Experiment:
    """A figure or table.

    Attributes
    ----------
    title : str
    spec : callable
        Makes the specification of its sweep.
    draw : callable
        Draws rows into a file.
    table : callable
        Makes of the sweep's rows those of the CSV file.
    shown : callable, optional
        Makes of the same rows those that are printed.
    """

    title: str
    spec: Callable[[Case], dict[str, Any]]
    draw: Callable[[Rows, Path, Case], None]
    table: Callable[[Rows], Rows] = tables.cells
    shown: Callable[[Rows], Rows] = tables.figures


EXPERIMENTS: dict[str, Experiment] = {
    "fig5": Experiment("Fig. 5: accuracy on a trace by number of workers", specs.trace,
                       figures.draw_by_workers),
    "fig6": Experiment("Fig. 6: accuracy at constant loads", specs.constant_loads,
                       figures.draw_by_load),
    "fig7": Experiment("Fig. 7: promise and simulation", specs.promises, figures.draw_promises,
                       shown=tables.promises),
    "fig8": Experiment("Fig. 8: more models", specs.many_models, figures.draw_many_models),
    "fig10": Experiment("Fig. 10: slack grids", specs.grids, figures.draw_grids),
    "fig11": Experiment("Fig. 11: maximal and variable batching", specs.batchings,
                        figures.draw_batchings),
    "fig12": Experiment("Fig. 12: three models", specs.three_models, figures.draw_by_load),
    "table3": Experiment("Table 3: violations on a trace (%)", specs.trace,
                         figures.draw_violations_by_workers, tables.violations,
                         tables.violations),
    "table4": Experiment("Table 4: violations at constant loads (%)", specs.constant_loads,
                         figures.draw_violations_by_load, tables.violations,
                         tables.violations),
    "fleets": Experiment("Central-queue policies over loads, workers and SLOs", fleets.fleets,
                         fleets.draw_fleets, shown=fleets.shown),
    "fleet_promises": Experiment("Largest errors of what central-queue policies promise",
                                 fleets.promises, fleets.draw_promises, shown=fleets.errors),
    "robustness": Experiment("Not what policies were made for", fleets.robustness,
                             fleets.draw_robustness, shown=fleets.robust_rows),
    "overload": Experiment("Traces that pass the capacity", overload.overload,
                           overload.draw_overload, shown=overload.overload_rows),
    "headline": Experiment("Workers saved at equal accuracy, and accuracy gained", specs.headline,
                           figures.draw_savings,
                           tables.savings, tables.savings_summary),
}
