"""``ramsis simulate --scaling``: scaling policies beside common autoscaling rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from ramsis.cli.options.command import allow_options
from ramsis.cli.output.rows import Column, print_json, print_rows, progress
from ramsis.cli.output.scaled import SCALED_COLUMNS, with_words
from ramsis.errors import InvalidValueError
from ramsis.files import write_atomic
from ramsis.sim import Workload
from ramsis.tables import csv_text, with_values

_ALLOWED = ("scaling", "from_s", "stretch", "forecast", "loads", "trace", "trace_format", "unit",
            "time_column", "load_columns", "scale", "arrivals", "duration_s", "seed", "as_json",
            "csv_file", "plot")


def simulate_scaling(
    names: Sequence[str], workload: Workload, *, from_s: float, forecast: Path | None, seed: int,
    as_json: bool, csv_file: Path | None, plot: Path | None,
) -> None:
    """Simulate scaling policies and rules; print the rows and write the requested files."""
    from ramsis.scaling.comparison import Comparison, Part
    from ramsis.scaling.forecast import read_forecast
    from ramsis.scaling.policy_file import SavedScaling
    from ramsis.scaling.rules import rule_of

    allow_options(_ALLOWED, "is not for --scaling: the scaling policy says what serves, and by "
                  "which policies.")
    duration_s = workload.duration_ms / 1000.0
    if not 0 <= from_s < duration_s:
        raise InvalidValueError("not a time of the trace", where="--from-s", value=from_s,
                                allowed=f"0 to less than {duration_s:g}")
    saved = {name: SavedScaling.load(name) for name in names if Path(name).exists()}
    rules = {name: rule_of(name, error=InvalidValueError) for name in names if name not in saved}
    if not saved:
        raise click.UsageError("--scaling: rules play the decision tables of a scaling policy; "
                               "give its folder, too.")
    forecasts = None if forecast is None else read_forecast(forecast)
    arrival_ms = workload.arrivals_ms(np.random.default_rng(seed))

    def comparison(one: SavedScaling) -> Comparison:
        initial, rest = (
            Part.of(arrival_ms, *times, one.known["rate_per_worker_qps"], one.fleet, forecasts)
            if times[1] else None for times in ((0.0, from_s), (from_s, duration_s)))
        assert rest is not None
        return Comparison(one.played, one.target, one.fleet, initial, rest, one.known, seed)

    on = {name: comparison(policy) for name, policy in saved.items()}
    by_first = next(iter(on.values()))  # whose decision tables the rules play
    rows: list[dict[str, Any]] = []
    with progress("runs", len(names)) as advance:
        for name in names:
            row = (on[name].policy_row(saved[name].table) if name in saved
                   else by_first.rule_row(*rules[name], tuned=False))
            rows.append({**row, "scheduler": name})
            advance()
    if as_json:
        print_json(rows)
    else:
        shown = with_words(rows)
        print_rows(with_values((Column("scheduler", "scheduler"), *SCALED_COLUMNS), shown), shown)
    if csv_file is not None:
        write_atomic(csv_file, csv_text([
            {key: value for key, value in row.items() if key not in ("over_time", "parameters")}
            for row in with_words(rows)]))
    if plot is not None:
        from ramsis.report.simulations import plot_scaling

        plot_scaling(rows, plot)
