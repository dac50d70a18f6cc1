"""Options that name schedulers to compare; by default both kinds of dispatch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from ramsis.cli.options.shared import scheduler_option
from ramsis.policy import DISPATCHES
from ramsis.runtime.routing import DISPATCH_NAMES

BOTH = ("round-robin", "central-queue")
"""Default comparison: a queue for each worker, and a central queue."""

_CASCADES = "cascades=true"
_Command = Callable[..., Any]


def also_with_cascades(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return schedulers and, for each with a central queue, the same with second opinions.

    >>> also_with_cascades(("greedy", "central-queue:max_queue=16"))
    ('greedy', 'central-queue:max_queue=16', 'central-queue:max_queue=16,cascades=true')
    """
    added = [f"{name}{',' if ':' in name else ':'}{_CASCADES}" for name in names
             if name.partition(":")[0] == "central-queue" and "cascades=" not in name]
    if not added:
        raise click.UsageError("--cascades is for a central queue: add --dispatch central-queue.")
    return (*names, *added)


def dispatch_words(name: str) -> list[str]:
    """Return the options of ``generate`` for a dispatch, with or without second opinions."""
    dispatch, _, settings = name.partition(":")
    return ["--dispatch", dispatch, *(["--cascades"] if settings == _CASCADES else [])]


def compared_options(type_: click.ParamType[Any], help_: str) -> Callable[[_Command], _Command]:
    """Add ``--dispatch`` and ``--scheduler`` to a command that compares schedulers.

    The command gets ``schedulers``, a tuple of the values parsed by ``type_``, and ``named``,
    which is False without names; ``schedulers`` are then :data:`BOTH`.

    Parameters
    ----------
    type_ : click.ParamType
        Type of a scheduler's name.
    help_ : str
        Help text of ``--scheduler``.
    """

    def add(command: _Command) -> _Command:
        @functools.wraps(command)
        def gathered(
            *positional: Any, dispatches: tuple[str, ...], schedulers: tuple[Any, ...],
            **options: Any,
        ) -> Any:
            read = functools.partial(type_.convert, param=None, ctx=None)
            named = (*map(read, dispatches), *schedulers)
            return command(*positional, schedulers=named or tuple(map(read, BOTH)),
                           named=bool(named), **options)

        decorated: _Command = gathered
        for option in (
            scheduler_option(help_, type=type_, metavar="NAME"),
            click.option("--dispatch", "dispatches", type=click.Choice(list(DISPATCHES)),
                         multiple=True, metavar="NAME",
                         help=f"Policies by how requests reach workers: {DISPATCH_NAMES}.\nRepeat "
                         "to compare.  "
                         f"[default: {' and '.join(BOTH)}]"),
        ):
            decorated = option(decorated)
        return decorated

    return add
