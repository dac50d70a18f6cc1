"""Reading and writing profile files (``"format": "ramsis.profile/1"``), and shipped sets.

The records of a profile (:class:`~ramsis.profiles.model.ProfileSet`) define the format.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError, InvalidValueError, OutputError, describe
from ramsis.fields import Fields
from ramsis.files import canonical_json, read_json, write_atomic
from ramsis.profiles.model import FORMAT, ProfileSet

__all__ = ["FORMAT", "load", "save", "shipped_names"]

_PACKAGE = Path(__file__).resolve().parent
_SHIPPED = (_PACKAGE / "shipped", _PACKAGE.parents[1] / "profiles")
"""Folders of shipped sets: in a wheel, and in the repository of an editable installation."""


def shipped_names() -> tuple[str, ...]:
    """Return the names of the profile sets that come with the package, sorted."""
    return tuple(sorted(_shipped_paths()))


def _shipped_paths() -> dict[str, Path]:
    folder = next((folder for folder in _SHIPPED if folder.is_dir()), None)
    return {} if folder is None else {path.stem: path for path in folder.glob("*.json")}


def load(path_or_name: str | os.PathLike[str]) -> ProfileSet:
    """Load the profile set in a file, or a shipped one by name.

    Parameters
    ----------
    path_or_name : str or path-like
        An existing file, else a name of :func:`shipped_names`.

    Raises
    ------
    InputFileError
        When there is neither such a file nor such a name, or the file breaks the format;
        the message gives the place, such as ``models[0].batches[1].p95_ms``.
    """
    text = os.fspath(path_or_name)
    path = Path(text)
    if not path.is_file():
        shipped = _shipped_paths()
        if text not in shipped and not path.exists():
            raise InputFileError(_unknown(text, tuple(sorted(shipped))))
        path = shipped.get(text, path)
    return _parse(read_json(path), str(path))


def is_profile(path: Path) -> bool:
    """Return whether a path is a profile file, or names a shipped profile set."""
    if not path.exists():
        return str(path) in _shipped_paths()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
            return False
    try:
        document = read_json(path)
    except InputFileError:  # a file of another program, such as JSON lines
        return False
    return document.get("format") == FORMAT


def _unknown(text: str, shipped: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(text, shipped, n=3)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    return describe(f"no such profile file or shipped profile set{meant}", where=text,
                    allowed=f"a path, or one of: {', '.join(shipped)}")


def save(profile_set: ProfileSet, path: str | os.PathLike[str]) -> None:
    """Write a profile file atomically; equal sets give equal bytes.

    Raises
    ------
    InvalidValueError
        When ``hardware`` or ``measurement`` hold what JSON cannot.
    OutputError
        When the file cannot be written.
    """
    try:
        text = canonical_json(profile_set.to_document())
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"not representable in JSON ({error})",
                                where="hardware or measurement") from error
    if Path(path).is_dir():
        raise OutputError("is a folder", where=str(path), allowed="a file name")
    write_atomic(path, text)


def _parse(document: Mapping[str, Any], path: str) -> ProfileSet:
    """Parse the set in a document; ``path`` names the file in messages."""
    models = document.get("models")
    if isinstance(models, list) and len(models) == 1 and isinstance(models[0], Mapping):
        # Without a choice between models accuracies do not matter.
        document = {**document, "models": [{"accuracy": 1.0, **models[0]}]}
    return ProfileSet.from_fields(Fields(document, path))
