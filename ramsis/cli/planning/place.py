"""``ramsis place``: which models run on which workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

import placement_milp as milp
from placement_milp.presets import PRESETS
from placement_milp.result import Placement
from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import OUT_FILE
from ramsis.cli.options.shared import plot_option
from ramsis.cli.output.rows import Column, command_line, print_json, print_rows, say, table_options
from ramsis.report.columns import FAMILIES
from ramsis.report.placement import plot_placement

_INTERRUPTED = 130
_SHOWN = 1e-6
"""Gaps above this are worth a word."""
_GROUPS = (
    Column("worker_type", "worker type"), Column("workers", "workers"),
    Column("holds", "models"), Column("batch", "batch", "d"), Column("family", "family"),
    Column("share_of_demand", "share of demand", ".1%"),
    Column("utilisation", "utilisation", ".1%"),
    Column("load_qps", "load each (QPS)", ".1f"),
    Column("memory", "memory", ".0%", wide=True),
)
_PROCESSES = Column("processes", "processes", "d", wide=True)
_GPUS = (
    Column("worker_type", "GPU type"), Column("gpus", "GPUs", "d"),
    Column("instances", "cut into"),
)
_FRONT = (
    Column("cost_per_hour", "cost per hour", ".4g"),
    Column("effective_accuracy", "effective accuracy", ".4f"), Column("workers", "workers", "d"),
)


@click.command("place", cls=Command)
@click.argument("problem_file", metavar="PROBLEM")
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE",
              help="Placement file to write.")
@click.option("--solver", type=click.Choice(milp.SOLVERS), default=milp.SOLVERS[0],
              show_default=True, help="Solver of the mixed-integer program.")
@click.option("--gap", type=float, default=1e-6, show_default=True,
              help="Relative gap at which a placement counts as optimal.")
@click.option("--time-limit", type=float, metavar="SECONDS",
              help="Time limit, with the best placement found by then.")
@click.option("--preset", type=click.Choice(tuple(PRESETS)), metavar="NAME",
              help="A known scheme instead of the problem's objective: "
              + ", ".join(PRESETS) + ".")
@plot_option("the placement")
@table_options
def place(
    problem_file: str, out: Path, solver: str, gap: float, time_limit: float | None,
    preset: str | None, plot: Path | None, as_json: bool,
) -> None:
    """Assign models to workers, with a bound on the optimality gap.

    Reads a placement problem (families with demands and SLOs, worker types, model variants; a
    file, or the name of a shipped problem), writes the placement to FILE, with every worker by
    name, and prints a summary. Ctrl-C stops the search; the best placement so far is written and
    the exit code is 130.

    To partition GPUs into instances (NVIDIA MIG), give a worker type "partitions": the name of a
    GPU (A100-40GB, A100-80GB, H100-80GB, H100-NVL-94GB, H200-141GB, B200-180GB, A30-24GB) or a
    custom table. Layouts and instances are then chosen as well. Objectives: effective-accuracy,
    cheapest, fewest-workers, max-min, lexicographic, pareto. A moving_price counts models loaded,
    and instances created and destroyed.

    \b
    Examples:
      $ ramsis place digits --out placement.json
      $ ramsis place digits --out placement.json --gap 1e-3 --json
      $ ramsis place digits --out placement.json --preset proteus
    """
    limits = milp.Limits(gap, time_limit, solver)
    solve = milp.place if preset is None else PRESETS[preset]
    placement = solve(milp.read_problem(problem_file), limits)
    milp.write_placement(placement, out, command=command_line())
    if as_json:
        print_json(placement.rows(), **{
            name: value for name, value in placement.to_document().items()
            if name not in ("format", "groups", "problem")})
    else:
        _print_tables(placement)
        click.echo(f"\nplacement in {out}")
    if plot is not None:
        plot_placement(placement, plot)
    if placement.status == milp.SearchStatus.INTERRUPTED:
        click.get_current_context().exit(_INTERRUPTED)


def _print_tables(placement: Placement) -> None:
    rows = _group_rows(placement)
    several = any(row["processes"] > 1 for row in rows)
    print_rows((*_GROUPS[:4], _PROCESSES, *_GROUPS[4:]) if several else _GROUPS, rows)
    click.echo()
    if placement.gpus:
        print_rows(_GPUS, _gpu_rows(placement))
        click.echo()
    print_rows(FAMILIES, placement.to_document()["families"])
    click.echo()
    if placement.front:
        print_rows(_FRONT, placement.to_document()["front"])
        click.echo()
    for line in _summary(placement):
        say(line)


def _group_rows(placement: Placement) -> list[dict[str, Any]]:
    """Return the rows of all groups; groups on the same worker are marked."""
    rows = []
    for row in placement.rows():
        together = f" ({row['together']} together)" if row["together"] > 1 else ""
        shares = f"{'+'.join(row['variants'])}{together}"
        rows.append({**row, "holds": shares, "workers": str(row["workers"]),
                     "memory": row["memory_mb"] / row["memory_limit_mb"]})
    firsts = {sum(len(group.uses) for group in placement.groups[:i])
              for i in range(len(placement.groups))}
    for i, row in enumerate(rows):
        if i not in firsts:
            row |= {"worker_type": "  same workers", "workers": "", "memory": None}
    return rows


def _gpu_rows(placement: Placement) -> list[dict[str, Any]]:
    """Return a row for each GPU layout and the GPUs that use it."""
    counts = Counter((gpu.worker_type, gpu.instances) for gpu in placement.gpus)
    return [{"worker_type": kind, "gpus": count, "instances": "  ".join(instances)}
            for (kind, instances), count in counts.items()]


def _summary(placement: Placement) -> list[str]:
    """Summarise the placement: value, optimality gap, and shadow prices."""
    name = placement.stages[0].metric if placement.stages else "effective-accuracy"
    lines = [f"{placement.status}: {name} {placement.objective:.6g}{_proof(placement, name)}"]
    if placement.cost_per_hour:
        lines.append(f"cost per hour: {placement.cost_per_hour:.6g}")
    loading = sum(move.load_ms for move in placement.moves) / 1000
    lines.append(f"workers to change: {len(placement.moves)}"
                 + (f", {loading:.3g} s of loading" if loading else ""))
    created, destroyed = (sum(len(getattr(gpu, what)) for gpu in placement.gpus)
                          for what in ("made", "destroyed"))
    if created or destroyed:
        lines.append(f"instances to make: {created}, to destroy: {destroyed}")
    promised = placement.problem.rules.in_time_quantile or 1.0
    for family in placement.families:
        if family.served_share < promised - _SHOWN:
            short_qps = family.demand_qps - family.served_qps
            lines.append(f"not served in time: {short_qps:.4g} QPS of family {family.name}")
    worth = [f"{name} {price:.3g}" for name, price in placement.prices.items() if price > 0]
    if worth:
        lines.append(f"one more worker is worth: {', '.join(worth)}")
    return [*lines, *placement.notes]


def _proof(placement: Placement, name: str) -> str:
    """Return the bound for all placements in words, lower for a cost, upper for a gain.

    With the optimality gap where it is visible; empty where the solver gave no bound.
    """
    if placement.gap is None:
        return ""
    side = "least" if name in ("cost", "workers", "moving") else "most"
    gap = f", gap {placement.gap:.1e}" if placement.gap > _SHOWN else ""
    return f" (at {side} {placement.dual_bound or 0.0:.6g}{gap})"  # not -0
