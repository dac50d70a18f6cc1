"""Changes of documents, for tests of what is refused in them."""

from collections.abc import Callable
from typing import Any

Change = Callable[[Any], object]


def put(*path: str | int, value: object) -> Change:
    """A change that puts a value at a JSON path."""
    def change(target: Any) -> None:
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    """A change that takes away what stands at a JSON path."""
    def change(target: Any) -> None:
        for step in path[:-1]:
            target = target[step]
        del target[path[-1]]

    return change


def both(*changes: Change) -> Change:
    """Several changes, one after the other."""
    def change(target: Any) -> None:
        for one in changes:
            one(target)

    return change
