"""Code of the user's own: what a text names in a module or file, and the errors that it raises.

All code that a text names is imported here, and only where the user has named it, too: on the
command line, whose words are trusted while it runs, or by :func:`trust` in Python. That a file
names it is not enough.

What the code of another raises, when it is imported or while it runs, is told in one line that
names its file and line. The exception is the cause of the error that is raised in its place.

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
    """Let code be imported that these words name, alone or among other things, from now on.

    Parameters
    ----------
    *words : str
        ``package.module:name`` or ``file.py:name``, or what holds them, such as
        ``round-robin:arrivals=package.module:name,late=drop``.
    """
    global _words
    _words = tuple(dict.fromkeys((*_words, *words)))


def trusted() -> tuple[str, ...]:
    """Return the trusted names, for :func:`trust` in another process."""
    return _words


@contextmanager
def trusting(words: Iterable[str]) -> Iterator[None]:
    """Trust these words within a block, as :func:`trust` does."""
    global _words
    before = _words
    trust(*words)
    try:
        yield
    finally:
        _words = before


def is_trusted(text: str) -> bool:
    """Return whether the user has named the code that a text names; a part is not enough.

    >>> with trusting(["--scheduler", "mine.py:Mine:alpha=2"]):
    ...     is_trusted("mine.py:Mine"), is_trusted("e.py:Mine"), is_trusted("mine.py:M")
    (True, False, False)
    """
    named = re.compile(rf"(?<![^\s=,;'\"]){re.escape(text)}(?![^\s:,;'\"])")
    return any(map(named.search, _words))


def untrusted(text: str, what: str, where: str, option: str) -> str:
    """Describe code that the user has not named in an error; arguments as of :func:`own`."""
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
        What it is to be, for messages: scheduler, say.
    where : str, optional
        The option or field that names it, for messages; ``what`` unless given.
    error : type of RamsisError
        What is raised.
    option : str
        Of the command line that names such code, for messages.

    Raises
    ------
    RamsisError
        The user has not named it, it cannot be imported, or has nothing of this name.
    """
    where = where or f"{what}"
    if not _IS_NAME.fullmatch(text):  # fixed:20, say, which also stands on command lines
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
        names = _defined(module)
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
    """Tell whatever the user's code raises in one line: what failed, where, and why."""
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
    """Let modules of the current folder be imported, unless there are others of their names."""
    if "" not in sys.path:
        sys.path.append("")


def _defined(module: ModuleType) -> list[str]:
    """Return the names of the classes and functions that a module defines."""
    return sorted(name for name, value in vars(module).items()
                  if callable(value) and getattr(value, "__module__", None) == module.__name__)
