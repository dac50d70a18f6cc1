"""Options that commands about a fleet under load share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["fleet_options", "load_option"]

_Command = Callable[..., Any]


def fleet_options(command: _Command) -> _Command:
    """``--profiles``, ``--slo-ms`` and ``--workers``: what serves, and by when."""
    for option in (
        click.option("--workers", type=int, required=True, help="Workers that share the load."),
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
