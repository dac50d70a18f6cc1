"""URLs that fsspec opens: recognition, file systems, and fetching of files.

fsspec comes with the extra ``store``; a protocol may need a further package, such as ``s3fs``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError, InvalidValueError, install

_AT_ONCE = 500
ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""What file systems raise for a file that is not there."""


def is_url(place: str | os.PathLike[str]) -> bool:
    """Return whether a place is a URL.

    >>> is_url("s3://bucket/sweep"), is_url("sweeps/first")
    (True, False)
    """
    return "://" in os.fspath(place)


def file_system(url: str, where: str) -> tuple[Any, str]:
    """Open the file system of a URL; return it and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        raise InvalidValueError("URLs need fsspec", where=where, value=url,
                                allowed=install("store")) from error
    try:
        system, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:
        raise InvalidValueError(f"cannot open the store ({' '.join(str(error).split())})",
                                where=where, value=url,
                                allowed="a folder, or a URL that fsspec opens") from None
    return system, str(root).rstrip("/")


def why(error: Exception) -> str:
    """Describe an error of a file system in a few words."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


class Remote:
    """Readable contents of a URL; ``where`` names it in messages."""

    def __init__(self, url: str, where: str) -> None:
        self.url = url.rstrip("/")
        self._system, self._root = file_system(url, where)
        self._error: Exception | None = None

    def names(self) -> list[str]:
        """Return the names of the files below the URL; one empty name if the URL is a file."""
        try:
            self._system.invalidate_cache()
            names = self._system.find(self._root)
        except Exception as error:
            raise self._unread(error) from None
        return sorted(str(name)[len(self._root):].lstrip("/") for name in names)

    def fetch(self, names: Iterable[str], folder: Path) -> None:
        """Download the existing ones of the files ``names`` into a folder.

        Missing files are skipped. Other errors of single files are kept for :meth:`check`, as a
        store may answer with any error to a name below a file, or to a name it hides.
        """
        wanted = [(f"{self._root}/{name}" if name else self._root, folder / (
            name or self.url.rpartition("/")[2])) for name in names]
        for i in range(0, len(wanted), _AT_ONCE):
            some = dict(wanted[i:i + _AT_ONCE])
            try:
                contents = self._system.cat(list(some), on_error="return")
            except Exception as error:
                raise self._unread(error) from None
            for remote, path in some.items():
                content = contents.get(remote)
                if isinstance(content, bytes):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                elif isinstance(content, Exception) and not isinstance(content, ABSENT):
                    self._error = content

    def check(self) -> None:
        """Raise the last error of :meth:`fetch` other than for a missing file, if there is one."""
        if self._error is not None:
            raise self._unread(self._error)

    def _unread(self, error: Exception) -> InputFileError:
        return InputFileError(f"cannot be read ({why(error)})", where=self.url)
