"""Representations of objects: a one-line ``repr``, and figures in notebooks.

Standard library only, as the runtime uses it.

>>> @dataclass(frozen=True)
... class Trace:
...     name: str
...     slo_ms: float
...     times_ms: tuple[float, ...] = ()
>>> Trace("day", 25.0)
Trace(name='day', slo_ms=25.0, times_ms=())
>>> Trace("day", 25.0, tuple(range(1000)))
<Trace day: slo_ms=25, 1000 times_ms>
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

_MOST = 200  # characters
_SHORT = 60  # of a field
_ITEMS = 3  # of a sequence that is shown as it is


def brief(self: Any) -> str:
    """Return the representation of a record in one line of at most 200 characters.

    A short record is written as by Python. Otherwise short fields are written out, and of long
    ones only the length: ``<Class name: slo_ms=25, 9 models>``. A class may define its own text
    (``_summary``).
    """
    kind = type(self).__name__
    if hasattr(self, "_summary"):
        return _cut(f"<{kind} {self._summary()}>")
    values = {name: getattr(self, name) for name in _fields_of(self)}
    if all(map(_is_exact, values.values())):
        text = f"{kind}({', '.join(f'{name}={value!r}' for name, value in values.items())})"
        if len(text) <= _MOST:
            return text
    title = values.pop("name") if isinstance(values.get("name"), str) else ""
    parts = [_part(name, value) for name, value in values.items()
             if value is not None and not (isinstance(value, str | tuple) and not value)]
    parts.sort(key=lambda part: part[0].isdigit())  # counts come last
    return _cut(f"<{kind}{title and ' '}{title}: {', '.join(parts)}>")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST - 3]} …>"


def _fields_of(record: Any) -> tuple[str, ...]:
    if hasattr(record, "_fields"):
        return tuple(record._fields)
    from dataclasses import fields  # the runtime's own records do without

    return tuple(field.name for field in fields(record)
                 if field.repr and not field.name.startswith("_"))


def _is_exact(value: Any) -> bool:
    """Return whether the representation of a value is short and evaluates to the value."""
    if value is None or isinstance(value, int | float | enum.Enum):
        return True
    if isinstance(value, str):
        return len(value) <= _SHORT
    if isinstance(value, Mapping):
        return not value
    if isinstance(value, tuple | list) and type(value).__repr__ in (tuple.__repr__, list.__repr__):
        return len(value) <= _ITEMS and all(map(_is_exact, value))
    return getattr(type(value), "__repr__", None) is brief and not repr(value).startswith("<")


def _part(name: str, value: Any) -> str:
    """Return ``name=value`` for a short field; otherwise its shape, its length or its type."""
    if isinstance(value, float | enum.Enum):
        return f"{name}={value.value if isinstance(value, enum.Enum) else format(value, '.6g')}"
    if _is_exact(value) and len(text := repr(value)) <= _SHORT:
        return f"{name}={text}"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{' × '.join(map(str, shape))} {name}"
    if isinstance(value, Collection) and not isinstance(value, str) and not hasattr(
            value, "_fields"):
        return f"{len(value)} {name}"
    return f"{name}=<{type(value).__name__}>"


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    def dataclass(cls=None, /, **options):
        """Make a dataclass whose representation is :func:`brief`, unless it has one itself."""
        from dataclasses import dataclass

        def decorate(cls):
            if "__repr__" not in vars(cls):
                cls.__repr__ = brief
            return dataclass(**options)(cls)

        return decorate if cls is None else decorate(cls)


def figure_of(kind: str, shown: object, **terms: Any) -> Any:
    """Draw the figure of an object by the function ``kind`` of :mod:`ramsis.report.objects`."""
    # Data classes must not depend on reports, so these are imported when a figure is drawn.
    return getattr(importlib.import_module("ramsis.report.objects"), kind)(shown, **terms)
