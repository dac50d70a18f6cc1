"""JSON files of other programs: values that know their place, for messages of one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ramsis.errors import InputFileError
from ramsis.profiles.values import ProfileError, number


class Node:
    """A value of a JSON document and where it stands."""

    __slots__ = ("value", "where")

    def __init__(self, value: Any, where: str) -> None:
        self.value = value
        self.where = where

    def get(self, *keys: str) -> Node | None:
        """What lies at these keys, one inside the other; None where one is absent or null."""
        node = self
        for key in keys:
            value = node.value.get(key) if isinstance(node.value, dict) else None
            if value is None:
                return None
            node = Node(value, f"{node.where}.{key}" if ": " in node.where
                        else f"{node.where}: {key}")
        return node

    def item(self, *keys: str) -> Node:
        """As :meth:`get`; absence is an error."""
        found = self.get(*keys)
        if found is None:
            raise InputFileError("missing", where=f"{self.where}: {'.'.join(keys)}")
        return found

    def entries(self) -> Iterator[Node]:
        """The entries of a list."""
        if not isinstance(self.value, list):
            raise InputFileError("not a list", where=self.where, value=type(self.value).__name__)
        for i, value in enumerate(self.value):
            yield Node(value, f"{self.where}[{i}]")

    def number(self) -> float:
        """A finite number."""
        return finite(self.value, self.where)

    def positive(self) -> float:
        """A finite number > 0."""
        value = finite(self.value, self.where)
        if value <= 0:
            raise InputFileError("not positive", where=self.where, value=self.value,
                                 allowed="a number > 0")
        return value

    def whole(self) -> int:
        """A whole number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise InputFileError("not a whole number", where=self.where, value=self.value)
        finite(self.value, self.where)
        return self.value

    def text(self) -> str:
        """A text that is not empty."""
        if not isinstance(self.value, str) or not self.value.strip():
            raise InputFileError("not a text", where=self.where, value=self.value)
        return self.value


def finite(value: Any, where: str) -> float:
    """``value`` as a float, when it is a finite number."""
    try:
        return number(value, where)
    except ProfileError as error:
        raise InputFileError(str(error)) from None
