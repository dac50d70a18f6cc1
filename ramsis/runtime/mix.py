"""Mixed fleets: which part of the fleet a query goes to, and the policies of the parts.

A ``mix.json`` (``ramsis.mix/1``) names, for each load level, the parts of the fleet that serve:
a worker type, a number of its workers, a policy file, and for each SLO class the share of its
queries that comes to the part. Standard library only.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.files import fingerprint, read_json
from ramsis.runtime.fields import FRACTION, POSITIVE, Fields
from ramsis.runtime.table import KINDS, check_format

__all__ = ["MIX_FORMAT", "MIX_NAME", "ListedLevel", "ListedPart", "Mix", "read_mix"]

MIX_FORMAT = "ramsis.mix/1"
MIX_NAME = "mix.json"

_ROUNDING = 1e-6


class ListedPart(NamedTuple):
    """A part of the fleet at one load.

    Attributes
    ----------
    file
        Its policy file, relative to the folder of the mix.
    fingerprint
        Of that file.
    types
        Names of the worker type; several that are alike.
    workers
        How many of them.
    load_qps
        Queries per second that come to the part.
    share
        By SLO in ms, the share of the class's queries that comes to the part.
    """

    file: str
    fingerprint: str
    types: tuple[str, ...]
    workers: int
    load_qps: float
    share: Mapping[float, float]


class ListedLevel(NamedTuple):
    """The parts for one load, and as plain JSON values what is expected of them together."""

    load_qps: float
    parts: tuple[ListedPart, ...]
    expected: Mapping[str, Any]

    def part_for(self, slo_ms: float, uniform: float) -> ListedPart:
        """The part that a query goes to.

        Parameters
        ----------
        slo_ms
            Of the query's class.
        uniform
            A number drawn evenly from [0, 1) for the query, as by ``random.random()``; so
            that arrivals at a part are as irregular as its policy expects.

        Raises
        ------
        InvalidValueError
            No such class.
        """
        parts = [part for part in self.parts if slo_ms in part.share]
        if not parts:
            known = sorted({slo for part in self.parts for slo in part.share})
            raise InvalidValueError(describe("no class of this SLO", where="slo_ms", value=slo_ms,
                                             allowed=", ".join(f"{slo:g}" for slo in known)))
        upto = list(accumulate(part.share[slo_ms] for part in parts))
        return parts[min(bisect_left(upto, uniform * upto[-1]), len(parts) - 1)]


class Mix(NamedTuple):
    """A mixed fleet's policies by load.

    Attributes
    ----------
    folder
        Where the policy files are.
    kind
        Of the policies: ``worker`` or ``fleet``.
    types
        Workers by name of the type.
    classes
        By SLO in ms, the class's share of the queries.
    levels
        By rising load.
    """

    folder: Path
    kind: str
    types: Mapping[str, int]
    classes: Mapping[float, float]
    levels: tuple[ListedLevel, ...]

    def at(self, load_qps: float) -> ListedLevel:
        """The lowest level that meets an anticipated load, else the highest.

        Raises
        ------
        InvalidValueError
            The load is negative or NaN.
        """
        if not load_qps >= 0:
            raise InvalidValueError(describe("not a load", where="load_qps", value=load_qps,
                                             allowed="0 or more"))
        loads = [level.load_qps for level in self.levels]
        return self.levels[min(bisect_left(loads, load_qps), len(loads) - 1)]

    def document(self, part: ListedPart) -> dict[str, Any]:
        """A part's policy document, as it was when the mix was written.

        Raises
        ------
        InputFileError
            The file is missing, unreadable, or has changed.
        """
        path = self.folder / part.file
        document = read_json(path)
        found = fingerprint(path.read_bytes().decode())
        if found != part.fingerprint:
            raise InputFileError(describe("policy file has changed since the mix",
                                          where=str(path), value=found, allowed=part.fingerprint))
        return document


def read_mix(path: str | os.PathLike[str]) -> Mix:
    """The mix in a folder or a ``mix.json``; the policy files are not looked at.

    Raises
    ------
    InputFileError
        There is none, or it breaks its format: an unknown type, shares that do not sum to 1.
    """
    file = Path(path) / MIX_NAME if Path(path).is_dir() else Path(path)
    fields = Fields(read_json(file), str(file))
    check_format(fields, MIX_FORMAT)
    fields.only(("format", "created_by", "kind", "types", "classes", "levels"))
    types = {one.text("name"): one.whole("workers", 1) for one in fields.children("types")}
    classes = {one.number("slo_ms", POSITIVE): one.number("share", FRACTION)
               for one in fields.children("classes")}
    if abs(sum(classes.values()) - 1.0) > _ROUNDING:
        raise fields.refusal("classes", "shares do not sum to 1", value=sum(classes.values()))
    levels = tuple(_level(one, types, classes) for one in fields.children("levels"))
    loads = [level.load_qps for level in levels]
    if not levels or sorted(set(loads)) != loads:
        raise fields.refusal("levels", "loads do not rise", value=loads)
    return Mix(file.parent, fields.text("kind", KINDS), types, classes, levels)


def _level(
    fields: Fields, types: Mapping[str, int], classes: Mapping[float, float]
) -> ListedLevel:
    parts = tuple(_part(one, types, classes) for one in fields.children("parts"))
    for slo_ms in classes:
        total = sum(part.share.get(slo_ms, 0.0) for part in parts)
        if abs(total - 1.0) > _ROUNDING:
            raise fields.refusal("parts", f"shares of the class of {slo_ms:g} ms do not sum to 1",
                                 value=total)
    expected = {key: fields.value(key) for key in fields if key not in ("load_qps", "parts")}
    return ListedLevel(fields.number("load_qps", POSITIVE), parts, expected)


def _part(
    fields: Fields, types: Mapping[str, int], classes: Mapping[float, float]
) -> ListedPart:
    fields.only(("file", "fingerprint", "types", "workers", "load_qps", "share"))
    names = fields.items("types")
    for i, name in enumerate(names):
        if not isinstance(name, str) or name not in types:
            raise fields.refusal(f"types[{i}]", "unknown worker type", value=name,
                                 allowed=", ".join(types))
    most = sum(types[name] for name in names)
    share = {}
    for one in fields.children("share"):
        slo_ms = one.number("slo_ms", POSITIVE)
        if slo_ms not in classes:
            raise one.refusal("slo_ms", "unknown SLO class", value=slo_ms,
                              allowed=", ".join(f"{slo:g}" for slo in classes))
        share[slo_ms] = one.number("share", FRACTION)
    file = fields.text("file")
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise fields.refusal("file", "not a file below this folder", value=file)
    return ListedPart(file, fields.text("fingerprint"), tuple(names),
                      fields.whole("workers", 1, most), fields.number("load_qps", POSITIVE), share)
