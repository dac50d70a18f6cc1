"""Typed access to the fields of one JSON object; every refusal names the file and the JSON path.

Standard library only, as the runtime reads its part of a policy file with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ramsis.errors import FINITE, InputFileError, RamsisError, Rule, whole


class Fields:
    """Checked access to the fields of one JSON object of a file.

    ``values`` are the parsed object, at a JSON path of the file, which is empty at the top level.
    A field that is missing, of the wrong type or out of range is an InputFileError.

    Examples
    --------
    >>> from ramsis.errors import FRACTION
    >>> Fields({"accuracy": 0.9}, "a.json", "models[0]").number("accuracy", FRACTION)
    0.9
    >>> Fields({"accuracy": 90}, "a.json", "models[0]").number("accuracy", FRACTION)
    Traceback (most recent call last):
    ramsis.errors.InputFileError: a.json: models[0].accuracy: not a valid number: got 90; \
allowed: a fraction in [0, 1]
    """

    __slots__ = ("_values", "file", "path")

    def __init__(self, values: object, file: str, path: str = "") -> None:
        self.file = file
        self.path = path
        if not isinstance(values, Mapping):
            raise InputFileError("not an object", where=f"{file}: {path}" if path else file,
                                 value=values, allowed="a JSON object")
        self._values: Mapping[str, Any] = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def refusal(self, key: str, what: str, **details: Any) -> RamsisError:
        """Return an error on a field for the caller to raise; ``what`` describes the fault.

        An error without a ``key`` is one of the object as a whole.
        """
        place = self._place(key)
        return InputFileError(what, where=f"{self.file}: {place}" if place else self.file,
                              **details)

    def only(self, keys: Collection[str]) -> None:
        """Refuse an object with any field that is not among ``keys``."""
        for key in self._values:
            if key not in keys:
                raise self.refusal(key, "unknown field", allowed=", ".join(sorted(keys)))

    def of_format(self, expected: str) -> None:
        """Refuse an object whose field ``format`` is not ``expected``, such as ``NAME/1``."""
        if "format" not in self._values:
            raise self.refusal("format", "field is missing", allowed=expected)
        stated = self._values["format"]
        if stated == expected:
            return
        family = expected.rpartition("/")[0]
        fault = f"not a {family} file"
        if isinstance(stated, str) and stated.startswith(f"{family}/"):
            fault = f"this version of {family} is not known here"
        raise self.refusal("format", fault, value=stated, allowed=expected)

    def value(self, key: str) -> Any:
        """Return the value of a required field."""
        try:
            return self._values[key]
        except KeyError:
            raise self.refusal(key, "field is missing") from None

    def number(self, key: str, rule: Rule = FINITE) -> float:
        """Read a finite number that satisfies ``rule``."""
        return self._number(key, self.value(key), rule)

    def number_or_none(self, key: str, rule: Rule = FINITE) -> float | None:
        """Read a number like :meth:`number`; ``None`` when the field is null or absent."""
        value = self._values.get(key)
        return None if value is None else self._number(key, value, rule)

    def numbers(self, key: str, rule: Rule = FINITE, length: int | None = None) -> list[float]:
        """Read a list of numbers that satisfy ``rule``; any length but zero unless given."""
        values = self.items(key, length)
        numbers = [number for value in values if (number := rule.number(value)) is not None]
        if len(numbers) < len(values):  # once more, for the place of the first that is none
            return [self._number(f"{key}[{i}]", value, rule) for i, value in enumerate(values)]
        return numbers

    def whole(self, key: str, low: int, high: int | None = None) -> int:
        """Read an integer from ``low`` to ``high``, both included."""
        value = self.value(key)
        if not (type(value) is int and low <= value and (high is None or value <= high)):
            rule = whole(low, high)  # also for the whole numbers of other libraries
            if not rule.holds(value):
                raise self.refusal(key, "not a valid number", value=value, allowed=rule.allowed)
        return int(value)

    def wholes(
        self, key: str, low: int, high: int | None = None, length: int | None = None
    ) -> list[int]:
        """Read a list of integers like :meth:`whole`; any length but zero unless given."""
        entries = self.entries(key, length)
        return [entries.whole(entry, low, high) for entry in entries]

    def whole_or_none(self, key: str, low: int) -> int | None:
        """Read an integer like :meth:`whole`; ``None`` when the field is null or absent."""
        return None if self._values.get(key) is None else self.whole(key, low)

    def text(self, key: str, choices: Collection[str] | None = None) -> str:
        """Read a non-empty string without control characters, one of ``choices`` if given."""
        value = self.value(key)
        if not isinstance(value, str) or not value.isprintable() or not value:
            raise self.refusal(key, "not a text", value=value,
                               allowed="a non-empty string without control characters")
        if choices is not None and value not in choices:
            raise self.refusal(key, f"unknown {key}", value=value, allowed=", ".join(choices))
        return value

    def flag(self, key: str) -> bool:
        """Read a boolean."""
        value = self.value(key)
        if not isinstance(value, bool):
            raise self.refusal(key, "not a truth value", value=value, allowed="true or false")
        return value

    def items(self, key: str, length: int | None = None) -> list[Any]:
        """Read a list; any length but zero unless given."""
        values = self.value(key)
        if not isinstance(values, list | tuple) or not values:
            raise self.refusal(key, "not a list", value=values, allowed="a non-empty list")
        if length is not None and len(values) != length:
            raise self.refusal(key, "list has the wrong length", value=f"{len(values)} entries",
                               allowed=f"{length} entries")
        return list(values)

    def entries(self, key: str, length: int | None = None) -> Fields:
        """Read a list's entries as fields ``key[0]``, …; any length but zero unless given."""
        return type(self)(
            {f"{key}[{i}]": entry for i, entry in enumerate(self.items(key, length))},
            self.file, self.path)

    def check_rising(self, key: str, numbers: Sequence[float], *, strictly: bool = True) -> None:
        """Refuse the numbers of a list in a field where they fall, or ``strictly`` stay equal."""
        for i, (low, high) in enumerate(pairwise(numbers)):
            if high < low or (strictly and high == low):
                raise self.refusal(
                    f"{key}[{i + 1}]", "numbers do not rise" if strictly else "numbers fall",
                    value=high, allowed=f"{'above' if strictly else 'at least'} {low!r}")

    def child(self, key: str) -> Fields:
        """Return the object in a field."""
        return self._object(key, self.value(key))

    def child_or_none(self, key: str) -> Fields | None:
        """Return the object in a field; ``None`` when the field is null or absent."""
        return None if self._values.get(key) is None else self.child(key)

    def children(self, key: str) -> list[Fields]:
        """Return the objects in a non-empty list."""
        return [self._object(f"{key}[{i}]", entry) for i, entry in enumerate(self.items(key))]

    def _object(self, key: str, value: object) -> Fields:
        if not isinstance(value, Mapping):
            raise self.refusal(key, "not an object", value=value, allowed="a JSON object")
        return type(self)(value, self.file, self._place(key))

    def _place(self, key: str) -> str:
        return ".".join(filter(None, (self.path, key)))

    def _number(self, key: str, value: object, rule: Rule) -> float:
        number = rule.number(value)
        if number is None:
            raise self.refusal(key, "not a valid number", value=value, allowed=rule.allowed)
        return number
