"""The errors that ramsis raises, each with the exit code that the command line gives it.

Every message is one line, written by :func:`describe`: what is wrong, where, the value, and what
is allowed. A :class:`Rule` states which numbers are allowed, and raises the error for others.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Collection
from itertools import islice
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, TypedDict, Unpack

__all__ = ["InfeasibleError", "InputFileError", "InvalidTypeError", "InvalidValueError",
           "NotConvergedError", "OutputError", "RamsisError", "VerificationError", "describe"]

_ABSENT = object()
_WIDTH = 80
_NUMBERS = (int, float, Real)  # the first two answer much faster


def describe(
    what: str, *, where: str | None = None, value: object = _ABSENT, allowed: str | None = None
) -> str:
    """Describe an error in one line: where, what is wrong, the value, what is allowed.

    >>> describe("not positive", where="a.json: slo_ms", value=-3.0, allowed="a number > 0")
    'a.json: slo_ms: not positive: got -3.0; allowed: a number > 0'
    """
    text = f"{where}: {what}" if where else f"{what}"
    if value is not _ABSENT:
        shown = " ".join(_SHOWN.repr(value).split())
        text += f": got {shown if len(shown) <= _WIDTH else shown[:_WIDTH - 3] + '...'}"
    if allowed:
        text += f"; allowed: {allowed}"
    return printable(text)


def printable(text: str) -> str:
    r"""Escape control characters, which a terminal or an editor would obey.

    >>> printable("model \x1b[31mred")
    'model \\x1b[31mred'
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable()
                   else character.encode("unicode_escape").decode()
                   for character in text)


def install(extra: str) -> str:
    """Return the command that installs an extra of this package.

    >>> install("plot")
    "pip install 'ramsis[plot]'"
    """
    return f"pip install 'ramsis[{extra}]'"


class _Shown(reprlib.Repr):
    """As ``repr`` up to the width of a message, however large or deep a value is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = self.maxlist = self.maxtuple = self.maxdict = _WIDTH
        self.maxset = self.maxfrozenset = self.maxdeque = self.maxarray = _WIDTH
        self.maxstring = self.maxlong = self.maxother = 4 * _WIDTH

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Represent a dictionary with its keys in their own order, unsorted."""
        pairs = islice(x.items(), self.maxdict) if level > 0 else ()
        return "{" + ", ".join(f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
                               for key, value in pairs) + "}"


_SHOWN = _Shown()


class Details(TypedDict, total=False):
    """Details of an error: where, the value, what is allowed."""

    where: str | None
    value: object
    allowed: str | None


class RamsisError(Exception):
    """Base of all errors of ramsis; ``exit_code`` is the exit code of the command line.

    Its message is what :func:`describe` makes of a text and its details.

    >>> RamsisError("not positive", where="slo_ms", value=-3.0)
    RamsisError('slo_ms: not positive: got -3.0')
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str = "", **details: Unpack[Details]) -> None:
        super().__init__(describe(what if details else " ".join(what.splitlines()), **details))


class InvalidValueError(RamsisError, ValueError):
    """An argument or option outside its range (exit code 2)."""

    exit_code = 2


class InvalidTypeError(InvalidValueError, TypeError):
    """An argument of another type than is allowed (exit code 2)."""


class OutputError(RamsisError):
    """An output file or folder that cannot be written (exit code 2)."""

    exit_code = 2


class InputFileError(RamsisError, ValueError):
    """An input file that cannot be read or breaks its format (exit code 3)."""

    exit_code = 3


class InfeasibleError(RamsisError):
    """A problem without any solution, with the reason (exit code 4)."""

    exit_code = 4


class NotConvergedError(RamsisError):
    """A solver that stopped before its tolerance was met (exit code 5)."""

    exit_code = 5


class VerificationError(RamsisError):
    """A claim of a file that its re-derivation does not confirm (exit code 6)."""

    exit_code = 6


def out_of_range(where: str, value: object, allowed: str) -> InvalidValueError:
    """Return the error for an argument outside its range, for the caller to raise."""
    return InvalidValueError("out of range", where=where, value=value, allowed=allowed)


def check_known(
    what: str, value: object, names: Collection[str], where: str | None = None,
    error: type[RamsisError] = InvalidValueError,
) -> None:
    """Refuse a value that is not among the allowed ``names``; ``what`` is the reason in words.

    >>> check_known("unknown engine", "spark", ("local", "ray"), "engine")
    Traceback (most recent call last):
    ramsis.errors.InvalidValueError: engine: unknown engine: got 'spark'; allowed: local, ray
    """
    if value not in names:
        raise error(what, where=where, value=value, allowed=", ".join(names))


class Rule(NamedTuple):
    """Condition on a number, in words and as a test.

    The test gets the value itself, not the value converted to float, and must refuse NaN and
    infinity where they are not allowed.
    """

    allowed: str  # the condition in words
    holds: Callable[[Any], bool]
    wrong: str = "out of range"  # what the error says about a number that breaks the rule
    bounds: tuple[tuple[str, float], ...] = ()  # the range in the words of JSON Schema

    def number(self, value: object) -> float | None:
        """Return a value as a float; ``None`` when it is no number, or breaks the rule."""
        # True is an int in Python, and no number where people write one.
        if isinstance(value, (bool, str)) or not isinstance(value, _NUMBERS):
            return None
        try:
            number = float(value)
        except OverflowError:  # a whole number that is too large for a double
            return None
        return number if math.isfinite(number) and self.holds(value) else None

    def required(
        self, where: str, value: object, wrong: str = "",
        error: type[RamsisError] = InvalidValueError,
    ) -> float:
        """Return a value as a float; refuse one that is no number, or breaks the rule."""
        number = self.number(value)
        if number is None:
            raise error(wrong or self.wrong, where=where, value=value, allowed=self.allowed)
        return number

    def check(
        self, wrong: str = "", /, *, inside: str = "", optional: bool = False,
        error: type[RamsisError] = InvalidValueError, **numbers: Any,
    ) -> None:
        """Refuse numbers that break the rule; their names, after ``inside``, are in the error.

        If ``optional``, None passes.

        >>> POSITIVE.check(slo_ms=100.0, load_qps=0.0)
        Traceback (most recent call last):
        ramsis.errors.InvalidValueError: load_qps: not positive: got 0.0; allowed: a finite number > 0
        """  # noqa: E501 - the message is one line
        for name, value in numbers.items():
            if value is not None or not optional:
                self.required(f"{inside}{name}", value, wrong, error)


def at_least(least: float) -> Rule:
    """Return the rule that a number is finite and at least ``least``."""
    return Rule(f"a finite number >= {least:g}", lambda value: least <= value < math.inf,
                bounds=(("minimum", least),))


def whole(low: int, high: int | None = None) -> Rule:
    """Return the rule for whole numbers from ``low`` up to ``high``, if given."""
    most = math.inf if high is None else high
    return Rule(f"a whole number {f'>= {low}' if high is None else f'from {low} to {high}'}",
                lambda value: isinstance(value, Integral) and not isinstance(value, bool)
                and low <= int(value) <= most)


FINITE = Rule("a finite number", math.isfinite)
POSITIVE = Rule("a finite number > 0", lambda value: 0 < value < math.inf, "not positive",
                (("exclusiveMinimum", 0),))
NON_NEGATIVE = at_least(0)
FRACTION = Rule("a fraction in [0, 1]", lambda value: 0 <= value <= 1,
                bounds=(("minimum", 0), ("maximum", 1)))
BELOW_ONE = Rule("a fraction in [0, 1)", lambda value: 0 <= value < 1,
                 bounds=(("minimum", 0), ("exclusiveMaximum", 1)))
ABOVE_ZERO = Rule("a fraction in (0, 1]", lambda value: 0 < value <= 1,
                  bounds=(("exclusiveMinimum", 0), ("maximum", 1)))
INNER = Rule("a fraction in (0, 1)", lambda value: 0 < value < 1,
             bounds=(("exclusiveMinimum", 0), ("exclusiveMaximum", 1)))

check_positive, check_not_negative = POSITIVE.check, NON_NEGATIVE.check


def check_number_of(
    what: str, number: object, *, where: str | None = None, most: int | None = None
) -> None:
    """Refuse a ``number`` that is not whole, below 1, or above ``most`` (if given).

    >>> check_number_of("workers", 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ramsis.errors.InvalidValueError: workers: not a number of workers: got 0; allowed: ...
    """
    whole(1, most).required(where or what, number, f"not a number of {what}")
