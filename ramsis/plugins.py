"""Code of the user's own: import of what a text names in a module or file, and its errors.

Code that a text names, such as a scheduler in a file, is imported only by this module, and only if
the user has named it: on the command line, or by :func:`trust` in Python. A name in a file alone
is not imported.

An exception of such code, at import or while it runs, becomes a one-line error with the file and
line of the code; the exception is its cause.

>>> trust("os.path:basename")
>>> own("os.path:basename", "function")("a/b")
'b'
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ramsis.errors import InputFileError, RamsisError, describe

__all__ = ["own", "trust", "trusting"]

_NAMED = "MODULE:NAME, FILE.py:NAME"
_IS_NAME = re.compile(r"(?:.+\.py|[^\W\d][\w.-]*):[^\W\d][\w.]*", re.DOTALL)
_NEAR = 5
_PROJECT = os.path.join(str(Path(__file__).resolve().parent), "")
_BESIDE = os.path.join(str(Path(__file__).resolve().parents[1] / "placement_milp"), "")
_LIBRARIES = tuple({os.path.join(sysconfig.get_path(name), "")
                    for name in ("stdlib", "platstdlib", "purelib", "platlib")})


_words: tuple[str, ...] = ()


def trust(*words: str) -> None:
    """Allow the import of the code that ``words`` name, from now on.

    Parameters
    ----------
    *words : str
        ``package.module:name`` or ``file.py:name``, or texts that contain such names, such as
        ``round-robin:arrivals=package.module:name,late=drop``.
    """
    global _words
    _words = tuple(dict.fromkeys((*_words, *words)))


def trusted() -> tuple[str, ...]:
    """Return the trusted names, for :func:`trust` in another process."""
    return _words


@contextmanager
def trusting(words: Iterable[str]) -> Iterator[None]:
    """Allow the import of code that ``words`` name within a block; see :func:`trust`."""
    global _words
    before = _words
    trust(*words)
    try:
        yield
    finally:
        _words = before


def is_trusted(text: str) -> bool:
    """Return whether the user has named the code that a text names, in full.

    >>> with trusting(["--scheduler", "mine.py:Mine:alpha=2"]):
    ...     is_trusted("mine.py:Mine"), is_trusted("e.py:Mine"), is_trusted("mine.py:M")
    (True, False, False)
    """
    named = re.compile(rf"(?<![^\s=,;'\"]){re.escape(text)}(?![^\s:,;'\"])")
    return any(map(named.search, _words))


def untrusted(text: str, what: str, where: str, option: str) -> str:
    """Return the error text for code that the user has not named; arguments as of :func:`own`."""
    return describe(
        f"{what} named by a file is not imported unless you name it, too", where=where, value=text,
        allowed=f"{option} {text}".strip() + ", if you trust that code (in Python: ramsis.trust)")


def own(
    text: str, what: str, *, where: str | None = None, error: type[RamsisError] = InputFileError,
    option: str = "",
) -> Any:
    """Import and return the object that ``package.module:name`` or ``file.py:name`` names.

    Modules are also looked for in the current folder.

    Parameters
    ----------
    text : str
    what : str
        Kind of the object, such as ``scheduler``, for messages.
    where : str, optional
        Option or field that names the object, for messages; ``what`` by default.
    error : type of RamsisError
        Class of the errors.
    option : str
        Option of the command line that names such code, for messages.

    Raises
    ------
    RamsisError
        The user has not named the object, the module cannot be imported, or it has no such name.
    """
    where = where or f"{what}"
    if not _IS_NAME.fullmatch(text):  # such as fixed:20, which looks similar
        raise error(f"not the name of {what}", where=where, value=text, allowed=_NAMED)
    if not is_trusted(text):
        raise error(untrusted(text, what, where, option))

    def refusal(reason: Exception, allowed: str = "") -> RamsisError:
        return error(f"cannot import {what} ({reason})", where=where, value=text,
                     allowed=allowed or _NAMED)

    place, _, attribute = text.partition(":")
    with blamed(f"cannot import {what} {text}", error):
        try:
            module = _module(place)
        except (ImportError, OSError, TypeError, ValueError) as reason:
            if _place(reason.__traceback__) is not None:
                raise  # within the module
            raise refusal(reason) from reason
    try:
        return attrgetter(attribute)(module)
    except AttributeError as reason:
        names = sorted(name for name, value in vars(module).items() if callable(value)
                       and getattr(value, "__module__", None) == module.__name__)
        near = difflib.get_close_matches(attribute, names, _NEAR) or names[:2 * _NEAR]
        raise refusal(reason, ", ".join(near)) from reason


def source_of(text: str) -> Path | None:
    """Return the source file of ``package.module:name`` or ``file.py:name``; None if unknown."""
    place = text.partition(":")[0]
    if place.endswith(".py"):
        return Path(place)
    _see_here()
    spec = importlib.util.find_spec(place)
    return None if spec is None or not spec.has_location or spec.origin is None else Path(
        spec.origin)


@contextmanager
def blamed(failed: str, error: type[RamsisError] = InputFileError) -> Iterator[None]:
    """Convert exceptions of the user's code to one line: what ``failed``, where, and why."""
    try:
        yield
    except RamsisError:
        raise
    except (Exception, SystemExit) as reason:
        if isinstance(reason, SyntaxError) and reason.filename:
            where, why = f"{reason.filename}, line {reason.lineno}", reason.msg
        else:
            where = _place(reason.__traceback__) or ""
            why = " ".join(str(reason).split())
        kind = type(reason).__name__
        raise error(f"{failed} ({f'{kind}: {why}' if why else kind})", where=where) from reason


def _place(traceback: TracebackType | None) -> str | None:
    """Return file, line and function of the innermost frame of the user's code."""
    place = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        file = os.path.abspath(code.co_filename)
        if os.path.isfile(file) and not file.startswith((_PROJECT, _BESIDE, *_LIBRARIES)):
            inside = "" if code.co_name == "<module>" else f", in {code.co_name}"
            place = f"{code.co_filename}, line {traceback.tb_lineno}{inside}"
        traceback = traceback.tb_next
    return place


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        _see_here()
        return importlib.import_module(place)
    name = f"ramsis_own_{Path(place).stem}"
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module in {place}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _see_here() -> None:
    """Allow the import of modules in the current folder, after all other places."""
    if "" not in sys.path:
        sys.path.append("")
