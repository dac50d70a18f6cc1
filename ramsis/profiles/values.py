"""Records of a profile: kinds of values, and errors with their place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from functools import partial
from typing import Annotated, Any, Self

from ramsis.errors import InputFileError, InvalidValueError, Rule, describe
from ramsis.fields import Fields
from ramsis.records import Reader, Record, Whole, names, readers_of

MAX_BATCH = 65536
"""Largest batch of a profile; tables have a column for each size up to it."""
MAX_MODELS = 10_000
"""Most models of a profile set."""

LEAST_MS = 1e-4
"""Shortest latency of a profile: a hundred times the tolerance of slack, so that no policy depends
on the rounding of times."""
MOST_MS = 1e12
"""Longest SLO, overhead or delay: some 32 years; longer ones overflow in sums of times."""
DELAY_MS = Rule(f"a number of ms from 0 to {MOST_MS:g}", lambda delay_ms: 0 <= delay_ms <= MOST_MS)
"""What the overhead of a batch and the time on the network may be."""

_ABSENT = object()


class ProfileError(InvalidValueError):
    """Error for an invalid value in a profile; ``field`` is the place inside the object."""

    def __init__(
        self, what: str, field: str, value: object = _ABSENT, allowed: str | None = None
    ) -> None:
        self._what, self.field = what, field
        self._details: dict[str, Any] = {"allowed": allowed}
        if value is not _ABSENT:
            self._details["value"] = value
        super().__init__(self.at(field))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its place."""
        return partial(type(self), self._what, self.field, **self._details), ()

    def at(self, where: str) -> str:
        """Return the message with another place."""
        return describe(self._what, where=where, **self._details)


@contextmanager
def placed(at: Callable[[str], str]) -> Iterator[None]:
    """Context that converts a :class:`ProfileError` to an error at the place ``at(field)``."""
    try:
        yield
    except ProfileError as error:
        raise InputFileError(error.at(at(error.field))) from error


class ProfileRecord(Record):
    """Record of a profile, whose constructor checks values as the reader of a file does.

    A wrong value is a :class:`ProfileError`; in a file it is an InputFileError with its place.
    Absent values are None, and null is not a value in a file.
    """

    def __post_init__(self) -> None:
        self._fill(Values({name: value for name, value in vars(self).items()
                            if value is not None}))

    @classmethod
    def from_fields(cls, item: Fields) -> Self:
        """Read the record from an object."""
        if cls.FORMAT:
            item.of_format(cls.FORMAT)
        item.only(("format", *names(cls)) if cls.FORMAT else names(cls))
        record = object.__new__(cls)
        vars(record).update(_defaults(cls))
        record._fill(item)
        return record

    def _fill(self, item: Fields) -> None:
        """Read the fields of this record from an object, and check them against each other."""
        for name, field in readers_of(type(self)).items():
            if name in item and item.value(name) is None:
                raise item.refusal(name, "null is not a value",
                                   allowed="a value, or no such field")
            if field.needed or name in item:
                object.__setattr__(self, name, field.read(item, name))
        self.check(item)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of the record; absent values are left out."""
        values = {name: _plain(value) for name in names(type(self))
                  if (value := getattr(self, name)) is not None}
        return {"format": self.FORMAT, **values} if self.FORMAT else values


def _defaults(record: type[Any]) -> dict[str, Any]:
    """Return the values of the fields that an object may lack."""
    return {item.name: item.default if item.default_factory is MISSING else item.default_factory()
            for item in fields(record)
            if item.default is not MISSING or item.default_factory is not MISSING}


class Values(Fields):
    """Values that a program passes to a constructor, which come from no file."""

    __slots__ = ()

    def __init__(self, values: object, file: str = "", path: str = "") -> None:
        super().__init__(values, file, path)

    def refusal(self, key: str, what: str, **details: Any) -> ProfileError:
        """Return an error of the object that is constructed."""
        return ProfileError(what, self._place(key), **details)


def _plain(value: Any) -> Any:
    if isinstance(value, ProfileRecord):
        return value.to_document()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        nested = value and isinstance(value[0], tuple | ProfileRecord)
        return [_plain(item) for item in value] if nested else list(value)
    return value


def read_name(item: Fields, key: str) -> str:
    """Read a text that is not blank and has no control characters."""
    value = item.value(key)
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise item.refusal(key, "not a name", value=value,
                           allowed="a non-empty string without control characters")
    return value


Name = Annotated[str, Reader(read_name, {"type": "string", "pattern": "\\S"})]
BatchSize = Annotated[int, Whole(1, MAX_BATCH)]
LATENCY = Rule(f"a finite number of ms >= {LEAST_MS:g}, below which rounding decides",
               lambda value: LEAST_MS <= value < math.inf, bounds=(("minimum", LEAST_MS),))
Latency = Annotated[float, LATENCY]


def check_models(item: Fields, models: Sequence[Any]) -> dict[str, int]:
    """Refuse two models of one name; return the place of each name in the field ``models``."""
    places: dict[str, int] = {}
    for i, model in enumerate(models):
        if places.setdefault(model.name, i) != i:
            raise item.refusal(f"models[{i}].name", "duplicate model", value=model.name,
                               allowed="each name once")
    return places
