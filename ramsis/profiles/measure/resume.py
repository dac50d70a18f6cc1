"""What an interrupted measurement has done so far: a profile file beside the one to write.

``OUT.partial`` is a valid profile file of the models that are finished. A measurement goes on from
it only where it would make the same file: same hardware, versions and settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ramsis.errors import InvalidValueError, OutputError, describe
from ramsis.files import canonical_json, make_folder
from ramsis.profiles.file import load
from ramsis.profiles.model import ProfileSet

__all__ = ["SAME", "check_writable", "partial_path", "unfinished"]

SAME = ("backend", "settings", "versions")
"""Entries of ``measurement`` that must agree, beside ``hardware``."""


def partial_path(out: str | os.PathLike[str]) -> Path:
    """Where the models finished so far are kept."""
    return Path(f"{os.fspath(out)}.partial")


def check_writable(out: str | os.PathLike[str]) -> None:
    """Refuse, before any measuring, a file that could not be written after it.

    Raises
    ------
    OutputError
        When ``out`` is a folder, or its folder cannot be made or written.
    """
    target = Path(out)
    if target.is_dir():
        raise OutputError(describe("is a folder", where=str(out), allowed="a file name"))
    make_folder(target.parent, of=target)
    if not os.access(target.parent, os.W_OK):
        raise OutputError(describe("cannot write in the folder", where=str(target)))


def unfinished(
    path: Path, hardware: Mapping[str, Any], measurement: Mapping[str, Any]
) -> ProfileSet | None:
    """The set measured so far in ``path``; None when there is no such file.

    Raises
    ------
    InputFileError
        When the file is damaged.
    InvalidValueError
        When it was measured on other hardware or with other settings; the message names them.
    """
    if not path.exists():
        return None
    found = load(path)
    before = _identity(found.hardware, found.measurement)
    now = _identity(hardware, measurement)
    differing = sorted(_differences(before, now, ""))
    if differing:
        raise InvalidValueError(
            describe("an interrupted measurement differs in " + ", ".join(differing),
                     where=str(path),
                     allowed="the same settings to go on with it, or --restart to discard it")
        )
    return found


def _identity(hardware: Mapping[str, Any], measurement: Mapping[str, Any]) -> dict[str, Any]:
    """What must agree, as it reads back from a file."""
    found = {"hardware": dict(hardware), **{key: measurement.get(key) for key in SAME}}
    result: dict[str, Any] = json.loads(canonical_json(found))
    return result


def _differences(before: object, now: object, place: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before.keys() | now.keys():
            yield from _differences(before.get(key), now.get(key),
                                    f"{place}.{key}" if place else key)
    elif before != now:
        yield place
