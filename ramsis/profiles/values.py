"""Checks of single values in a profile, and the error that remembers its place."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ramsis.errors import InvalidValueError, describe

MAX_BATCH = 65536
"""Largest batch of a profile; tables have a column for each size up to it."""
MAX_MODELS = 10_000
"""Most models of a profile set."""

LEAST_MS = 1e-4
"""Shortest latency of a profile: a hundred times what slack is compared with, so that no policy
rests on how times are rounded."""

_ABSENT = object()


class ProfileError(InvalidValueError):
    """A value that a profile cannot hold; ``field`` says where inside the object."""

    def __init__(
        self, what: str, field: str, value: object = _ABSENT, allowed: str | None = None
    ) -> None:
        self.what, self.field, self.value, self.allowed = what, field, value, allowed
        super().__init__(self.at(field))

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross from process to process."""
        given = {} if self.value is _ABSENT else {"value": self.value}
        return partial(type(self), self.what, self.field, allowed=self.allowed, **given), ()

    def at(self, where: str) -> str:
        """The message with another place."""
        if self.value is _ABSENT:
            return describe(self.what, where=where, allowed=self.allowed)
        return describe(self.what, where=where, value=self.value, allowed=self.allowed)


def number(value: object, name: str) -> float:
    """``value`` as a finite float; booleans are no numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise ProfileError("not a number", name, value, "a finite number")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise ProfileError("not finite", name, value, "a finite number")
    return result


def positive(value: object, name: str, what: str) -> float:
    """``value`` as a finite float > 0; ``what`` names the quantity in the message."""
    result = number(value, name)
    if result <= 0:
        raise ProfileError(f"{what} is not positive", name, value, "a finite number > 0")
    return result


def latency(value: object, name: str) -> float:
    """``value`` as a finite latency of :data:`LEAST_MS` or more."""
    result = positive(value, name, "latency")
    if result < LEAST_MS:
        raise ProfileError("latency is too short to be told from rounding", name, value,
                           f"{LEAST_MS:g} ms or more")
    return result


def batch_size(value: object, name: str) -> int:
    """``value`` as a whole number from 1 to :data:`MAX_BATCH`."""
    result = count(value, name)
    if result > MAX_BATCH:
        raise ProfileError("batch is too large", name, value, f"at most {MAX_BATCH}")
    return result


def count(value: object, name: str) -> int:
    """``value`` as a whole number >= 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ProfileError("not a positive whole number", name, value, "a whole number >= 1")
    return int(value)


def text(value: object, name: str) -> str:
    """``value`` as a string that is not blank, and that a terminal shows as it is."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ProfileError("not a name", name, value,
                           "a non-empty string without control characters")
    return value
