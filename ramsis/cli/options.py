"""Options that commands about a fleet under load share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ramsis.arrivals.timestamps import UNITS
from ramsis.arrivals.trace_formats import TRACE_FORMATS

__all__ = ["fleet_options", "load_option", "serving_options", "workload_options"]

_Command = Callable[..., Any]


def fleet_options(command: _Command) -> _Command:
    """``--profiles``, ``--slo-ms`` and ``--workers``: what serves, and by when."""
    workers = click.option("--workers", type=int, required=True,
                           help="Workers that share the load.")
    return serving_options(workers(command))


def serving_options(command: _Command) -> _Command:
    """``--profiles`` and ``--slo-ms``."""
    for option in (
        click.option("--slo-ms", type=float, required=True,
                     help="Deadline after arrival, in ms."),
        click.option("--profiles", "profile_name", required=True, metavar="FILE|NAME",
                     help="Profile file, or the name of a shipped profile set."),
    ):
        command = option(command)
    return command


def load_option(*, required: bool = True) -> Callable[[_Command], _Command]:
    """``--load``: the load levels."""
    return click.option("--load", required=required, metavar="QPS",
                        help="Load levels in queries/s: 400, or 400,800, or from:to:step.")


def workload_options(command: _Command) -> _Command:
    """``--load`` or ``--trace``, what reads a trace, ``--arrivals`` and ``--duration-s``."""
    for option in reversed((
        load_option(required=False),
        click.option("--trace", metavar="FILE|NAME",
                     help="Lines of seconds and QPS, recorded timestamps, or a public data set "
                     "(docs: simulate); text, .gz or .zst; or a shipped one."),
        click.option("--trace-format", type=click.Choice(("auto", *TRACE_FORMATS)),
                     default="auto", show_default=True,
                     help="Format of the trace, where its first line does not tell it."),
        click.option("--unit", type=click.Choice(list(UNITS)), default=None,
                     help="Unit of the times in the trace.  [default: s for loads; timestamps "
                     "need it, unless they are dates or their column's name ends in it]"),
        click.option("--time-column", metavar="NAME",
                     help="Column of the timestamps in a CSV trace, or key in JSON lines."),
        click.option("--scale", type=float, default=1.0, show_default=True,
                     help="Multiplies the loads of the trace; timestamps are played that much "
                     "faster."),
        click.option("--arrivals", default="poisson", show_default=True, metavar="PROCESS",
                     help="poisson, renewal:CV, fixed-rate (constant loads only), or what "
                     "`generate` takes and can be drawn from."),
        click.option("--duration-s", type=float, metavar="SECONDS",
                     help="Until arrivals stop; the queues then drain.  [default: 30, or the "
                     "trace]"),
    )):
        command = option(command)
    return command
