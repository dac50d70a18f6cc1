"""``ramsis capacity`` for several worker types."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from ramsis import profiles
from ramsis.cli.mixed import by_type
from ramsis.cli.rows import Column
from ramsis.errors import InvalidValueError, describe
from ramsis.synthesis.cheapest import OfferedType

__all__ = ["MIX_COLUMNS", "mix_words", "offered_types", "refuse_beside_types"]

MIX_COLUMNS = (
    Column("mix", "workers"),
    Column("cost", "cost", "g"),
    Column("cost_bound", "bound", "g"),
    Column("gap", "gap", ".6g"),
)
_OTHERS = ("trace", "unit", "time_column", "trace_format", "scale", "arrivals", "plot")


def offered_types(
    profile_name: str, cost: str | None, max_workers: str | None
) -> tuple[OfferedType, ...]:
    """The worker types that ``--profiles TYPE=FILE,…`` names; none for a single profile.

    Raises
    ------
    InvalidValueError
        Costs or numbers of workers of types without a profile, or that are none.
    """
    files = {} if os.path.exists(profile_name) else by_type(profile_name, "--profiles")
    if not files:
        for where, text in (("--cost", cost), ("--max-workers", max_workers)):
            if text is not None:
                raise InvalidValueError(describe("there is one worker type only", where=where,
                                                 value=text, allowed="--profiles TYPE=FILE,…"))
        return ()
    costs, most = (_numbers(text, where, files) for where, text in (
        ("--cost", cost), ("--max-workers", max_workers)))
    for name, number in most.items():
        if not number.is_integer() or number < 1:
            raise InvalidValueError(describe("not a number of workers",
                                             where=f"--max-workers: {name}", value=number,
                                             allowed="a whole number >= 1"))
    read = {file: profiles.load(file) for file in files.values()}
    return tuple(OfferedType(name, read[file], costs.get(name, 1.0),
                             int(most[name]) if name in most else None)
                 for name, file in files.items())


def mix_words(row: Mapping[str, Any]) -> str:
    """The workers of each type that there are any of."""
    return ", ".join(f"{name}={count}" for name, count in row["worker_types"].items() if count)


def refuse_beside_types(context: click.Context) -> None:
    """Refuse options that several worker types do not have, if they were given."""
    for name in _OTHERS:
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} is not for several worker types.")


def _numbers(text: str | None, where: str, known: Mapping[str, str]) -> dict[str, float]:
    """``TYPE=NUMBER,…`` as a mapping."""
    found = by_type(text, where) if text is not None else {}
    if text is not None and not found:
        raise InvalidValueError(describe("not a value for each worker type", where=where,
                                         value=text, allowed="TYPE=VALUE,TYPE=VALUE,…"))
    for name, value in found.items():
        if name not in known:
            raise InvalidValueError(describe("unknown worker type", where=where, value=name,
                                             allowed=", ".join(known)))
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise InvalidValueError(describe("not positive", where=f"{where}: {name}",
                                             value=value, allowed="a finite number > 0"))
    return {name: float(value) for name, value in found.items()}
