"""Parsing of clusters: counts and profiles by worker type, and SLOs by class.

The command line and the specification of a sweep share this syntax: ``gpu=4,cpu=40`` workers,
``gpu=a.json,cpu=b.json`` profiles, ``100:0.3,150:0.7`` SLOs in ms with shares.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ramsis.cluster.cluster import Cluster, SloClass, WorkerType, merged_classes
from ramsis.errors import InvalidValueError, check_known
from ramsis.profiles import ProfileSet

T = TypeVar("T")

_TYPED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)")


@dataclass(frozen=True)
class ByType(Generic[T]):
    """One value, or a value for each worker type."""

    ONE = "all"

    # by worker type, in the order given; one value stands under :attr:`ONE`
    values: Mapping[str, T]
    typed: bool  # whether worker types were named
    text: str  # as it was written

    @property
    def one(self) -> T:
        """Value for the only worker type, where no types are named."""
        return self.values[self.ONE]


def read_slos(text: str, where: str) -> tuple[SloClass, ...]:
    """Parse one SLO, or classes ``MS:SHARE,…``."""
    try:
        if ":" not in text:
            return (SloClass(float(text)),)
        pairs = [part.split(":") for part in text.split(",")]
        return tuple(SloClass(float(slo), float(share)) for slo, share in pairs)
    except InvalidValueError:
        raise
    except ValueError:
        raise InvalidValueError("not a valid float", where=where, value=text,
                                allowed="a number of ms, or MS:SHARE,MS:SHARE,… with "
                                "shares of the requests that sum to 1") from None


def by_type(text: str, where: str) -> dict[str, str]:
    """Parse ``TYPE=VALUE,…`` to a mapping; empty for a text of another form."""
    parts = [_TYPED.fullmatch(part.strip()) for part in text.split(",")]
    if not any(parts):
        return {}
    by_name: dict[str, str] = {}
    for part in parts:
        if part is None or part[1] in by_name:
            raise not_by_type(text, where)
        by_name[part[1]] = part[2]
    return by_name


def not_by_type(text: str, where: str) -> InvalidValueError:
    """Return the error for a text that gives no value for each worker type."""
    return InvalidValueError("not a value for each worker type", where=where, value=text,
                             allowed="TYPE=VALUE,TYPE=VALUE,…")


def read_workers(text: str, where: str) -> ByType[int]:
    """Parse a number of workers, or one for each type."""
    counts = by_type(text, where)
    if not counts:
        return ByType({ByType.ONE: _count(text, where)}, False, text)
    return ByType({name: _count(value, f"{where}: {name}") for name, value in counts.items()},
                  True, text)


def _count(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidValueError("not a valid integer", where=where, value=text,
                                allowed="a whole number, or TYPE=N,TYPE=N,…") from None


def read_profiles(text: str, where: str) -> ByType[str]:
    """Parse a file or name, or one for each type; an existing file may have ``=`` in its name."""
    files = {} if os.path.exists(text) else by_type(text, where)
    return ByType(files or {ByType.ONE: text}, bool(files), text)


def check_named(profiles: ByType[str], workers: ByType[int], where: tuple[str, str]) -> None:
    """Refuse types with profiles but no count, or the reverse; ``where`` names both options."""
    if not profiles.typed:
        return
    if not workers.typed:
        raise InvalidValueError("worker types have profiles but no numbers", where=where[1],
                                value=workers.text,
                                allowed=",".join(f"{name}=N" for name in profiles.values))
    for name in profiles.values:
        check_known("unknown worker type", name, workers.values, where[0])
    for name in workers.values:
        check_known("unknown worker type: it has no profile", name, profiles.values, where[1])


def named_cluster(
    profiles: ByType[str], classes: Sequence[SloClass], workers: ByType[int],
    where: tuple[str, str], read: Callable[[str], ProfileSet],
) -> Cluster:
    """Create a cluster of worker types; read the profiles, each file once."""
    check_named(profiles, workers, where)
    by_file = {file: read(file) for file in profiles.values.values()}
    types = tuple(
        WorkerType(name, by_file[profiles.values[name] if profiles.typed else profiles.one], count)
        for name, count in workers.values.items())
    return Cluster(types, merged_classes(tuple(classes)))
