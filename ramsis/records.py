"""Declarative records of JSON files: fields with types, ranges and descriptions.

A record is a frozen dataclass that derives from :class:`Record`. The annotation of a field defines
its allowed values. :meth:`Record.from_fields` reads a JSON object by the annotations, and
:func:`schema_of` derives the JSON schema:

- ``float`` is a finite number, ``Annotated[float, RULE]`` one that satisfies the rule;
- ``int`` is a whole number, ``Annotated[int, Whole(LOW, HIGH)]`` one in a range;
- ``str`` is a text, ``Annotated[str, NAMES]`` or ``Literal[...]`` one of these; ``bool`` is true
  or false;
- ``tuple[float, ...]`` is a list of numbers, ``tuple[str, ...]`` one of distinct names,
  ``tuple[RECORD, ...]`` one of objects, ``tuple[tuple[int, ...], ...]`` one of lists; each has an
  entry or more, unless the annotation has other numbers of :class:`Entries`, such as
  :data:`EMPTY`;
- ``dict[str, X]`` is an object whose fields are all X, a record's class is an object;
- ``X | None`` is X, ``Annotated[X, Reader(f)]`` is what ``f(item, key)`` reads;
- a text in ``Annotated[X, "..."]`` is the description of the field.

A field without a default is required, and null is not allowed, as in files that people write. A
:class:`WrittenRecord` is written by a program: there a field that may be ``None`` may be null or
absent, so that later versions can add fields and still read older files. :meth:`Record.check`
checks fields against each other. Standard library only, as the runtime is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from inspect import getdoc
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
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
from ramsis.fields import Fields

Schema = Mapping[str, Any]


class Whole(NamedTuple):
    """Range of a whole number, both ends included."""

    low: int
    high: int | None = None


@dataclass(frozen=True, eq=False)
class Reader:
    """Custom reader of a field: a function ``read(item, key)``, and the field's JSON schema."""

    read: Callable[[Fields, str], Any]
    schema: Schema | None = None


class Entries(NamedTuple):
    """Range of the number of entries of a list, both ends included."""

    least: int
    most: int | None = None


DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The version of JSON Schema."""
EMPTY = Entries(0)
"""Marks a list that may have no entry."""

Positive = Annotated[float, POSITIVE]
NonNegative = Annotated[float, NON_NEGATIVE]
Fraction = Annotated[float, FRACTION]
Count = Annotated[int, Whole(1)]


class Record:
    """Base class of records that are read from a JSON object."""

    __slots__ = ()

    FORMAT: ClassVar[str] = ""  # name and version of a file with this record at its top level

    @classmethod
    def from_fields(cls, item: Fields) -> Self:
        """Read the record from an object."""
        return record_of(cls, item)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema of the record."""
        return schema_of(cls)

    def check(self, item: Fields) -> None:
        """Refuse contradictory fields; ``item`` is the object that the record was read from."""


class WrittenRecord(Record):
    """Base class of records that a program writes; ``None`` is stored as null."""

    __slots__ = ()


RecordType = TypeVar("RecordType", bound=Record)


def record_of(
    record: type[RecordType], item: Fields, *, alone: bool = True, **extra: Any
) -> RecordType:
    """Read a record from an object, which may have further fields unless it is ``alone``.

    ``extra`` are values of fields that the object lacks.
    """
    readers = readers_of(record)
    if record.FORMAT:
        item.of_format(record.FORMAT)
    if alone:
        item.only(("format", *readers) if record.FORMAT else readers)
    values = {name: field.read(item, name) for name, field in readers.items()
              if name not in extra and (field.needed or name in item)}
    result = record(**values, **extra)
    result.check(item)
    return result


def optional(record: type[RecordType], item: Fields, key: str) -> RecordType | None:
    """Read the record in a field; ``None`` if the field is null or absent."""
    child = item.child_or_none(key)
    return None if child is None else record.from_fields(child)


def names(record: type[Any]) -> tuple[str, ...]:
    """Return the names of a record's fields."""
    return tuple(item.name for item in fields(record))


class FieldReader(NamedTuple):
    """Reader, schema and description of a record's field, and whether it is required."""

    read: Callable[[Fields, str], Any]
    needed: bool
    schema: Schema


def readers_of(record: type[Record]) -> dict[str, FieldReader]:
    """Return the reader of each field of a record."""
    return _readers(cast(Hashable, record))


@cache
def _readers(record: Hashable) -> dict[str, FieldReader]:
    assert isinstance(record, type)
    kinds = get_type_hints(record, include_extras=True)
    written = issubclass(record, WrittenRecord)
    readers = {}
    for item in fields(record):
        if not item.compare:
            continue
        plain, marks = _unwrapped(kinds[item.name])
        read, schema = _reader(plain, *marks)
        schema = {**schema, **_description(marks)}
        needed = item.default is MISSING and item.default_factory is MISSING
        if written and NoneType in get_args(plain):
            read, needed = _or_none(read), True
            schema = {"anyOf": [schema, {"type": "null"}]}
        elif isinstance(item.default, bool | int | float | str) and item.default != "":
            schema["default"] = item.default
        readers[item.name] = FieldReader(read, needed, schema)
    return readers


def schema_of(record: type[Record]) -> dict[str, Any]:
    """Return a record's JSON schema, derived from its annotations."""
    members = readers_of(record)
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
    properties = {name: member.schema for name, member in members.items()}
    needed = [name for name, member in members.items() if member.needed
              and not (issubclass(record, WrittenRecord) and "anyOf" in member.schema)]
    if record.FORMAT:
        schema = {"$schema": DIALECT,
                  "title": record.FORMAT, **schema}
        properties = {"format": {"const": record.FORMAT}, **properties}
        needed.insert(0, "format")
    return {**schema, "description": getdoc(record) or "", "required": needed,
            "properties": properties}


def _description(marks: tuple[Any, ...]) -> Schema:
    text = " ".join(mark for mark in marks if isinstance(mark, str))
    return {"description": text} if text else {}


def _unwrapped(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type of a field and its ``Annotated`` metadata."""
    return (get_args(kind)[0], get_args(kind)[1:]) if get_origin(kind) is Annotated else (kind, ())


_Kind = tuple[Callable[[Fields, str], Any], Schema]


def _reader(kind: Any, *marks: Any) -> _Kind:
    """Return the reader and the schema of a field type.

    ``marks`` are the metadata of ``Annotated``: a reader, a rule, a range or allowed words, and
    :data:`EMPTY`. Texts among them are descriptions, which play no part here.
    """
    mark = next((mark for mark in marks if not isinstance(mark, str)), None)
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(mark, Reader):
        return mark.read, mark.schema or {}
    if origin is Annotated:
        return _reader(inner[0], *inner[1:], *marks)
    if origin in (Union, UnionType):
        return _reader(next(part for part in inner if part is not NoneType), *marks)
    if origin is tuple:
        read, schema = _list_reader(inner[0])
        entries = next((each for each in marks if isinstance(each, Entries)), Entries(1))
        listed: dict[str, Any] = {"type": "array", "items": schema}
        if inner[0] is str:
            listed["uniqueItems"] = True
        if entries.least:
            listed["minItems"] = entries.least
        if entries.most is not None:
            listed["maxItems"] = entries.most
        return partial(_counted, read, entries), listed
    if origin in (dict, Mapping):
        read, schema = _reader(inner[1])
        return (lambda item, key: {name: read(item.child(key), name) for name in item.child(key)},
                {"type": "object", "additionalProperties": schema})
    if kind is float:
        rule = mark or FINITE
        return lambda item, key: item.number(key, rule), {"type": "number", **dict(rule.bounds)}
    if kind is int:
        low, high = mark or Whole(0)
        bounds = {"minimum": low} if high is None else {"minimum": low, "maximum": high}
        return lambda item, key: item.whole(key, low, high), {"type": "integer", **bounds}
    if kind is str:
        schema = {"type": "string", "minLength": 1} if mark is None else {"enum": list(mark)}
        return lambda item, key: item.text(key, mark), schema
    if origin is Literal:
        return lambda item, key: item.text(key, inner), {"enum": list(inner)}
    if kind is bool:
        return Fields.flag, {"type": "boolean"}
    return partial(_part, kind), kind.schema()


def _part(kind: type[RecordType], item: Fields, key: str) -> RecordType:
    """Read a record in a field; in the values of a program it may be one already."""
    value = item.value(key)
    return value if isinstance(value, kind) else kind.from_fields(item.child(key))


def _list_reader(kind: Any) -> _Kind:
    """Return the reader of a list and the schema of its entries."""
    plain, marks = _unwrapped(kind)
    read, schema = _reader(kind)
    if plain is str:
        return texts, schema
    if plain is float:
        rule = marks[0] if marks else FINITE
        return lambda item, key: tuple(item.numbers(key, rule)), schema
    return lambda item, key: _each(read, item.entries(key)), schema


def _each(read: Callable[[Fields, str], Any], entries: Fields) -> tuple[Any, ...]:
    return tuple(read(entries, entry) for entry in entries)


def _counted(
    read: Callable[[Fields, str], Any], entries: Entries, item: Fields, key: str
) -> tuple[Any, ...]:
    """Read a list that has a number of entries in a range."""
    values, (least, most) = item.value(key), entries
    if least == 0 and values in ([], ()):
        return ()
    count = len(item.items(key))
    if count < least or (most is not None and count > most):
        raise item.refusal(key, "wrong number of entries", value=f"{count} entries",
                           allowed=f"{least} or more" if most is None else f"{least} to {most}")
    result: tuple[Any, ...] = read(item, key)
    return result


def _or_none(read: Callable[[Fields, str], Any]) -> Callable[[Fields, str], Any]:
    return lambda item, key: (None if key not in item or item.value(key) is None
                              else read(item, key))


def texts(item: Fields, key: str) -> tuple[str, ...]:
    """Read a non-empty list of distinct, non-empty strings."""
    distinct: dict[str, None] = {}
    for i, value in enumerate(item.items(key)):
        if not isinstance(value, str) or not value or value in distinct:
            raise item.refusal(f"{key}[{i}]", "not a new name", value=value,
                               allowed="distinct, non-empty strings")
        distinct[value] = None
    return tuple(distinct)


def stated(record: Any) -> dict[str, Any]:
    """Return a record as a JSON object without fields at their defaults.

    ``latency`` and ``variants`` are always written, fields with ``compare=False`` never.
    """
    values = {}
    for item in fields(record):
        value = getattr(record, item.name)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        # Empty lists of latencies and variants are defaults, but the file requires them.
        if item.compare and (value != default or item.name in ("latency", "variants")):
            values[item.name] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return stated(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
