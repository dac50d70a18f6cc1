"""Schedulers of the user's own: classes in files and modules, and the errors that they raise.

What the code of another raises, when it is imported or while it serves, is told in one line that
names its file and line. The exception is the cause of the error that is raised in its place.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ramsis.errors import InputFileError, RamsisError, describe

__all__ = ["blamed", "own_class", "source_of"]

_PROJECT = os.path.join(str(Path(__file__).resolve().parents[2]), "")
_LIBRARIES = tuple({os.path.join(sysconfig.get_path(name), "")
                    for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def own_class(text: str) -> Any:
    """What ``package.module:Class`` or ``file.py:Class`` names, its module imported.

    Raises
    ------
    InputFileError
        It cannot be imported, or there is no such class.
    """
    place, _, attribute = text.partition(":")
    with blamed(f"cannot import scheduler {text}"):
        try:
            module = _module(place)
        except (ImportError, OSError, ValueError) as error:
            if _place(error.__traceback__) is not None:
                raise  # within the module
            raise InputFileError(describe(f"cannot import scheduler ({error})", where="scheduler",
                                          value=text,
                                          allowed="FILE.py:CLASS, MODULE:CLASS")) from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise InputFileError(describe(f"cannot import scheduler ({error})", where="scheduler",
                                      value=text, allowed=", ".join(_classes(module)) or
                                      "FILE.py:CLASS, MODULE:CLASS")) from error


def source_of(text: str) -> Path | None:
    """The file that a scheduler named as ``package.module:Class`` or ``file.py:Class`` is in."""
    place = text.partition(":")[0]
    if place.endswith(".py"):
        return Path(place)
    _see_here()
    spec = importlib.util.find_spec(place)
    return None if spec is None or not spec.has_location or spec.origin is None else Path(
        spec.origin)


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Tell whatever the user's code raises in one line: what failed, where, and why.

    Raises
    ------
    InputFileError
        In the place of any exception but this project's own errors.
    """
    try:
        yield
    except RamsisError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError) and error.filename:
            where, why = f"{error.filename}, line {error.lineno}", error.msg
        else:
            where = _place(error.__traceback__) or "scheduler"
            why = str(error)
        kind = type(error).__name__
        raise InputFileError(describe(f"{what} ({f'{kind}: {why}' if why else kind})",
                                      where=where)) from error


def _place(traceback: TracebackType | None) -> str | None:
    """File, line and function of the innermost frame of the user's code."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        file = os.path.abspath(code.co_filename)
        if os.path.isfile(file) and not file.startswith((_PROJECT, *_LIBRARIES)):
            inside = "" if code.co_name == "<module>" else f", in {code.co_name}"
            found = f"{code.co_filename}, line {traceback.tb_lineno}{inside}"
        traceback = traceback.tb_next
    return found


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
    """Let modules of the current folder be imported."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _classes(module: ModuleType) -> list[str]:
    """Classes that a module defines."""
    return [name for name, one in vars(module).items()
            if isinstance(one, type) and one.__module__ == module.__name__]
