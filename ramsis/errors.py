"""The errors that ramsis raises, each with the exit code that the command line gives it.

Every message is one line that says what is wrong, where, which value was met and what is
allowed; :func:`describe` writes it so, and every error asks it to.
"""

from __future__ import annotations

import math
import reprlib
from itertools import islice
from typing import Any, ClassVar, SupportsFloat, TypedDict, Unpack

_ABSENT = object()
_WIDTH = 80


def describe(
    what: str, *, where: str | None = None, value: object = _ABSENT, allowed: str | None = None
) -> str:
    """One line: what is wrong, where, which value was met, what is allowed.

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
    r"""A text in which what a terminal or an editor would obey is escaped.

    >>> printable("model \x1b[31mred")
    'model \\x1b[31mred'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode()
                   for one in text)


def install(extra: str) -> str:
    """The command that installs an extra of this package.

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
        """In its own order."""
        pairs = islice(x.items(), self.maxdict) if level > 0 else ()
        return "{" + ", ".join(f"{self.repr1(key, level - 1)}: {self.repr1(one, level - 1)}"
                               for key, one in pairs) + "}"


_SHOWN = _Shown()


class Details(TypedDict, total=False):
    """What is known of an error besides what is wrong."""

    where: str | None
    value: object
    allowed: str | None


class RamsisError(Exception):
    """Anything that ramsis refuses; ``exit_code`` is what the command line exits with.

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
    """The error, for the caller to raise, about an argument outside its range."""
    return InvalidValueError("out of range", where=where, value=value, allowed=allowed)


def check_positive(what: str = "not positive", /, **numbers: float) -> None:
    """Refuse what is not a finite number > 0, by its name; ``what`` says what it is not.

    >>> check_positive(slo_ms=100.0, load_qps=0.0)
    Traceback (most recent call last):
    ramsis.errors.InvalidValueError: load_qps: not positive: got 0.0; allowed: a finite number > 0
    """
    for where, value in numbers.items():
        number = isinstance(value, SupportsFloat) and not isinstance(value, str)
        if not (number and math.isfinite(value) and value > 0):
            raise InvalidValueError(what, where=where, value=value, allowed="a finite number > 0")


def check_not_negative(what: str, /, **numbers: float) -> None:
    """Refuse what is not a finite number >= 0, by its name; ``what`` says what it is not.

    >>> check_not_negative("not a delay", network_ms=-1.0)
    Traceback (most recent call last):
    ramsis.errors.InvalidValueError: network_ms: not a delay: got -1.0; allowed: a finite number >= 0
    """  # noqa: E501 - the message is one line
    for where, value in numbers.items():
        if not (math.isfinite(value) and value >= 0):
            raise InvalidValueError(what, where=where, value=value,
                                    allowed="a finite number >= 0")


def check_number_of(
    what: str, number: object, *, where: str | None = None, most: int | None = None
) -> None:
    """Refuse what is not a whole number from 1, up to ``most`` if given.

    >>> check_number_of("workers", 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ramsis.errors.InvalidValueError: workers: not a number of workers: got 0; allowed: ...
    """
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not (whole and 1 <= number <= (math.inf if most is None else most)):  # type: ignore[operator]
        allowed = "a whole number >= 1" if most is None else f"a whole number from 1 to {most}"
        raise InvalidValueError(f"not a number of {what}", where=where or what, value=number,
                                allowed=allowed)
