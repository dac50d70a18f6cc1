"""Partitioned GPUs (such as NVIDIA MIG): kinds of instances, and their layouts.

A GPU has memory slices 0 … M - 1 and C compute slices. An instance of kind i takes m_i consecutive
memory slices from an allowed start, and any c_i compute slices. A **layout** is a set of
(instance, start) with

    no memory slice taken twice,    Σ c_i <= C.

A layout is **maximal** if no instance can be added. Only these are columns of the program, since
an instance may stay idle.

Shipped tables are in ``gpu-partitions.json``. They have the starts of NVIDIA's drivers
(``nvidia-smi mig -lgipp``); instances with media engines (``+me``) are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Any

from ramsis.errors import InputFileError
from ramsis.fields import Fields
from ramsis.records import Positive, Reader, Record, Whole

Layout = tuple[tuple[str, int], ...]  # instances with their starts, sorted by start

_MOST_SLICES = 16  # twice the slices of today's GPUs
_MOST_LAYOUTS = 5_000  # as each is a column of the program
_Slices = Annotated[int, Whole(1, _MOST_SLICES)]
_STARTS = {"type": "array", "minItems": 1, "uniqueItems": True,
           "items": {"type": "integer", "minimum": 0, "maximum": _MOST_SLICES - 1}}


def _starts(item: Fields, key: str) -> tuple[int, ...]:
    starts = item.items(key)
    for i, start in enumerate(starts):
        if type(start) is not int or not 0 <= start < _MOST_SLICES or start in starts[:i]:
            raise item.refusal(f"{key}[{i}]", "not a new memory slice", value=start,
                               allowed=f"distinct whole numbers from 0 to {_MOST_SLICES - 1}")
    return tuple(starts)


@dataclass(frozen=True, slots=True)
class Instance(Record):
    """Kind of instance of a partitioned GPU."""

    name: Annotated[str, "Profile name that the driver reports, such as 2g.20gb."]
    compute_slices: Annotated[_Slices, "Compute slices that it takes of a GPU."]
    memory_slices: Annotated[_Slices, "Memory slices that it takes of a GPU."]
    memory_mb: Annotated[Positive, "Memory for variants."]
    starts: Annotated[
        tuple[int, ...], Reader(_starts, _STARTS), "Memory slices at which it may start."]


@dataclass(frozen=True, slots=True)
class PartitionTable(Record):
    """Table of a GPU's kinds of instances, with their allowed positions."""

    name: Annotated[str, "Name of the GPU model."]
    compute_slices: Annotated[_Slices, "Compute slices of the GPU."]
    memory_slices: Annotated[_Slices, "Memory slices of the GPU."]
    instances: Annotated[tuple[Instance, ...], "Kinds of instances that the GPU can be cut into."]

    @classmethod
    def from_field(cls, item: Fields, key: str) -> PartitionTable:
        """Read a table, or the name of a shipped table, from a field."""
        if not isinstance(item.value(key), str):
            return cls.from_fields(item.child(key))
        return shipped_partitions()[item.text(key, tuple(shipped_partitions()))]

    @classmethod
    def field_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of a table, or of the name of a shipped one."""
        name = {"type": "string", "minLength": 1,
                "description": "A GPU that is known, such as A100-80GB."}
        return {"oneOf": [name, cls.schema()]}

    def instance(self, name: str) -> Instance:
        """Return the kind of instance with a name."""
        return next(kind for kind in self.instances if kind.name == name)

    def check(self, item: Fields) -> None:
        """Refuse instances that do not fit the GPU."""
        seen: set[str] = set()
        for i, kind in enumerate(self.instances):
            where = f"instances[{i}]"
            if kind.name in seen or "/" in kind.name or "@" in kind.name:
                raise item.refusal(f"{where}.name", "not a new name", value=kind.name,
                                   allowed="each name once, without / and @")
            seen.add(kind.name)
            if kind.compute_slices > self.compute_slices:
                raise item.refusal(f"{where}.compute_slices", "more than the GPU has",
                                   value=kind.compute_slices,
                                   allowed=f"at most {self.compute_slices}")
            for start in kind.starts:
                if start + kind.memory_slices > self.memory_slices:
                    raise item.refusal(
                        f"{where}.starts", "instance ends beyond the GPU", value=start,
                        allowed=f"at most {self.memory_slices - kind.memory_slices} for "
                                f"{kind.memory_slices} of {self.memory_slices} memory slices")
        layouts(self, frozenset(seen))


@cache
def shipped_partitions() -> dict[str, PartitionTable]:
    """Return the shipped tables of GPUs by name."""
    name = "gpu-partitions.json"
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    return {item["name"]: PartitionTable.from_fields(Fields(item, name))
            for item in json.loads(text)}


def instance_worker(gpu: str, instance: str, start: int) -> str:
    """Return the name of the worker of an instance, ``GPU/INSTANCE@START``.

    >>> instance_worker("a100-1", "2g.20gb", 4)
    'a100-1/2g.20gb@4'
    """
    return f"{gpu}/{instance}@{start}"


def split_worker(worker: str) -> tuple[str, str, int]:
    """Return GPU, instance and start from the name of an instance's worker.

    >>> split_worker("a100-1/2g.20gb@4")
    ('a100-1', '2g.20gb', 4)
    """
    gpu, _, place = worker.rpartition("/")
    instance, _, start = place.rpartition("@")
    return gpu, instance, int(start)


@cache
def layouts(table: PartitionTable, kinds: frozenset[str]) -> tuple[Layout, ...]:
    """Return all maximal layouts of some kinds of instances."""
    result: list[Layout] = []
    for layout in _extended(table, [k for k in table.instances if k.name in kinds], (), 0):
        result.append(layout)
        if len(result) > _MOST_LAYOUTS:
            raise InputFileError("GPU has too many layouts", where=table.name,
                                 value=f"over {_MOST_LAYOUTS}", allowed=f"at most {_MOST_LAYOUTS}")
    return tuple(result)


def _extended(
    table: PartitionTable, kinds: list[Instance], layout: Layout, position: int
) -> Iterator[Layout]:
    """Yield the maximal layouts that extend ``layout`` from memory slice ``position`` on."""
    if position == table.memory_slices:
        if not _additions(table, kinds, layout):
            yield layout
        return
    spare = table.compute_slices - sum(table.instance(name).compute_slices for name, _ in layout)
    for kind in kinds:
        if position in kind.starts and kind.compute_slices <= spare:
            yield from _extended(table, kinds, (*layout, (kind.name, position)),
                                 position + kind.memory_slices)
    yield from _extended(table, kinds, layout, position + 1)


def _additions(table: PartitionTable, kinds: list[Instance], layout: Layout) -> bool:
    """Return whether any instance of ``kinds`` can be added to a layout."""
    taken: set[int] = set()
    spare = table.compute_slices
    for name, start in layout:
        kind = table.instance(name)
        taken.update(range(start, start + kind.memory_slices))
        spare -= kind.compute_slices
    return any(kind.compute_slices <= spare
               and taken.isdisjoint(range(start, start + kind.memory_slices))
               for kind in kinds for start in kind.starts)


def multisets(
    candidates: Collection[Layout], useful: Collection[str],
    current: Collection[tuple[str, int]] = (),
) -> tuple[Layout, ...]:
    """Return the layouts that no other one dominates, by the counts of their instances.

    A layout dominates another if it has at least as many of each useful instance (on which a
    pattern can run), and all instances of ``current`` (which the GPU has) that the other has.
    """
    merits: dict[tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]], Layout] = {}
    for layout in candidates:
        counts = Counter(name for name, _ in layout if name in useful)
        merits.setdefault((frozenset(counts.items()), frozenset(layout) & frozenset(current)),
                          layout)
    listed = [(Counter(dict(counts)), kept, layout)
              for (counts, kept), layout in merits.items()]
    # Equal merits are one entry, so a layout that is nowhere better is worse somewhere.
    return tuple(layout for i, (counts, kept, layout) in enumerate(listed)
                 if not any(j != i and counts <= other and kept <= more
                            for j, (other, more, _) in enumerate(listed)))
