"""Helpers for records that read themselves from a JSON object."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ramsis.runtime.fields import Fields

__all__ = ["default", "names", "texts"]


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
