"""``ramsis capacity`` for several worker types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ramsis import profiles
from ramsis.cli.params import ByType
from ramsis.cli.rows import Column
from ramsis.cluster import WorkerType
from ramsis.errors import InvalidValueError, describe

__all__ = ["MIX_COLUMNS", "mix_words", "offered_types", "refuse_beside_types"]

MIX_COLUMNS = (
    Column("mix", "workers"),
    Column("cost", "cost", "g"),
    Column("cost_bound", "bound", "g"),
    Column("gap", "gap", ".6g"),
)
_OTHERS = ("trace", "unit", "time_column", "trace_format", "scale", "arrivals", "plot")


def offered_types(
    profile_names: ByType[str], cost: ByType[float] | None, max_workers: ByType[int] | None
) -> tuple[WorkerType, ...]:
    """The worker types that ``--profiles TYPE=FILE,…`` names; none for a single profile.

    Raises
    ------
    InvalidValueError
        Costs or numbers of workers of types without a profile.
    """
    files = profile_names.values
    for where, given in (("--cost", cost), ("--max-workers", max_workers)):
        if given is not None and not profile_names.typed:
            raise InvalidValueError(describe("there is one worker type only", where=where,
                                             value=given.text, allowed="--profiles TYPE=FILE,…"))
        for name in given.values if given is not None else ():
            if name not in files:
                raise InvalidValueError(describe("unknown worker type", where=where, value=name,
                                                 allowed=", ".join(files)))
    if not profile_names.typed:
        return ()
    costs = cost.values if cost is not None else {}
    most = max_workers.values if max_workers is not None else {}
    read = {file: profiles.load(file) for file in files.values()}
    return tuple(WorkerType(name, read[file], most.get(name), costs.get(name, 1.0))
                 for name, file in files.items())


def mix_words(row: Mapping[str, Any]) -> str:
    """The workers of each type that there are any of."""
    return ", ".join(f"{name}={count}" for name, count in row["worker_types"].items() if count)


def refuse_beside_types(context: click.Context) -> None:
    """Refuse options that several worker types do not have, if they were given."""
    for name in _OTHERS:
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} is not for several worker types.")
