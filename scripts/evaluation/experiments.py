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
        Makes of the same rows the table that is printed.
    """

    title: str
    spec: Callable[[Case], dict[str, Any]]
    draw: Callable[[Rows, Path, Case], None]
    table: Callable[[Rows], Rows] = tables.cells
    shown: Callable[[Rows], str] = tables.table


EXPERIMENTS: dict[str, Experiment] = {
    "fig5": Experiment("Fig. 5, Table 3: accuracy and violations on a trace", specs.trace,
                       figures.draw_by_workers),
    "fig6": Experiment("Fig. 6, Table 4: accuracy and violations at constant loads",
                       specs.constant_loads, figures.draw_by_load),
    "fig7": Experiment("Fig. 7: promise and simulation", specs.promises, figures.draw_promises),
    "fig8": Experiment("Fig. 8: more models", specs.many_models, figures.draw_many_models),
    "fig10": Experiment("Fig. 10: slack grids", specs.grids, figures.draw_grids),
    "fig11": Experiment("Fig. 11: maximal and variable batching", specs.batchings,
                        figures.draw_batchings),
    "fig12": Experiment("Fig. 12: three models", specs.three_models, figures.draw_by_load),
    "fleets": Experiment("Central-queue policies over loads, workers and SLOs", fleets.fleets,
                         fleets.draw_fleets),
    "fleet_promises": Experiment("Promises of central-queue policies", fleets.promises,
                                 fleets.draw_promises),
    "robustness": Experiment("Not what policies were made for", fleets.robustness,
                             fleets.draw_robustness),
    "overload": Experiment("Traces that pass the capacity", overload.overload,
                           overload.draw_overload),
    "headline": Experiment("Workers saved at equal accuracy, and accuracy gained", specs.headline,
                           figures.draw_savings, tables.savings, tables.savings_table),
}
