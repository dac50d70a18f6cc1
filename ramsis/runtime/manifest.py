"""The files that make up a policy set, as its ``manifest.json`` lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ramsis.errors import InputFileError, describe
from ramsis.files import fingerprint, read_json
from ramsis.runtime.fields import Fields
from ramsis.runtime.table import check_format

__all__ = ["MANIFEST_FORMAT", "MANIFEST_NAME", "ListedPolicy", "listed_policies",
           "manifest_entries"]

MANIFEST_FORMAT = "ramsis.manifest/1"
MANIFEST_NAME = "manifest.json"


class ListedPolicy(NamedTuple):
    """A policy document of a set, its path, and the manifest's entry for it."""

    path: Path
    document: dict[str, Any]
    entry: Fields


def manifest_entries(folder: str | Path) -> list[Fields]:
    """The entries of a folder's manifest; only the format and the file names are checked.

    Raises
    ------
    InputFileError
        When there is no such folder or no manifest in it, or the manifest breaks its format or
        names a file twice or one outside the folder.
    """
    if not Path(folder).is_dir():
        raise InputFileError(describe("not a folder", where=str(folder)))
    path = Path(folder) / MANIFEST_NAME
    if not path.is_file():
        raise InputFileError(
            describe(f"no {MANIFEST_NAME} in the folder", where=str(folder),
                     allowed=f"a folder of policy files with their {MANIFEST_NAME}")
        )
    fields = Fields(read_json(path), str(path))
    check_format(fields, MANIFEST_FORMAT)
    fields.only(("format", "policies"))
    entries = fields.children("policies")
    names: set[str] = set()
    for entry in entries:
        name = entry.text("file")
        if name in names:
            raise entry.refusal("file", "file is listed twice", value=name)
        if name in (".", "..") or set(name) & set("/\\"):
            raise entry.refusal("file", "not the name of a file in this folder", value=name)
        names.add(name)
    return entries


def listed_policies(folder: str | Path) -> list[ListedPolicy]:
    """The policy documents that a folder's manifest names, as they were when it was written.

    Raises
    ------
    InputFileError
        As :func:`manifest_entries`, and when a named file is missing, unreadable, or no longer
        has the fingerprint that the manifest states.
    """
    listed = []
    for entry in manifest_entries(folder):
        path = Path(folder) / entry.text("file")
        if not path.is_file():
            raise entry.refusal("file", "file is missing from the folder", value=path.name)
        document = read_json(path)
        found = fingerprint(path.read_bytes().decode())
        if found != entry.text("fingerprint"):
            raise entry.refusal("fingerprint", f"{path.name} has changed since the manifest",
                                value=found, allowed=entry.text("fingerprint"))
        listed.append(ListedPolicy(path, document, entry))
    return listed
