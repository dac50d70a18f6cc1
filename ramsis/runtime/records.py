"""Helpers for records that read themselves from a JSON object, and write themselves to one."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from ramsis.runtime.fields import Fields

__all__ = ["default", "names", "stated", "texts"]


def names(record: type[Any]) -> tuple[str, ...]:
    """Names of a record's fields."""
    return tuple(item.name for item in fields(record))


def default(value: float | None, otherwise: float) -> float:
    """A number, or another where there is none."""
    return otherwise if value is None else value


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
