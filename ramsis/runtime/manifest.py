"""Reader of the manifest of a policy set: its levels, their stations and policy files.

A complete new set is stored in the sub-folder ``.whole`` until its files have been moved into the
folder. Files in ``.whole`` take precedence, so that readers see a whole set even if the move is
interrupted.

Standard library only. The policy package reads and writes the same file, and checks fields that a
server does not need.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ramsis.errors import FRACTION, POSITIVE, InputFileError, InvalidValueError
from ramsis.fields import Fields
from ramsis.files import fingerprint, read_json
from ramsis.runtime.policy_set import Level, PolicySet, Station
from ramsis.runtime.routing import DISPATCHES
from ramsis.runtime.table import MAX_WORKERS
from ramsis.runtime.table_reader import arrivals_of, slowness_of

MANIFEST_FORMAT = "ramsis.manifest/1"
MANIFEST_NAME = "manifest.json"
WHOLE_NAME = ".whole"

_ROUNDING = 1e-6
_LONGEST_NAME = 255
_LEVEL_KEYS = ("load_qps", "slowness", "arrivals", "stations")
_STATION_KEYS = ("name", "file", "fingerprint", "dispatch", "worker_types", "workers", "load_qps",
                 "share")


class PolicyFile(NamedTuple):
    """Policy file with its entry in the manifest."""

    folder: Path  # folder of the set
    file: str  # path relative to the folder
    fingerprint: str  # hash of the file's bytes
    dispatch: str  # dispatch rule of the policy
    entry: Fields  # the manifest's entry of the station, for messages

    @property
    def path(self) -> Path:
        """Path of the policy file."""
        return _placed(self.folder, self.file)

    def document(self) -> dict[str, Any]:
        """Read the policy document; refuse a file that differs from the manifest's fingerprint."""
        if not self.path.is_file():
            raise self.entry.refusal("file", "file is missing from the folder", value=self.file)
        document = read_json(self.path)
        digest = fingerprint(self.path.read_bytes().decode())
        if digest != self.fingerprint:
            raise self.entry.refusal("fingerprint", f"{self.file} has changed since the manifest",
                                     value=digest, allowed=self.fingerprint)
        return document


def manifest_path(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder's manifest."""
    return _placed(Path(folder), MANIFEST_NAME)


def _placed(folder: Path, name: str) -> Path:
    """Return the path of a set's file; it is in ``.whole`` before it is moved to ``folder``."""
    moving = folder / WHOLE_NAME / name
    return moving if moving.is_file() else folder / name


def read_manifest(folder: str | Path, path: Path | None = None) -> PolicySet[PolicyFile]:
    """Read a folder's manifest, without opening the policy files.

    ``path`` is that of the manifest; by default :func:`manifest_path`.
    """
    if not Path(folder).is_dir():
        raise InputFileError("not a folder", where=str(folder))
    path = manifest_path(folder) if path is None else path
    if not path.is_file():
        raise InputFileError(f"no {MANIFEST_NAME} in the folder", where=str(folder),
                             allowed=f"a folder of policy files with their {MANIFEST_NAME}")
    fields = Fields(read_json(path), str(path))
    fields.of_format(MANIFEST_FORMAT)
    fields.only(("format", "created_by", "commands", "worker_types", "slo_classes", "levels"))
    entries = fields.children("levels")
    types = _worker_types(fields)
    classes = _slo_classes(fields)
    levels = [_level(entry, Path(folder), types, classes) for entry in entries]
    _check_files(levels)
    try:
        return PolicySet(levels, types, classes)
    except InvalidValueError as error:
        raise InputFileError(str(error), where=f"{path}: levels") from None


def _worker_types(fields: Fields) -> dict[str, int]:
    types: dict[str, int] = {}
    for entry in fields.children("worker_types"):
        entry.only(("name", "workers"))
        name = entry.text("name")
        if name in types:
            raise entry.refusal("name", "worker type appears twice", value=name)
        types[name] = entry.whole("workers", 1, MAX_WORKERS)
    return types


def _slo_classes(fields: Fields) -> dict[float, float]:
    classes: dict[float, float] = {}
    for entry in fields.children("slo_classes"):
        entry.only(("slo_ms", "share"))
        slo_ms = entry.number("slo_ms", POSITIVE)
        if slo_ms in classes:
            raise entry.refusal("slo_ms", "SLO class appears twice", value=slo_ms)
        classes[slo_ms] = entry.number("share", FRACTION)
    if abs(math.fsum(classes.values()) - 1.0) > _ROUNDING:
        raise fields.refusal("slo_classes", "shares do not sum to 1",
                             value=math.fsum(classes.values()), allowed="1")
    return classes


def _level(
    entry: Fields, folder: Path, types: Mapping[str, int], classes: Mapping[float, float]
) -> Level[PolicyFile]:
    stations = tuple(_station(station, folder, types, classes)
                     for station in entry.children("stations"))
    for slo_ms in classes:
        total = math.fsum(station.share.get(slo_ms, 0.0) for station in stations)
        if abs(total - 1.0) > _ROUNDING:
            raise entry.refusal("stations",
                                f"shares of the class of {slo_ms:g} ms do not sum to 1",
                                value=total, allowed="1")
    expected = {key: entry.value(key) for key in entry if key not in _LEVEL_KEYS}
    return Level(entry.number("load_qps", POSITIVE), arrivals_of(entry.child("arrivals")),
                 stations, expected, slowness_of(entry))


def _station(
    entry: Fields, folder: Path, types: Mapping[str, int], classes: Mapping[float, float]
) -> Station[PolicyFile]:
    """Read a station of a level: worker types, policy file and shares of the SLO classes."""
    entry.only(_STATION_KEYS)
    names = entry.items("worker_types")
    for i, name in enumerate(names):
        if not isinstance(name, str) or name not in types:
            raise entry.refusal(f"worker_types[{i}]", "unknown worker type", value=name,
                                allowed=", ".join(types))
    share: dict[float, float] = {}
    for share_entry in entry.children("share"):
        share_entry.only(("slo_ms", "share"))
        slo_ms = share_entry.number("slo_ms", POSITIVE)
        if slo_ms not in classes:
            raise share_entry.refusal("slo_ms", "unknown SLO class", value=slo_ms,
                                      allowed=", ".join(f"{slo:g}" for slo in classes))
        share[slo_ms] = share_entry.number("share", FRACTION)
    file = entry.text("file")
    parts = PurePosixPath(file).parts
    if "\\" in file or file != "/".join(parts) or set(parts) & {"/", ".."} or not parts \
            or len(file.encode(errors="replace")) > _LONGEST_NAME:
        raise entry.refusal("file", "not the name of a file in this folder", value=file)
    held = PolicyFile(folder, file, entry.text("fingerprint"), entry.text("dispatch", DISPATCHES),
                      entry)
    workers = entry.whole("workers", 1, sum(types[name] for name in names))
    return Station(entry.text("name"), tuple(names), workers, entry.number("load_qps", POSITIVE),
                   share, held)


def _check_files(levels: list[Level[PolicyFile]]) -> None:
    """Check that no policy file is listed twice, and that all have the same dispatch rule."""
    files: set[str] = set()
    rules: set[str] = set()
    for station in (station for level in levels for station in level.stations):
        held = station.policy
        if held.file in files:
            raise held.entry.refusal("file", "file is listed twice", value=held.file)
        files.add(held.file)
        rules.add(held.dispatch)
        if len(rules) > 1:
            raise held.entry.refusal("dispatch", "policies of several dispatch rules in one set",
                                     value=held.dispatch,
                                     allowed=levels[0].stations[0].policy.dispatch)
