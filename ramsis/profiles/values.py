"""Checks of single values in a profile, and their error with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Real
from typing import Any

from ramsis.errors import FINITE, InputFileError, InvalidValueError, Rule, describe, whole

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


def number(value: object, name: str) -> float:
    """Check a finite number, not a boolean, and return it as float."""
    result = FINITE.number(value)
    if result is None:
        real = isinstance(value, Real) and not isinstance(value, bool)
        raise ProfileError("not finite" if real else "not a number", name, value, FINITE.allowed)
    return result


def positive(value: object, name: str, what: str) -> float:
    """Check a finite number > 0, and return it; ``what`` names the quantity in the message."""
    result = number(value, name)
    if result <= 0:
        raise ProfileError(f"{what} is not positive", name, value, "a finite number > 0")
    return result


def latency(value: object, name: str) -> float:
    """Return ``value`` as a finite latency of :data:`LEAST_MS` or more."""
    result = positive(value, name, "latency")
    if result < LEAST_MS:
        raise ProfileError("latency is too short to be told from rounding", name, value,
                           f"{LEAST_MS:g} ms or more")
    return result


def batch_size(value: object, name: str) -> int:
    """Return ``value`` as a whole number from 1 to :data:`MAX_BATCH`."""
    result = count(value, name)
    if result > MAX_BATCH:
        raise ProfileError("batch is too large", name, value, f"at most {MAX_BATCH}")
    return result


def count(value: object, name: str) -> int:
    """Return ``value`` as a whole number >= 1."""
    rule = whole(1)
    if not rule.holds(value):
        raise ProfileError("not a positive whole number", name, value, rule.allowed)
    return int(value)  # type: ignore[call-overload, no-any-return]


def check_models(models: Sequence[Any]) -> dict[str, int]:
    """Refuse no models, and two of one name; return the place of each name."""
    if not models:
        raise ProfileError("no models", "models", [], "one or more models")
    places: dict[str, int] = {}
    for i, model in enumerate(models):
        if places.setdefault(model.name, i) != i:
            raise ProfileError("duplicate model", f"models[{i}].name", model.name,
                               "each name once")
    return places


def text(value: object, name: str) -> str:
    """Return ``value`` as a string that is not blank and has no control characters."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ProfileError("not a name", name, value,
                           "a non-empty string without control characters")
    return value
