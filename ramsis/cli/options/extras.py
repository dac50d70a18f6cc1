"""Checks for optional libraries, made while the command line is parsed."""

from __future__ import annotations

import importlib.util

from ramsis.errors import InvalidValueError, install


def require(libraries: str, extra: str, what: str, where: str) -> None:
    """Raise an error if libraries are not installed.

    Parameters
    ----------
    libraries : str
        Names to import, separated by blanks.
    extra : str
        Extra of this package that installs them.
    what : str
        What needs them, for the message.
    where : str
        The option or command.
    """
    for name in libraries.split():
        if not _installed(name):
            raise InvalidValueError(f"{what} needs {name}, which is not installed", where=where,
                                    allowed=install(extra))


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a stub module without a specification
        return True
