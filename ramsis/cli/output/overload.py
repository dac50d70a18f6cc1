"""Overload notes, and ``--strict``, which turns them into an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from ramsis.errors import InfeasibleError
from ramsis.report.verdicts import OVERLOAD, overload_rate

_SHOWN = 10


def _remember(context: click.Context, option: click.Parameter, value: bool) -> None:
    context.meta["ramsis.strict"] = value


strict_option = click.option(
    "--strict", is_flag=True, expose_value=False, callback=_remember,
    help="Exit with code 4 on overload, after writing everything.")
"""``--strict``, applied by :func:`tell_overload` and not passed to the command."""


def overloaded(rows: Iterable[Mapping[str, Any]], *names: str) -> Iterator[str]:
    """Yield a description of each overloaded row.

    Parameters
    ----------
    *names : str
        Keys of values that identify a row; some may be absent.
    """
    for row in rows:
        rate = overload_rate(row)
        if rate > OVERLOAD:
            load_qps = row.get("load_qps")
            load = "" if load_qps is None else f", {load_qps:.6g} QPS"
            description = ", ".join(str(row[name]) for name in names if row.get(name))
            yield f"{description}{load}: OVERLOAD, {rate:.1%} of the requests late or dropped"


def tell_overload(cases: Iterable[str]) -> None:
    """Name on stderr the cases that are overloaded, as ``400 QPS: OVERLOAD``."""
    overloads = list(cases)
    for case in overloads[:_SHOWN]:
        click.echo(f"note: {case}", err=True)
    if len(overloads) > _SHOWN:
        click.echo(f"note: OVERLOAD in {len(overloads) - _SHOWN} more rows", err=True)
    context = click.get_current_context(silent=True)
    if overloads and context is not None and context.meta.get("ramsis.strict"):
        raise InfeasibleError(
            f"overload in {len(overloads)} of the rows above (--strict): more workers are needed, "
            "which `ramsis capacity` counts")
