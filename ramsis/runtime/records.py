"""Records that are declared once: fields with types, ranges and units, and their reader.

A record is a frozen dataclass that derives from :class:`Record`. The annotation of a field says
what a file may have there, and :meth:`Record.from_fields` reads a JSON object by it:

- ``float`` is a finite number, ``Annotated[float, RULE]`` one that satisfies the rule;
- ``int`` is a whole number, ``Annotated[int, Whole(LOW, HIGH)]`` one in a range;
- ``str`` is a text, ``Annotated[str, NAMES]`` one of these; ``bool`` is true or false;
- ``tuple[float, ...]`` is a list of numbers, ``tuple[str, ...]`` one of distinct names,
  ``tuple[RECORD, ...]`` one of objects; each has an entry or more, unless the annotation says
  :data:`EMPTY`;
- ``dict[str, float]`` is an object of numbers, a record's class is an object;
- ``X | None`` is X, ``Annotated[X, Reader(f)]`` is what ``f(item, key)`` reads.

A field without a default must be there, and null is no value, as files that people write have it.
A :class:`WrittenRecord` is what a program writes: there a field that may be ``None`` may be null,
or absent, so that a later version can add fields and still read older files. What fields say
together is checked by :meth:`Record.check`. Standard library only, as the runtime is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ramsis.errors import FINITE, FRACTION, NON_NEGATIVE, POSITIVE
from ramsis.runtime.fields import Fields


class Whole(NamedTuple):
    """Range of a whole number, both ends included."""

    low: int
    high: int | None = None


class Reader(NamedTuple):
    """What reads a field that is like no other: ``read(item, key)``."""

    read: Callable[[Fields, str], Any]


EMPTY = "may be empty"
"""Marks a list that may have no entry."""

Positive = Annotated[float, POSITIVE]
NonNegative = Annotated[float, NON_NEGATIVE]
Fraction = Annotated[float, FRACTION]
Count = Annotated[int, Whole(1)]


class Record:
    """A record that reads itself from a JSON object."""

    __slots__ = ()

    @classmethod
    def from_fields(cls, item: Fields) -> Self:
        """The record in an object."""
        return record_of(cls, item)

    def check(self, item: Fields) -> None:
        """Refuse fields that contradict each other; ``item`` is what the record was read from."""


class WrittenRecord(Record):
    """A record of a file that a program writes; ``None`` stands there as null."""

    __slots__ = ()


RecordType = TypeVar("RecordType", bound=Record)


def record_of(record: type[RecordType], item: Fields, **known: Any) -> RecordType:
    """A record in an object; ``known`` are values of fields that are not read here."""
    readers = _readers(cast(Hashable, record))
    item.only(readers)
    found = {name: read(item, name) for name, (read, needed) in readers.items()
             if name not in known and (needed or name in item)}
    made = record(**found, **known)
    made.check(item)
    return made


def optional(record: type[RecordType], item: Fields, key: str) -> RecordType | None:
    """The record in a field of an object; ``None`` where the field is null or absent."""
    child = item.child_or_none(key)
    return None if child is None else record.from_fields(child)


def names(record: type[Any]) -> tuple[str, ...]:
    """Names of a record's fields."""
    return tuple(item.name for item in fields(record))


@cache
def _readers(record: Hashable) -> dict[str, tuple[Callable[[Fields, str], Any], bool]]:
    """How each field is read, and whether it must be."""
    assert isinstance(record, type)
    kinds = get_type_hints(record, include_extras=True)
    written = issubclass(record, WrittenRecord)
    found = {}
    for item in fields(record):
        read = _reader(kinds[item.name])
        needed = item.default is MISSING and item.default_factory is MISSING
        if written and NoneType in get_args(kinds[item.name]):
            read, needed = _or_none(read), True
        if item.compare:
            found[item.name] = read, needed
    return found


def _reader(kind: Any, *marks: Any) -> Callable[[Fields, str], Any]:
    """What reads a field of a kind, with what ``Annotated`` says besides."""
    mark = marks[0] if marks else None
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(mark, Reader):
        return mark.read
    if origin is Annotated:
        return _reader(inner[0], *inner[1:], *marks)
    if origin in (Union, UnionType):
        return _reader(next(one for one in inner if one is not NoneType))
    if origin is tuple:
        read = _list_reader(inner[0])
        return _unless_empty(read) if EMPTY in marks else read
    if origin is dict:
        read = _reader(inner[1])
        return lambda item, key: {name: read(item.child(key), name) for name in item.child(key)}
    if kind is float:
        return lambda item, key: item.number(key, mark or FINITE)
    if kind is int:
        return lambda item, key: item.whole(key, *mark or Whole(0))
    if kind is str:
        return lambda item, key: item.text(key, mark)
    if kind is bool:
        return Fields.flag
    return lambda item, key: kind.from_fields(item.child(key))


def _list_reader(kind: Any) -> Callable[[Fields, str], tuple[Any, ...]]:
    plain, *marks = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    if plain is str:
        return texts
    if plain is float:
        return lambda item, key: tuple(item.numbers(key, marks[0] if marks else FINITE))
    return lambda item, key: tuple(map(plain.from_fields, item.children(key)))


def _unless_empty(read: Callable[[Fields, str], Any]) -> Callable[[Fields, str], Any]:
    return lambda item, key: () if item.value(key) == [] else read(item, key)


def _or_none(read: Callable[[Fields, str], Any]) -> Callable[[Fields, str], Any]:
    return lambda item, key: (None if key not in item or item.value(key) is None
                              else read(item, key))


def texts(item: Fields, key: str) -> tuple[str, ...]:
    """A non-empty list of distinct, non-empty strings."""
    found: dict[str, None] = {}
    for i, value in enumerate(item.items(key)):
        if not isinstance(value, str) or not value or value in found:
            raise item.refusal(f"{key}[{i}]", "not a new name", value=value,
                               allowed="distinct, non-empty strings")
        found[value] = None
    return tuple(found)


def stated(record: Any) -> dict[str, Any]:
    """A record as a JSON object without the fields that have their default values.

    Fields that are left out of comparisons are left out here, too.
    """
    found = {}
    for item in fields(record):
        value = getattr(record, item.name)
        known = item.default if item.default_factory is MISSING else item.default_factory()
        # An empty list of latencies or variants has to be written, although it is a default.
        if item.compare and (value != known or item.name in ("latency", "variants")):
            found[item.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return stated(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
