"""Optional libraries, asked for while the command line is read, before anything is computed."""

from __future__ import annotations

import importlib.util

from ramsis.errors import InvalidValueError, install


def require(libraries: str, extra: str, what: str, where: str) -> None:
    """Refuse to begin without libraries.

    Parameters
    ----------
    libraries : str
        Names to import, separated by blanks.
    extra : str
        Of the package, that installs them.
    what : str
        Needs them, for the message.
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
    except ValueError:  # a module that was put in its place
        return True
