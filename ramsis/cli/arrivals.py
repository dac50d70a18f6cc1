"""``ramsis arrivals``: describe the arrivals of a trace and fit arrival processes to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from ramsis import report
from ramsis.arrivals.fitting import (
    LEVEL_STEP,
    MovingMean,
    ProcessFit,
    TraceFit,
    fit_trace,
    moving_mean,
)
from ramsis.arrivals.negative_binomial import NegativeBinomial
from ramsis.arrivals.timestamps import UNITS
from ramsis.arrivals.trace import Recorded
from ramsis.arrivals.trace_formats import TRACE_FORMATS
from ramsis.cli.options.command import CommandGroup, given_options
from ramsis.cli.options.shared import plot_option
from ramsis.cli.options.workloads import read_trace_option, say_how_read
from ramsis.cli.output.rows import Column, print_json, print_rows, say, say_command, table_options
from ramsis.errors import InputFileError, InvalidValueError

_REJECTED = 0.01
_NEARLY = 1.1  # index of dispersion up to which arrivals are treated as Poisson
_CONSTANT = 0.1  # dispersion of counts over long windows
_EVEN = 0.75  # dispersion of counts, and coefficient of variation of gaps; Poisson's are 1

_COLUMNS = (
    Column("arrivals", "--arrivals"),
    Column("bic_difference", "BIC − best", ".1f"),
    Column("distance", "KS distance", ".3f"),
    Column("p_value", "p-value", ".2g"),
)


@click.group("arrivals", cls=CommandGroup)
def arrivals() -> None:
    """Traces of arrivals and the processes that fit them."""


@arrivals.command("fit")
@click.argument("trace", metavar="TRACE")
@click.option("--time-column", metavar="NAME", help="Column of the timestamps in a CSV file.")
@click.option("--unit", type=click.Choice(list(UNITS)),
              help="Unit of timestamps that are numbers.")
@click.option("--trace-format", type=click.Choice(("auto", *TRACE_FORMATS)), default="auto",
              show_default=True, metavar="NAME",
              help="Format of TRACE, if its first line does not tell it; `ramsis help traces` "
                   "lists them.")
@plot_option("dispersion and gaps")
@table_options
@click.pass_context
def fit(
    context: click.Context, trace: str, time_column: str | None, unit: str | None,
    trace_format: str, plot: Path | None, as_json: bool,
) -> None:
    """Find the arrival process that fits a TRACE best, and test the fit.

    TRACE holds one timestamp a line or a CSV column of them, ISO 8601 or numbers of a stated
    unit, or a public data set of requests, as text, .gz or .zst. Fitted are the processes that
    --arrivals of `ramsis generate` takes; the process with the least BIC fits best. The p-value
    is of a test of this process: below 0.01, even the best process does not explain the trace. A
    slowly changing mean load is distinguished from bursts, and removed before the fit; the answer
    then also has loads for which to make policies.

    \b
    Examples:
      $ ramsis arrivals fit trace.csv
      $ ramsis arrivals fit trace.csv --time-column arrival_ms --json
    """
    read = read_trace_option(Path(trace), trace_format, unit, time_column)
    if not isinstance(read.workload, Recorded):
        raise InputFileError(
            "holds loads, not requests", where=trace,
            allowed="--trace of `simulate`, `capacity` and `plan`, which take it as a load; or "
            "--time-column where each line is one request")
    times = read.workload.times_ms
    motion = moving_mean(times)
    try:
        fitted = fit_trace(times if motion is None else motion.steady_ms)
    except InvalidValueError as error:
        raise InputFileError(str(error), where=trace) from error
    say_how_read(Path(trace), read)
    rows = [_row(fit, fitted) for fit in fitted.fits]
    answer, policies = _answer(fitted, motion)
    if as_json:
        print_json(rows, answer=answer, policies=policies, best=fitted.best.word,
                   **_summary(fitted), **_motion(motion, fitted))
    else:
        say(answer)
        say(f"policies: {policies}")
        say_command(_next_command(context))
        click.echo()
        _print(fitted, rows)
        _print_motion(motion)
    if plot is not None:
        report.plot_fit(fitted, plot)
        click.echo(f"figure in {plot}", err=True)


def _answer(fitted: TraceFit, motion: MovingMean | None) -> tuple[str, str]:
    """Return a one-line description of the trace and the policy options that suit it."""
    moves = motion is not None and motion.moves
    levels = motion.levels_qps if motion is not None else (fitted.rate_qps,)
    rate = f"{fitted.rate_qps:.4g} requests/s"
    if motion is not None and moves:
        rate = (f"{motion.rate_qps.min():.4g} to {motion.rate_qps.max():.4g} requests/s; the load "
                "moves, use these levels")
    policies = f"--load {','.join(f'{qps:.4g}' for qps in levels)}"
    word = fitted.best.word
    if _is_even(fitted):
        what = "constant rate" if fitted.dispersion[-1] < _CONSTANT else (
            f"more even than Poisson (coefficient of variation of the gaps {fitted.gap_cv:.2g})")
        return f"{what}: {rate}", f"{policies} (those for Poisson arrivals are on the safe side)"
    process = fitted.best.process
    if word == "poisson" or (isinstance(process, NegativeBinomial)
                             and process.dispersion < _NEARLY):
        return f"Poisson: {rate}", policies
    return f"bursts, {word}: {rate}", f"{policies} --arrivals {word}"


def _is_even(fitted: TraceFit) -> bool:
    """Return whether arrivals are more regular than all fitted processes."""
    return fitted.gap_cv < _EVEN and float(np.median(fitted.dispersion)) < _EVEN


def _next_command(context: click.Context) -> list[str]:
    """Return the command that plans workers for the trace with the options of this command."""
    params = context.params
    words = ["ramsis", "plan", "--profiles", "PROFILE.json", "--slo-ms", "MS",
             "--trace", params["trace"]]
    for option in given_options(context):
        if option.name in ("time_column", "unit", "trace_format"):
            words += [option.opts[0], str(params[option.name])]
    return [*words, "--out", "plan"]


def _row(fit: ProcessFit, fitted: TraceFit) -> dict[str, Any]:
    return {
        "arrivals": fit.word, "log_likelihood": fit.log_likelihood, "bic": fit.bic,
        "bic_difference": fit.bic - fitted.best.bic, "distance": fit.distance,
        "p_value": fit.p_value, "dispersion": fit.dispersion.tolist(),
    }


def _summary(fitted: TraceFit) -> dict[str, Any]:
    return {
        "requests": fitted.requests, "duration_s": fitted.duration_ms / 1000.0,
        "rate_qps": fitted.rate_qps, "gap_cv": fitted.gap_cv,
        "window_ms": fitted.window_ms.tolist(), "dispersion": fitted.dispersion.tolist(),
    }


def _motion(motion: MovingMean | None, fitted: TraceFit) -> dict[str, Any]:
    """Return the JSON fields of a moving mean, null for a steady load, and loads for policies."""
    if motion is None:
        return {"moving_mean": None, "bursts": None, "load_levels_qps": [fitted.rate_qps]}
    return {"moving_mean": motion.moves, "bursts": motion.bursts,
            "window_of_counts_ms": motion.window_ms, "stretch_ms": motion.stretch_ms,
            "dispersion_of_counts": motion.dispersion,
            "dispersion_about_mean": motion.dispersion_about_mean,
            "lowest_mean_qps": float(motion.rate_qps.min()),
            "highest_mean_qps": float(motion.rate_qps.max()),
            "load_levels_qps": list(motion.levels_qps)}


def _print_motion(motion: MovingMean | None) -> None:
    if motion is None:
        say("mean: the trace is too short to tell one that moves from bursts")
        return
    bursts = "and there are bursts" if motion.bursts else "and there are no bursts"
    if motion.moves:
        say(f"mean: moves from {motion.rate_qps.min():.4g} to {motion.rate_qps.max():.4g} "
                   f"queries/s over stretches of {motion.stretch_ms / 1000.0:.3g} s; without this "
                   "motion the dispersion of counts is "
                   f"{motion.dispersion_about_mean:.2f} instead of {motion.dispersion:.2f}, "
                   f"{bursts}; the process above is without it")
    else:
        say(f"mean: steady over stretches of {motion.stretch_ms / 1000.0:.3g} s; the "
                   f"dispersion of counts is {motion.dispersion_about_mean:.2f}, {bursts}")
    if len(motion.levels_qps) > 1:
        say(f"{len(motion.levels_qps)} levels are {LEVEL_STEP:.0%} apart, for 1 % of accuracy")


def _print(fitted: TraceFit, rows: list[dict[str, Any]]) -> None:
    say(f"{fitted.requests} requests in {fitted.duration_ms / 1000.0:.6g} s: "
               f"{fitted.rate_qps:.6g} queries/s, coefficient of variation of the gaps "
               f"{fitted.gap_cv:.3f}")
    click.echo()
    windows = [
        {"window": window / 1000.0, "trace": seen,
         **{str(i): float(fit.dispersion[w]) for i, fit in enumerate(fitted.fits)}}
        for w, (window, seen) in enumerate(
            zip(fitted.window_ms.tolist(), fitted.dispersion.tolist(), strict=True))
    ]
    names = [fit.word.partition(":")[0] for fit in fitted.fits]
    print_rows([Column("window", "window (s)", ".4g"), Column("trace", "dispersion", ".2f"),
                *(Column(str(i), name, ".2f") for i, name in enumerate(names))], windows)
    click.echo()
    print_rows(_COLUMNS, rows)
    click.echo(f"\nbest: --arrivals {fitted.best.word}")
    if fitted.best.p_value < _REJECTED and not _is_even(fitted):
        click.echo("note: the trace departs from every process here (p-value below "
                   f"{_REJECTED:g}); this one is the nearest", err=True)
