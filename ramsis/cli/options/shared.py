"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ramsis.arrivals import patterns
from ramsis.arrivals.registry import OWN
from ramsis.arrivals.timestamps import UNITS
from ramsis.arrivals.trace_formats import TRACE_FORMATS
from ramsis.cli.options.param_types import (
    ARRIVALS,
    DURATION,
    FIGURE,
    LOADS,
    MODELS,
    PROFILES,
    SHARES,
    SLOS,
    TRACE,
    WORKERS,
    require,
)
from ramsis.cluster.service_times import DEFAULT_SERVICE
from ramsis.policy import SERVICES
from ramsis.settings import settings_of

_Command = Callable[..., Any]


def with_options(command: _Command, *options: Callable[[_Command], _Command]) -> _Command:
    """Add options to a command, in the order of its help page."""
    for option in reversed(options):
        command = option(command)
    return command


def gathered(**records: Callable[..., Any]) -> Callable[[_Command], _Command]:
    """Pass options to a command as records by name, such as ``served=Served``.

    A record is made from the options that its parameters name; what is no option of the command
    has its default.
    """

    def add(command: _Command) -> _Command:
        @functools.wraps(command)
        def called(*positional: Any, **options: Any) -> Any:
            made = {name: record(**{term: options.pop(term)
                                    for term in inspect.signature(record).parameters
                                    if term in options}) for name, record in records.items()}
            return command(*positional, **options, **made)

        return called

    return add


def setting_option(
    cls: type, name: str, type_: click.ParamType[Any] | None = None, *, option: str = ""
) -> Callable[[_Command], _Command]:
    """Return the option for a setting that a dataclass declares.

    Its value is None if it is not given and its default depends on other settings. ``type_`` is
    for values that are neither numbers nor a choice; ``option`` is its name, if not the setting's.
    """
    declared = settings_of(cls)[name]
    words = declared.default_words
    if declared.kind is bool and type_ is None:
        return click.option(option or f"--{name.replace('_', '-')}", is_flag=True, default=None,
                            help=declared.help)
    return click.option(
        option or f"--{name.replace('_', '-')}",
        type=type_ or (click.Choice(declared.choices) if declared.choices else declared.kind),
        default=None if declared.defaults else declared.default, metavar=declared.metavar,
        help=declared.help + (f"  [default: {words}]" if words else ""))


def scheduler_option(
    help_text: str, variable: str = "schedulers", **settings: Any
) -> Callable[[_Command], _Command]:
    """Return the repeatable option ``--scheduler``."""
    return click.option("--scheduler", variable, multiple=True, help=help_text, **settings)


def profiles_option(
    *, required: bool = True, several: bool = True
) -> Callable[[_Command], _Command]:
    """Return the option ``--profiles``, of one worker type or of ``several``."""
    return click.option(
        "--profiles", "profile_names", type=PROFILES, required=required,
        metavar="FILE|NAME|TYPE=FILE,..." if several else "FILE|NAME",
        help="Profile file, or the name of a shipped profile set."
        + ("\nOf several worker types: gpu=a.json,cpu=b.json." if several else ""))


def slo_option(*, required: bool = True) -> Callable[[_Command], _Command]:
    """Return the option ``--slo-ms`` of commands whose help names no SLO classes."""
    return click.option("--slo-ms", type=SLOS, required=required, metavar="MS",
                        help="Deadline after arrival, in ms.")


def cluster_options(command: _Command, *, required: bool = True) -> _Command:
    """Add ``--profiles``, ``--slo-ms`` and ``--workers`` for one or several types and classes."""
    return with_options(
        command, profiles_option(required=required),
        click.option("--slo-ms", type=SLOS, required=required, metavar="MS|MS:SHARE,...",
                     help="Deadline after arrival, in ms.\nOf several classes, with their shares "
                          "of the requests: 100:0.3,150:0.7."),
        click.option("--workers", type=WORKERS, required=required, metavar="N|TYPE=N,...",
                     help="Workers that share the load.\nOf several types: gpu=4,cpu=40."))


def load_option(
    *, required: bool = True, several: bool = True
) -> Callable[[_Command], _Command]:
    """Return the option ``--load``, with help for one load or ``several``."""
    return click.option("--load", "loads", type=LOADS, required=required, metavar="QPS",
                        help="Loads in requests/s: 400, or 400,800, or from:to:step."
                        if several else "Load in requests/s, such as 400.")


def plot_option(what: str) -> Callable[[_Command], _Command]:
    """Return the option ``--plot``; ``what`` it draws is part of the help."""
    return click.option("--plot", type=FIGURE, metavar="FILE",
                        help=f"Draw {what}: .png, .pdf or .svg (needs the extra 'plot').")


def variants_options(command: _Command, required: bool = True) -> _Command:
    """Add ``--variants``, a TOML file, and ``--code``, with functions that it may name."""
    return with_options(
        command,
        click.option("--variants", required=required, metavar="FILE",
                     help="TOML file of the models to run, by the names in the policies."),
        click.option("--code", multiple=True, metavar="MODULE:FUNCTION", expose_value=False,
                     help="Function in the variants file that may be imported.\nRepeat for "
                          "several."))


def target_options(command: _Command, max_violation: float | None = 0.001) -> _Command:
    """Add ``--max-violation``, ``--min-accuracy``, ``--min-effective-accuracy``, ``--every``."""
    return with_options(
        command,
        click.option("--every", "every_ms", type=DURATION, metavar="TIME",
                     help="Meet the target in each window of this length of the trace, such as "
                          "10s, and not only on the mean."),
        click.option("--min-accuracy", type=float, metavar="A",
                     help="Least mean accuracy of the requests in time."),
        click.option("--min-effective-accuracy", type=float, metavar="E",
                     help="Least mean accuracy, with late and dropped requests counted as 0."),
        click.option("--max-violation", type=float, default=max_violation, metavar="V",
                     show_default=max_violation is not None,
                     help="Largest share of late or dropped requests."))


def trace_options(command: _Command) -> _Command:
    """Add the options that say how a trace is read."""
    return with_options(
        command,
        click.option("--trace-format", type=click.Choice(("auto", *TRACE_FORMATS)),
                     default="auto", show_default=True, metavar="NAME",
                     help="Format of the trace, if its first line does not tell it: `ramsis help "
                          "traces`."),
        click.option("--unit", type=click.Choice(list(UNITS)), default=None,
                     help="Unit of the times in the trace.  [default: s for loads; timestamps "
                     "need it, unless they are dates or their column's name ends in it]"),
        click.option("--time-column", metavar="NAME",
                     help="Column of the timestamps in a CSV trace, or key in JSON lines; each "
                          "row is then one request."),
        click.option("--load-column", "load_columns", metavar="NAME", multiple=True,
                     help="Column of rates or counts in a CSV trace whose rows are intervals; "
                     "given several times, they are added up."))


def workload_options(command: _Command, *, several: bool = True) -> _Command:
    """Add ``--load``, ``--trace`` with its format options, ``--arrivals`` and ``--duration-s``.

    The command gets them as one ``workload``; for ``several`` see :func:`load_option`.
    """

    @functools.wraps(command)
    def decorated(*positional: Any, **options: Any) -> Any:
        from ramsis.cli.options.workloads import WorkloadOptions  # which takes long to load

        return gathered(workload=WorkloadOptions)(command)(*positional, **options)

    return with_options(
        decorated, load_option(required=False, several=several),
        click.option("--trace", type=TRACE, metavar="FILE|NAME",
                     help="File of timestamps or loads, or a shipped trace: day.\nLines "
                     "of times, or of seconds and QPS, or a public data set, as text, .gz or "
                     ".zst."),
        trace_options,
        click.option("--scale", type=float, default=1.0, show_default=True,
                     help="Factor on the loads of the trace.\nTimestamps are replayed that much "
                          "faster."),
        click.option("--arrivals", type=ARRIVALS, default="poisson", show_default=True,
                     metavar="PROCESS",
                     help="Arrival process: `ramsis help processes`.\n"
                          f"{', '.join(patterns())}, or {OWN}."),
        click.option("--duration-s", type=float, metavar="SECONDS",
                     help="Time of arrivals, after which the queues drain.  [default: 30, or the "
                          "trace]"))


MOST_SEEDS = 100_000
"""Runs that a command makes at most."""


def seed_options(seeds: int) -> Callable[[_Command], _Command]:
    """Add ``--seed`` and ``--seeds``, by default ``seeds``; the command gets a range ``seeds``."""
    def add(command: _Command) -> _Command:
        return with_options(
            command,
            click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
                         help="Seed of the first run."),
            click.option("--seeds", type=click.IntRange(1, MOST_SEEDS), default=seeds,
                         show_default=True, help="Runs to average over, each with the next seed."),
            gathered(seeds=lambda seed, seeds: range(seed, seed + seeds)))

    return add


def sizes_options(command: _Command) -> _Command:
    """Add ``--sizes`` and ``--size-column``, which belong to the workload, if there is one."""
    return with_options(
        command,
        click.option("--sizes", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                     help="Sizes of the requests, if not in the trace: a CSV file with a column "
                          "size, and one of counts if it is a histogram.\nThe profile has to "
                          "have times by size."),
        click.option("--size-column", metavar="NAME",
                     help="Column or key of the sizes in the trace, or in --sizes."))


min_in_time_option = click.option(
    "--min-in-time-by-class", type=SHARES, metavar="X[,X,…]",
    help="With --sizes: share of the requests of each size class to answer in time, or a share "
         "for each class, if that can be.")
models_option = click.option(
    "--models", type=MODELS, metavar="A,B,...",
    help="Models of the profile to use.\nWith several worker types each uses those it has.  "
         "[default: all]")

def engine_options(default: int | None = None) -> Callable[[_Command], _Command]:
    """Add ``--engine``, ``--address`` and ``--processes``, passed to the command as ``engine``.

    ``default`` is that of ``--processes``; None means one per core.
    """
    def made(engine: str, address: str | None, processes: int | None) -> Any:
        from ramsis.sweep import Engine

        if address is not None and processes is not None:
            raise click.UsageError("--processes is for this machine; a cluster has its own.")
        if engine == "ray":
            require("ray", "ray", "--engine ray", "--engine")
        return Engine(engine, processes or (
            default if default and engine == "processes" else _cores()), address)

    def add(command: _Command) -> _Command:
        return with_options(
            command,
            click.option("--engine", type=click.Choice(("processes", "ray")), default="processes",
                         show_default=True, help="Where to compute: processes of this machine, "
                         "or Ray (extra 'ray')."),
            click.option("--address", metavar="HOST:PORT",
                         help="Ray cluster to compute on.  [default: Ray on this machine]"),
            click.option("--processes", type=click.IntRange(min=1), metavar="N",
                         help="Processes to compute in.  [default: "
                         f"{default or 'one for each core'}]"),
            gathered(engine=made))

    return add


def _cores() -> int:
    """Return the number of cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


simulated_service_option = click.option(
    "--service", type=click.Choice(SERVICES),
    help="Statistic that batches take, or drawn from the distribution.  "
         f"[default: {DEFAULT_SERVICE}]")
